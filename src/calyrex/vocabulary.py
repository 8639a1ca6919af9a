"""Rendered text -> token ids, with control tokens only where the chat template wrote them.

A tokenizer recognises its added tokens anywhere, also in text that a user wrote, and no option of it turns
that off for all of them. So its twin is built: the same model, normaliser and pre-tokeniser, in which every
control token goes by a name that nobody can guess. Those names are put where the template wrote the token,
and the rest is plain text.
"""

import json
import re
import secrets
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from tokenizers import AddedToken, Tokenizer
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from calyrex.errors import CalyrexError
from calyrex.masking import DATA_TAG, NAME_TAG, TAGS, Message
from calyrex.rendering import Renderer, Rendering, Run, Tools

_MAX_SPLITS = 8
_BREAK = ""  # no token has this name
_MAX_SAMPLED_TOKENS = 8


class Token(NamedTuple):
    """A token, the characters of the text that it stands for, and the messages they came from."""

    id: int
    start: int
    end: int
    is_control: bool
    owners: frozenset[int]


class EncodedChat(NamedTuple):
    """A conversation as text and as tokens."""

    text: str
    tokens: list[Token]


class _Insertion(NamedTuple):
    """A name of the twin that replaces the characters ``start`` .. ``end`` (none for a break)."""

    start: int
    end: int
    name: str


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """A tokenizer's vocabulary in which text and control tokens are kept apart.

    Attributes:
        control_ids: control token -> its id in the tokenizer: all added tokens but plain whitespace.
        plain_ids: ids of the twin that differ in the tokenizer -> id in the tokenizer.
        twin: encodes text in which control tokens go by their secret names.
        names: control token, or ``""`` for a place where tokens must end -> secret name.
        unknown_id: what the tokenizer writes for text that it cannot spell; not a control token.
        pattern: matches the control tokens.
    """

    control_ids: dict[str, int]
    plain_ids: dict[int, int]
    twin: Tokenizer
    names: dict[str, str]
    unknown_id: int | None
    pattern: re.Pattern[str]

    @cached_property
    def smuggled(self) -> re.Pattern[str]:
        """What data must not bring into a text: control tokens, how they begin, private-use characters."""
        marks = {token[0] for token in self.control_ids if not token[0].isalnum() and not token[0].isspace()}
        return re.compile(f"{self.pattern.pattern}|[{DATA_TAG}{NAME_TAG}{TAGS}{re.escape(''.join(sorted(marks)))}]")

    @cached_property
    def _ids(self) -> frozenset[int]:
        return frozenset(self.control_ids.values()) - {self.unknown_id}

    @cached_property
    def _named(self) -> dict[int, str]:
        return {_id_of(self.twin, name): token for token, name in self.names.items()}

    def encode(self, rendering: Rendering) -> list[Token]:
        """Encode a rendered conversation.

        Raises:
            CalyrexError: the vocabulary spells ordinary text with a control token and cannot do without.
        """
        controls = list(self._find_controls(rendering.text, rendering.runs))
        breaks: set[int] = set()
        for _ in range(_MAX_SPLITS):
            insertions = sorted([*controls, *(_Insertion(at, at, self.names[_BREAK]) for at in breaks)])
            tokens = list(self._encode(rendering, insertions))
            forged = [token for token in tokens if token.id in self._ids and not token.is_control]
            if not forged:
                return tokens
            middles = {(token.start + token.end) // 2 for token in forged if token.end - token.start > 1}
            if middles <= breaks:
                break
            breaks |= middles
        text = rendering.text[forged[0].start : forged[0].end]
        raise CalyrexError(f"this tokenizer has no way to spell {text!r} as plain text; take it out of the messages")

    def _find_controls(self, text: str, runs: list[Run]) -> Iterator[_Insertion]:
        """Find the control tokens in what the template wrote."""
        cursor = 0
        for start, end, _ in [*runs, Run(len(text), len(text), 0)]:
            for match in self.pattern.finditer(text, cursor, start):
                yield _Insertion(match.start(), match.end(), self.names[match[0]])
            cursor = end

    def _encode(self, rendering: Rendering, insertions: list[_Insertion]) -> Iterator[Token]:
        """Encode the text with the twin's names in it, and tell tokens by the tokenizer's ids and the text."""
        pieces: list[str] = []
        cursor = 0
        for start, end, name in insertions:
            pieces += [rendering.text[cursor:start], name]
            cursor = end
        encoding = self.twin.encode("".join([*pieces, rendering.text[cursor:]]), add_special_tokens=False)
        find_owners = _owner_finder(rendering.runs)
        pending = iter(insertions)
        shift = 0  # position in the text minus position in what the twin has read
        for token_id, (first, last) in zip(encoding.ids, encoding.offsets, strict=True):
            control = self._named.get(token_id)
            if control is None:
                plain_id, start, end = self.plain_ids.get(token_id, token_id), first + shift, last + shift
                yield Token(plain_id, start, end, False, find_owners(start, end))
                continue
            insertion = next(pending)
            shift += insertion.end - insertion.start - len(insertion.name)
            if control != _BREAK:
                yield Token(self.control_ids[control], insertion.start, insertion.end, True, frozenset())


def _owner_finder(runs: list[Run]) -> Callable[[int, int], frozenset[int]]:
    """Return what finds the owners of the characters from a start to an end."""
    ends = [run.end for run in runs]
    single = [frozenset({run.owner}) for run in runs]

    def find_owners(start: int, end: int) -> frozenset[int]:
        after = max(end, start + 1)  # some tokenizers give the pieces of a character no width
        owners: frozenset[int] = frozenset()
        at = bisect_right(ends, start)
        while at < len(runs) and runs[at].start < after:
            owners = owners | single[at] if owners else single[at]
            at += 1
        return owners

    return find_owners


_VOCABULARIES: WeakKeyDictionary[PreTrainedTokenizerBase, tuple[int, Vocabulary]] = WeakKeyDictionary()


def fast_tokenizer(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerFast:
    """Return the tokenizer itself, known to be a fast one.

    Raises:
        CalyrexError: it is a slow one, which cannot tell the characters of a token.
        TypeError: it is no tokenizer.
    """
    if isinstance(tokenizer, PreTrainedTokenizerFast):
        return tokenizer
    if isinstance(tokenizer, PreTrainedTokenizerBase):
        raise CalyrexError(f"expected a fast tokenizer, got {type(tokenizer).__name__}; load it with use_fast=True")
    raise TypeError(f"expected a tokenizer, got {type(tokenizer).__name__}")


def read_vocabulary(tokenizer: PreTrainedTokenizerFast) -> Vocabulary:
    """Return the vocabulary of a tokenizer; built once, and again when tokens were added.

    Raises:
        CalyrexError: the tokenizer does something that its twin cannot repeat.
    """
    size, vocabulary = _VOCABULARIES.get(tokenizer, (-1, None))
    if vocabulary is None or size != len(tokenizer):
        vocabulary = _build(tokenizer)
        _VOCABULARIES[tokenizer] = (len(tokenizer), vocabulary)
    return vocabulary


def encode_messages(
    tokenizer: PreTrainedTokenizerFast, messages: list[Message], tools: Tools, add_generation_prompt: bool
) -> EncodedChat:
    """Render and encode plain messages (see ``Renderer.render``).

    Raises:
        CalyrexError: the template or the tokenizer cannot do it exactly.
    """
    vocabulary = read_vocabulary(tokenizer)
    rendering = Renderer(tokenizer, vocabulary.smuggled).render(messages, tools, add_generation_prompt)
    try:
        rendering.text.encode()
    except UnicodeEncodeError as error:
        raise CalyrexError("tools or tool calls hold half a character; decode their text anew") from error
    return EncodedChat(rendering.text, vocabulary.encode(rendering))


def _build(tokenizer: PreTrainedTokenizerFast) -> Vocabulary:
    state: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
    added: list[dict[str, Any]] = state["added_tokens"]
    state.update(added_tokens=[], post_processor=None, truncation=None, padding=None)
    twin = Tokenizer.from_str(json.dumps(state))
    secret = secrets.token_hex(8)
    names = {_BREAK: f"\uf8ff{secret}\uf8ff"}
    control_ids: dict[str, int] = {}
    plain_ids: dict[int, int] = {}
    twin.add_tokens([AddedToken(names[_BREAK], normalized=False)])
    for token in added:
        content = token["content"]
        flags = {flag: token[flag] for flag in ("single_word", "lstrip", "rstrip", "normalized")}
        if content.isspace() and not token["special"]:
            twin.add_tokens([AddedToken(content, **flags)])
            plain_ids[_id_of(twin, content)] = token["id"]
            continue
        control_ids[content] = token["id"]
        names[content] = f"\uf8ff{secret}{len(names):x}\uf8ff"
        twin.add_tokens([AddedToken(names[content], **{**flags, "single_word": False})])
    vocabulary = Vocabulary(control_ids, plain_ids, twin, names, _unknown_id(tokenizer), _pattern(added, control_ids))
    _check(tokenizer, vocabulary)
    return vocabulary


def _id_of(twin: Tokenizer, name: str) -> int:
    token_id = twin.token_to_id(name)
    if token_id is None:
        raise ValueError(f"the twin does not know {name!r}, which was added to it")
    return token_id


def _pattern(added: list[dict[str, Any]], control_ids: dict[str, int]) -> re.Pattern[str]:
    """Match control tokens as the tokenizer does: the leftmost, and the longest of those."""
    single = {token["content"] for token in added if token["single_word"]}
    longest_first = sorted(control_ids, key=len, reverse=True)
    escaped = [rf"(?<!\w){re.escape(token)}(?!\w)" if token in single else re.escape(token) for token in longest_first]
    return re.compile("|".join(escaped) or "(?!)")


def _unknown_id(tokenizer: PreTrainedTokenizerFast) -> int | None:
    if tokenizer.unk_token in (tokenizer.bos_token, tokenizer.eos_token):
        return None
    unknown_id = tokenizer.unk_token_id
    return unknown_id if isinstance(unknown_id, int) else None


def _check(tokenizer: PreTrainedTokenizerFast, vocabulary: Vocabulary) -> None:
    """Compare the twin with the tokenizer on a text that holds both words and control tokens."""
    words = ["One two,  three?\n\n", " Grün\n", "4.5\n", "\n six"]
    some = list(vocabulary.control_ids)[:_MAX_SAMPLED_TOKENS]
    text = "".join(f"{token}{words[index % len(words)]}" for index, token in enumerate(["", *some, *some[:1]]))
    expected = tokenizer(text, add_special_tokens=False)["input_ids"]
    if [token.id for token in vocabulary.encode(Rendering(text, []))] != expected:
        raise CalyrexError(
            f"cannot keep text and control tokens of {type(tokenizer).__name__} apart; pass input_ids and system_mask"
        )
