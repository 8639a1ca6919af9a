"""System prompts that were read before: their keys and values, for the base and for the blocks.

What stands under a key depends on all that is in it and on nothing else: who read it, at which strength of the blocks,
the exact tokens, and which of them are the system prompt. So no request can get what another one's prompt left, and one
whose user writes the tokens of a system prompt does not get its keys either.
"""

from collections import OrderedDict
from typing import NamedTuple

from transformers import DynamicCache

from calyrex.serve.request import Generation
from calyrex.serve.rows import Piece, join_rows

MAX_TOKENS = 16384
"""Tokens that are kept at most, of all system prompts together."""


class PrefixKey(NamedTuple):
    """What the keys and values of a beginning depend on.

    Attributes:
        model: name of the model.
        scale: strength of its blocks.
        input_ids: the tokens.
        system_mask: which of them are the system prompt.
    """

    model: str
    scale: float
    input_ids: tuple[int, ...]
    system_mask: tuple[bool, ...]


class PrefixStore:
    """The system prompts that were used last.

    Attributes:
        num_hits: requests that found theirs.
        num_misses: requests that did not.
        num_tokens: tokens that are kept.
    """

    def __init__(self, max_tokens: int = MAX_TOKENS) -> None:
        self.max_tokens = max_tokens
        self.num_hits = 0
        self.num_misses = 0
        self.num_tokens = 0
        self._kept: OrderedDict[PrefixKey, DynamicCache] = OrderedDict()

    def __contains__(self, key: PrefixKey) -> bool:
        return key in self._kept

    def find(self, key: PrefixKey) -> Piece | None:
        """Return the kept beginning, None where there is none."""
        cache = self._kept.get(key)
        if cache is None:
            self.num_misses += 1
            return None
        self.num_hits += 1
        self._kept.move_to_end(key)
        return Piece(cache, 0, 0, len(key.input_ids))

    def keep(self, key: PrefixKey, piece: Piece) -> None:
        """Keep a copy of the beginning of a row, and forget what was not used for longest where room is short."""
        if len(key.input_ids) > self.max_tokens or key in self._kept:
            return
        self._kept[key] = join_rows([piece._replace(end=piece.start + len(key.input_ids))], num_more=0)
        self.num_tokens += len(key.input_ids)
        while self.num_tokens > self.max_tokens:
            oldest, _ = self._kept.popitem(last=False)
            self.num_tokens -= len(oldest.input_ids)

    def clear(self) -> None:
        """Forget all."""
        self._kept.clear()
        self.num_tokens = 0


def prefix_key(generation: Generation) -> PrefixKey | None:
    """Return what a request's system prompt is kept under; None where it has none, or nothing follows it."""
    length = generation.num_prefix
    if length == 0 or length >= len(generation.input_ids):
        return None
    ids, mask = generation.input_ids[:length], generation.system_mask[:length]
    return PrefixKey(generation.model.name, generation.scale, tuple(ids), tuple(mask))
