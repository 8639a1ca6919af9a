"""Peak memory of training beside LoRA, each side in a process of its own."""

import gc
import multiprocessing
import tempfile
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import torch

from bench.limits import peak_values, read_shape, saved_by_blocks, saved_by_lora
from bench.measure import Figure, at_both_widths, paired_ratio
from bench.models import Sizes, attach_blocks, attach_lora, count_trainable, load, matching_rank
from bench.train import make_step, make_trainer, training_batch, training_rows
from calyrex.placement import DEFAULT_PLACEMENT, resolve_placement

NUM_STEPS = 2
MEGABYTE = 1e6
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


class Peak(NamedTuple):
    """What a process has found out about one side.

    Attributes:
        num_bytes: peak memory above that of the loaded base.
        num_trainable: weights that were trained.
        limit_bytes: the peak by arithmetic alone.
        dtype: number format of the base.
    """

    num_bytes: int
    num_trainable: int
    limit_bytes: int
    dtype: str


def compare_memory(sizes: Sizes) -> dict[str, Figure]:
    """Measure the peak memory of two training steps above the loaded base, over LoRA's."""
    return at_both_widths("train_memory_vs_lora", sizes.demo_width, lambda width: _compare(sizes, width))


def _compare(sizes: Sizes, width: int | None) -> Figure:
    pairs = []
    for _ in range(sizes.memory_rounds):
        pairs.append([_in_fresh_process(sizes, width, is_lora) for is_lora in (True, False)])
    sides = {"lora": [lora.num_bytes / MEGABYTE for lora, _ in pairs]}
    sides["calyrex"] = [ours.num_bytes / MEGABYTE for _, ours in pairs]
    lora, ours = pairs[0]
    return Figure(
        value=paired_ratio(sides["calyrex"], sides["lora"]),
        unit="x",
        limit=ours.limit_bytes / lora.limit_bytes,
        sides=sides,
        side_unit="MB",
        dtype=ours.dtype,
        details={
            "intermediate_size": width or "base",
            "trainable": {"lora": lora.num_trainable, "calyrex": ours.num_trainable},
            "limit_MB": {"lora": lora.limit_bytes / MEGABYTE, "calyrex": ours.limit_bytes / MEGABYTE},
        },
    )


def _in_fresh_process(sizes: Sizes, width: int | None, is_lora: bool) -> Peak:
    with ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure_peak, sizes, width, is_lora).result()


def measure_peak(sizes: Sizes, width: int | None, is_lora: bool) -> Peak:
    """Train two steps and return the peak memory above the loaded base; for a process of its own."""
    base = load(sizes)
    with torch.no_grad():  # weights that are mapped from a file are in memory once they have been read
        base(input_ids=torch.ones(1, 8, dtype=torch.int64, device=base.device), use_cache=False)
    gc.collect()
    loaded = _memory("VmRSS")
    shape, batch = read_shape(base), training_batch(sizes)
    width = width or shape.intermediate_size
    layers = resolve_placement(DEFAULT_PLACEMENT, shape.num_layers)
    if is_lora:
        rank = matching_rank(shape, len(layers), width)
        model, saved = attach_lora(base, rank), saved_by_lora(shape, batch, rank)
    else:
        model, saved = attach_blocks(base, width), saved_by_blocks(shape, batch, layers, width)
    with tempfile.TemporaryDirectory() as folder:
        rows = training_rows(shape.vocab_size, sizes)
        step = make_step(make_trainer(model, rows, Path(folder), batch_size=sizes.batch_size))
        _reset_peak()
        for _ in range(NUM_STEPS):
            step()
        peak = _memory("VmHWM")
    num_trainable = count_trainable(model)
    values = peak_values(shape, num_trainable, saved)
    return Peak(peak - loaded, num_trainable, values * base.dtype.itemsize, str(base.dtype))


def _reset_peak() -> None:
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    with suppress(OSError):
        _CLEAR.write_text("5", encoding="ascii")


def _memory(name: str) -> int:
    """Return the memory now (``VmRSS``) or at its peak (``VmHWM``) in bytes: that of the GPU where there is one."""
    if torch.cuda.is_available():
        return torch.cuda.memory_allocated() if name == "VmRSS" else torch.cuda.max_memory_allocated()
    line = next(line for line in _STATUS.read_text(encoding="utf-8").splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024
