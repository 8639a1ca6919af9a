"""Computing the states of frozen layers that are not on disk yet, and room and order while doing so."""

import itertools
import logging
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from filelock import FileLock, Timeout
from peft import PeftModel
from rich.filesize import decimal
from torch import Tensor, nn
from transformers import PreTrainedModel

from calyrex.base import find_layers
from calyrex.errors import CalyrexError
from calyrex.training.batches import Row, collate
from calyrex.training.fingerprint import hash_states, hash_tokens
from calyrex.training.shards import Shard, cut_shards
from calyrex.user_cache import CACHE_VARIABLE, cache_folder

_KEY_LETTERS = 16
_DTYPES = (torch.bfloat16, torch.float16, torch.float32)
"""What a residual stream may be kept as; a quantised base computes in the first of these among its weights."""
_FOLDER = "activations"
_WAYS_OUT = f"make room there, set {CACHE_VARIABLE} to another folder, or leave cache_activations off"
_Shards = dict[tuple[int, int], Shard]
"""Shards by their number and the decoder layer whose output they hold."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plan:
    """Where the states of some rows go: the same shards for every depth.

    Attributes:
        folder: holds one folder for each depth.
        key: what the states depend on.
        lengths: tokens of each row.
        shards: for each shard its batches, and for each batch the numbers of its rows.
        hidden_size: ``E``.
        dtype: dtype of the base's residual stream.
    """

    folder: Path
    key: str
    lengths: list[int]
    shards: list[list[list[int]]]
    hidden_size: int
    dtype: torch.dtype

    def shard(self, number: int, layer: int) -> Shard:
        """Return the shard with that number of the states after a decoder layer."""
        rows = tuple(itertools.chain.from_iterable(self.shards[number]))
        shape = (sum(self.lengths[row] for row in rows), self.hidden_size)
        path = self.folder_of(layer) / f"{number:05d}.safetensors"
        return Shard(path, f"{self.key} layer {layer}", rows, shape, self.dtype)

    def folder_of(self, layer: int) -> Path:
        """Return the folder of the states after a decoder layer."""
        return self.folder / f"layer-{layer:03d}"


class _StopForward(Exception):
    """Ends a forward once the residual stream after the last wanted layer is known."""


def make_plan(model: PeftModel, rows: Sequence[Row], folder: Path | None, batch_tokens: int) -> Plan:
    """Read the rows and say where their states go; see ``calyrex.training.activations.open_activations``."""
    tokens, lengths = hash_tokens(rows)
    key = hash_states(model, tokens, batch_tokens)
    hidden_size = model.config.get_text_config().hidden_size
    dtypes = {parameter.dtype for parameter in base_layers(model).parameters()}
    dtype = next((dtype for dtype in _DTYPES if dtype in dtypes), torch.float32)
    shards = cut_shards(lengths, batch_tokens=batch_tokens, token_bytes=hidden_size * dtype.itemsize)
    root = folder if folder is not None else cache_folder() / _FOLDER
    return Plan(root / key[:_KEY_LETTERS], key, lengths, shards, hidden_size, dtype)


def fill(model: PeftModel, rows: Sequence[Row], plan: Plan, layers: Sequence[int]) -> Iterator[int]:
    """Compute the states that are missing after some decoder layers, in rising order, in one pass of the base.

    Yields:
        The number of rows done so far.

    Raises:
        CalyrexError: the disk has no room, or a file cannot be written.
    """
    wanted = {(number, layer): plan.shard(number, layer) for number in range(len(plan.shards)) for layer in layers}
    missing = _find_missing(wanted)
    if not missing:
        logger.info("the activations of the frozen layers are there already, in %s", plan.folder)
        return
    _require_room(missing, plan.folder)
    with _locked(plan.folder):
        missing = _find_missing(missing)  # another process may have computed them
        if missing:
            size = decimal(_require_room(missing, plan.folder))
            logger.info("the activations of the frozen layers take %s in %s; computed once", size, plan.folder)
        yield from _compute(model, rows, plan, missing)


def _find_missing(shards: _Shards) -> _Shards:
    return {place: shard for place, shard in shards.items() if not shard.is_sound()}


def _require_room(missing: _Shards, folder: Path) -> int:
    """Return the size of what is missing, in bytes, or refuse to begin."""
    size = sum(shard.size_bytes for shard in missing.values())
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if size > free:
        raise CalyrexError(
            f"the activations of the frozen layers take {decimal(size)} in {folder}, {decimal(free)} are free; "
            f"{_WAYS_OUT}"
        )
    return size


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Compute alone; the lock ends with the process, however that ends."""
    with _written_or_refused(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            logger.info("another process computes the activations in %s; waiting for it", folder)
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _written_or_refused(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CalyrexError(
            f"cannot write the activations of the frozen layers to {folder} ({error.strerror or error}); {_WAYS_OUT}"
        ) from error


def _compute(model: PeftModel, rows: Sequence[Row], plan: Plan, missing: _Shards) -> Iterator[int]:
    """Run the base on the rows of the missing shards and yield the number of rows done, shard by shard on disk."""
    by_number = {number: [place[1] for place in missing if place[0] == number] for number, _ in missing}
    done = len(plan.lengths) - sum(len(group) for number in by_number for group in plan.shards[number])
    for number, layers in by_number.items():
        shards = {layer: missing[number, layer] for layer in layers}
        kept = {layer: torch.empty(shard.shape, dtype=shard.dtype) for layer, shard in shards.items()}
        start = 0
        for group in plan.shards[number]:
            if start:
                yield done  # the last batch of a shard counts when the shard is written
            batch = collate([rows[row] for row in group], pad_token_id=0)
            states = _run_frozen(model, batch["input_ids"], layers)
            _require_dtype(states[layers[0]], plan)
            for place, row in enumerate(group):
                end = start + plan.lengths[row]
                for layer in layers:
                    kept[layer][start:end] = states[layer][place, : plan.lengths[row]]
                start = end
            done += len(group)
        for layer, shard in shards.items():
            with _written_or_refused(plan.folder):
                shard.write(kept[layer])
        yield done


def _require_dtype(states: Tensor, plan: Plan) -> None:
    if states.dtype != plan.dtype:
        raise CalyrexError(
            f"the base's layers hand on {states.dtype}, expected {plan.dtype} from its weights; "
            f"leave cache_activations off for this base"
        )


def _run_frozen(model: PeftModel, input_ids: Tensor, layers: Sequence[int]) -> dict[int, Tensor]:
    """Return the base's states after some decoder layers, ``[B, T, E]``; what lies above the last is not run."""
    states: dict[int, Tensor] = {}

    def keep(layer: int, _module: nn.Module, _args: Any, output: Any) -> None:
        states[layer] = output[0] if isinstance(output, tuple) else output
        if layer == layers[-1]:
            raise _StopForward

    training = [module for module in model.modules() if module.training]
    handles = [base_layers(model)[layer].register_forward_hook(partial(keep, layer)) for layer in layers]
    try:
        model.eval()  # no dropout in what is kept
        with torch.no_grad(), model.disable_adapter(), suppress(_StopForward):
            model.get_base_model()(input_ids=input_ids.to(model.device), use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
        for module in training:
            module.training = True
    return states


def base_layers(model: PreTrainedModel | PeftModel) -> nn.ModuleList:
    """Return the decoder layers of the base, wrapped where they have blocks."""
    return find_layers(cast(PreTrainedModel, model.get_base_model() if isinstance(model, PeftModel) else model))
