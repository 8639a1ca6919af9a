"""The page of ``calyrex demo``: figures, tables and every answer, in one file that needs no network."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calyrex.report.obedience import Answer, choose_examples, percent
from calyrex.report.page import render_page

_NO_BREAK = "\u00a0"
_CHART_SIZE = 100.0
"""Width and height of the loss chart in its own units; the page stretches it."""


@dataclass(frozen=True)
class TableRow:
    """One row of the figure and the table: how often rules were obeyed, four times.

    Each share is a dict of ``obeyed`` (0 .. 1 or None), ``interval`` (two of 0 .. 1) and ``n``.

    Attributes:
        name: the rule family, in words.
        base_clean: share of the base, no attack.
        base_attacked: share of the base under attack.
        anchored_clean: share of the base with blocks, no attack.
        anchored_attacked: share of the base with blocks, under attack.
    """

    name: str
    base_clean: dict[str, Any]
    base_attacked: dict[str, Any]
    anchored_clean: dict[str, Any]
    anchored_attacked: dict[str, Any]


@dataclass(frozen=True)
class LossCurve:
    """The training loss as a line in a square of ``_CHART_SIZE``, the origin at its top left.

    Attributes:
        points: ``x,y`` pairs of an SVG polyline.
        ticks: losses at the horizontal grid lines, in nats a token, the highest first.
        first_step: step of the first loss.
        last_step: step of the last loss.
        first_loss: first loss, in nats a token.
        last_loss: last loss, in nats a token.
    """

    points: str
    ticks: list[float]
    first_step: int
    last_step: int
    first_loss: float
    last_loss: float


def write_demo_page(path: Path, results: dict[str, Any], answers: Sequence[Answer]) -> None:
    """Write the page.

    Args:
        path: the HTML file; an older one is replaced.
        results: what ``calyrex demo`` writes to ``results.json``.
        answers: all held-out questions with both answers.
    """
    values = {
        "results": results,
        "base": results["base"],
        "anchored": results["anchored"],
        "verdict": compare(results["base"], results["anchored"]),
        "shortfalls": find_shortfalls(results, answers),
        "trained": family_rows(results, is_trained=True),
        "never_trained": family_rows(results, is_trained=False),
        "total": total_row(results),
        "curve": draw_loss(results["training"]),
        "examples": choose_examples(answers),
        "answers": answers,
        "families": {answer.family: family_name(answer.family) for answer in answers},
    }
    page = render_page("demo", values, {"spell": _spell, "measured": _measured, "in_words": family_name})
    path.write_text(page, encoding="utf-8")


def family_name(family: str) -> str:
    """Write the name of a rule family in words."""
    return family.replace("_", " ")


def compare(base: Mapping[str, Any], anchored: Mapping[str, Any]) -> str:
    """Say in words whether two shares differ, by their 95 % intervals."""
    if anchored["obeyed"] is None or base["obeyed"] is None:
        return "was not measured against"
    if anchored["interval"][0] > base["interval"][1]:
        return "obeyed more often than"
    if anchored["interval"][1] < base["interval"][0]:
        return "obeyed less often than"
    return "did not differ clearly from"


def family_rows(results: Mapping[str, Any], *, is_trained: bool) -> list[TableRow]:
    """Return the rows of the families that were trained, or of those that never were."""
    base, anchored = results["base"]["families"], results["anchored"]["families"]
    return [
        TableRow(
            family_name(name),
            base[name]["clean"],
            base[name]["under_attack"],
            after["clean"],
            after["under_attack"],
        )
        for name, after in anchored.items()
        if after["trained"] == is_trained
    ]


def total_row(results: Mapping[str, Any]) -> TableRow:
    """Return the row of all trained families together."""
    shares = (
        {
            "obeyed": results[model][f"obeyed_{condition}"],
            "interval": results[model][f"interval_{condition}"],
            "n": results[model][f"n_{condition}"],
        }
        for model in ("base", "anchored")
        for condition in ("clean", "under_attack")
    )
    return TableRow("all trained families", *shares)


def find_shortfalls(results: Mapping[str, Any], answers: Sequence[Answer]) -> list[str]:
    """Say where the anchored model falls short, each time in one sentence with its figures."""
    anchored = results["anchored"]
    families = {name: share for name, share in anchored["families"].items() if share["trained"]}
    sentences: list[str] = []
    if families:
        weakest = min(families, key=lambda name: float(families[name]["obeyed"]))
        sentences.append(f"Its weakest trained family is “{family_name(weakest)}”: {_measured(families[weakest])}.")
    below_half = [family_name(name) for name, share in families.items() if share["obeyed"] < 0.5]
    if len(below_half) > 1:
        sentences.append(f"It obeys less than half of the time in: {', '.join(below_half)}.")
    clean, attacked = anchored["obeyed_clean"], anchored["obeyed_under_attack"]
    if clean is not None and attacked is not None and attacked < clean:
        points = round(100 * clean) - round(100 * attacked)
        sentences.append(
            f"An attack costs it {points} percentage points: {_spell(clean)} without, {_spell(attacked)} with."
        )
    if anchored["never_trained"]["n"]:
        sentences.append(f"In families never trained it obeys {_measured(anchored['never_trained'])}.")
    lost = sum(answer.base_obeyed and not answer.anchored_obeyed for answer in answers)
    sentences.append(f"The base obeyed and the anchored model did not: {lost} of {len(answers)} questions.")
    return sentences


def draw_loss(log: Sequence[Mapping[str, Any]]) -> LossCurve | None:
    """Lay out the training loss; None where fewer than two finite losses were logged."""
    entries = [(int(entry["step"]), float(entry["loss"])) for entry in log if math.isfinite(float(entry["loss"]))]
    if len(entries) < 2 or entries[0][0] == entries[-1][0]:
        return None
    (first_step, first_loss), (last_step, last_loss) = entries[0], entries[-1]
    ticks = choose_ticks(max(loss for _, loss in entries))
    points = (
        f"{_CHART_SIZE * (step - first_step) / (last_step - first_step):.2f},{_CHART_SIZE * (1 - loss / ticks[0]):.2f}"
        for step, loss in entries
    )
    return LossCurve(" ".join(points), ticks, first_step, last_step, first_loss, last_loss)


def choose_ticks(highest: float) -> list[float]:
    """Choose round values from at least ``highest`` down to 0, in steps of 1, 2 or 5 times a power of ten."""
    rough = max(highest, 1e-6) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    return [step * count for count in range(math.ceil(max(highest, 1e-6) / step), -1, -1)]


def _measured(share: Mapping[str, Any]) -> str:
    low, high = map(_spell, share["interval"])
    return f"{_spell(share['obeyed'])} of {share['n']} questions (95{_NO_BREAK}% interval {low} to {high})"


def _spell(share: float | None) -> str:
    return percent(share).replace(" ", _NO_BREAK)
