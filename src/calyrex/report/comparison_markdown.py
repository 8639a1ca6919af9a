"""The tables of a comparison as Markdown, a section ready for a page of results."""

import re
from collections.abc import Iterator, Sequence

from calyrex.report import comparison_rows as rows
from calyrex.report.numbers import MISSING, spell_count

_ACTIVE = re.compile(r"[\\`*<>|~]|\](?=[(\[:])|(?<!\w)_|_(?!\w)|&(?=[#\w])")
_MARKS = {rows.BETTER: "▲", rows.WORSE: "▼", "": ""}


def render_table(document: rows.Document) -> str:
    """Render verdict, checks and all tables as Markdown."""
    parts = ["## Comparison", *_sentences(document), *_main(document), *_budget(document), *_differences(document)]
    return "\n\n".join(part for part in [*parts, *_run(document)] if part) + "\n"


def _sentences(document: rows.Document) -> Iterator[str]:
    yield _bullets([_escape(str(sentence)) for sentence in rows.list_of(document, "verdict")])
    checks = [
        ("✓ held: " if check.get("holds") else "✗ did not hold: ")
        + _escape(str(check.get("text") or check.get("name")))
        for check in rows.list_of(document, "checks")
    ]
    if checks:
        yield "### Checks"
        yield _bullets(checks)


def _main(document: rows.Document) -> Iterator[str]:
    table, measures = rows.contender_rows(document), rows.headlines(document)
    if not table or not measures:
        return
    yield "### Headline measures"
    heading = ["contender", *(_heading(measure) for measure in measures)]
    yield _table(heading, [[_name(row), *map(_cell, row.cells)] for row in table])
    reference = rows.labels(document).get(rows.reference_of(document) or "")
    if reference:
        yield (
            "In brackets: 95 % intervals. **Bold with ▲ or ▼**: significantly better or worse than "
            f"{_escape(reference)}, paired over the same cases, after correction for the number of comparisons "
            "(p &lt; 0.05)."
        )


def _heading(measure: rows.Document) -> str:
    direction = "" if rows.is_higher_better(measure) else " (lower is better)"
    cases = measure.get("num_cases")
    return _escape(rows.label_of(measure)) + direction + (f", n = {spell_count(cases)}" if cases else "")


def _name(row: rows.ContenderRow) -> str:
    kind = " (reference)" if row.is_reference else " (control)" if row.contender.get("is_control") else ""
    return _escape(rows.label_of(row.contender)) + kind


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
    yield _table(heading, [[_escape(row.label), *row[1:4], _search(row), *row[5:]] for row in table])


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
            [_escape(rows.label_of(measure)), *_difference(row)]
            for measure in measures
            for row in rows.difference_rows(document, measure)
        ]
        if table:
            yield f"#### {_escape(group.capitalize())}"
            yield _table(heading, table, num_texts=3)


def _difference(row: rows.DifferenceRow) -> list[str]:
    text = f"{row.value} {row.interval}".strip()
    value = f"**{text}**" if row.winner else text
    names = _escape(row.first), _escape(row.second)
    return [
        *names,
        value,
        row.p_value.replace("<", "&lt;"),
        row.adjusted_p_value.replace("<", "&lt;"),
        _escape(row.winner),
    ]


def _run(document: rows.Document) -> Iterator[str]:
    data = rows.list_of(document.get("run") or {}, "data")
    facts = rows.fact_tables(document)
    if facts or data:
        yield "### Run"
    if data:
        yield _table(
            ("data", "rows", "tokens", "licence"),
            [
                [
                    _escape(str(entry.get("name", ""))),
                    spell_count(entry.get("rows")),
                    spell_count(entry.get("tokens")),
                    _escape(str(entry.get("licence") or MISSING)),
                ]
                for entry in data
            ],
        )
    for title, pairs in facts:
        yield _table((title.lower(), ""), [[_escape(name), _escape(value)] for name, value in pairs], num_texts=2)


def _bullets(sentences: Sequence[str]) -> str:
    return "\n".join(f"- {sentence}" for sentence in sentences)


def _table(heading: Sequence[str], table: Sequence[Sequence[str]], num_texts: int = 1) -> str:
    rule = ["---"] * num_texts + ["---:"] * (len(heading) - num_texts)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [heading, rule, *table])


def _escape(text: str) -> str:
    """Write text so that no character of it is Markdown or HTML, on one line."""
    line = " ".join(text.split())
    line = _ACTIVE.sub(lambda match: "&amp;" if match[0] == "&" else f"\\{match[0]}", line)
    return re.sub(r"^([#+-]|\d+[.)])(?=\s)", lambda match: f"{match[0][:-1]}\\{match[0][-1]}", line)
