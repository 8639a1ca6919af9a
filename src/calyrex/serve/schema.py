"""The fields of requests, in OpenAI's names."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

MAX_SCALE = 2.0
MAX_STOPS = 16
MAX_STOP = 256
_MAX_ANSWERS = 128
_MAX_LIKELY = 20
_INT64 = 2**63
_MAX_CHECKED = 8192  # a checker may take quadratic time

Stop = Annotated[str, Field(min_length=1, max_length=MAX_STOP)]
Count = Annotated[int, Field(ge=1)]
ToolChoice = Annotated[str | dict[str, Any] | None, Field(description="none or auto")]
Seed = Annotated[int, Field(ge=-_INT64, lt=_INT64)]


class Fields(BaseModel):
    """Fields of a request: texts are no numbers, numbers no texts."""

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)


class StreamOptions(Fields):
    """How an answer is streamed."""

    include_usage: bool | None = None


class Format(Fields):
    """The form of an answer; only plain text can be promised."""

    type: str = "text"


class AnyRequest(Fields):
    """What all requests for answers have; other fields are kept, so that those that matter can be refused."""

    model_config = ConfigDict(extra="allow")

    model: Annotated[str, Field(max_length=256)]
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    seed: Seed | None = None
    stream: bool | None = None
    scale: Annotated[float, Field(ge=0, le=MAX_SCALE)] | None = None
    without_anchor: bool | None = None


class SeveralRequest(AnyRequest):
    """What the older requests have besides."""

    n: Annotated[int, Field(ge=1, le=_MAX_ANSWERS)] | None = None
    stop: Annotated[
        Stop | Annotated[list[Stop], Field(max_length=MAX_STOPS)] | None,
        Field(description=f"a text of 1 to {MAX_STOP} characters, or a list of at most {MAX_STOPS}"),
    ] = None
    stream_options: StreamOptions | None = None
    max_tokens: Count | None = None


class Function(Fields):
    """A function that a model may call; its parameters are a JSON schema."""

    name: Annotated[str, Field(min_length=1, max_length=256)]
    description: str | None = None
    parameters: dict[str, Any] | None = None


class Tool(Fields):
    """A tool of a chat request."""

    type: Literal["function"]
    function: Function


class ChatRequest(SeveralRequest):
    """``POST /v1/chat/completions``."""

    messages: Annotated[list[dict[str, Any]], Field(min_length=1)]
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=_MAX_LIKELY)] | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice = None
    response_format: Format | None = None


class CompletionRequest(SeveralRequest):
    """``POST /v1/completions``."""

    prompt: Annotated[
        str | list[str] | list[int] | list[list[int]],
        Field(description="a text, a list of texts, token ids, or a list of lists of token ids"),
    ]
    logprobs: Annotated[int, Field(ge=0, le=_MAX_LIKELY)] | None = None
    best_of: int | None = None


class FlatTool(Function):
    """A tool of a responses request."""

    type: Literal["function"]


class TextFormat(Fields):
    """The field ``text`` of a responses request."""

    format: Format | None = None


class ResponsesRequest(AnyRequest):
    """``POST /v1/responses``."""

    input: Annotated[
        str | Annotated[list[dict[str, Any]], Field(min_length=1)],
        Field(description="a text or a list of at least one item"),
    ]
    instructions: str | None = None
    max_output_tokens: Count | None = None
    tools: list[FlatTool] | None = None
    tool_choice: ToolChoice = None
    text: TextFormat | None = None


class ListenRequest(Fields):
    """``POST /v1/calyrex/listen``."""

    model: Annotated[str, Field(max_length=256)]
    messages: Annotated[list[dict[str, Any]], Field(min_length=1)]
    answer: Annotated[str, Field(min_length=1)]
    scale: Annotated[float, Field(ge=0, le=MAX_SCALE)] | None = None


class CheckRequest(Fields):
    """``POST /v1/calyrex/check``."""

    system: Annotated[str, Field(max_length=_MAX_CHECKED)]
    question: Annotated[str, Field(max_length=_MAX_CHECKED)]
    answer: Annotated[str, Field(max_length=_MAX_CHECKED)]
