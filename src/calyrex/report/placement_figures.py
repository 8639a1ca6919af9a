"""Figures of a placement study: obedience against depth, and gain against size."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
from matplotlib.figure import Figure

from calyrex.report import comparison_rows as rows
from calyrex.report import svg
from calyrex.report.figures import look
from calyrex.report.labels import place_labels
from calyrex.report.numbers import finite

_BASE = "base"


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
        axes = figure.add_axes((0.09, 0.13, 0.89, 0.85))
        if base is not None:
            axes.axhline(base, color=svg.MUTED, linewidth=1, linestyle=(0, (4, 3)))
        for place, placement in enumerate(placements):
            color, marker = look(place)
            middle = sum(placement.layers) / len(placement.layers)
            axes.plot([middle, middle], [placement.low, placement.high], color=color, linewidth=1.2, alpha=0.6)
            axes.plot(placement.layers, [placement.value] * len(placement.layers), color=color, linewidth=1)
            axes.plot(placement.layers, [placement.value] * len(placement.layers), marker, color=color, markersize=5)
        axes.set_xlabel("block after layer")
        axes.set_ylabel("obeyed, %")
        axes.grid(axis="y")
        axes.margins(x=0.08, y=0.12)
        names = [(svg.clean(one.label), float(one.layers[-1]), one.value) for one in placements]
        place_labels(axes, names)
        spelled = "; ".join(f"{one.label} {one.value:.1f}" for one in placements)
        note = "each marker is a block; upright lines: 95 % intervals" + ("" if base is None else "; dashed: the base")
        drawing = svg.to_svg(figure, "depth", f"Obeyed in percent by placement: {spelled}")
        return svg.Panel("Obedience against depth", note, drawing)


def _draw_sizes(placements: Sequence[_Placement], base: float) -> svg.Panel:
    """Draw gain against size, and the line of those that no other beats at their size or below."""
    front: list[_Placement] = []
    for placement in sorted(placements, key=lambda one: (one.size, -one.value)):
        if placement.value > max([base, *(one.value for one in front)]):
            front.append(placement)
    with matplotlib.rc_context(svg.settings()):
        figure = Figure(figsize=(7.4, 4.6))
        axes = figure.add_axes((0.09, 0.13, 0.89, 0.85))
        axes.axhline(0, color=svg.MUTED, linewidth=1, linestyle=(0, (4, 3)))
        if front:
            xs, ys = [one.size for one in front], [one.value - base for one in front]
            axes.plot(xs, ys, color=svg.INK, linewidth=1, drawstyle="steps-post", zorder=1)
        for place, one in enumerate(placements):
            color, marker = look(place)
            axes.plot([one.size, one.size], [one.low - base, one.high - base], color=color, linewidth=1.2, alpha=0.6)
            axes.plot(one.size, one.value - base, marker, color=color, markersize=8, zorder=3)
        axes.set_xlabel("trainable parameters, millions")
        axes.set_ylabel("gain over the base, points")
        axes.grid(axis="y")
        axes.margins(x=0.14, y=0.12)
        place_labels(axes, [(svg.clean(one.label), one.size, one.value - base) for one in placements])
        spelled = "; ".join(f"{one.label} {one.value - base:+.1f} for {one.size:.2f} million" for one in placements)
        note = "the line joins those that no other beats with as many parameters or fewer"
        drawing = svg.to_svg(figure, "sizes", f"Gain in points against trainable parameters: {spelled}")
        return svg.Panel("Gain against size", note, drawing)
