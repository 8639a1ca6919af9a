"""What the page of an analysis holds, in its order: groups of exhibits, each a figure's words and its table."""

from typing import NamedTuple

from calyrex.report import analysis_rows as rows
from calyrex.report import block_rows
from calyrex.report.analysis_rows import NATS
from calyrex.report.analysis_tables import (
    Table,
    tabulate_chart,
    tabulate_masses,
    tabulate_norms,
    tabulate_off,
    tabulate_scale,
)
from calyrex.report.comparison_rows import Document

MASS, NORMS, SCALE, OFF = "mass", "norms", "scale", "off"
"""Names of the exhibits that are not charts over the layers."""


class Exhibit(NamedTuple):
    """The words around a figure, and its table.

    Attributes:
        name: unique in the page.
        title: what is shown.
        note: what it means.
        table: all its values.
        key: how to read the figure; empty where that is plain.
    """

    name: str
    title: str
    note: str
    table: Table
    key: str = ""


class Group(NamedTuple):
    """A section of the page.

    Attributes:
        name: unique in the page.
        title: its heading.
        exhibits: at least one.
    """

    name: str
    title: str
    exhibits: list[Exhibit]


def collect_groups(document: Document) -> list[Group]:
    """Return all sections of which something was measured, but for the maps of attention."""
    late = rows.late_layers(document)
    charts = [
        Group(
            section.name,
            section.title,
            [
                Exhibit(chart.name, chart.title, " ".join(chart.explanations), tabulate_chart(chart, late))
                for chart in section.charts
            ],
        )
        for section in rows.sections(document)
    ]
    groups = [
        Group("mass-group", "Where the mass lies", _mass(document)),
        *charts,
        Group("blocks", "What the blocks do", _blocks(document)),
    ]
    return [group for group in groups if group.exhibits]


def _mass(document: Document) -> list[Exhibit]:
    found = rows.masses(document)
    if not found:
        return []
    where, left_out = rows.name_late_layers(document), rows.without_mass(document)
    title = "Share of each effect in the last eighth" + (f", {where}" if where else "")
    key = "Dashed: the even share, that of the last eighth in all layers. Filled: the 95\u00a0% interval excludes it."
    note = f"No share can be stated for: {', '.join(left_out)}." if left_out else ""
    return [Exhibit(MASS, title, note, tabulate_masses(found), key)]


def _blocks(document: Document) -> list[Exhibit]:
    norms, scale = block_rows.norms_by_class(document), block_rows.scale_points(document)
    off = block_rows.switched_off(document)
    exhibits = [
        Exhibit(
            NORMS,
            "How much each block adds",
            "Norm of what a block adds to the stream, relative to the stream's, by the class of the token it is added "
            "to.",
            tabulate_norms(norms),
        ),
        Exhibit(
            SCALE,
            "How much of the blocks is best",
            f"Mean log-probability of the obedient answer in {NATS} against the scale of the blocks; higher is better.",
            tabulate_scale(scale),
        ),
        Exhibit(
            OFF,
            "What each block is good for",
            "Mean log-probability minus that with all blocks on, over the same conversations; what the other blocks "
            "make up for is not seen.",
            tabulate_off(off),
            "Left of the line, the obedient answer is less likely than with all blocks on.",
        ),
    ]
    return [exhibit for exhibit in exhibits if exhibit.table.rows]
