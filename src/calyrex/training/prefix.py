"""The frozen part of the forward, computed once and fed to every later step.

Nothing below the first block depends on a trained weight. The residual stream that enters the first block is therefore
the same in every epoch: it is computed once for each row, kept in a memory-mapped file, and stands in for the layers
below while the blocks train.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from peft import PeftModel
from torch import Tensor, nn
from transformers import PreTrainedModel

from calyrex.base import find_layers
from calyrex.errors import CalyrexError
from calyrex.generation import group_by_length
from calyrex.layer import PREFIX, CalyrexLayer
from calyrex.training.batches import Row, collate


class PrefixStore:
    """The residual stream that enters the first block, one ``[T, E]`` array for each training row.

    Attributes:
        done: rows that are on disk for sure.
        states: stand-in for the layers below the first block in the coming forward, ``[B, T, E]``.
    """

    def __init__(self, path: Path, lengths: Sequence[int], hidden_size: int, dtype: torch.dtype, key: str) -> None:
        """Open the file if it was begun for the same key, else create it.

        Args:
            path: the file; a record of the rows that are done is kept beside it.
            lengths: tokens of each row.
            hidden_size: ``E``.
            dtype: dtype of the base's residual stream.
            key: what the states depend on, as a hash.
        """
        self.path, self.record, self.key = path, path.with_suffix(".json"), key
        self.offsets = np.concatenate([[0], np.cumsum(lengths)])
        item = torch.empty(0, dtype=dtype).element_size()
        shape = (int(self.offsets[-1]), hidden_size * item)
        size = shape[0] * shape[1]
        self.done = self._read_done() if path.exists() and path.stat().st_size == size else 0
        if self.done == 0:
            self.remove()
        free = shutil.disk_usage(path.parent).free
        if self.done == 0 and size > free:  # a memory map finds out by a crash
            raise CalyrexError(
                f"the activations of the frozen layers take {size / 1e6:.0f} MB in {path.parent}, "
                f"{free / 1e6:.0f} MB are free; make room or leave cache_activations off"
            )
        self.bytes = np.memmap(path, dtype=np.uint8, mode="r+" if self.done else "w+", shape=shape)
        self.dtype = dtype
        self.states: Tensor | None = None

    def _read_done(self) -> int:
        try:
            record = json.loads(self.record.read_text(encoding="utf-8"))
            done, key = record["done"], record["key"]
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return 0
        is_sound = key == self.key and isinstance(done, int) and 0 <= done < len(self.offsets)
        return done if is_sound else 0

    def keep(self, done: int) -> None:
        """Bring what was written to disk and record that ``done`` rows are there."""
        self.bytes.flush()
        partial = self.record.with_suffix(".partial")
        partial.write_text(json.dumps({"key": self.key, "done": done}), encoding="utf-8")
        os.replace(partial, self.record)
        self.done = done

    def remove(self) -> None:
        """Delete the file and its record."""
        for path in (self.path, self.record):
            path.unlink(missing_ok=True)

    def write(self, row: int, states: Tensor) -> None:
        """Keep the states of a row, ``[T, E]``."""
        raw = states.contiguous().cpu().view(torch.uint8).numpy()
        self.bytes[self.offsets[row] : self.offsets[row + 1]] = raw

    def load(self, lines: Iterable[Sequence[int]], num_tokens: int) -> Tensor:
        """Return the states of the rows of each line, padded with zeros on the right, ``[B, T, E]``.

        Args:
            lines: numbers of the rows that follow one another in a line; -1 stands for none.
            num_tokens: ``T``.
        """
        padded = []
        for line in lines:
            states = torch.cat([self._read(row) for row in line if row >= 0])
            padded.append(nn.functional.pad(states, (0, 0, 0, num_tokens - states.shape[0])))
        return torch.stack(padded)

    def _read(self, row: int) -> Tensor:
        raw = np.array(self.bytes[self.offsets[row] : self.offsets[row + 1]])
        return torch.from_numpy(raw).view(self.dtype)


class _StopForward(Exception):
    """Ends a forward once the residual stream before the first block is known."""


def first_block_layer(model: PeftModel) -> CalyrexLayer:
    """Return the lowest decoder layer with a block."""
    return next(layer for layer in _layers(model) if isinstance(layer, CalyrexLayer))


def _layers(model: PeftModel) -> nn.ModuleList:
    return find_layers(cast(PreTrainedModel, model.get_base_model()))


def compute_prefix(
    model: PeftModel, rows: Sequence[Row], path: Path, *, batch_tokens: int = 1024
) -> tuple[PrefixStore, Iterator[int]]:
    """Prepare a store and the steps that fill it, longest rows first, so that a batch wastes little on padding.

    A store that was interrupted is gone on with, if base, place of the blocks, dtype and tokens are the same.

    Args:
        model: the model with blocks.
        rows: training rows.
        path: file to write.
        batch_tokens: tokens of one forward at most, padding included.

    Returns:
        The store, and an iterator that fills it and yields the number of rows done so far.
    """
    first = first_block_layer(model)
    dtype = next(first.base_layer.parameters()).dtype
    lengths: list[int] = []
    tokens = hashlib.sha256()
    for row in rows:
        lengths.append(len(row["input_ids"]))
        tokens.update(np.asarray([lengths[-1], *row["input_ids"]], dtype=np.int64).tobytes())
    key = f"{hash_base(model)} {first.block_index} {batch_tokens} {tokens.hexdigest()}"
    hidden_size = model.config.get_text_config().hidden_size
    store = PrefixStore(path, lengths, hidden_size, dtype, hashlib.sha256(key.encode()).hexdigest())
    return store, _fill(store, model, rows, group_by_length(lengths, batch_tokens))


def hash_base(model: PeftModel) -> str:
    """Return the SHA-256 of the base's weights, names and dtypes included, without those of adapters."""
    digest = hashlib.sha256()
    for name, parameter in model.get_base_model().named_parameters():
        if PREFIX not in name:
            digest.update(f"{name} {parameter.dtype}".encode())
            digest.update(parameter.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _fill(store: PrefixStore, model: PeftModel, rows: Sequence[Row], groups: Iterator[list[int]]) -> Iterator[int]:
    states: list[Tensor] = []

    def keep(_module: nn.Module, _args: Any, output: Any) -> None:
        states[:] = [output[0] if isinstance(output, tuple) else output]
        raise _StopForward

    handle = first_block_layer(model).base_layer.register_forward_hook(keep)
    done = 0
    try:
        for group in groups:
            done += len(group)
            if done <= store.done:
                continue
            batch = collate([rows[i] for i in group], pad_token_id=0)
            inputs = {name: batch[name].to(model.device) for name in ("input_ids", "system_mask")}
            with torch.no_grad(), suppress(_StopForward):
                model(**inputs, use_cache=False)
            for place, row in enumerate(group):
                store.write(row, states[0][place, : len(rows[row]["input_ids"])])
            store.keep(done)
            yield done
    finally:
        handle.remove()


@contextmanager
def prefix_skipped(model: PeftModel, store: PrefixStore) -> Iterator[None]:
    """Let ``store.states`` stand in for the layers up to the first block inside the ``with``."""
    first = first_block_layer(model)
    below = list(_layers(model))[: first.block_index]

    def pass_on(hidden_states: Tensor, *_args: Any, **_kwargs: Any) -> Tensor:
        return hidden_states

    def feed(_hidden_states: Tensor, *_args: Any, **_kwargs: Any) -> Tensor | None:
        return store.states

    for layer in below:
        layer.forward = pass_on
    first.base_layer.forward = feed
    try:
        yield
    finally:
        for layer in (*below, first.base_layer):
            del layer.forward
