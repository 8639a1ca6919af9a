"""The results file, and the table of docs/performance.md that is made from it."""

import json
import os
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

_HEAD = "| figure | measured | by arithmetic | bar | medians (quartiles) | machine |\n|---|---|---|---|---|---|\n"
_CURVE_HEAD = (
    "\n| feed-forward size | training from the store | by arithmetic | decoded token, 1 row | by arithmetic |\n"
    "|---|---|---|---|---|\n"
)
_OBEDIENCE_HEAD = "| feed-forward size | obeyed | of the widest one's gain over the base | seeds |\n|---|---|---|---|\n"
_FULL_WIDTH = "_full_width"
Results = dict[str, dict[str, Any]]


class Line(NamedTuple):
    """How a figure is shown.

    Attributes:
        title: what it is, in a reader's words.
        bar: what it has to reach.
    """

    title: str
    bar: str


LINES = {
    "train_first_epoch_vs_lora": Line("training, first epoch: tokens/s over LoRA's", ">= 1.8 x"),
    "train_from_store_vs_lora": Line("training from the store: tokens/s over LoRA's", ">= 4 x"),
    "train_memory_vs_lora": Line("training: peak memory over LoRA's", "<= 0.4 x"),
    "placements_shared_vs_separate": Line("named placements: separate over shared time", ">= 2 x"),
    "prefill_overhead_points": Line("prefill of 2,048 tokens: added beyond arithmetic", "<= 5 points"),
    "decode_overhead_points_b1": Line("decode, 1 row: added beyond arithmetic", "<= 5 points"),
    "decode_overhead_points_b16": Line("decode, 16 rows: added beyond arithmetic", "<= 5 points"),
    "decode_8k_vs_512": Line("decode: added time at 8,000 over that at 512 tokens", "<= 1.1 x"),
    "serve_throughput_vs_generate": Line("server, 32 clients: tokens/s over one plain batch's", ">= 0.8 x"),
    "serve_first_token_vs_alone": Line("server, 8 clients: time to the first token over one alone", "<= 2 x"),
}
"""Every figure but the curve of widths, in the order of the table; one at the base's full width has the same bar."""


def read_results(path: Path) -> Results:
    """Read the results file; without one there are no results.

    Raises:
        ValueError: it is no results file.
    """
    results: Results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if not isinstance(results, dict) or not all(isinstance(figure, dict) for figure in results.values()):
        raise ValueError(f"{path} is no results file; delete it or name another with --output")
    return results


def write_results(path: Path, results: dict[str, Any]) -> None:
    """Write the results file, whole or not at all."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    os.replace(partial, path)


def render_table(results: Results) -> str:
    """Render the figures as a Markdown table, in the order of ``LINES``, and the curve of widths as another."""
    rows = [
        _render_row(results[key], line.title + note, line.bar)
        for name, line in LINES.items()
        for key, note in ((name, ""), (name + _FULL_WIDTH, ", blocks as wide as the base"))
        if key in results
    ]
    curve = results["width_cost"]["details"]["curve"] if "width_cost" in results else []
    return _HEAD + "".join(rows) + (_CURVE_HEAD if curve else "") + "".join(map(_render_width, curve))


def render_obedience(study: dict[str, Any]) -> str:
    """Render the study of widths as a Markdown table, with 95 % intervals."""
    rows = [
        f"| {entry['intermediate_size']:,} | {100 * entry['obeyed']:.1f} % | {entry['gain_kept']:.1f} % "
        f"({entry['gain_kept_low']:.0f}-{entry['gain_kept_high']:.0f}) | {entry['num_seeds']} |\n"
        for entry in study["curve"]
    ]
    return _OBEDIENCE_HEAD + "".join(rows)


def require_markers(path: Path, name: str) -> tuple[str, str, str]:
    """Return the text of a page and the two markers of that name in it.

    Raises:
        ValueError: the page has not both markers.
        OSError: there is no such page.
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    text = path.read_text(encoding="utf-8")
    if begin not in text or end not in text:
        raise ValueError(f"{path} must hold {begin} and {end}")
    return text, begin, end


def update_page(path: Path, name: str, table: str) -> None:
    """Put a table between the two markers of that name in a page, which must be there (``require_markers``)."""
    text, begin, end = require_markers(path, name)
    before, rest = text.split(begin, 1)
    after = rest.split(end, 1)[1]
    path.write_text(f"{before}{begin}\n{table}{end}{after}", encoding="utf-8")


def _render_row(figure: dict[str, Any], title: str, bar: str) -> str:
    machine = figure["machine"]
    medians = ", ".join(f"{name} {_spread(values)}" for name, values in figure["sides"].items())
    threads = "" if machine["device"] != machine["cpu"] else f", {machine['threads']} threads"
    cells = [
        title,
        f"**{_with_unit(figure['value'], figure['unit'])}**",
        _with_unit(figure["limit"], "%" if figure["unit"] == "points" else figure["unit"]),
        bar or "-",
        f"{medians} {figure['side_unit']}",
        f"{machine['device']}{threads}, {figure['dtype'].removeprefix('torch.')}, {machine['date']}",
    ]
    return f"| {' | '.join(cells)} |\n"


def _render_width(entry: dict[str, Any]) -> str:
    names = ("relative_train_time", "train_limit", "relative_decode_time", "decode_limit")
    cells = [f"{entry['intermediate_size']:,}", *(f"{entry[name]:.2f}" for name in names)]
    return f"| {' | '.join(cells)} |\n"


def _with_unit(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "points":
        return f"{value:+.1f} points"
    return f"{value:.1f} %" if unit == "%" else f"{value:.2f} x"


def _spread(values: list[float]) -> str:
    """Write the median, with the quartiles where there are enough measurements for them."""
    middle = _three_digits(median(values))
    if len(values) < 3:
        return middle
    low, _, high = quantiles(values, n=4, method="inclusive")
    return f"{middle} ({_three_digits(low)}-{_three_digits(high)})"


def _three_digits(value: float) -> str:
    """Write a positive number with three digits that count, and no exponent."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
