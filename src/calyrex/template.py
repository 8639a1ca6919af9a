"""Token ids alone -> which of them are the system prompt, for callers that cannot pass a mask.

What the chat template writes around the system prompt is read once from a tokenizer and kept with the
adapter. It is looked for at the start of a sequence only: whatever looks like a system prompt later is a
user's text.

Preambles and tools that a template puts *after* the opening count as system here, and a system prompt that
says exactly what the template says by default does not; ``encode_chat`` knows the difference.
"""

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from calyrex.errors import CalyrexError
from calyrex.masking import Message
from calyrex.rendering import read_source
from calyrex.vocabulary import EncodedChat, encode_messages, fast_tokenizer

ANY_DATE = -1  # stands for a few tokens in an opening: a date that changes from day to day

_MAX_DATE_TOKENS = 24
_PROBES = (
    "Obey.",
    "obey 7 rules",
    "7 rules",
    '"Q"',
    "(a)",
    "规则",
    "é",
    "🙂",
    "\nx",
    "\n\nx",
    " x",
    "\tx",
    "- x",
)
_DATE_FORMAT = re.compile(r"strftime_now\(\s*['\"]([^'\"]+)['\"]")
_FIXED_DATE = re.compile(r"set\s+date_string\s*=\s*['\"]([^'\"]+)['\"]")
_WAY_OUT = "pass system_mask= (calyrex.encode_chat makes it)"


@dataclass(frozen=True)
class SystemTemplate:
    """The token ids that a chat template writes around the system prompt.

    Attributes:
        opening: ids from the start of a sequence to the system prompt, without a beginning-of-sequence token;
            -1 stands for the few tokens of a date.
        closing: ids that end the system prompt, any one of them.
        default: ids of the system prompt that the template puts in when the messages have none.
        separators: ids that may stand between opening and system prompt, longest first; they depend on how
            the tokens of the prompt begin.
        skipped: ids that may stand before the opening: padding and beginning of sequence.
    """

    opening: list[int]
    closing: list[int]
    default: list[int]
    separators: list[list[int]] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return the template as JSON-serialisable values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "SystemTemplate":
        """Build the template from what ``to_dict`` returned."""
        return cls(**values)

    def find_system(self, ids: list[int]) -> tuple[int, int]:
        """Find the system prompt at the start of one document.

        Args:
            ids: one document, without padding.

        Returns:
            Its first position and the one after its last; equal when there is none.

        Raises:
            ValueError: the system prompt has a beginning and no end.
        """
        start = 0
        while start < len(ids) and ids[start] in self.skipped:
            start += 1
        start = self._pass_opening(self.opening, ids, start)
        if start < 0:
            return 0, 0
        for separator in self.separators:
            if ids[start : start + len(separator)] == separator:
                start += len(separator)
                break
        end = next((at for at in range(start, len(ids)) if ids[at] in self.closing), None)
        if end is None:
            raise ValueError(
                f"expected one of the ids {self.closing} after the system prompt that begins at token "
                f"{start}, got none in "
                f"{len(ids)} tokens; pass the whole prompt, or {_WAY_OUT}"
            )
        return (start, start) if ids[start:end] == self.default else (start, end)

    def _pass_opening(self, opening: list[int], ids: list[int], start: int) -> int:
        """Return the position after the opening, or -1 where it does not stand at ``start``."""
        for index, wanted in enumerate(opening):
            if wanted == ANY_DATE:
                date = takewhile(lambda token_id: token_id not in self.closing, ids[start : start + _MAX_DATE_TOKENS])
                rest = opening[index + 1 :]
                ends = (self._pass_opening(rest, ids, start + length) for length, _ in enumerate(date, 1))
                return next((end for end in ends if end >= 0), -1)
            if start >= len(ids) or ids[start] != wanted:
                return -1
            start += 1
        return start


def infer_system_mask(
    input_ids: Tensor,
    template: SystemTemplate,
    *,
    attention_mask: Tensor | None = None,
    segment_ids: Tensor | None = None,
) -> Tensor:
    """Find the system prompt of each document from its token ids.

    Args:
        input_ids: ``[B, T]`` int64.
        template: what stands around a system prompt, from ``read_template``.
        attention_mask: 1 at real tokens, 0 at padding, ``[B, T]``.
        segment_ids: another number for each document of a packed row, ``[B, T]`` int64.

    Returns:
        True at system tokens, ``[B, T]`` bool.

    Raises:
        ValueError: a system prompt has a beginning and no end.
    """
    mask = torch.zeros_like(input_ids, dtype=torch.bool)
    rows = input_ids.tolist()
    real = None if attention_mask is None else attention_mask.tolist()
    segments = None if segment_ids is None else segment_ids.tolist()
    for row, ids in enumerate(rows):
        for first, last in _documents(len(ids), real and real[row], segments and segments[row]):
            start, end = template.find_system(ids[first:last])
            mask[row, first + start : first + end] = True
    return mask


def _documents(length: int, real: list[int] | None, segments: list[int] | None) -> Iterator[tuple[int, int]]:
    """Yield first position and end of each stretch of real tokens of the same document."""
    first = 0
    for at in range(1, length + 1):
        is_end = at == length
        is_end = is_end or (real is not None and bool(real[at]) != bool(real[first]))
        is_end = is_end or (segments is not None and segments[at] != segments[first])
        if is_end:
            if real is None or real[first]:
                yield first, at
            first = at


def read_template(tokenizer: PreTrainedTokenizerBase) -> SystemTemplate:
    """Read from a tokenizer's chat template what it writes around the system prompt.

    Raises:
        CalyrexError: the template has no system turn of its own, so that ids alone do not tell where it is.
    """
    fast = fast_tokenizer(tokenizer)
    chats = [_encode(fast, ("system", text), ("user", "Hi")) for text in _PROBES]
    heads = [_head(fast, chat) for chat in chats]
    opening = _common_prefix(heads)
    separators = {tuple(head[len(opening) :]) for head in heads} - {()}
    bare = [token.id for token in _encode(fast, ("user", "Hi"), ("assistant", "Hi")).tokens]
    bos_id = fast.bos_token_id
    if opening[:1] == [bos_id] and bare.count(opening[0]) == 1:  # where it opens every turn it is no BOS
        opening = opening[1:]
    ends = {fast.bos_token_id, fast.pad_token_id} - {None, *opening[:1]}
    template = SystemTemplate(
        opening,
        sorted(_closing(fast, chats)),
        [],
        sorted(map(list, separators), key=len, reverse=True),
        sorted(skipped for skipped in ends if isinstance(skipped, int)),
    )
    return replace(template, default=_default(fast, template))


def read_base_template(base: str) -> SystemTemplate:
    """Find how the chat template of a base marks the system prompt, from its tokenizer.

    Args:
        base: folder or hub id of the base.

    Raises:
        ValueError: its tokenizer cannot be loaded.
        CalyrexError: as ``read_template``.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(base)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"no system_mask was given, and the tokenizer of base {base!r} that says where the system prompt is cannot "
            f"be loaded; pass system_mask= or CalyrexConfig(system_template=...)"
        ) from error
    return read_template(tokenizer)


def _encode(tokenizer: PreTrainedTokenizerFast, *turns: tuple[str, str]) -> EncodedChat:
    messages: list[Message] = [{"role": role, "content": content} for role, content in turns]
    return encode_messages(tokenizer, messages, None, add_generation_prompt=False)


def _head(tokenizer: PreTrainedTokenizerFast, chat: EncodedChat) -> list[int]:
    """Return the ids before message 0, with ``ANY_DATE`` in place of a date."""
    head = list(takewhile(lambda token: 0 not in token.owners, chat.tokens))
    end = head[-1].end if head else 0
    dated = [
        match.span()
        for date in _dates(read_source(tokenizer))
        for match in re.finditer(re.escape(date), chat.text[:end])
    ]
    ids: list[int] = []
    for token in head:
        is_date = any(token.start < last and token.end > first for first, last in dated)
        if not is_date:
            ids.append(token.id)
        elif ids[-1:] != [ANY_DATE]:
            ids.append(ANY_DATE)
    return ids


def _dates(source: str) -> list[str]:
    """Return the dates that a template may write today."""
    formats = (match[1] for match in _DATE_FORMAT.finditer(source))
    return [datetime.now().strftime(form) for form in formats] + [match[1] for match in _FIXED_DATE.finditer(source)]


def _common_prefix(heads: list[list[int]]) -> list[int]:
    length = 0
    while all(len(head) > length and head[length] == heads[0][length] for head in heads):
        length += 1
    return heads[0][:length]


def _closing(tokenizer: PreTrainedTokenizerFast, chats: list[EncodedChat]) -> set[int]:
    """Return the control tokens that follow message 0 directly, whoever speaks next."""
    closing = {_after(chat) for chat in chats}
    for turns in (("assistant", "Hi"), ("user", "Hi")), (("system", "Be."), ("user", "Hi")):
        try:
            closing.add(_after(_encode(tokenizer, ("system", "Obey."), *turns)))
        except CalyrexError:
            continue
    return closing


def _after(chat: EncodedChat) -> int:
    tokens = chat.tokens
    last = max(at for at, token in enumerate(tokens) if 0 in token.owners)
    if tokens[last].owners != {0} or last + 1 == len(tokens) or not tokens[last + 1].is_control:
        raise CalyrexError(
            f"this chat template does not end the system prompt with a control token of its own; {_WAY_OUT}"
        )
    return tokens[last + 1].id


def _default(tokenizer: PreTrainedTokenizerFast, template: SystemTemplate) -> list[int]:
    """Return the ids that stand for a system prompt where the messages have none."""
    defaults: list[list[int]] = []
    for text in ("Hi", "7 more?"):
        chat = _encode(tokenizer, ("user", text)).tokens
        try:
            start, end = template.find_system([token.id for token in chat])
        except ValueError:
            start, end = 0, len(chat)
        if any(token.owners for token in chat[start:end]):
            raise CalyrexError(f"this chat template opens a user's turn like a system prompt; {_WAY_OUT}")
        defaults.append([token.id for token in chat[start:end]])
    if defaults[0] != defaults[1]:
        raise CalyrexError(f"this chat template has no constant system prompt of its own; {_WAY_OUT}")
    return defaults[0]
