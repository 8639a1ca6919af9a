"""The table of ``calyrex eval``, on the terminal and as Markdown."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from calyrex.benchmarks.results import RESULTS, RUN, Results

_HEADINGS = ("task", "figure", "value", "95 % interval", "cases")


class _Row(NamedTuple):
    """One line of the table, as text."""

    task: str
    figure: str
    value: str
    interval: str
    num_cases: str


def print_table(console: Console, results: Results, folder: Path) -> None:
    """Print the table and where the rest lies."""
    table = Table(title=_title(results), title_justify="left")
    for heading in _HEADINGS:
        table.add_column(heading, justify="right" if heading in _HEADINGS[2:] else "left", overflow="fold")
    for row in _rows(results):
        if row.task:
            table.add_section()
        table.add_row(*map(Text, row))
    console.print(table)
    console.print(f"results  {folder / RESULTS}", soft_wrap=True)
    console.print(f"samples  inspect view --log-dir {folder / 'logs'}", soft_wrap=True)


def write_table(path: Path, results: Results) -> None:
    """Write the table as Markdown."""
    lines = [f"# {_title(results)}", "", _markdown(_HEADINGS), _markdown(["---"] * len(_HEADINGS))]
    lines += [_markdown(row) for row in _rows(results)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _title(results: Results) -> str:
    identity = results.entries[RUN]["identity"]
    adapter = identity.get("adapter")
    return f"{identity['model']} with {adapter}" if adapter else str(identity["model"])


def _rows(results: Results) -> Iterator[_Row]:
    for task, entry in results.tasks():
        if "skipped" in entry:
            yield _Row(task, f"skipped: {entry['skipped']}", "", "", "")
            continue
        left_out = entry.get("num_left_out")
        for number, (name, figure) in enumerate(entry["metrics"].items()):
            yield _Row("" if number else task, name.replace("_", " "), *_figure(figure))
        if left_out:
            name = "" if entry["metrics"] else task
            yield _Row(name, "longer than the model's context, left out", "", "", str(left_out))


def _figure(figure: dict[str, Any]) -> tuple[str, str, str]:
    if figure["value"] is None:
        return "-", "-", str(figure["n"])
    return f"{figure['value']:.3f}", f"{figure['low']:.3f} to {figure['high']:.3f}", str(figure["n"])


def _markdown(cells: Iterator[str] | tuple[str, ...] | list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
