"""Figures of a comparison: differences with intervals, the trade between security and utility, losses."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calyrex.report import comparison_rows as rows
from calyrex.report import svg
from calyrex.report.labels import label_rows, place_labels
from calyrex.report.numbers import finite
from calyrex.report.svg import Panel

_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*")
_WIDTH = 5.6
"""Width of a panel in inches; the page stretches it."""

_LABEL_SHARE = 0.42
_MAX_POINTS = 150
"""More points of a loss than this are averaged before they are drawn."""

_LOG_RATIO = 30.0
"""Losses further apart than this are drawn on a logarithmic scale."""


class _Interval(NamedTuple):
    label: str
    value: float
    low: float
    high: float
    is_significant: bool


def draw_differences(document: rows.Document) -> list[Panel]:
    """Draw the difference of the reference to each contender, one panel for each headline measure.

    A filled marker is a difference that is significant after correction; the line is its 95 % interval.
    """
    panels = []
    for number, measure in enumerate(rows.headlines(document)):
        intervals = _intervals(document, measure)
        if intervals:
            panels.append(_draw_forest(document, measure, intervals, f"forest{number}"))
    return panels


def _intervals(document: rows.Document, measure: Mapping[str, Any]) -> list[_Interval]:
    """Return reference minus contender for each contender, in points or the measure's unit."""
    reference, labels = rows.reference_of(document), rows.labels(document)
    scale = 100.0 if rows.unit_of(measure) == "share" else 1.0
    found: dict[str, _Interval] = {}
    for entry in rows.list_of(measure, "differences"):
        value, low, high = (finite(entry.get(key)) for key in ("value", "low", "high"))
        pair = [str(entry["first"]), str(entry["second"])]
        if value is None or low is None or high is None or reference not in pair:
            continue
        sign = scale if pair[0] == reference else -scale
        other = pair[1] if pair[0] == reference else pair[0]
        low, high = sorted((sign * low, sign * high))
        found[other] = _Interval(labels.get(other, other), sign * value, low, high, bool(entry.get("is_significant")))
    return [found[name] for name in [*labels, *(name for name in found if name not in labels)] if name in found]


def _draw_forest(
    document: rows.Document, measure: Mapping[str, Any], intervals: Sequence[_Interval], name: str
) -> Panel:
    reference = rows.reference_of(document) or ""
    unit = "percentage points" if rows.unit_of(measure) == "share" else rows.unit_of(measure)
    with matplotlib.rc_context(svg.settings()):
        height = 0.4 * len(intervals) + 0.55
        figure = Figure(figsize=(_WIDTH, height))
        axes = figure.add_axes((_LABEL_SHARE, 0.5 / height, 0.98 - _LABEL_SHARE, (height - 0.55) / height))
        axes.axvline(0, color=svg.INK, linewidth=1)
        for place, interval in enumerate(intervals):
            axes.plot([interval.low, interval.high], [place, place], color=svg.ACCENT, linewidth=1.8)
            face = svg.ACCENT if interval.is_significant else svg.SURFACE
            axes.plot(interval.value, place, "o", color=svg.ACCENT, markerfacecolor=face, markersize=7.5)
        label_rows(axes, [interval.label for interval in intervals], f"difference, {unit}")
        spelled = (
            f"{entry.label} {entry.value:+.3g}{' (significant)' if entry.is_significant else ''}" for entry in intervals
        )
        title = rows.label_of(measure)
        description = f"{title}: {rows.labels(document).get(reference, reference)} minus {'; '.join(spelled)}"
        better = "right" if rows.is_higher_better(measure) else "left"
        return Panel(title, f"the reference is better on the {better} of 0", svg.to_svg(figure, name, description))


def draw_trade(document: rows.Document) -> Panel | None:
    """Draw each contender's mean over two groups of measures; None where fewer than two groups have shares."""
    groups = {name: found for name in rows.GROUPS if (found := _shares(document, name))}
    across = next((name for name in ("security", "obedience") if name in groups), None)
    up = next((name for name in ("utility", "forgetting", "obedience") if name in groups and name != across), None)
    if across is None or up is None:
        return None
    points: dict[str, tuple[float, float]] = {}
    for name in rows.labels(document):
        x, y = _mean(groups[across], name), _mean(groups[up], name)
        if x is not None and y is not None:
            points[name] = (x, y)
    if not points:
        return None
    left_out = [label for name, label in rows.labels(document).items() if name not in points]
    note = "up and to the right is better" + (f"; not measured in all: {', '.join(left_out)}" if left_out else "")
    places = list(rows.labels(document))
    with matplotlib.rc_context(svg.settings()):
        figure = Figure(figsize=(7.4, 5.4))
        axes = figure.add_axes((0.1, 0.11, 0.88, 0.87))
        for name, (x, y) in points.items():
            color, marker = look(places.index(name))
            axes.plot(x, y, marker, color=color, markersize=9, zorder=3)
        axes.set_xlabel(_axis_label(across, groups[across]))
        axes.set_ylabel(_axis_label(up, groups[up]))
        axes.grid()
        axes.margins(0.16)
        place_labels(axes, [(svg.clean(name), x, y) for name, (x, y) in points.items()])
        spelled = "; ".join(f"{name} {x:.1f} and {y:.1f}" for name, (x, y) in points.items())
        description = f"Mean {across} and mean {up} in percent: {spelled}"
        return Panel(f"{across.capitalize()} against {up}", note, svg.to_svg(figure, "trade", description))


def _shares(document: rows.Document, group: str) -> list[Mapping[str, Any]]:
    """Return the headline measures of a group that are shares, all its shares where none is a headline."""
    measures = [
        measure
        for measure in rows.list_of(document, "measures")
        if measure.get("group") == group and rows.unit_of(measure) == "share" and measure.get("values")
    ]
    return [measure for measure in measures if measure.get("is_headline")] or measures


def _mean(measures: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """Return a contender's mean over measures in percent, higher being better; None where one is missing."""
    values = [finite(rows.value_of(measure, name).get("value")) for measure in measures]
    known = [
        value if rows.is_higher_better(measure) else 1 - value
        for measure, value in zip(measures, values, strict=True)
        if value is not None
    ]
    return 100 * sum(known) / len(known) if len(known) == len(measures) else None


def _axis_label(group: str, measures: Sequence[Mapping[str, Any]]) -> str:
    return f"{group}, %" + (f" (mean of {len(measures)} measures)" if len(measures) > 1 else "")


def draw_losses(document: rows.Document) -> list[Panel]:
    """Draw the training loss of each contender that was trained: a thin line for each seed, the others' in grey."""
    curves = {
        str(entry["name"]): kept
        for entry in rows.list_of(document, "contenders")
        if (kept := [curve for log in (entry.get("losses") or {}).values() if len(curve := _curve(log)) > 1])
    }
    labels, panels = rows.labels(document), []
    values = [loss for seeds in curves.values() for curve in seeds for _, loss in curve]
    is_log = bool(values) and min(values) > 0 and max(values) / min(values) > _LOG_RATIO
    for number, (name, seeds) in enumerate(curves.items()):
        others = [curve for other, found in curves.items() if other != name for curve in found]
        with matplotlib.rc_context(svg.settings()):
            figure = Figure(figsize=(3.1, 2.2))
            axes = figure.add_axes((0.18, 0.22, 0.79, 0.75))
            _draw_curves(axes, others, seeds, is_log=is_log)
            ends = ", ".join(f"{curve[-1][1]:.2f}" for curve in seeds)
            description = f"Training loss of {labels[name]}, in nats a token; at the end of each seed: {ends}"
            note = f"{len(seeds)} seed{'s' if len(seeds) > 1 else ''}, at the end {ends}"
            panels.append(Panel(labels[name], note, svg.to_svg(figure, f"loss{number}", description)))
    return panels


def _draw_curves(axes: Axes, others: Sequence[Any], seeds: Sequence[Any], *, is_log: bool) -> None:
    for curve in others:
        axes.plot(*zip(*curve, strict=True), color=svg.MUTED, linewidth=0.6, alpha=0.3)
    for curve in seeds:
        axes.plot(*zip(*curve, strict=True), color=svg.ACCENT, linewidth=1.1)
    if is_log:
        axes.set_yscale("log")
    else:
        axes.locator_params(axis="y", nbins=5)
    axes.locator_params(axis="x", nbins=4)
    axes.grid(axis="y")
    axes.set_xlabel("step")
    axes.set_ylabel("nats a token")


def _curve(log: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """Return steps and losses without gaps; many are averaged in equal runs of neighbours."""
    points = [
        (step, loss)
        for entry in log
        if (step := finite(entry.get("step"))) is not None and (loss := finite(entry.get("loss"))) is not None
    ]
    run = -(-len(points) // _MAX_POINTS)
    if run < 2:
        return points
    parts = [points[start : start + run] for start in range(0, len(points), run)]
    return [(sum(step for step, _ in part) / len(part), sum(loss for _, loss in part) / len(part)) for part in parts]


def look(place: int) -> tuple[str, str]:
    """Return the colour and the marker of a contender, which no other has together."""
    return svg.SERIES[place % len(svg.SERIES)], _MARKERS[place % len(_MARKERS)]
