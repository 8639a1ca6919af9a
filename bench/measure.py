"""Time two or more sides turn by turn, and the record of a figure."""

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch

import calyrex

PACKAGES = ("torch", "transformers", "peft")


def do_nothing() -> None:
    """Do nothing."""


class Side(NamedTuple):
    """One of the things that are compared.

    Attributes:
        run: what is timed.
        reset: what is done after it, outside the time.
    """

    run: Callable[[], object]
    reset: Callable[[], object] = do_nothing


@dataclass(frozen=True)
class Figure:
    """One figure with all that it was made from.

    Attributes:
        value: the figure.
        unit: its unit.
        limit: what arithmetic alone would give, in the same unit; None where there is none.
        sides: the single measurements of each side, in their order.
        side_unit: unit of the measurements.
        dtype: number format of the base.
        details: sizes and counts a reader needs.
    """

    value: float
    unit: str
    limit: float | None
    sides: dict[str, list[float]]
    side_unit: str
    dtype: str
    details: dict[str, Any] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """Return the figure as plain data, with medians and the machine that it was measured on."""
        medians = {name: median(values) for name, values in self.sides.items()}
        return {**asdict(self), "medians": medians, "machine": describe_machine()}


def alternate(sides: Mapping[str, Side], rounds: int) -> dict[str, list[float]]:
    """Time all sides turn by turn, after one round that is not counted.

    Returns:
        Seconds of each run of each side.
    """
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, side in sides.items():
            taken = time_once(side.run)
            side.reset()
            if number > 0:
                seconds[name].append(taken)
    return seconds


def time_once(run: Callable[[], object]) -> float:
    """Return the seconds that a call takes, work on the GPU included."""
    wait_for_device()
    start = time.perf_counter()
    run()
    wait_for_device()
    return time.perf_counter() - start


def wait_for_device() -> None:
    """Wait until the GPU has done all it was given; nothing to do on a CPU."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def paired_ratio(numerator: Sequence[float], denominator: Sequence[float]) -> float:
    """Return the median of the ratios of measurements that were made one after the other."""
    return median(a / b for a, b in zip(numerator, denominator, strict=True))


def at_both_widths(key: str, demo_width: int, measure: Callable[[int | None], Figure]) -> dict[str, Figure]:
    """Measure with the demo's blocks, and beside it with blocks as wide as the base, ``<key>_full_width``."""
    return {key: measure(demo_width), f"{key}_full_width": measure(None)}


def describe_machine() -> dict[str, Any]:
    """Return what the figures depend on: processor, threads, versions, and the day."""
    versions = {"python": platform.python_version(), "calyrex": calyrex.__version__}
    return {
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else _cpu_name(),
        "cpu": _cpu_name(),
        "threads": torch.get_num_threads(),
        "versions": versions | {name: version(name) for name in PACKAGES},
        "date": datetime.now(UTC).date().isoformat(),
    }


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
