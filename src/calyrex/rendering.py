"""Messages -> the chat template's text, and which message each character of it came from.

The template is rendered twice: once with the real contents, once with every content replaced by private-use
characters of the same length, another one for each message. Where the two texts differ, the second tells whose
character stands there; where they agree, the template wrote it. Rendered text is never searched, so text that looks
like a delimiter, or like another message, changes nothing.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerFast

from calyrex.errors import CalyrexError

Message = dict[str, Any]
Tools = list[dict[str, Any]] | None

SYSTEM_ROLES = ("system", "developer")
REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")
DATA = -1  # owner of a control string inside tools or tool calls: neither the template's nor a message's text

_MAX_MESSAGES = 32_000
_TAG_BASE = 0xF0000  # two private-use characters for each message: one for its content, one for its reasoning
_DATA_TAG = "\ue000"
_EDGE = "\u2003"  # stands for whitespace at the edges of a content: what trims whitespace trims it too
_TAGGED = re.compile(f"{_EDGE}*(?P<tag>[\U000f0000-\U000fffff])(?P=tag)*{_EDGE}*|{_DATA_TAG}+")
_MASKABLE = r"[^\s\"\\\x00-\x1f]"  # what JSON does not escape and no template trims
_TEMPLATE_FAILURES = (TemplateError, TypeError, ValueError, LookupError, AttributeError)
_METHODS = "split|rsplit|startswith|endswith|replace|removeprefix|removesuffix|partition|find|index|count"
_LITERAL = r"(?:'([^'\n]+)'|\"([^\"\n]+)\")"
_MARKUP = re.compile(rf"(?:\b(?:{_METHODS})\(\s*{_LITERAL})|(?:{_LITERAL}\s+(?:not\s+)?in\b)")


class Run(NamedTuple):
    """Characters ``start`` .. ``end`` of a rendered text that came from message ``owner`` (or are ``DATA``)."""

    start: int
    end: int
    owner: int


@dataclass(frozen=True)
class Rendering:
    """A rendered conversation, with its runs in order; what no run covers was written by the template."""

    text: str
    runs: list[Run]


class _Masking(NamedTuple):
    """How contents are hidden from the template, from the strictest to what odd templates need."""

    readable_roles: tuple[str, ...] = ()  # whitespace, quotes and backslashes stay: the template writes them as JSON
    revealed: tuple[str, ...] = ()  # markup that stays in assistant messages: the template parses it out
    as_parts: bool = False  # contents are given as lists of text parts: the template reads nothing else


class _Field(NamedTuple):
    """One text of a message, as the template shall get it and as the tokens shall say it."""

    owner: int
    key: str
    original: str  # what the tokens shall say
    plain: str  # the same, without what would make the template read a user's text as markup
    masked: str
    is_required: bool

    @property
    def tag(self) -> str:
        """The character that stands for this text, whatever the text says."""
        return chr(_TAG_BASE + 2 * self.owner + (self.key != "content"))


class _MismatchError(Exception):
    """The masked and the real rendering do not fit; ``owner`` is the message to blame, -1 if unknown."""

    def __init__(self, problem: str, owner: int = -1) -> None:
        super().__init__(problem)
        self.problem = problem
        self.owner = owner


@dataclass(frozen=True)
class Renderer:
    """Renders conversations with a tokenizer's chat template and knows where each character came from.

    Attributes:
        tokenizer: owns the chat template.
        smuggled: matches what tools and tool calls must not bring into the text as if the template had written it.
    """

    tokenizer: PreTrainedTokenizerFast
    smuggled: re.Pattern[str]

    def render(self, messages: list[Message], tools: Tools, add_generation_prompt: bool) -> Rendering:
        """Render a conversation that ``check_messages`` has passed.

        Raises:
            CalyrexError: the template refuses, drops, repeats or rewrites a message; the message is named.
        """
        if len(messages) > _MAX_MESSAGES:
            raise CalyrexError(f"expected at most {_MAX_MESSAGES} messages, got {len(messages)}; split the chat")
        mismatch: _MismatchError | None = None
        for masking in _maskings(messages, read_markup(read_source(self.tokenizer, tools))):
            try:
                return self._trace(messages, tools, add_generation_prompt, masking)
            except _MismatchError as error:
                mismatch = mismatch or error
            except _TEMPLATE_FAILURES as error:
                if not masking.as_parts:
                    raise self._refusal(messages, tools, error) from error
        raise _complaint(messages, mismatch)

    def _trace(
        self, messages: list[Message], tools: Tools, add_generation_prompt: bool, masking: _Masking
    ) -> Rendering:
        """Render masked and real and read the origins off their differences."""
        markup = read_markup(read_source(self.tokenizer, tools))
        fields = [field for index, message in enumerate(messages) for field in _fields(index, message, markup, masking)]
        hidden = [self._hide({key: value for key, value in message.items() if key != "weight"}) for message in messages]
        masked = self._apply(_fill(hidden, fields, "masked", masking), self._hide(tools), add_generation_prompt)
        shown = [{key: value for key, value in message.items() if key != "weight"} for message in messages]
        real = self._apply(_fill(shown, fields, "plain", masking), tools, add_generation_prompt)
        return _align(masked, real, fields)

    def _apply(self, messages: list[Message], tools: Tools, add_generation_prompt: bool) -> str:
        return str(
            self.tokenizer.apply_chat_template(
                messages, tools=tools or None, tokenize=False, add_generation_prompt=add_generation_prompt
            )
        )

    def _hide(self, value: Any) -> Any:
        """Put data tags in place of control strings, in every string and key of tools or tool calls."""
        if isinstance(value, str):
            return self.smuggled.sub(lambda match: _DATA_TAG * len(match[0]), value)
        if isinstance(value, Mapping):
            return {self._hide(key): self._hide(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._hide(item) for item in value]
        return value

    def _refusal(self, messages: list[Message], tools: Tools, error: Exception) -> CalyrexError:
        """Say what the template refuses: the conversation as such, or a system message."""
        reason = " ".join(str(error).split()) or type(error).__name__
        system = [index for index, message in enumerate(messages) if message["role"] in SYSTEM_ROLES]
        if system and self._accepts([message for i, message in enumerate(messages) if i not in system[1:]], tools):
            return CalyrexError(
                f"this chat template refuses a later system message (message {system[1]}): {reason}; put all of it in "
                "the first"
            )
        others = [message for i, message in enumerate(messages) if i not in system]
        if system and self._accepts([messages[system[0]], *others], tools):
            return CalyrexError(f"this chat template wants the system message first, not as message {system[0]}")
        if system and self._accepts(others, tools):
            return CalyrexError(
                f"this chat template refuses the role {messages[system[0]]['role']!r} (message {system[0]}): {reason}; "
                "set a chat template with a system turn or use another base"
            )
        return CalyrexError(f"this chat template refuses the conversation: {reason}; change it as the template asks")

    def _accepts(self, messages: list[Message], tools: Tools) -> bool:
        try:
            self._apply(messages, tools, add_generation_prompt=False)
        except _TEMPLATE_FAILURES:
            return False
        return True


def read_source(tokenizer: PreTrainedTokenizerFast, tools: Tools = None) -> str:
    """Return the source of a tokenizer's chat template.

    Raises:
        CalyrexError: there is none.
    """
    try:
        return str(tokenizer.get_chat_template(None, tools or None))
    except ValueError as error:
        raise CalyrexError(
            "the tokenizer has no chat template; set tokenizer.chat_template or use an instruction-tuned base"
        ) from error


@lru_cache(maxsize=64)
def read_markup(source: str) -> tuple[str, ...]:
    """Return the strings that a template looks for in what it renders, such as ``</think>``; longest first."""
    found = {text for match in _MARKUP.finditer(source) for text in match.groups() if text and len(text) > 1}
    return tuple(sorted(found, key=len, reverse=True))


def _maskings(messages: list[Message], markup: tuple[str, ...]) -> Iterator[_Masking]:
    every_role = ("tool", "assistant", "user", *SYSTEM_ROLES)
    roles = {message["role"] for message in messages}
    yield _Masking()
    yield _Masking(as_parts=True)
    for last in (1, 2, len(every_role)):
        if roles.intersection(every_role[:last]):
            yield _Masking(every_role[:last])
    spoken = "\n".join(_text(message, "content") for message in messages if message["role"] == "assistant")
    revealed = tuple(text for text in markup if text in spoken)
    for last in range(1, len(revealed) + 1):
        for first in range(len(revealed) - last + 1):
            yield _Masking(("tool",), revealed[first : first + last])


def _text(message: Message, key: str) -> str:
    value = message.get(key)
    return value if isinstance(value, str) else ""


def _fields(owner: int, message: Message, markup: tuple[str, ...], masking: _Masking) -> Iterator[_Field]:
    for key in ("content", *REASONING_KEYS):
        original = _text(message, key)
        if not original.strip():
            continue
        is_spoken = message["role"] == "assistant"
        plain = original if is_spoken or message["role"] in SYSTEM_ROLES else _blunt(original, markup)
        field = _Field(
            owner, key, original, plain, "", key == "content" and not (is_spoken and message.get("tool_calls"))
        )
        revealed = masking.revealed if is_spoken else ()
        if revealed and any(text in original for text in revealed):
            field = field._replace(masked=_mask_readably(plain, field.tag, revealed), is_required=False)
        elif message["role"] in masking.readable_roles:
            field = field._replace(masked=_mask_readably(plain, field.tag))
        else:
            field = field._replace(masked=_mask(plain, field.tag))
        yield field


def _blunt(text: str, markup: tuple[str, ...]) -> str:
    """Make text that a user or a tool wrote unreadable as markup, without changing its length."""
    for literal in markup:
        if literal in text:
            text = text.replace(literal, re.sub(_MASKABLE, "x", literal))
    return text


def _mask(text: str, tag: str) -> str:
    core = text.strip()
    leading = len(text) - len(text.lstrip())
    return _EDGE * leading + tag * len(core) + _EDGE * (len(text) - leading - len(core))


def _mask_readably(text: str, tag: str, revealed: tuple[str, ...] = ()) -> str:
    pattern = "|".join([*(re.escape(literal) for literal in revealed), _MASKABLE])
    return re.sub(pattern, lambda match: match[0] if match[0] in revealed else tag, text)


def _fill(messages: list[Message], fields: list[_Field], form: str, masking: _Masking) -> list[Message]:
    filled = [dict(message) for message in messages]
    for field in fields:
        filled[field.owner][field.key] = field.masked if form == "masked" else field.plain
    if masking.as_parts:
        for message in filled:
            message["content"] = [{"type": "text", "text": _text(message, "content")}]
    return filled


def _align(masked: str, real: str, fields: list[_Field]) -> Rendering:
    """Read whose characters the real rendering holds off the masked one, and put the original texts in."""
    by_tag = {field.tag: field for field in fields}
    spelled = {field.tag: _spelling(field) for field in fields}
    used = dict.fromkeys(by_tag, 0)
    if len(masked) != len(real):
        raise _MismatchError("rewrites the text of")
    pieces: list[str] = []
    runs: list[Run] = []
    cursor = 0
    for match in _TAGGED.finditer(masked):
        start, end = match.span()
        if masked[cursor:start] != real[cursor:start]:
            raise _MismatchError("rewrites the text of")
        pieces.append(real[cursor:start])
        cursor, tag = end, match["tag"]
        if tag is None:
            runs.append(Run(start, end, DATA))
            pieces.append(real[start:end])
            continue
        if tag not in by_tag:
            raise _MismatchError("rewrites the text of")
        run_text = _restore(match[0], real[start:end], tag, spelled[tag], used[tag])
        if run_text is None:
            raise _MismatchError("rewrites or repeats the text of", by_tag[tag].owner)
        used[tag] += match[0].count(tag)
        pieces.append(run_text)
        _append(runs, Run(start, end, by_tag[tag].owner), masked)
    if masked[cursor:] != real[cursor:]:
        raise _MismatchError("rewrites the text of")
    for tag, field in by_tag.items():
        if field.is_required and used[tag] != len(spelled[tag][0]):
            raise _MismatchError("rewrites the text of" if used[tag] else "drops", field.owner)
    return Rendering("".join(pieces) + real[cursor:], runs)
