"""Contents of messages -> stand-ins that a chat template treats like the real ones.

Every text of a message gets a private-use character of its own, its tag, which takes the place of the text's
characters. A template that only copies its messages renders the stand-ins like the contents. Some do more:
they trim, write JSON, read nothing but lists of parts, or look for markup such as ``</think>``; for those
less is hidden.
"""

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Literal, NamedTuple

Message = dict[str, Any]
"""One message in OpenAI's chat format; ``weight`` 0 keeps an assistant's message out of the loss."""

SYSTEM_ROLES = ("system", "developer")
REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")
MAX_MESSAGES = 32_000
DATA_TAG = "\ue000"  # stands for control strings in tools and tool calls
NAME_TAG = "\ue001"  # stands for the name of a function that is called
EDGE = "\u2003"  # stands for whitespace at the edges of a content: what trims whitespace trims it too
TAGS = "\U000f0000-\U000fffff"  # two for each message: one for its content, one for its reasoning

_MASKABLE = r"[^\s\"\\\x00-\x1f]"  # what JSON does not escape and no template trims
_METHODS = "split|rsplit|startswith|endswith|replace|removeprefix|removesuffix|partition|find|index|count"
_LITERAL = r"(?:'([^'\n]+)'|\"([^\"\n]+)\")"
_MARKUP = re.compile(rf"(?:\b(?:{_METHODS})\(\s*{_LITERAL})|(?:{_LITERAL}\s+(?:not\s+)?in\b)")


class Masking(NamedTuple):
    """How contents are hidden from the template: all of every content, less where a template needs more.

    Attributes:
        readable_roles: whitespace, quotes and backslashes of these stay, for a template that writes JSON.
        revealed: markup that stays in assistant messages, for a template that parses it out.
        as_parts: contents are lists of text parts, for a template that reads nothing else.
        as_json: arguments of tool calls are JSON texts, for a template that cannot write JSON.
        only: the one message to hide, to find the one to blame.
    """

    readable_roles: tuple[str, ...] = ()
    revealed: tuple[str, ...] = ()
    as_parts: bool = False
    as_json: bool = False
    only: int | None = None


class Field(NamedTuple):
    """One text of a message; all its forms are equally long, position by position."""

    owner: int
    key: str
    tag: str
    original: str  # what the tokens shall say
    plain: str  # the same, with a user's or a tool's look-alikes of markup blunted
    masked: str
    has_markup: bool = False
    is_required: bool = False

    def spell(self) -> tuple[str, str]:
        """Return the characters that tags stand for: of the plain form, of the original."""
        if self.masked.count(self.tag) == len(self.plain.strip()):
            return self.plain.strip(), self.original.strip()
        positions = [position for position, character in enumerate(self.masked) if character == self.tag]
        return "".join(self.plain[at] for at in positions), "".join(self.original[at] for at in positions)


@lru_cache(maxsize=64)
def read_markup(source: str) -> tuple[str, ...]:
    """Return what a template looks for in its messages, such as ``</think>``; longest first."""
    found = {text for match in _MARKUP.finditer(source) for text in match.groups() if text and len(text) > 1}
    return tuple(sorted(found, key=lambda text: (-len(text), text)))


def list_other_forms() -> Iterator[Masking]:
    """Yield other forms of the same messages, for a template that refuses or does not read the usual one."""
    yield Masking(as_parts=True)
    yield Masking(as_json=True)


def list_weaker_maskings(messages: list[Message], markup: tuple[str, ...]) -> Iterator[Masking]:
    """Yield what to try where the template does not copy every content as it is, strictest first."""
    yield Masking(readable_roles=("tool",))
    yield Masking(readable_roles=("tool", "assistant"))
    yield Masking(readable_roles=("tool", "assistant", "user", *SYSTEM_ROLES))
    spoken = "\n".join(text_of(message, "content") for message in messages if message["role"] == "assistant")
    present = tuple(text for text in markup if text in spoken)
    for size in range(1, len(present) + 1):
        for first in range(len(present) - size + 1):
            yield Masking(("tool",), present[first : first + size])


def count_calls(message: Message) -> int:
    """Return how many characters the names of a message's tool calls have."""
    return sum(len(call["function"]["name"]) for call in message.get("tool_calls", ()))


def text_of(message: Message, key: str) -> str:
    """Return a text of a message, empty where it has none."""
    value = message.get(key)
    return value if isinstance(value, str) else ""


def find_fields(owner: int, message: Message, markup: tuple[str, ...], masking: Masking) -> Iterator[Field]:
    """Yield the texts of a message that are not blank."""
    role = message["role"]
    for offset, key in enumerate(("content", *REASONING_KEYS)):
        original = text_of(message, key)
        if not original.strip():
            continue
        tag = chr(ord(TAGS[0]) + 2 * owner + (offset > 0))
        plain = original if role in ("assistant", *SYSTEM_ROLES) else _blunt(original, markup)
        revealed = tuple(text for text in masking.revealed if role == "assistant" and text in original)
        if revealed or role in masking.readable_roles:
            masked = _mask_readably(plain, tag, revealed)
        else:
            masked = _mask(plain, tag)
        is_required = key == "content" and not revealed and not message.get("tool_calls")
        yield Field(owner, key, tag, original, plain, masked, bool(revealed), is_required)


def _blunt(text: str, markup: tuple[str, ...]) -> str:
    """Make what a user or a tool wrote unreadable as markup, without changing its length."""
    for literal in markup:
        if literal in text:
            text = text.replace(literal, re.sub(_MASKABLE, "x", literal))
    return text


def _mask(text: str, tag: str) -> str:
    core = text.strip()
    leading = len(text) - len(text.lstrip())
    return EDGE * leading + tag * len(core) + EDGE * (len(text) - leading - len(core))


def _mask_readably(text: str, tag: str, revealed: tuple[str, ...]) -> str:
    pattern = "|".join([*map(re.escape, revealed), _MASKABLE])
    return re.sub(pattern, lambda match: match[0] if match[0] in revealed else tag, text)


def fill_messages(
    messages: list[Message], fields: list[Field], form: Literal["plain", "masked"], masking: Masking
) -> list[Message]:
    """Return the messages as the template gets them, with their texts or with the stand-ins."""
    filled = [{key: value for key, value in message.items() if key != "weight"} for message in messages]
    for field in fields:
        filled[field.owner][field.key] = field.masked if form == "masked" else field.plain
    for message in filled:
        if masking.as_parts:
            message["content"] = [{"type": "text", "text": text_of(message, "content")}]
        if "tool_calls" in message:
            message["tool_calls"] = [_fill_call(call, form, masking) for call in message["tool_calls"]]
    return filled


def _fill_call(call: dict[str, Any], form: str, masking: Masking) -> dict[str, Any]:
    function = dict(call["function"])
    if form == "masked" and masking.only is None:
        function["name"] = NAME_TAG * len(function["name"])
    if masking.as_json and not isinstance(function["arguments"], str):
        function["arguments"] = json.dumps(function["arguments"], ensure_ascii=False)
    return {**call, "function": function}
