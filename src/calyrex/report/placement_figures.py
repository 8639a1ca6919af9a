"""Figures of a placement study: obedience against depth, and gain against size."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
from matplotlib.figure import Figure

from calyrex.report import comparison_rows as rows
from calyrex.report import svg
from calyrex.report.figures import look
from calyrex.report.labels import label_column, spread
from calyrex.report.numbers import finite

_BASE = "base"
_FRAME = (0.09, 0.13, 0.75, 0.85)
"""The plot in its figure; the names stand to its right."""
_LAYER_STEP, _SIZE_STEP = 0.3, 0.012
"""Between intervals that would lie on each other: in layers, and as a share of the largest size."""


class _Placement(NamedTuple):
    """A placement with what it reaches, in percent, and its size in millions of parameters."""

    label: str
    layers: Sequence[int]
    value: float
    low: float
    high: float
    size: float


def draw_placements(document: rows.Document, measure: Mapping[str, Any] | None) -> list[svg.Panel]:
    """Draw a measure against the depth of the blocks, and its gain over the base against their parameters.

    Args:
        document: what a study's JSON file holds.
        measure: its measure, a share of cases.

    Returns:
        No drawing where fewer than two contenders have blocks in different places.
    """
    if measure is None:
        return []
    found = list(_read(document, measure))
    if len({tuple(placement.layers) for placement in found}) < 2:
        return []
    base = finite(rows.value_of(measure, _BASE).get("value"))
    base = None if base is None else 100 * base
    panels = [_draw_depth(found, base)]
    return [*panels, _draw_sizes(found, base)] if base is not None else panels


def _read(document: rows.Document, measure: Mapping[str, Any]) -> Iterator[_Placement]:
    for entry in rows.list_of(document, "contenders"):
        figure = rows.value_of(measure, str(entry["name"]))
        value, low, high = (finite(figure.get(key)) for key in ("value", "low", "high"))
        size = finite(entry.get("trainable_parameters"))
        layers = rows.list_of(entry, "layers")
        if layers and size and value is not None and low is not None and high is not None:
            yield _Placement(rows.label_of(entry), layers, 100 * value, 100 * low, 100 * high, size / 1e6)


def _draw_depth(placements: Sequence[_Placement], base: float | None) -> svg.Panel:
    with matplotlib.rc_context(svg.settings()):
        figure = Figure(figsize=(7.4, 4.6))
        axes = figure.add_axes(_FRAME)
        if base is not None:
            axes.axhline(base, color=svg.MUTED, linewidth=1, linestyle=(0, (4, 3)))
        middles = spread([sum(one.layers) / len(one.layers) for one in placements], _LAYER_STEP)
        for place, (placement, middle) in enumerate(zip(placements, middles, strict=True)):
            color, marker = look(place)
            order = 3 - len(placement.layers) / 1000  # the fewest blocks on top
            axes.plot([middle, middle], [placement.low, placement.high], color=color, linewidth=1.2, alpha=0.6)
            values = [placement.value] * len(placement.layers)
            axes.plot(placement.layers, values, marker, linestyle="-", color=color, markersize=5, zorder=order)
        axes.set_xlabel("block after layer")
        axes.set_ylabel("obeyed, %")
        axes.grid(axis="y")
        axes.margins(x=0.08, y=0.12)
        ends = [(svg.clean(one.label), float(one.layers[-1]), one.value) for one in placements]
        label_column(axes, [(*end, look(place)[0]) for place, end in enumerate(ends)])
        spelled = "; ".join(f"{one.label} {one.value:.1f}" for one in placements)
        note = "each marker is a block; upright lines: 95 % intervals" + ("" if base is None else "; dashed: the base")
        drawing = svg.to_svg(figure, "depth", f"Obeyed in percent by placement: {spelled}")
        return svg.Panel("Obedience against depth", note, drawing)


def _draw_sizes(placements: Sequence[_Placement], base: float) -> svg.Panel:
    """Draw gain against size, and the line of those that no other beats at their size or below."""
    sizes = spread([one.size for one in placements], _SIZE_STEP * max(one.size for one in placements))
    front: list[tuple[float, float]] = []
    for one, size in sorted(zip(placements, sizes, strict=True), key=lambda pair: (pair[0].size, -pair[0].value)):
        if one.value - base > max([0.0, *(gain for _, gain in front)]):
            front.append((size, one.value - base))
    with matplotlib.rc_context(svg.settings()):
        figure = Figure(figsize=(7.4, 4.6))
        axes = figure.add_axes(_FRAME)
        axes.axhline(0, color=svg.MUTED, linewidth=1, linestyle=(0, (4, 3)))
        if front:
            axes.plot(*zip(*front, strict=True), color=svg.INK, linewidth=1, drawstyle="steps-post", zorder=1)
        for place, (one, size) in enumerate(zip(placements, sizes, strict=True)):
            color, marker = look(place)
            axes.plot([size, size], [one.low - base, one.high - base], color=color, linewidth=1.2, alpha=0.6)
            axes.plot(size, one.value - base, marker, color=color, markersize=8, zorder=3)
        axes.set_xlabel("trainable parameters, millions")
        axes.set_ylabel("gain over the base, points")
        axes.grid(axis="y")
        axes.margins(x=0.06, y=0.12)
        ends = [(svg.clean(one.label), size, one.value - base) for one, size in zip(placements, sizes, strict=True)]
        label_column(axes, [(*end, look(place)[0]) for place, end in enumerate(ends)])
        spelled = "; ".join(f"{one.label} {one.value - base:+.1f} for {one.size:.2f} million" for one in placements)
        note = (
            "the line joins those that no other beats with as many parameters or fewer; those of the same size stand "
            "side by side"
        )
        drawing = svg.to_svg(figure, "sizes", f"Gain in points against trainable parameters: {spelled}")
        return svg.Panel("Gain against size", note, drawing)
