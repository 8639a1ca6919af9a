"""The words and tables of an analysis as Markdown, a section ready for a page of results."""

from collections.abc import Iterator

from calyrex.report import analysis_rows as rows
from calyrex.report.analysis_content import collect_groups
from calyrex.report.analysis_tables import Cell, Table, tabulate_map
from calyrex.report.block_rows import attention_maps
from calyrex.report.comparison_rows import Document, list_of
from calyrex.report.markdown import escape, list_lines, table_of


def render_analysis(document: Document) -> str:
    """Render verdict, facts and all tables as Markdown."""
    parts = ["## Analysis", *_beginning(document), *_groups(document), *_maps(document), *_run(document)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _beginning(document: Document) -> Iterator[str]:
    yield list_lines([escape(str(sentence)) for sentence in list_of(document, "verdict")])
    yield escape("; ".join(rows.summarise_run(document)))


def _groups(document: Document) -> Iterator[str]:
    groups = collect_groups(document)
    if not groups:
        yield "Nothing has been measured yet."
    for group in groups:
        yield f"### {escape(group.title)}"
        for exhibit in group.exhibits:
            yield f"#### {escape(exhibit.title)}"
            yield escape(exhibit.note)
            yield _table(exhibit.table)


def _maps(document: Document) -> Iterator[str]:
    maps = attention_maps(document)
    if maps:
        yield "### Where the answers look"
    for found in maps:
        yield f"#### {escape(found.name)}"
        yield f"question: {escape(found.question)}"
        yield _table(tabulate_map(found))


def _run(document: Document) -> Iterator[str]:
    facts = rows.fact_tables(document)
    if facts:
        yield "### Run"
    for title, pairs in facts:
        yield table_of((title.lower(), ""), [[escape(name), escape(value)] for name, value in pairs], num_texts=2)


def _table(table: Table) -> str:
    """Write a table; a row's mark stands behind its name."""
    lines = [
        [escape(row.name) + (f" ({escape(row.mark)})" if row.mark else ""), *map(_cell, row.cells)]
        for row in table.rows
    ]
    return table_of([*map(escape, table.heading)], lines, len(table.heading) if table.is_text else 1)


def _cell(cell: Cell) -> str:
    return escape(f"{cell.value} {cell.interval}".strip())
