"""The report of ``calyrex compare`` and ``calyrex ablate``: one offline page, and the same tables as Markdown."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from calyrex.report import comparison_rows as rows
from calyrex.report import numbers
from calyrex.report.comparison_markdown import render_table
from calyrex.report.comparison_samples import collect_samples
from calyrex.report.page import has_matplotlib, render_page, write_whole
from calyrex.report.plain import make_all_visible
from calyrex.studies.measures import OBEYED

PAGE, TABLE = "report.html", "table.md"


class _Figures(NamedTuple):
    """The drawings of the page; ``are_missing`` where matplotlib is not installed."""

    differences: list[Any]
    trade: Any
    losses: list[Any]
    placements: list[Any]
    are_missing: bool


def write_comparison(folder: Path, document: Mapping[str, Any], samples: Sequence[Mapping[str, Any]]) -> None:
    """Write ``report.html`` and ``table.md``; older ones are replaced.

    Args:
        folder: an existing folder.
        document: what ``comparison.json`` holds; every list may be empty and every figure None.
        samples: what ``samples.jsonl`` holds, one entry for each case.
    """
    document, samples = make_all_visible(document), make_all_visible(list(samples))
    write_whole(folder / PAGE, _render(document, samples))
    write_whole(folder / TABLE, render_table(document))


def _render(document: rows.Document, samples: Sequence[Mapping[str, Any]]) -> str:
    groups = [
        (group, [(measure, rows.difference_rows(document, measure)) for measure in measures])
        for group, measures in rows.group_measures(document)
    ]
    values = {
        "run": document.get("run") or {},
        "verb": rows.verb_of(document),
        "verdict": rows.list_of(document, "verdict"),
        "checks": rows.list_of(document, "checks"),
        "contenders": rows.list_of(document, "contenders"),
        "reference": rows.labels(document).get(rows.reference_of(document) or ""),
        "measures": rows.list_of(document, "measures"),
        "headlines": rows.headlines(document),
        "table": rows.contender_rows(document),
        "groups": groups,
        "budget": rows.budget_rows(document),
        "figures": _draw(document),
        "facts": rows.fact_tables(document),
        "samples": collect_samples(document, samples),
    }
    filters = {"label": rows.label_of, "count": numbers.spell_count}
    return render_page("comparison", values, filters)


def _draw(document: rows.Document) -> _Figures:
    """Draw the figures; a page without them is better than none after hours of training."""
    if not has_matplotlib():
        return _Figures([], None, [], [], are_missing=True)
    from calyrex.report import figures
    from calyrex.report.placement_figures import draw_placements

    obeyed = next((one for one in rows.list_of(document, "measures") if one.get("name") == OBEYED), None)
    return _Figures(
        figures.draw_differences(document),
        figures.draw_trade(document),
        figures.draw_losses(document),
        draw_placements(document, obeyed),
        are_missing=False,
    )
