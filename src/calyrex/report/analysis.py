"""The report of ``calyrex analyze``: one page that needs no network, and the same words and tables as Markdown."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calyrex.report import analysis_rows as rows
from calyrex.report import block_rows
from calyrex.report.analysis_content import MASS, NORMS, OFF, SCALE, Exhibit, collect_groups
from calyrex.report.analysis_markdown import render_analysis
from calyrex.report.analysis_tables import tabulate_map
from calyrex.report.block_rows import AttentionMap
from calyrex.report.comparison_rows import Document, list_of
from calyrex.report.page import has_matplotlib, render_page, write_whole
from calyrex.report.plain import make_all_visible

PAGE, TABLE = "report.html", "analysis.md"

_WEIGHT_STEPS = 10000
"""Weights are written in the page as whole parts of this."""


def write_analysis(folder: Path, document: Mapping[str, Any]) -> None:
    """Write ``report.html`` and ``analysis.md``, each as a whole or not at all; older ones are replaced.

    Args:
        folder: an existing folder.
        document: what ``analysis.json`` holds; every list may be empty and every figure None.
    """
    document = make_all_visible(document)
    write_whole(folder / PAGE, _render(document))
    write_whole(folder / TABLE, render_analysis(document))


def _render(document: Document) -> str:
    run = document.get("run") or {}
    groups = collect_groups(document)
    maps = block_rows.attention_maps(document)
    can_draw = has_matplotlib()
    values = {
        "run": run,
        "verdict": list_of(document, "verdict"),
        "summary": rows.summarise_run(document),
        "late": rows.name_late_layers(document),
        "groups": groups,
        "has_blocks": bool(list_of(run, "blocks")),
        "figures": _draw(document, [exhibit for group in groups for exhibit in group.exhibits]) if can_draw else {},
        "can_draw": can_draw,
        "maps": maps,
        "map_tables": [tabulate_map(found) for found in maps],
        "matrices": _draw_matrices(maps) if can_draw else [],
        "map_blocks": list(dict.fromkeys(block for found in maps for block in found.weights)),
        "weights": [_shorten(found) for found in maps],
        "num_maps_without_weights": len(list_of(document.get("blocks") or {}, "maps")) - len(maps),
        "facts": rows.fact_tables(document),
    }
    return render_page("analysis", values, {})


def _draw(document: Document, exhibits: Sequence[Exhibit]) -> dict[str, Any]:
    """Draw the figure of each exhibit, by its name."""
    from calyrex.report import analysis_figures, block_figures

    named = {exhibit.name: exhibit for exhibit in exhibits}
    charts = [chart for section in rows.sections(document) for chart in section.charts]
    panels = {chart.name: analysis_figures.draw_chart(document, chart, named[chart.name]) for chart in charts}
    if MASS in named:
        panels[MASS] = analysis_figures.draw_masses(rows.masses(document), named[MASS])
    if NORMS in named:
        panels[NORMS] = block_figures.draw_norms(block_rows.norms_by_class(document), named[NORMS])
    if SCALE in named:
        panels[SCALE] = block_figures.draw_scale(block_rows.scale_points(document), named[SCALE])
    if OFF in named:
        panels[OFF] = block_figures.draw_off(block_rows.switched_off(document), named[OFF])
    return panels


def _draw_matrices(maps: Sequence[AttentionMap]) -> list[Any]:
    from calyrex.report.block_figures import draw_matrix

    return [draw_matrix(found, f"matrix{number}") for number, found in enumerate(maps)]


def _shorten(found: AttentionMap) -> dict[str, list[list[int]]]:
    """Return the weights by block as whole parts of ``_WEIGHT_STEPS``, which keeps the page small."""
    return {
        block: [[round(_WEIGHT_STEPS * weight) for weight in row] for row in weights]
        for block, weights in found.weights.items()
    }
