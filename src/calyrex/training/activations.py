"""The frozen part of the forward, computed once on this machine and shared by every later run.

Nothing below the first block depends on a trained weight. The residual stream that enters the first block is therefore
the same in every epoch and for every seed, placement and method that leaves the layers below alone: it is computed
once for each row and kept in the user's cache, and stands in for the layers below while the blocks train. The same
goes for other adapters, such as LoRA on late layers.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from peft import PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from safetensors import SafetensorError
from torch import Tensor
from transformers import PreTrainedModel

from calyrex.errors import CalyrexError
from calyrex.training.batches import Row
from calyrex.training.filling import base_layers, fill, make_plan
from calyrex.training.shards import Shard
from calyrex.wrapping import InsertedLayer

_OPEN_SHARDS = 64


class ActivationStore:
    """The residual stream after one decoder layer of the base, for each training row.

    Attributes:
        folder: where the shards lie.
        layer: number of that decoder layer, from 0.
        size_bytes: size of all states.
    """

    def __init__(self, folder: Path, layer: int, shards: Sequence[Shard], lengths: Sequence[int]) -> None:
        """Create a store over shards, which may still be missing.

        Args:
            folder: where the shards lie.
            layer: number of the decoder layer whose output they hold.
            shards: together they hold every row once.
            lengths: tokens of each row.
        """
        self.folder = folder
        self.size_bytes = sum(shard.size_bytes for shard in shards)
        self.layer = layer
        self._lengths = np.asarray(lengths, dtype=np.int64)
        self._shard_of = np.zeros(len(lengths), dtype=np.int64)
        self._start_of = np.zeros(len(lengths), dtype=np.int64)
        for number, shard in enumerate(shards):
            rows = list(shard.rows)
            self._shard_of[rows] = number
            self._start_of[rows] = np.cumsum([0, *self._lengths[rows[:-1]]])
        self._dtype = shards[0].dtype
        self._open = lru_cache(maxsize=_OPEN_SHARDS)(lambda number: _read_bytes(shards[number]))

    def load(self, lines: Iterable[Sequence[int]], num_tokens: int) -> Tensor:
        """Return the states of the rows of each line, padded with zeros on the right, ``[B, T, E]``.

        Args:
            lines: numbers of the rows that follow one another in a line; -1 stands for none.
            num_tokens: ``T``, at least the longest line.

        Raises:
            CalyrexError: a file has been deleted since the store was opened.
        """
        try:
            found = [[self._read(row) for row in line if row >= 0] for line in lines]
        except (OSError, SafetensorError) as error:
            raise CalyrexError(
                f"cannot read the activations in {self.folder} ({error}); give the same command again: "
                f"what is missing is computed again"
            ) from error
        # Bytes are copied by numpy: torch would start its threads for every row.
        padded = np.zeros((len(found), num_tokens, found[0][0].shape[1]), dtype=np.uint8)
        for place, line in enumerate(found):
            end = 0
            for states in line:
                start, end = end, end + len(states)
                padded[place, start:end] = states
        return torch.from_numpy(padded).view(self._dtype)

    def _read(self, row: int) -> NDArray[np.uint8]:
        """Return the bytes of the states of a row, a view of the file."""
        start = self._start_of[row]
        return self._open(int(self._shard_of[row]))[start : start + self._lengths[row]]


def _read_bytes(shard: Shard) -> NDArray[np.uint8]:
    return shard.open().view(torch.uint8).numpy()


def open_activations(
    model: PeftModel, rows: Sequence[Row], *, folder: Path | None = None, batch_tokens: int = 1024
) -> tuple[ActivationStore, Iterator[int]]:
    """Find the states that leave the last layer below the adapter, and prepare to compute those that are missing.

    The store lies in a folder named after all that the states depend on: base, token ids of the rows, and what rounding
    depends on (``calyrex.training.fingerprint``). States keep the dtype of the base: rounding those of a float32 base
    would train the blocks on another stream than the one they serve.

    Args:
        model: the model with blocks, or with another adapter that leaves the first decoder layer alone.
        rows: training rows.
        folder: where stores are kept; None takes ``activations`` in the user's cache.
        batch_tokens: tokens of one forward at most, padding included.

    Returns:
        The store, and an iterator that computes what is missing and yields the number of rows done so far; it yields
        nothing where the store is complete. It raises what ``fill_activations`` raises.

    Raises:
        ValueError: the adapter changes the first decoder layer already.
    """
    layer = last_frozen_layer(model)
    if layer is None:
        raise ValueError("the adapter changes the first decoder layer: there is no frozen part to compute once")
    plan = make_plan(model, rows, folder, batch_tokens)
    shards = [plan.shard(number, layer) for number in range(len(plan.shards))]
    return ActivationStore(plan.folder_of(layer), layer, shards, plan.lengths), fill(model, rows, plan, [layer])


def fill_activations(
    model: PeftModel,
    rows: Sequence[Row],
    layers: Sequence[int],
    *,
    folder: Path | None = None,
    batch_tokens: int = 1024,
) -> Iterator[int]:
    """Compute the stores of several depths in one pass of the base, such as those of a study of placements.

    A shard that is there is kept, one that is damaged is computed again, and one computation runs at a time: another
    process that wants the same states waits for it and takes them from disk.

    Args:
        model: the base with an adapter, which is off while its states are computed.
        rows: training rows.
        layers: numbers of the decoder layers, from 0, after which the stream is kept; that of a first block is its
            ``block_index``.
        folder: as in ``open_activations``.
        batch_tokens: as in ``open_activations``.

    Returns:
        An iterator that computes what is missing and yields the number of rows done so far. It raises a
        ``CalyrexError`` before anything is computed where the disk has no room, and when a file cannot be written.

    Raises:
        ValueError: the base has no such layer.
    """
    num_layers = len(base_layers(model))
    for layer in layers:
        if not 0 <= layer < num_layers:
            raise ValueError(f"layers must be between 0 and {num_layers - 1}, got {layer}")
    return fill(model, rows, make_plan(model, rows, folder, batch_tokens), sorted(set(layers)))


@contextmanager
def prefix_skipped(
    model: PreTrainedModel | PeftModel, last_layer: int, read_states: Callable[[], Tensor | None]
) -> Iterator[None]:
    """Let stored states stand in for the first layers inside the ``with``.

    Args:
        model: the base, or the base with an adapter.
        last_layer: number of the last decoder layer that is skipped, from 0; at most ``last_frozen_layer``.
        read_states: returns the states that leave it, ``[B, T, E]``; called once in each forward.
    """
    skipped = list(base_layers(model))[: last_layer + 1]
    *below, last = (layer.base_layer if isinstance(layer, InsertedLayer) else layer for layer in skipped)

    def pass_on(hidden_states: Tensor, *_args: Any, **_kwargs: Any) -> Tensor:
        return hidden_states

    def feed(_hidden_states: Tensor, *_args: Any, **_kwargs: Any) -> Tensor | None:
        return read_states()

    for layer in below:
        layer.forward = pass_on
    last.forward = feed
    try:
        yield
    finally:
        for layer in (*below, last):
            del layer.forward


def last_frozen_layer(model: PeftModel) -> int | None:
    """Return the number of the last decoder layer whose output no adapter changes, from 0; None where there is none."""
    for number, layer in enumerate(base_layers(model)):
        if isinstance(layer, InsertedLayer):
            return number
        if any(isinstance(module, BaseTunerLayer) for module in layer.modules()):
            return number - 1 if number else None
    raise ValueError("the model has no adapter on its decoder layers")
