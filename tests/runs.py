"""The command of a short training run, and what it leaves."""

from pathlib import Path

import torch
from safetensors.torch import load_file


def train_command(base: Path, data: Path, output_dir: Path, *more: str) -> list[str]:
    flags = {
        "data": data, "base": base, "output-dir": output_dir, "placement": "3,4", "batch-size": 4, "save-steps": 3,
        "num-epochs": 2, "logging-steps": 5, "dtype": "float32", "learning-rate": "1e-2",
    }  # fmt: skip
    return ["train", *(word for name, value in flags.items() for word in (f"--{name}", str(value))), *more]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "adapter_model.safetensors")
