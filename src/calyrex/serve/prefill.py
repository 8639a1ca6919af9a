"""Reading prompts: several at a time, a part at a time, and none twice."""

from collections.abc import Sequence

import torch

from calyrex.serve.prefixes import PrefixStore, prefix_key
from calyrex.serve.request import Generation
from calyrex.serve.room import Room
from calyrex.serve.rows import Piece, empty_cache, join_rows
from calyrex.serve.served import Served

PART_TOKENS = 512
"""Tokens of one part, padding included: running answers wait for one part at most before their next token."""

GROUP_TOKENS = 2048
"""Tokens of prompts that are read together at most, padding included."""


def choose_group(waiting: Sequence[Generation], prefixes: PrefixStore, room: Room) -> list[Generation]:
    """Choose requests that are read together: the one that waits longest, and others of its model that fit beside it.

    Of several with the same new system prompt one goes first, and the others find its keys.

    Args:
        waiting: requests, the oldest first.
        prefixes: system prompts that were read before.
        room: what runs already; the chosen requests take their places in it.
    """
    group: list[Generation] = []
    new_keys = set()
    for generation in waiting:
        key = prefix_key(generation)
        longest = max(len(other.input_ids) for other in [*group, generation])
        is_other = bool(group) and generation.model is not group[0].model
        if group and (is_other or (len(group) + 1) * longest > GROUP_TOKENS or key in new_keys):
            continue
        if not room.take(generation, generation.num_answers):
            if not group:
                break  # the oldest waits for room, and nobody overtakes it
            continue
        group.append(generation)
        if key is not None and key not in prefixes:
            new_keys.add(key)
    return group


class Prefill:
    """Prompts of one model on their way into a cache, all but the last token of each.

    The tokens after the kept system prompts stand at the left of their columns, so that every row is without a gap:
    padding, system prompt, rest, padding.
    """

    def __init__(self, served: Served, prefixes: PrefixStore, group: Sequence[Generation]) -> None:
        """Prepare; nothing is computed yet.

        Args:
            served: the models.
            prefixes: system prompts that were read before; gets the new ones.
            group: requests for one model.
        """
        self.served = served
        self.prefixes = prefixes
        self.group = list(group)
        self.keys = [prefix_key(generation) for generation in group]
        found = [None if key is None else prefixes.find(key) for key in self.keys]
        self.starts = [0 if piece is None else piece.length for piece in found]
        self.rests = [
            len(generation.input_ids) - 1 - start for generation, start in zip(group, self.starts, strict=True)
        ]
        hits = [piece for piece in found if piece is not None]
        self.num_past = max(self.starts)
        # A prompt of one token leaves nothing to read: a column of padding gives the cache its shape.
        self.num_columns = max(*self.rests, 0 if len(hits) == len(found) else 1)
        nothing = hits[0]._replace(end=0) if hits else None
        pieces = [piece or nothing for piece in found]
        self.cache = join_rows([piece for piece in pieces if piece]) if hits else empty_cache(served.num_layers)
        self.num_read = 0

    @property
    def is_done(self) -> bool:
        """Whether all is read."""
        return self.num_read >= self.num_columns

    def advance(self) -> None:
        """Read one part."""
        first = self.num_read
        last = min(self.num_columns, first + max(1, PART_TOKENS // len(self.group)))
        device = self.served.model.device
        ids = torch.zeros(len(self.group), last - first, dtype=torch.int64)
        system_mask = torch.zeros_like(ids, dtype=torch.bool)
        columns = torch.arange(self.num_past + last)
        attention_mask = torch.zeros(len(self.group), len(columns), dtype=torch.int64)
        position_ids = torch.zeros_like(ids)
        for row, (generation, start, rest) in enumerate(zip(self.group, self.starts, self.rests, strict=True)):
            end = min(last, rest)
            part = slice(start + first, start + end)
            if end > first:
                ids[row, : end - first] = torch.tensor(generation.input_ids[part])
                system_mask[row, : end - first] = torch.tensor(generation.system_mask[part])
            offset = self.num_past - start
            attention_mask[row] = (columns >= offset) & (columns < self.num_past + rest)
            position_ids[row] = (columns[self.num_past + first :] - offset).clamp(0, max(0, start + rest - 1))
        self.served.forward(
            self.group[0].model,
            ids.to(device),
            self.cache,
            attention_mask=attention_mask.to(device),
            position_ids=position_ids.to(device),
            scales=[generation.scale for generation in self.group],
            system_mask=system_mask.to(device),
        )
        self.num_read = last

    def pieces(self) -> list[Piece]:
        """Return the row of each request, and keep the new system prompts."""
        pieces = [
            Piece(self.cache, row, self.num_past - start, self.num_past + rest)
            for row, (start, rest) in enumerate(zip(self.starts, self.rests, strict=True))
        ]
        for key, piece in zip(self.keys, pieces, strict=True):
            if key is not None and piece.length >= len(key.input_ids):
                self.prefixes.keep(key, piece)
        return pieces
