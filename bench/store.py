"""Activations of the frozen layers, computed before anything is timed."""

from pathlib import Path

from datasets import Dataset
from peft import PeftModel

from calyrex.training.activations import ActivationStore, fill_activations, open_activations


def fill_store(model: PeftModel, rows: Dataset, folder: Path) -> ActivationStore:
    """Compute what enters the first block of a model for all rows, or find it in the folder."""
    store, steps = open_activations(model, rows, folder=folder)
    for _ in steps:
        pass
    return store


def fill_shared(model: PeftModel, rows: Dataset, layers: list[int], folder: Path) -> None:
    """Compute the stream after several layers, from 0, in one pass of the base."""
    for _ in fill_activations(model, rows, layers, folder=folder):
        pass
