"""A study of placements with and without one shared pass over the frozen layers."""

import tempfile
from functools import partial
from pathlib import Path

from datasets import Dataset
from peft import PeftModel

from bench.limits import Batch, layers_flops, read_shape, train_flops
from bench.measure import Figure, paired_ratio, time_once
from bench.models import Sizes, attach_blocks, load, make_rows
from bench.store import fill_shared, fill_store
from bench.train import make_trainer
from calyrex.placement import PLACEMENTS, resolve_placement
from calyrex.training.trainer import BlockTrainer

SEPARATE, SHARED = "separate", "shared"


def compare_placements(sizes: Sizes) -> dict[str, Figure]:
    """Measure the time of all named placements trained separately, over that with shared activations."""
    base = load(sizes)
    shape, dtype = read_shape(base), str(base.dtype)
    layers = {name: resolve_placement(name, shape.num_layers) for name in PLACEMENTS}
    totals: dict[str, list[float]] = {SEPARATE: [], SHARED: []}
    for _ in range(sizes.study_rounds):
        taken = _run_study(sizes, layers)
        totals[SEPARATE].append(sum(taken[SEPARATE].values()))
        totals[SHARED].append(sum(taken[SHARED].values()))
    batch = Batch.causal(sizes.study_rows, sizes.study_tokens, sizes.system_tokens, sizes.study_tokens // 4)
    whole, stored = (
        sizes.study_epochs
        * sum(train_flops(shape, batch, each, sizes.demo_width, is_stored=is_stored) for each in layers.values())
        for is_stored in (False, True)
    )
    once = layers_flops(shape, batch, max(min(each) for each in layers.values()), is_backward=False)
    figure = Figure(
        value=paired_ratio(totals[SEPARATE], totals[SHARED]),
        unit="x",
        limit=whole / (once + stored),
        sides=totals,
        side_unit="s",
        dtype=dtype,
        details={"epochs": sizes.study_epochs, "intermediate_size": sizes.demo_width, "last_round_s": taken},
    )
    return {"placements_shared_vs_separate": figure}


def _run_study(sizes: Sizes, layers: dict[str, list[int]]) -> dict[str, dict[str, float]]:
    """Train every placement both ways, one after the other.

    Returns:
        Seconds of each placement each way; the pass that is shared stands beside the placements.
    """
    separate: dict[str, float] = {}
    shared: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in layers:
            model = attach_blocks(load(sizes), sizes.demo_width, name)
            rows = make_rows(
                model.config.vocab_size,
                sizes.study_rows,
                sizes.study_tokens,
                system_tokens=sizes.system_tokens,
                answer_tokens=sizes.study_tokens // 4,
            )
            if not shared:
                firsts = sorted({min(each) - 1 for each in layers.values()})
                shared["frozen layers"] = time_once(partial(fill_shared, model, rows, firsts, folder))
            whole, stored = (
                make_trainer(model, rows, folder, batch_size=sizes.study_batch, num_epochs=sizes.study_epochs)
                for _ in range(2)
            )
            separate[name] = time_once(whole.train)
            shared[name] = time_once(partial(_train_from_store, stored, model, rows, folder))
    return {SEPARATE: separate, SHARED: shared}


def _train_from_store(trainer: BlockTrainer, model: PeftModel, rows: Dataset, folder: Path) -> None:
    trainer.store = fill_store(model, rows, folder)
    trainer.train()
