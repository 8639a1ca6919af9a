"""Requests as the engine takes them: which model, which tokens, which of them are the system prompt."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from calyrex.conversation import check_messages
from calyrex.errors import CalyrexError
from calyrex.masking import REASONING_KEYS
from calyrex.rendering import Rendering, Run
from calyrex.serve.errors import ApiError
from calyrex.serve.request import Sampling
from calyrex.serve.schema import AnyRequest, ChatRequest, CompletionRequest, SeveralRequest
from calyrex.serve.served import Served, ServedModel
from calyrex.serve.unsupported import refuse_unsupported, unsupported
from calyrex.span import encode_chat
from calyrex.vocabulary import fast_tokenizer, read_vocabulary

_MESSAGE_KEYS = ("role", "content", "name", "tool_calls", "tool_call_id", *REASONING_KEYS)
_DEFAULT_COMPLETION_TOKENS = 16
_PART_CHARACTERS = 4096
_EDGE_TOKENS = 4
"""Tokens that a text may have more of when it is cut in two, and more."""


class Limits(NamedTuple):
    """What one request may ask for.

    Attributes:
        max_new_tokens: longest answer in tokens.
        max_answers: answers to one request.
        max_batch_tokens: tokens of all answers to one prompt, each with its prompt.
    """

    max_new_tokens: int
    max_answers: int
    max_batch_tokens: int


class Prompt(NamedTuple):
    """A prompt as tokens.

    Attributes:
        input_ids: token ids.
        system_mask: True at system tokens, one for each id.
    """

    input_ids: list[int]
    system_mask: list[bool]


class Asked(NamedTuple):
    """What is asked of the engine.

    Attributes:
        model: who answers.
        scale: strength of the blocks.
        prompts: the prompts, each answered ``num_answers`` times.
        sampling: how tokens are chosen.
        num_answers: answers to each prompt.
    """

    model: ServedModel
    scale: float
    prompts: list[Prompt]
    sampling: Sampling
    num_answers: int

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of all prompts."""
        return sum(len(prompt.input_ids) for prompt in self.prompts)


class Asking:
    """Brings requests into the engine's form."""

    def __init__(self, served: Served, limits: Limits) -> None:
        self.served = served
        self.limits = limits
        self.tokenizer = fast_tokenizer(served.tokenizer)
        self.vocabulary = read_vocabulary(self.tokenizer)
        with_special = self.tokenizer("a")["input_ids"]
        plain = self.tokenizer("a", add_special_tokens=False)["input_ids"]
        at = next((at for at in range(len(with_special)) if with_special[at : at + len(plain)] == plain), 0)
        self._opening: list[int] = with_special[:at]  # what the tokenizer puts before any text
        self._control = frozenset(self.vocabulary.control_ids.values())

    def find_model(self, name: str) -> ServedModel:
        """Return the model of a name.

        Raises:
            ApiError: there is none.
        """
        model = self.served.models.get(name)
        if model is None:
            known = ", ".join(self.served.models)
            raise ApiError(404, f"no model {name!r}; there are {known}", param="model", code="model_not_found")
        return model

    def read_chat(self, request: ChatRequest) -> Asked:
        """Bring a chat request into the engine's form.

        Raises:
            ApiError: it cannot be answered.
        """
        refuse_unsupported(request)
        tools = [tool.model_dump(exclude_none=True) for tool in request.tools or []]
        prompt = self.encode(request.messages, tools if request.tool_choice != "none" else [])
        if not request.logprobs and request.top_logprobs is not None:
            raise ApiError(400, "top_logprobs needs logprobs to be true", param="top_logprobs")
        num_likely = (request.top_logprobs or 0) if request.logprobs else None
        return self._ask(request, [prompt], request.max_completion_tokens or request.max_tokens, num_likely)

    def read_completion(self, request: CompletionRequest) -> Asked:
        """Bring a completion request into the engine's form: text is only text, and there is no system prompt.

        Raises:
            ApiError: it cannot be answered.
        """
        refuse_unsupported(request)
        if request.best_of not in (None, request.n or 1):
            raise unsupported("best_of")
        given: Any = request.prompt
        is_one = isinstance(given, str) or (bool(given) and isinstance(given[0], int))
        prompts: list[str | list[int]] = [given] if is_one else given
        num_answers = len(prompts) * (request.n or 1)
        if not 1 <= num_answers <= self.limits.max_answers:
            message = f"expected 1 to {self.limits.max_answers} answers in all, got {num_answers}"
            raise ApiError(400, message, param="prompt")
        read = [self._read_text(prompt) if isinstance(prompt, str) else self._read_ids(prompt) for prompt in prompts]
        num_tokens = request.max_tokens or _DEFAULT_COMPLETION_TOKENS
        return self._ask(request, read, num_tokens, request.logprobs)

    def encode(self, messages: Sequence[dict[str, Any]], tools: list[dict[str, Any]]) -> Prompt:
        """Encode a conversation; only what its system and developer messages say is the system prompt.

        Raises:
            ApiError: a message is malformed, or the chat template cannot render the conversation.
        """
        known = [{key: message[key] for key in _MESSAGE_KEYS if key in message} for message in messages]
        self.refuse_long(content_texts(known), "messages")
        try:
            encoded = encode_chat(self.tokenizer, self._fitting_roles(known, tools), tools or None)
        except CalyrexError as error:
            raise ApiError(400, str(error), param="messages") from error
        return Prompt(encoded["input_ids"][0].tolist(), encoded["system_mask"][0].tolist())

    def _fitting_roles(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return developer messages as system messages where the chat template knows only these."""
        if not any(message.get("role") == "developer" for message in messages):
            return messages
        try:
            encode_chat(self.tokenizer, messages, tools or None)
        except CalyrexError:
            check_messages(messages)
            return [{**each, "role": "system"} if each["role"] == "developer" else each for each in messages]
        return messages

    def refuse_long(self, texts: Sequence[str], param: str) -> None:
        """Refuse texts that are surely too long for the model, at a fraction of the cost of reading them.

        Args:
            texts: what the prompt will hold; each costs a token at least.
            param: the field they come from.

        Raises:
            ApiError: they are.
        """
        text = "".join(texts).encode(errors="replace").decode()  # without half characters
        num_tokens = len(texts) if len(texts) > self.served.context else 0
        for start in range(0, len(text), _PART_CHARACTERS):
            if num_tokens > self.served.context:
                break
            part = self.tokenizer(text[start : start + _PART_CHARACTERS], add_special_tokens=False)
            num_tokens += max(0, len(part["input_ids"]) - _EDGE_TOKENS)
        if num_tokens > self.served.context:
            message = f"this model's context is {self.served.context} tokens, and the request has more"
            raise ApiError(400, message, param=param, code="context_length_exceeded")

    def _read_text(self, text: str) -> Prompt:
        self.refuse_long([text], "prompt")
        try:
            tokens = self.vocabulary.encode(Rendering(text, [Run(0, len(text), 0)])) if text else []
        except CalyrexError as error:
            raise ApiError(400, str(error), param="prompt") from error
        return self._plain([*self._opening, *(token.id for token in tokens)])

    def _read_ids(self, ids: list[int]) -> Prompt:
        size = len(self.tokenizer)
        start = len(self._opening) if self._opening and ids[: len(self._opening)] == self._opening else 0
        for token_id in ids[start:]:
            if not 0 <= token_id < size or token_id in self._control:
                raise ApiError(400, f"a prompt holds {token_id}, which is no token of plain text", param="prompt")
        return self._plain(ids)

    def _plain(self, ids: list[int]) -> Prompt:
        if not ids:
            raise ApiError(400, "expected a prompt with at least one token, got an empty one", param="prompt")
        return Prompt(ids, [False] * len(ids))

    def _ask(
        self, request: SeveralRequest, prompts: list[Prompt], num_tokens: int | None, num_likely: int | None
    ) -> Asked:
        stop = [request.stop] if isinstance(request.stop, str) else request.stop or []
        return self.ask(request, prompts, num_tokens, Sampling(stop=stop, num_likely=num_likely), request.n or 1)

    def ask(
        self, request: AnyRequest, prompts: list[Prompt], num_tokens: int | None, sampling: Sampling, num_answers: int
    ) -> Asked:
        """Add what all requests have.

        Args:
            request: the request.
            prompts: its prompts.
            num_tokens: longest answer in tokens, as asked for.
            sampling: what is particular to this kind of request.
            num_answers: answers to each prompt.

        Raises:
            ApiError: there is no such model, or the conversation is too long for it.
        """
        model = self.find_model(request.model)
        if num_answers > self.limits.max_answers:
            raise ApiError(400, f"n must be at most {self.limits.max_answers}, got {num_answers}", param="n")
        if request.without_anchor:
            model = self.served.base
        scale = model.scale if request.scale is None or model.adapter is None else request.scale
        longest = max(len(prompt.input_ids) for prompt in prompts)
        room = self.served.context - longest
        wanted = min(num_tokens or self.limits.max_new_tokens, self.limits.max_new_tokens)
        if num_tokens is None:
            wanted = min(wanted, max(1, self.limits.max_batch_tokens // num_answers - longest))
        if room < 1 or (num_tokens is not None and wanted > room):
            raise ApiError(
                400,
                f"this model's context is {self.served.context} tokens, and the request needs {longest + wanted}: "
                f"{longest} of the prompt and {wanted} of the answer",
                param="messages",
                code="context_length_exceeded",
            )
        wanted = min(wanted, room)
        if num_answers * (longest + wanted) > self.limits.max_batch_tokens:
            raise ApiError(
                400,
                f"{num_answers} answers of up to {wanted} tokens to a prompt of {longest} are more than the "
                f"{self.limits.max_batch_tokens} tokens that fit at the same time: lower n or max_tokens",
                param="n",
            )
        top_p = 1.0 if request.top_p is None else request.top_p
        temperature = 1.0 if request.temperature is None else request.temperature
        return Asked(
            model,
            scale,
            prompts,
            sampling._replace(
                temperature=temperature if top_p > 0 else 0.0,
                top_p=top_p,
                seed=request.seed,
                max_new_tokens=wanted,
            ),
            num_answers,
        )


def content_texts(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what messages say, one text for each."""
    return ["".join(_parts(message.get("content"))) for message in messages]


def _parts(content: object) -> Iterator[str]:
    for part in content if isinstance(content, list) else [{"text": content}]:
        text = part.get("text") if isinstance(part, Mapping) else None
        yield text if isinstance(text, str) else ""
