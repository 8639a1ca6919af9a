"""Figures of the blocks of an anchored model: what they add, how much of them is best, and where they look."""

from collections.abc import Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.transforms import Affine2D

from calyrex.report import svg
from calyrex.report.analysis_content import Exhibit
from calyrex.report.analysis_rows import NATS, SHARE, Point
from calyrex.report.block_rows import AttentionMap, Off
from calyrex.report.curves import LINES, WIDTH, count_in_whole, draw_curve, draw_dots, draw_sample
from calyrex.report.labels import label_rows, write_above
from calyrex.report.numbers import spell_value
from calyrex.report.svg import Panel

_MAX_GROUPS = 8
"""Up to so many blocks are drawn as groups of dots, more as lines."""

_SPREAD = 0.6
"""Width of a group of dots; the blocks are 1 apart."""

_MAX_ROWS, _MAX_COLUMNS = 40, 60
"""A matrix shows at most so many tokens of the answer and of the system prompt."""

_MATRIX_WIDTH, _CELL, _MAX_CELL, _CHARACTER = 7.4, 0.19, 0.42, 0.08
"""Width of a matrix, height and largest width of its cells, and width of a character beside it, in inches."""

_TOKEN_LENGTH = 14
"""Longer tokens are cut beside a matrix; the text above it has them whole."""

_FAINT = 0.01
"""Cells below this part of the largest weight are left empty."""

_POINTS, _NAN = 72, float("nan")


def draw_norms(norms: dict[str, list[Point]], exhibit: Exhibit) -> Panel:
    """Draw the norm of each block's contribution by class of tokens."""
    blocks = sorted({point.place for points in norms.values() for point in points})
    looks = (LINES * len(norms))[: len(norms)]
    are_groups = len(blocks) <= _MAX_GROUPS
    with matplotlib.rc_context(svg.settings()):
        figure = Figure(figsize=(WIDTH, 3.0))
        axes = figure.add_axes((0.15, 0.17, 0.83, 0.8))
        for number, (points, look) in enumerate(zip(norms.values(), looks, strict=True)):
            if are_groups:
                shift = _SPREAD * (number / max(len(norms) - 1, 1) - 0.5)
                draw_dots(axes, _number(points, blocks), look, SHARE, shift=shift)
            else:
                draw_curve(axes, points, look, SHARE)
        if are_groups:
            axes.set_xticks(range(len(blocks)), [f"{block:g}" for block in blocks])
            axes.set_xlim(-0.6, len(blocks) - 0.4)
        else:
            count_in_whole(axes)
        axes.axhline(0, color=svg.MUTED, linewidth=0.9)
        axes.grid(axis="y")
        axes.set_xlabel("block behind layer")
        axes.set_ylabel("norm, % of the stream's")
        spelled = "; ".join(
            f"{name}: " + ", ".join(f"block {point.place:g} {spell_value(point.value, SHARE)}" for point in points)
            for name, points in norms.items()
        )
        legend = [
            (draw_sample(look._replace(line=None) if are_groups else look, f"norms-key{number}"), name)
            for number, (name, look) in enumerate(zip(norms, looks, strict=True))
        ]
        drawing = svg.to_svg(figure, exhibit.name, f"Norm of each block's contribution. {spelled}")
        return Panel(exhibit.title, f"{exhibit.key} {exhibit.note}".strip(), drawing, legend)


def _number(points: Sequence[Point], blocks: Sequence[float]) -> list[Point]:
    return [point._replace(place=float(blocks.index(point.place))) for point in points]


def draw_scale(points: Sequence[Point], exhibit: Exhibit) -> Panel:
    """Draw the log-probability of the obedient answer against the scale of the blocks."""
    with matplotlib.rc_context(svg.settings()):
        figure = Figure(figsize=(WIDTH, 3.0))
        axes = figure.add_axes((0.16, 0.17, 0.82, 0.71))
        for place, name in ((0, "base"), (1, "as trained")):
            axes.axvline(place, color=svg.INK, linewidth=1.1, linestyle=(0, (4, 3)))
            write_above(axes, name, place)
        draw_curve(axes, points, LINES[0], NATS)
        axes.locator_params(axis="y", nbins=6)
        axes.grid(axis="y")
        axes.set_xlabel("scale of the blocks' contributions")
        axes.set_ylabel(f"log-probability, {NATS}")
        spelled = ", ".join(f"{spell_value(point.value, '')} at {point.place:g}" for point in points)
        drawing = svg.to_svg(figure, exhibit.name, f"Mean log-probability in {NATS} by scale: {spelled}")
        return Panel(exhibit.title, f"{exhibit.key} {exhibit.note}".strip(), drawing)


def draw_off(entries: Sequence[Off], exhibit: Exhibit) -> Panel:
    """Draw the log-probability with blocks switched off, as the difference to all on where that is known."""
    is_relative = any(entry.difference.value is not None for entry in entries)
    with matplotlib.rc_context(svg.settings()):
        height = 0.3 * len(entries) + 0.75
        figure = Figure(figsize=(WIDTH, height))
        axes = figure.add_axes((0.25, 0.52 / height, 0.72, (height - 0.62) / height))
        if is_relative:
            axes.axvline(0, color=svg.INK, linewidth=1)
        for place, entry in enumerate(entries):
            _, value, low, high = entry.difference if is_relative else entry.point
            if low is not None and high is not None:
                axes.plot([low, high], [place, place], color=svg.ACCENT, linewidth=1.8)
            face = svg.SURFACE if entry.is_reference else svg.ACCENT
            axes.plot(
                [_NAN if value is None else value], [place], "o", color=svg.ACCENT, markerfacecolor=face, markersize=7
            )
        relative = " minus all on" if is_relative else ""
        label_rows(axes, [entry.label for entry in entries], f"log-probability{relative}, {NATS}")
        spelled = ", ".join(f"{entry.label} {spell_value(entry.point.value, '')}" for entry in entries)
        drawing = svg.to_svg(figure, exhibit.name, f"Mean log-probability in {NATS}: {spelled}")
        return Panel(exhibit.title, f"{exhibit.key} {exhibit.note}".strip(), drawing)


def draw_matrix(found: AttentionMap, name: str) -> Panel:
    """Draw the weights of an answer's tokens over the system tokens, mean over the blocks.

    Of a long conversation the first tokens of the answer are shown, over the system tokens with the largest weights;
    the note says so.
    """
    weights = found.average()
    num_rows = min(len(weights), _MAX_ROWS)
    totals = [sum(column) for column in zip(*weights, strict=True)]
    columns = sorted(sorted(range(len(totals)), key=lambda place: -totals[place])[:_MAX_COLUMNS])
    largest = max(max(row) for row in weights) or 1.0
    across, down = (
        [_cut(found.system_tokens[column]) for column in columns],
        [*map(_cut, found.answer_tokens[:num_rows])],
    )
    with matplotlib.rc_context(svg.settings()):
        left, below = (0.15 + _CHARACTER * max(map(len, texts)) for texts in (down, across))
        height = _CELL * num_rows + below + 0.05
        width = min(_MATRIX_WIDTH - left - 0.05, _MAX_CELL * len(columns))
        figure = Figure(figsize=(_MATRIX_WIDTH, height))
        box = (left / _MATRIX_WIDTH, below / height, width / _MATRIX_WIDTH, _CELL * num_rows / height)
        axes = figure.add_axes(box)
        size = width * _POINTS / len(columns), _CELL * _POINTS
        parts = [[weights[row][column] / largest for column in columns] for row in range(num_rows)]
        _draw_cells(axes, parts, size)
        axes.set_xticks(range(len(columns)), across)
        axes.tick_params(axis="x", length=0, labelsize=min(8.5, 70 * width / len(columns)), rotation=90)
        axes.set_yticks(range(num_rows), down)
        axes.tick_params(axis="y", length=0, labelsize=8.5)
        axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(num_rows - 0.5, -0.5))
        title = "All weights: the answer (down) over the system prompt (across), mean over the blocks"
        left_out = _left_out(found, num_rows, len(columns))
        note = f"The strongest cell is a weight of {spell_value(largest, SHARE)}.{left_out}"
        return Panel(title, note, svg.to_svg(figure, name, f"{title}. The table below names the largest."))


def _draw_cells(axes: Axes, parts: Sequence[Sequence[float]], size: tuple[float, float]) -> None:
    """Draw cells as strong as their parts of the largest, ``[rows, columns]`` of 0 .. 1; ``size`` is in points."""
    shown = [
        (column, row, part) for row, line in enumerate(parts) for column, part in enumerate(line) if part >= _FAINT
    ]
    across, up = size[0] / 2, size[1] / 2
    corners = [[(-across, -up), (across, -up), (across, up), (-across, up)]]
    axes.add_collection(
        PolyCollection(
            corners,
            offsets=[(column, row) for column, row, _ in shown],
            offset_transform=axes.transData,
            transform=Affine2D(),
            facecolors=[to_rgba(svg.ACCENT, round(part, 2)) for _, _, part in shown],
            linewidths=0,
            clip_on=False,
        ),
        autolim=False,
    )


def _cut(token: str) -> str:
    text = svg.clean(token.strip() or token)
    return text if len(text) <= _TOKEN_LENGTH else f"{text[: _TOKEN_LENGTH - 1]}…"


def _left_out(found: AttentionMap, num_rows: int, num_columns: int) -> str:
    answer, system = len(found.answer_tokens), len(found.system_tokens)
    note = f" Shown: the first {num_rows} of {answer} tokens of the answer." if num_rows < answer else ""
    if num_columns < system:
        note += f" Shown: the {num_columns} of {system} tokens of the system prompt with the largest weights."
    return note
