"""The tables of an analysis as rows of text, the same for HTML and Markdown."""

from collections.abc import Sequence
from typing import NamedTuple

from calyrex.report import numbers
from calyrex.report.analysis_rows import NATS, SHARE, Chart, Mass, Point
from calyrex.report.block_rows import AttentionMap, Off

_DIGITS = 4
"""Digits of figures that are no shares."""

_NUM_LARGEST = 5
"""So many system tokens are named for each token of an answer."""


class Cell(NamedTuple):
    """A figure and its 95 % interval, empty where there is none."""

    value: str
    interval: str = ""


class Row(NamedTuple):
    """A line of a table.

    Attributes:
        name: what stands before it.
        cells: one for each column.
        mark: a word that sets it apart, else empty.
    """

    name: str
    cells: list[Cell]
    mark: str = ""


class Table(NamedTuple):
    """A table as text.

    Attributes:
        caption: what it shows.
        heading: the first is that of the rows' names.
        rows: with as many cells as the heading has behind its first.
        is_text: whether the cells are words.
    """

    caption: str
    heading: list[str]
    rows: list[Row]
    is_text: bool = False


def tabulate_chart(chart: Chart, late: Sequence[int]) -> Table:
    """Return a chart's table, a row for each layer."""
    caption = chart.title if chart.unit == SHARE or chart.unit in chart.title else f"{chart.title}, {chart.unit}"
    heading = ["layer", *(curve.label for curve in chart.curves)]
    columns = [{point.place: _cell(point, chart.unit) for point in curve.points} for curve in chart.curves]
    if chart.parts:
        heading.append(chart.parts_label)
        columns.append({part.place: Cell(numbers.spell_difference(part.value, chart.unit)) for part in chart.parts})
    places = sorted({place for column in columns for place in column})
    rows = [
        Row(
            f"{place:g}",
            [column.get(place, Cell(numbers.MISSING)) for column in columns],
            "last eighth" if place in late else "",
        )
        for place in places
    ]
    return Table(caption, heading, rows)


def tabulate_masses(masses: Sequence[Mass]) -> Table:
    """Return the shares in the last eighth beside the even share."""
    heading = ["measure", "share in the last eighth", "even share", "in words"]
    rows = [
        Row(
            mass.label,
            [
                Cell(numbers.spell_value(mass.value, SHARE), numbers.spell_interval(mass.low, mass.high, SHARE)),
                Cell(numbers.spell_value(mass.even_share, SHARE)),
                Cell(mass.verdict),
            ],
        )
        for mass in masses
    ]
    return Table("Share of the whole effect in the last eighth of the layers", heading, rows)


def tabulate_norms(norms: dict[str, list[Point]]) -> Table:
    """Return the blocks' contributions, a row for each block and a column for each class of tokens."""
    columns = [{point.place: _cell(point, SHARE) for point in points} for points in norms.values()]
    places = sorted({place for column in columns for place in column})
    rows = [Row(f"{place:g}", [column.get(place, Cell(numbers.MISSING)) for column in columns]) for place in places]
    return Table("Norm of each block's contribution relative to the stream's", ["block", *norms], rows)


def tabulate_scale(points: Sequence[Point]) -> Table:
    """Return the log-probability at each scale."""
    marks = {0.0: "base", 1.0: "as trained"}
    rows = [Row(f"{point.place:g}", [_cell(point, "")], marks.get(point.place, "")) for point in points]
    return Table("Mean log-probability against the scale", ["scale", NATS], rows)


def tabulate_off(entries: Sequence[Off]) -> Table:
    """Return the log-probability with blocks switched off, and its difference to all on."""
    rows = [Row(entry.label, [_cell(entry.point, ""), _spell_difference(entry.difference)]) for entry in entries]
    return Table("Mean log-probability with blocks switched off", ["blocks", NATS, "minus all on"], rows)


def tabulate_map(found: AttentionMap) -> Table:
    """Return the system tokens with the largest weights for each token of the answer, means over the blocks."""
    rows = []
    for token, weights in zip(found.answer_tokens, found.average(), strict=True):
        largest = sorted(range(len(weights)), key=lambda place: -weights[place])[:_NUM_LARGEST]
        named = [f"“{found.system_tokens[place]}” {numbers.spell_value(weights[place], SHARE)}" for place in largest]
        rows.append(Row(f"“{token}”", [Cell(", ".join(named))]))
    return Table("Largest weights, mean over the blocks", ["the answer", "looks at"], rows, is_text=True)


def _spell_difference(point: Point) -> Cell:
    interval = numbers.spell_difference_interval(point.low, point.high, "")
    return Cell(numbers.spell_difference(point.value, ""), interval)


def _cell(point: Point, unit: str) -> Cell:
    shown = SHARE if unit == SHARE else ""
    return Cell(
        numbers.spell_value(point.value, shown, _DIGITS),
        numbers.spell_interval(point.low, point.high, shown, _DIGITS),
    )
