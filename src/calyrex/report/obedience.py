"""How often answers kept their rules: counts, intervals and the table on the terminal."""

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from calyrex.benchmarks.metric import wilson_interval
from calyrex.data.rules import RuleExample
from calyrex.report.plain import make_visible


@dataclass(frozen=True)
class Answer:
    """One held-out question and what base and anchored model made of it.

    Attributes:
        family: family of the primary rule.
        trained: whether that family was trained.
        attack: name of the override attempt, None if there is none.
        messages: the conversation up to the question.
        expected: an answer that keeps the rules.
        base: answer of the base.
        anchored: answer of the base with blocks.
        base_obeyed: the base's answer keeps all rules.
        anchored_obeyed: the anchored model's answer keeps all rules.
    """

    family: str
    trained: bool
    attack: str | None
    messages: list[dict[str, Any]]
    expected: str
    base: str
    anchored: str
    base_obeyed: bool
    anchored_obeyed: bool

    @classmethod
    def from_example(cls, example: RuleExample, base: str, anchored: str) -> "Answer":
        """Judge the two answers to an example."""
        return cls(
            family=example.family,
            trained=example.trained,
            attack=example.attack,
            messages=example.messages,
            expected=example.answer,
            base=base,
            anchored=anchored,
            base_obeyed=example.obeyed(base),
            anchored_obeyed=example.obeyed(anchored),
        )


def summarise(answers: Sequence[Answer]) -> dict[str, dict[str, Any]]:
    """Count obedience of ``base`` and ``anchored``.

    ``obeyed``, ``obeyed_under_attack``, ``obeyed_clean`` and ``n`` are about the trained families; the families never
    trained stand apart in ``never_trained``. ``families`` holds all.
    """
    return {model: _summarise_model(answers, model) for model in ("base", "anchored")}


def _summarise_model(answers: Sequence[Answer], model: str) -> dict[str, Any]:
    trained = [answer for answer in answers if answer.trained]
    attacked = [answer for answer in trained if answer.attack]
    clean = [answer for answer in trained if not answer.attack]
    families = sorted({answer.family for answer in answers}, key=lambda name: (not _is_trained(answers, name), name))
    return {
        **_share(trained, model),
        "obeyed_clean": _share(clean, model)["obeyed"],
        "interval_clean": _share(clean, model)["interval"],
        "obeyed_under_attack": _share(attacked, model)["obeyed"],
        "interval_under_attack": _share(attacked, model)["interval"],
        "n_clean": len(clean),
        "n_under_attack": len(attacked),
        "never_trained": _share([answer for answer in answers if not answer.trained], model),
        "families": {name: _summarise_family(answers, name, model) for name in families},
    }


def _summarise_family(answers: Sequence[Answer], family: str, model: str) -> dict[str, Any]:
    own = [answer for answer in answers if answer.family == family]
    return {
        **_share(own, model),
        "trained": _is_trained(answers, family),
        "clean": _share([answer for answer in own if not answer.attack], model),
        "under_attack": _share([answer for answer in own if answer.attack], model),
    }


def _is_trained(answers: Sequence[Answer], family: str) -> bool:
    return any(answer.trained for answer in answers if answer.family == family)


def _share(answers: Sequence[Answer], model: str) -> dict[str, Any]:
    obeyed = sum(answer.base_obeyed if model == "base" else answer.anchored_obeyed for answer in answers)
    low, high = wilson_interval(obeyed, len(answers))
    return {
        "obeyed": round(obeyed / len(answers), 4) if answers else None,
        "interval": [round(low, 4), round(high, 4)],
        "n": len(answers),
    }


def choose_examples(answers: Sequence[Answer], count: int = 5) -> list[Answer]:
    """Choose questions of different families: most where only the anchored model obeyed, one where it failed.

    The choice depends on the order of the answers alone; failures are shown so that the page does not flatter.
    """
    chosen: list[Answer] = []
    wins = [answer for answer in answers if answer.anchored_obeyed and not answer.base_obeyed]
    losses = [answer for answer in answers if not answer.anchored_obeyed]
    for answer in [*losses[:1], *wins, *answers]:
        if len(chosen) < count and answer.family not in {other.family for other in chosen}:
            chosen.append(answer)
    return [*chosen[1:], *chosen[:1]]


def print_demo(
    console: Console, results: dict[str, Any], answers: Sequence[Answer], output_dir: Path, adapter: Path
) -> None:
    """Print the table, five answers side by side and the two commands to go on with."""
    command = "calyrex" if shutil.which("calyrex") else os.path.relpath(Path(sys.executable).with_name("calyrex"))
    console.print(_family_table(results))
    console.print(_example_table(choose_examples(answers)))
    console.print(f"report   {output_dir / 'report.html'}", soft_wrap=True)
    console.print(f"talk     {command} chat --adapter {adapter} --system 'Answer only in French.'", soft_wrap=True)
    console.print(f"train    {command} train --data chats.jsonl --output-dir runs/mine", soft_wrap=True)


def _family_table(results: dict[str, Any]) -> Table:
    base, anchored = results["base"], results["anchored"]
    table = Table(title="rules obeyed on held-out questions", title_justify="left")
    for heading in ("rule family", "base", "base attacked", "anchored", "anchored attacked", "n"):
        table.add_column(heading, justify="left" if heading == "rule family" else "right")
    for name, after in anchored["families"].items():
        before = base["families"][name]
        shares = (before["clean"], before["under_attack"], after["clean"], after["under_attack"])
        label = name.replace("_", " ") + ("" if after["trained"] else " (never trained)")
        table.add_row(label, *(percent(share["obeyed"]) for share in shares), str(after["n"]))
    table.add_section()
    totals = [model[key] for model in (base, anchored) for key in ("obeyed_clean", "obeyed_under_attack")]
    table.add_row("trained families", *map(percent, totals), str(anchored["n"]), style="bold")
    low, high = anchored["interval"]
    overall = f"{percent(anchored['obeyed'])} of all ({percent(low)} to {percent(high)})"
    table.caption = f"anchored obeys {overall}; base {percent(base['obeyed'])}"
    return table


def _example_table(examples: Sequence[Answer]) -> Table:
    table = Table(title="five answers", title_justify="left", show_lines=True)
    for heading in ("system prompt", "last question", "base", "anchored"):
        table.add_column(heading, overflow="fold", ratio=1)
    for answer in examples:
        marks = [("✓ " if obeyed else "✗ ") for obeyed in (answer.base_obeyed, answer.anchored_obeyed)]
        cells = (answer.messages[0]["content"], answer.messages[-1]["content"])
        table.add_row(*map(_plain, (*cells, marks[0] + answer.base, marks[1] + answer.anchored)))
    return table


def _plain(text: str) -> Text:
    return Text(make_visible(text if len(text) <= 300 else text[:300] + " …"))


def percent(share: float | None) -> str:
    """Write a share of 0 .. 1 as a whole percentage, or a dash where there is none."""
    return "-" if share is None else f"{100 * share:.0f} %"
