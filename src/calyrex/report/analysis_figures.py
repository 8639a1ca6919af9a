"""Figures of an analysis over the layers, and where the mass of each effect lies."""

from collections.abc import Sequence

import matplotlib
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calyrex.report import svg
from calyrex.report.analysis_content import Exhibit
from calyrex.report.analysis_rows import SHARE, Chart, Curve, Mass, late_layers, name_late_layers
from calyrex.report.comparison_rows import Document, list_of
from calyrex.report.curves import CONTROL, LEVEL, LINES, WIDTH, Look, count_in_whole, draw_curve, draw_sample, to_shown
from calyrex.report.labels import label_rows, write_above
from calyrex.report.numbers import MISSING, finite, spell_interval, spell_value
from calyrex.report.svg import Panel

_BLOCK = Look(svg.INK, None, "^")
_LEFT, _RIGHT, _ABOVE, _BELOW = 0.74, 0.1, 0.26, 0.52
"""Margins of a panel in inches."""

_PLOT_HEIGHT, _PARTS_HEIGHT, _GAP = 2.2, 0.95, 0.3
_LABEL_SHARE = 0.42


def draw_masses(found: Sequence[Mass], exhibit: Exhibit) -> Panel:
    """Draw which share of each measure's effect lies in the last eighth."""
    spelled = "; ".join(
        f"{mass.label} {spell_value(mass.value, SHARE)} {spell_interval(mass.low, mass.high, SHARE)}, {mass.verdict}"
        for mass in found
    )
    with matplotlib.rc_context(svg.settings()):
        height = 0.42 * len(found) + 0.9
        figure = Figure(figsize=(WIDTH, height))
        axes = figure.add_axes((_LABEL_SHARE, 0.52 / height, 0.97 - _LABEL_SHARE, (height - 0.82) / height))
        for place, mass in enumerate(found):
            _draw_mass(axes, place, mass)
        axes.axvline(0, color=svg.MUTED, linewidth=0.9)
        label_rows(axes, [mass.label for mass in found], "share of the effect in the last eighth, %")
        if (even := found[0].even_share) is not None:
            write_above(axes, "even share", 100 * even)
        drawing = svg.to_svg(figure, exhibit.name, f"{exhibit.title}. {spelled}")
        return Panel(exhibit.title, f"{exhibit.key} {exhibit.note}".strip(), drawing)


def _draw_mass(axes: Axes, place: int, mass: Mass) -> None:
    if mass.even_share is not None:
        ends = [100 * mass.even_share] * 2, [place - 0.6, place + 0.6]
        axes.plot(*ends, color=svg.INK, linewidth=1.1, linestyle=(0, (4, 3)))
    if mass.low is not None and mass.high is not None:
        axes.plot([100 * mass.low, 100 * mass.high], [place, place], color=svg.ACCENT, linewidth=1.9)
    face = svg.ACCENT if mass.is_told else svg.SURFACE
    axes.plot(100 * mass.value, place, "o", color=svg.ACCENT, markerfacecolor=face, markersize=7.5)


def draw_chart(document: Document, chart: Chart, exhibit: Exhibit) -> Panel:
    """Draw a chart over the layers: lines with bands, below them the parts of the layers, the last eighth shaded."""
    with matplotlib.rc_context(svg.settings()):
        has_parts = any(part.value is not None for part in chart.parts)
        height = _ABOVE + _PLOT_HEIGHT + _BELOW + (_GAP + _PARTS_HEIGHT if has_parts else 0)
        figure = Figure(figsize=(WIDTH, height))
        across = (_LEFT / WIDTH, 1 - (_LEFT + _RIGHT) / WIDTH)
        top = figure.add_axes((across[0], 1 - (_ABOVE + _PLOT_HEIGHT) / height, across[1], _PLOT_HEIGHT / height))
        _draw_lines(top, chart)
        bottom = top
        if has_parts:
            bottom = figure.add_axes((across[0], _BELOW / height, across[1], _PARTS_HEIGHT / height), sharex=top)
            _draw_parts(bottom, chart)
            top.tick_params(labelbottom=False)
        _mark_layers(document, chart, top, bottom)
        figure.align_ylabels()
        drawing = svg.to_svg(figure, chart.name, _describe(chart))
        return Panel(exhibit.title, f"{exhibit.key} {exhibit.note}".strip(), drawing, _legend(document, chart))


def _draw_lines(axes: Axes, chart: Chart) -> None:
    axes.axhline(0, color=svg.MUTED, linewidth=0.9)
    for curve, look in reversed(_looks(chart)):
        draw_curve(axes, curve.points, look, chart.unit)
    if chart.chance is not None:
        axes.axhline(to_shown(chart.chance, chart.unit), color=LEVEL.color, linestyle=LEVEL.line, linewidth=1.2)
    if chart.axis.startswith("accuracy"):
        axes.set_ylim(-3, 103)
    axes.locator_params(axis="y", nbins=6)
    axes.grid(axis="y")
    axes.set_ylabel(svg.clean(chart.axis))


def _draw_parts(axes: Axes, chart: Chart) -> None:
    axes.axhline(0, color=svg.MUTED, linewidth=0.9)
    places = [part.place for part in chart.parts]
    axes.bar(places, [to_shown(part.value, chart.unit) for part in chart.parts], width=0.72, color=svg.ACCENT)
    if not any(part.value for part in chart.parts):
        axes.set_ylim(-1, 1)
    axes.locator_params(axis="y", nbins=4)
    axes.grid(axis="y")
    axes.set_ylabel(f"{chart.parts_label}, points", fontsize=9.5)


def _mark_layers(document: Document, chart: Chart, top: Axes, bottom: Axes) -> None:
    """Shade and name the last eighth, mark the layers with a block, and number the layers."""
    places = [point.place for curve in chart.curves for point in curve.points]
    late = late_layers(document)
    for axes in dict.fromkeys((top, bottom)):
        if late:
            axes.axvspan(min(late) - 0.5, max(late) + 0.5, color=svg.LINE, alpha=0.55, linewidth=0, zorder=0)
    top.set_xlim(min(*places, *late) - 0.6, max(*places, *late) + 0.6)
    if late:
        text = f"last eighth: {name_late_layers(document)}"
        top.set_title(text, loc="right", fontsize=9.5, pad=4)
    if blocks := _blocks(document):
        below = bottom.get_xaxis_transform()
        bottom.plot(blocks, [0.0] * len(blocks), transform=below, clip_on=False, zorder=5, **_BLOCK.options())
    count_in_whole(bottom)
    bottom.set_xlabel("layer (0: embeddings)" if min(places) == 0 else "layer")


def _blocks(document: Document) -> list[float]:
    blocks = (finite(layer) for layer in list_of(document.get("run") or {}, "blocks"))
    return [layer for layer in blocks if layer is not None]


def _looks(chart: Chart) -> list[tuple[Curve, Look]]:
    lines = iter(LINES * len(chart.curves))
    return [(curve, CONTROL if curve.is_control else next(lines)) for curve in chart.curves]


def _legend(document: Document, chart: Chart) -> list[tuple[Markup, str]]:
    entries = [(look, curve.label) for curve, look in _looks(chart)]
    if chart.chance is not None:
        entries.append((LEVEL, f"chance: {spell_value(chart.chance, chart.unit)}"))
    if _blocks(document):
        entries.append((_BLOCK, "a block sits behind this layer"))
    return [(draw_sample(look, f"{chart.name}-key{place}"), label) for place, (look, label) in enumerate(entries)]


def _describe(chart: Chart) -> str:
    """Say what a reader who does not see the figure needs: both ends and the largest value of each line."""
    parts = []
    for curve in chart.curves:
        known = [point for point in curve.points if point.value is not None]
        chosen = {point.place: point for point in (known[0], max(known, key=lambda point: point.value or 0), known[-1])}
        values = ", ".join(
            f"{spell_value(point.value, SHARE if chart.unit == SHARE else '')} at layer {point.place:g}"
            for point in sorted(chosen.values())
        )
        parts.append(f"{curve.label}: {values or MISSING}")
    return f"{chart.title}. {'; '.join(parts)}. The table below the figure has all values."
