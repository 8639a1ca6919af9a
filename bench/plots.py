"""Figures of the benchmarks; colours of the Okabe-Ito palette, which colour-blind readers tell apart."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"


def plot_width(curve: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw what the width of a block's feed-forward gains and costs.

    Args:
        curve: one entry for each width: ``intermediate_size``; ``gain_kept``, ``gain_kept_low`` and ``gain_kept_high``,
            the share of the widest block's gain in obedience and its interval, in percent; ``relative_train_time`` and
            ``relative_decode_time``, those of the widest block being 1.
        path: image to write; its ending says the format.
    """
    curve = sorted(curve, key=lambda entry: int(entry["intermediate_size"]))
    widths = [entry["intermediate_size"] for entry in curve]
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    gain, cost = figure.subplots(1, 2)
    kept = [entry["gain_kept"] for entry in curve]
    below = [entry["gain_kept"] - entry["gain_kept_low"] for entry in curve]
    above = [entry["gain_kept_high"] - entry["gain_kept"] for entry in curve]
    gain.errorbar(widths, kept, yerr=[below, above], color=BLUE, marker="o", capsize=3)
    gain.axhline(100, color="0.6", linewidth=1, linestyle=":")
    gain.set_title("Obedience gained")
    gain.set_ylabel("of the gain of the widest block, %")
    for name, label, color, marker, line in (
        ("relative_train_time", "training step, from the store", ORANGE, "s", "-"),
        ("relative_decode_time", "decoded token, one row", GREEN, "^", "--"),
    ):
        cost.plot(widths, [entry[name] for entry in curve], color=color, marker=marker, linestyle=line, label=label)
    cost.set_title("Time taken")
    cost.set_ylabel("relative to the widest block")
    cost.legend(frameon=False)
    for axes in (gain, cost):
        _finish(axes, widths)
    figure.savefig(path, dpi=160)


def _finish(axes: Axes, widths: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(widths), [str(width) for width in widths])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_xlabel("feed-forward size of a block, F")
    axes.grid(color="0.9")
    axes.spines[["top", "right"]].set_visible(False)
