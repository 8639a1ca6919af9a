"""The tables of a comparison as Markdown, a section ready for a page of results."""

from collections.abc import Iterator

from calyrex.report import comparison_rows as rows
from calyrex.report.markdown import escape, list_lines, table_of
from calyrex.report.numbers import MISSING, spell_count

_MARKS = {rows.BETTER: "▲", rows.WORSE: "▼", "": ""}


def render_table(document: rows.Document) -> str:
    """Render verdict, checks and all tables as Markdown."""
    title = "## Placements" if rows.verb_of(document) == "ablate" else "## Comparison"
    parts = [title, *_sentences(document), *_main(document), *_budget(document), *_differences(document)]
    return "\n\n".join(part for part in [*parts, *_run(document)] if part) + "\n"


def _sentences(document: rows.Document) -> Iterator[str]:
    yield list_lines([escape(str(sentence)) for sentence in rows.list_of(document, "verdict")])
    checks = [
        ("✓ held: " if check.get("holds") else "✗ did not hold: ") + escape(str(check.get("text") or check.get("name")))
        for check in rows.list_of(document, "checks")
    ]
    if checks:
        yield "### Checks"
        yield list_lines(checks)


def _main(document: rows.Document) -> Iterator[str]:
    table, measures = rows.contender_rows(document), rows.headlines(document)
    if not table or not measures:
        return
    yield "### Headline measures"
    heading = ["contender", *(_heading(measure) for measure in measures)]
    yield table_of(heading, [[_name(row), *map(_cell, row.cells)] for row in table])
    reference = rows.labels(document).get(rows.reference_of(document) or "")
    if reference:
        yield (
            "In brackets: 95 % intervals. **Bold with ▲ or ▼**: significantly better or worse than "
            f"{escape(reference)}, paired over the same cases, after correction for the number of comparisons "
            "(p &lt; 0.05)."
        )


def _heading(measure: rows.Document) -> str:
    direction = "" if rows.is_higher_better(measure) else " (lower is better)"
    cases = measure.get("num_cases")
    return escape(rows.label_of(measure)) + direction + (f", n = {spell_count(cases)}" if cases else "")


def _name(row: rows.ContenderRow) -> str:
    kind = " (reference)" if row.is_reference else " (control)" if row.contender.get("is_control") else ""
    return escape(rows.label_of(row.contender)) + kind


def _cell(cell: rows.Cell) -> str:
    text = f"{cell.value} {cell.interval}".strip()
    return f"**{text} {_MARKS[cell.verdict]}**" if cell.verdict else text


def _budget(document: rows.Document) -> Iterator[str]:
    table = rows.budget_rows(document)
    if not table:
        return
    yield "### Budget"
    heading = (
        *("contender", "trainable parameters", "to the budget", "learning rate", "search (loss, nats a token)"),
        *("tokens", "CPU time a seed", "wall time a seed", "peak memory", "added for each token"),
    )
    yield table_of(heading, [[escape(row.label), *row[1:4], _search(row), *row[5:]] for row in table])


def _search(row: rows.BudgetRow) -> str:
    tried = [f"{rate}: {loss}{' (chosen)' if is_chosen else ''}" for rate, loss, is_chosen in row.search]
    return "; ".join(tried) or MISSING


def _differences(document: rows.Document) -> Iterator[str]:
    groups = rows.group_measures(document)
    if any(rows.list_of(measure, "differences") for _, measures in groups for measure in measures):
        yield "### Differences"
        yield (
            "First minus second over the same cases, with 95 % intervals that are not corrected. **Bold**: significant "
            "after correction for the number of comparisons."
        )
    heading = ("measure", "first", "second", "difference", "p", "p, corrected", "better")
    for group, measures in groups:
        table = [
            [escape(rows.label_of(measure)), *_difference(row)]
            for measure in measures
            for row in rows.difference_rows(document, measure)
        ]
        if table:
            yield f"#### {escape(group.capitalize())}"
            yield table_of(heading, table, num_texts=3)


def _difference(row: rows.DifferenceRow) -> list[str]:
    text = f"{row.value} {row.interval}".strip()
    value = f"**{text}**" if row.winner else text
    names = escape(row.first), escape(row.second)
    return [
        *names,
        value,
        row.p_value.replace("<", "&lt;"),
        row.adjusted_p_value.replace("<", "&lt;"),
        escape(row.winner),
    ]


def _run(document: rows.Document) -> Iterator[str]:
    data = rows.list_of(document.get("run") or {}, "data")
    facts = rows.fact_tables(document)
    if facts or data:
        yield "### Run"
    if data:
        yield table_of(
            ("data", "rows", "tokens", "licence"),
            [
                [
                    escape(str(entry.get("name", ""))),
                    spell_count(entry.get("rows")),
                    spell_count(entry.get("tokens")),
                    escape(str(entry.get("licence") or MISSING)),
                ]
                for entry in data
            ],
        )
    for title, pairs in facts:
        yield table_of((title.lower(), ""), [[escape(name), escape(value)] for name, value in pairs], num_texts=2)
