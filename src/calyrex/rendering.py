"""Messages -> the chat template's text, and which message each character of it came from.

The template is rendered twice: once with the real contents, once with every content replaced by private-use
characters of the same length, another one for each message. Where the two texts differ, the second tells
whose character stands there; where they agree, the template wrote it. Rendered text is never searched, so
text that looks like a delimiter, or like another message, changes nothing.
"""

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, NamedTuple

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerFast

from calyrex.errors import CalyrexError
from calyrex.masking import (
    DATA_TAG,
    EDGE,
    MAX_MESSAGES,
    NAME_TAG,
    REASONING_KEYS,
    SYSTEM_ROLES,
    TAGS,
    Field,
    Masking,
    Message,
    count_calls,
    fill_messages,
    find_fields,
    list_other_forms,
    list_weaker_maskings,
    read_markup,
)

Tools = list[dict[str, Any]] | None

DATA = -1  # owner of a control string inside tools or tool calls: neither the template's nor a message's text

_TAGGED = re.compile(f"{EDGE}*(?P<tag>[{TAGS}])(?P=tag)*{EDGE}*|[{DATA_TAG}{NAME_TAG}]+")
_TEMPLATE_FAILURES = (
    *(TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError),
    RecursionError,  # tools or arguments of hundreds of brackets
)


class Run(NamedTuple):
    """A rendered conversation with its runs in order; what no run covers, the template wrote."""

    start: int
    end: int
    owner: int


@dataclass(frozen=True)
class Rendering:
    """A rendered conversation, with its runs in order; what no run covers was written by the template."""

    text: str
    runs: list[Run]


class _MismatchError(Exception):
    """The masked and the real rendering do not fit; ``owner`` is the message to blame, None if unknown."""

    def __init__(self, problem: str, owner: int | None = None, *, is_unread: bool = False) -> None:
        super().__init__(problem)
        self.problem = problem
        self.owner = owner
        self.is_unread = is_unread


@dataclass(frozen=True)
class Renderer:
    """Renders conversations with a tokenizer's chat template and knows where each character came from.

    Attributes:
        tokenizer: owns the chat template.
        smuggled: matches what tools and tool calls must not bring into the text as if the template had
            written it.
    """

    tokenizer: PreTrainedTokenizerFast
    smuggled: re.Pattern[str]

    def render(self, messages: list[Message], tools: Tools, add_generation_prompt: bool) -> Rendering:
        """Render a conversation that ``calyrex.conversation.check_messages`` has brought into its form.

        Raises:
            CalyrexError: the template refuses, drops, repeats or rewrites a message; the message is named.
        """
        if len(messages) > MAX_MESSAGES:
            raise CalyrexError(f"expected at most {MAX_MESSAGES} messages, got {len(messages)}; split the chat")
        try:
            return self._trace(messages, tools, add_generation_prompt, Masking())
        except _MismatchError as error:
            mismatch, failure = error, None
        except _TEMPLATE_FAILURES as error:
            mismatch, failure = None, error
        markup = read_markup(read_source(self.tokenizer, tools))
        is_refused = mismatch is None or mismatch.is_unread
        for masking in list_other_forms() if is_refused else list_weaker_maskings(messages, markup):
            try:
                return self._trace(messages, tools, add_generation_prompt, masking)
            except (_MismatchError, *_TEMPLATE_FAILURES):
                continue
        if mismatch is None:
            raise self._refusal(messages, tools, failure) from failure
        raise self._complaint(messages, tools, mismatch)

    def _trace(self, messages: list[Message], tools: Tools, has_prompt: bool, masking: Masking) -> Rendering:
        """Render masked and real, and read the origins off their differences."""
        markup = read_markup(read_source(self.tokenizer, tools))
        fields = [
            field
            for owner, message in enumerate(messages)
            if masking.only in (None, owner)
            for field in find_fields(owner, message, markup, masking)
        ]
        hidden = [self._hide(message, {"role", "content", *REASONING_KEYS}) for message in messages]
        masked = self._apply(fill_messages(hidden, fields, "masked", masking), self._hide(tools), has_prompt)
        real = self._apply(fill_messages(messages, fields, "plain", masking), tools, has_prompt)
        for owner, message in enumerate(messages):
            if masking.only is None and masked.count(NAME_TAG) < count_calls(message):
                raise _MismatchError("drops the tool calls of", owner)
        return _align(masked, real, fields)

    def _apply(self, messages: list[Message], tools: Tools, has_prompt: bool) -> str:
        text = self.tokenizer.apply_chat_template(
            messages, tools=list(tools) if tools else None, tokenize=False, add_generation_prompt=has_prompt
        )
        return str(text)

    def _hide(self, value: Any, shown_keys: AbstractSet[str] = frozenset()) -> Any:
        """Put data tags in place of control strings, in every string and key of tools or tool calls."""
        if isinstance(value, str):
            return self.smuggled.sub(lambda match: DATA_TAG * len(match[0]), value)
        if isinstance(value, Mapping):
            return {self._hide(key): item if key in shown_keys else self._hide(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._hide(item) for item in value]
        return value

    def _refusal(self, messages: list[Message], tools: Tools, failure: Exception | None) -> CalyrexError:
        """Say what the template refuses: a system message, or the conversation as such."""
        reason = " ".join(str(failure).split()).rstrip(".") or type(failure).__name__
        system = [owner for owner, message in enumerate(messages) if message["role"] in SYSTEM_ROLES]
        others = [message for owner, message in enumerate(messages) if owner not in system]
        unasked = CalyrexError(f"this chat template refuses the conversation: {reason}; change it as the template asks")
        if not system or not self._accepts(others, tools):
            return unasked
        first = system[0]
        if not self._accepts([messages[first], *others], tools):
            role = messages[first]["role"]
            return CalyrexError(
                f"this chat template refuses the role {role!r} (message {first}): {reason}; set a chat "
                "template with a "
                "system turn or use another base"
            )
        if len(system) > 1:
            return CalyrexError(
                f"this chat template refuses a later system message (message {system[1]}): {reason}; put all "
                "of it in "
                "the first"
            )
        if first > 0:
            return CalyrexError(
                f"this chat template refuses a system message after others (message {first}): {reason}; put it first"
            )
        return unasked

    def _accepts(self, messages: list[Message], tools: Tools) -> bool:
        """Tell whether the template takes messages, contents given as text or else as parts."""
        for masking in (Masking(), Masking(as_parts=True)):
            try:
                self._apply(fill_messages(messages, [], "plain", masking), tools, has_prompt=False)
            except _TEMPLATE_FAILURES:
                continue
            return True
        return False

    def _complaint(self, messages: list[Message], tools: Tools, mismatch: _MismatchError) -> CalyrexError:
        """Say which message the template does not render as it is, and the way out."""
        problem, owner = mismatch.problem, mismatch.owner
        for suspect in range(len(messages)) if owner is None else ():
            try:
                self._trace(messages, tools, False, Masking(only=suspect))
            except _TEMPLATE_FAILURES:
                break
            except _MismatchError as error:
                problem, owner = error.problem, suspect
                break
        if owner is None:
            return CalyrexError("this chat template does not render the messages as they are; use another template")
        role = messages[owner]["role"]
        system = [message for message in messages if message["role"] in SYSTEM_ROLES]
        way_out = "change its text or set another chat template"
        if role in SYSTEM_ROLES and len(system) > 1:
            way_out = "put all of it in one system message, the first"
        elif role == "developer":
            way_out = "use the role 'system'"
        elif "tool calls" in problem:
            way_out = "leave them out or set another chat template"
        elif role == "assistant":
            way_out = "put thoughts into its key 'reasoning_content' and leave other markup out"
        return CalyrexError(f"this chat template {problem} message {owner} (role {role!r}); {way_out}")


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


def _align(masked: str, real: str, fields: list[Field]) -> Rendering:
    """Read whose characters the real rendering holds off the masked one, and put the original texts in."""
    by_tag = {field.tag: field for field in fields}
    unused = {tag: field.spell() for tag, field in by_tag.items()}
    pieces: list[str] = []
    runs: list[Run] = []
    cursor, last_tag = 0, ""
    for match in _TAGGED.finditer(masked):
        start, end = match.span()
        pieces.append(_common(masked, real, cursor, start))
        cursor, tag = end, match["tag"] or ""
        if not tag:
            pieces.append(real[start:end])
            runs.append(Run(start, end, DATA))
        elif tag not in by_tag:
            raise _MismatchError("rewrites the text of")
        else:
            field = by_tag[tag]
            piece, unused[tag] = _restore(match[0], real[start:end], unused[tag], field)
            pieces.append(piece)
            if tag == last_tag and not field.has_markup:
                start = runs.pop().start
            runs.append(Run(start, end, field.owner))
        last_tag = tag
    pieces.append(_common(masked, real, cursor, max(len(masked), len(real))))
    for tag, field in by_tag.items():
        if field.is_required and unused[tag][0]:
            is_dropped = unused[tag] == field.spell()
            raise _MismatchError("drops" if is_dropped else "drops some of", field.owner, is_unread=not runs)
    return Rendering("".join(pieces), runs)


def _common(masked: str, real: str, start: int, end: int) -> str:
    if masked[start:end] != real[start:end]:
        raise _MismatchError("rewrites the text of")
    return real[start:end]


def _restore(masked: str, real: str, unused: tuple[str, str], field: Field) -> tuple[str, tuple[str, str]]:
    """Check one run against the text that is still to come, and spell it as the message did."""
    leading = len(masked) - len(masked.lstrip(EDGE))
    end = len(masked.rstrip(EDGE))
    core, edges = real[leading:end], real[:leading] + real[end:]
    plain, original = unused
    if field.has_markup and core in plain:
        return real, unused  # the template leaves parts out, such as earlier thoughts
    if not plain.startswith(core) or edges.strip():
        raise _MismatchError("rewrites or repeats the text of", field.owner)
    restored = real[:leading] + original[: len(core)] + real[end:]
    return restored, (plain[len(core) :], original[len(core) :])
