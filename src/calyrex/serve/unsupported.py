"""What other servers can be asked for and this one cannot: refused, since leaving it out would change the answer."""

from typing import Any

from calyrex.serve.errors import ApiError
from calyrex.serve.schema import AnyRequest, ChatRequest, ResponsesRequest

_FIELDS = frozenset(
    (
        *("presence_penalty", "frequency_penalty", "repetition_penalty", "length_penalty", "logit_bias", "bad_words"),
        *("top_k", "min_p", "typical_p", "min_tokens", "ignore_eos", "stop_token_ids", "use_beam_search"),
        *("allowed_token_ids", "logits_processors", "include_stop_str_in_output", "truncate_prompt_tokens"),
        *("echo", "suffix", "functions", "function_call", "audio", "prediction", "web_search_options"),
        *("guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs", "response_format"),
        *("chat_template", "chat_template_kwargs", "continue_final_message", "add_generation_prompt"),
        *("previous_response_id", "conversation", "background", "n", "stop", "max_tokens"),
    )
)
"""Names of OpenAI's and vLLM's fields; an endpoint that knows one has it among its own fields and not here."""

_NOTHING: tuple[Any, ...] = (None, False, 0, "", [], {})
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "repetition_penalty": (None, 1.0),
    "length_penalty": (None, 1.0),
    "typical_p": (None, 1.0),
    "top_k": (None, 0, -1),
    "n": (None, 1),
    "add_generation_prompt": (None, True),
    "response_format": (None, {"type": "text"}),
}
"""Values that ask for nothing, where they are others than ``_NOTHING``."""


def refuse_unsupported(request: AnyRequest) -> None:
    """Refuse what cannot be honoured.

    Raises:
        ApiError: a field asks for it.
    """
    given = request.model_extra or {}
    for name in sorted(_FIELDS & given.keys()):
        if given[name] not in _NEUTRAL.get(name, _NOTHING):
            raise unsupported(name)
    if isinstance(request, ChatRequest):
        _refuse_format(request.response_format.type if request.response_format else "text", "response_format")
    if isinstance(request, ResponsesRequest):
        form = request.text.format if request.text else None
        _refuse_format(form.type if form else "text", "text")


def unsupported(name: str) -> ApiError:
    """Return the error for a field that cannot be honoured."""
    return ApiError(400, f"{name} is not supported", param=name)


def _refuse_format(kind: str, param: str) -> None:
    if kind != "text":
        raise ApiError(400, f"{param} may only be text, got {kind[:40]!r}", param=param)
