"""Shards: states of some rows in one safetensors file, which is whole and of the right key or counts as missing.

Which row lies in which shard follows from the lengths of the rows alone, so there is no index to go out of step.
"""

import math
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from calyrex.generation import group_by_length

SHARD_BYTES = 64 * 2**20
"""Size of a shard at most, unless one batch of the base is larger."""
_STATES = "states"
_CHECKSUM = "checksum"


@dataclass(frozen=True)
class Shard:
    """A file with the states of some rows, one after the other.

    Attributes:
        path: the file.
        key: what the states depend on.
        rows: numbers of the rows.
        shape: tokens of all rows, and ``E``.
        dtype: dtype of the states.
    """

    path: Path
    key: str
    rows: tuple[int, ...]
    shape: tuple[int, int]
    dtype: torch.dtype

    @property
    def size_bytes(self) -> int:
        """Size of the states."""
        return math.prod(self.shape) * self.dtype.itemsize

    def is_sound(self) -> bool:
        """Tell whether the file is there, of this key, and holds what was written; all of it is read."""
        try:
            with safe_open(self.path, framework="pt") as file:
                metadata = file.metadata() or {}
                states = file.get_tensor(_STATES)
        except (OSError, SafetensorError):
            return False
        fits = states.shape == self.shape and states.dtype == self.dtype
        return fits and metadata == self._metadata(states)

    def open(self) -> Tensor:
        """Return the states memory-mapped, ``[T_all, E]``; what is not looked at is not read."""
        with safe_open(self.path, framework="pt") as file:
            states: Tensor = file.get_tensor(_STATES)
        return states

    def write(self, states: Tensor) -> None:
        """Put the states ``[T_all, E]`` in the file; it appears under its name when it is whole."""
        partial = self.path.with_suffix(".partial")
        partial.parent.mkdir(parents=True, exist_ok=True)
        try:
            partial.write_bytes(save({_STATES: states}, self._metadata(states)))
            os.replace(partial, self.path)
        finally:
            partial.unlink(missing_ok=True)

    def _metadata(self, states: Tensor) -> dict[str, str]:
        checksum = zlib.crc32(states.view(torch.uint8).numpy().data)
        return {"key": self.key, "rows": " ".join(map(str, self.rows)), _CHECKSUM: f"{checksum:08x}"}


def cut_shards(lengths: Sequence[int], *, batch_tokens: int, token_bytes: int) -> list[list[list[int]]]:
    """Deal rows out to shards, longest rows first.

    Args:
        lengths: tokens of each row.
        batch_tokens: tokens of one batch of the base at most, padding included.
        token_bytes: size of the states of one token.

    Returns:
        For each shard its batches, and for each batch the numbers of its rows.
    """
    shards: list[list[list[int]]] = []
    free = 0
    for group in group_by_length(lengths, batch_tokens):
        size = token_bytes * sum(lengths[row] for row in group)
        if size > free:
            shards.append([])
            free = SHARD_BYTES
        shards[-1].append(group)
        free -= size
    return shards
