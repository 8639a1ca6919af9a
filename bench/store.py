"""Where the activations of the frozen layers come from; the only place that knows how they are kept."""

from pathlib import Path

from datasets import Dataset
from peft import PeftModel

from calyrex.training.prefix import PrefixStore, compute_prefix


def fill_store(model: PeftModel, rows: Dataset, folder: Path) -> PrefixStore:
    """Compute what enters the first block of a model for all rows, or find it in the folder."""
    store, steps = compute_prefix(model, rows, folder / "activations")
    for _ in steps:
        pass
    return store


def fill_shared(model: PeftModel, rows: Dataset, layers: list[int], folder: Path) -> None:
    """Compute the stream after several layers, from 0, in one pass; not possible yet, each store is filled alone."""
