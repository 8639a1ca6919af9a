"""The folder of an evaluation: ``results.json`` with each task's figures, and every sample as a line of JSON."""

import hashlib
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from calyrex.benchmarks.benchmark import Case, Scored
from calyrex.benchmarks.metric import Metric
from calyrex.errors import CalyrexError

RESULTS = "results.json"
RUN = "run"
"""Key of what was evaluated, beside the keys of the tasks."""

_SAMPLES, _ANSWERS = "samples", "answers"
_logger = logging.getLogger(__name__)


class Results:
    """What an evaluation has found so far; each change is on disk before the next task begins.

    Attributes:
        path: ``results.json``.
        samples: Folder of the samples.
        answers: Folder of the answers to this evaluation, also where ``results.json`` was lost.
        entries: What ``results.json`` holds.
    """

    def __init__(self, folder: Path, run: dict[str, Any]) -> None:
        """Read the results of an earlier start of the same evaluation, or begin with none.

        Args:
            folder: The output folder; it exists.
            run: What is evaluated: ``identity``, which must stay the same, and what else to record.

        Raises:
            CalyrexError: The folder holds results of another evaluation or of another program.
        """
        self.path = folder / RESULTS
        self.samples = folder / _SAMPLES
        run = json.loads(json.dumps(run, default=str))
        self.answers = folder / _ANSWERS / hashlib.sha256(json.dumps(run["identity"]).encode()).hexdigest()[:16]
        self.entries: dict[str, dict[str, Any]] = {RUN: run, **self._read(run["identity"])}
        self.answers.mkdir(parents=True, exist_ok=True)
        self._write()

    def tasks(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield each task and its entry, in the order in which they were evaluated."""
        return ((name, entry) for name, entry in self.entries.items() if name != RUN)

    def is_done(self, task: str, judge: str | None) -> bool:
        """Tell whether a task was evaluated to its end, by the same judge if one is given."""
        entry = self.entries.get(task, {})
        is_whole = "metrics" in entry and (self.samples / f"{task}.jsonl").exists()
        return is_whole and entry.get("judge") in (None, judge or entry.get("judge"))

    def skip(self, task: str, reason: str) -> None:
        """Record why a task could not be evaluated, unless it was by an earlier start."""
        if "metrics" not in self.entries.get(task, {}):
            self.entries[task] = {"skipped": reason}
            self._write()

    def add(self, task: str, record: Mapping[str, Any]) -> None:
        """Record a task: its ``metrics``, the headline first, and what else to say of it."""
        figures = {name: _round(metric) for name, metric in record["metrics"].items()}
        self.entries[task] = {**record, "metrics": figures}
        self._write()

    def write_samples(self, task: str, scored: Sequence[Scored], left_out: Sequence[Case]) -> None:
        """Write every case of a task with its answers and verdict, those too long for the model at the end."""
        self.samples.mkdir(exist_ok=True)
        lines: list[dict[str, Any]] = [
            {
                "id": one.case.id,
                "messages": one.case.messages,
                "reference": one.case.reference,
                "shares": one.case.shares,
                "answers": one.answers,
                "verdict": one.verdict,
                "num_prompt_tokens": one.num_prompt_tokens,
            }
            for one in scored
        ]
        lines += [{"id": case.id, "messages": case.messages, "answers": [], "verdict": None} for case in left_out]
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        _replace(self.samples / f"{task}.jsonl", text)

    def _read(self, identity: dict[str, Any]) -> dict[str, dict[str, Any]]:
        if not self.path.exists():
            return {}
        try:
            entries = json.loads(self.path.read_text(encoding="utf-8"))
            is_sound = not isinstance(entries, dict) or all(map(_is_entry, entries.values()))
        except ValueError:
            is_sound = False
        if not is_sound:
            aside = self.path.with_name(f"{RESULTS}.damaged")
            os.replace(self.path, aside)
            _logger.warning("%s is damaged and now called %s; answers are kept apart and used again", self.path, aside)
            return {}
        run = entries.get(RUN) if isinstance(entries, dict) else None
        if not isinstance(run, dict) or not isinstance(run.get("identity"), dict):
            raise CalyrexError(f"{self.path} is of another program; choose another --output-dir")
        earlier = run["identity"]
        keys = [key for key in {**earlier, **identity} if earlier.get(key) != identity.get(key)]
        changed = ", ".join(f"{key} {earlier.get(key)} -> {identity.get(key)}" for key in keys)
        if changed:
            raise CalyrexError(f"{self.path} is of another evaluation ({changed}); choose another --output-dir")
        return {name: entry for name, entry in entries.items() if name != RUN and isinstance(entry, dict)}

    def _write(self) -> None:
        _replace(self.path, json.dumps(self.entries, indent=2, ensure_ascii=False) + "\n")


def _is_entry(entry: object) -> bool:
    """Tell whether a value of ``results.json`` can be of ours: what is run, a task skipped or one with figures."""
    if not isinstance(entry, dict):
        return True  # of another program, which is not ours to set aside
    figures = entry.get("metrics", {})
    is_figures = isinstance(figures, dict) and all(isinstance(figure, dict) for figure in figures.values())
    return is_figures and all(
        set(figure) == set(Metric._fields) and all(isinstance(n, int | float | None) for n in figure.values())
        for figure in figures.values()
    )


def _replace(path: Path, text: str) -> None:
    """Write a file as a whole or not at all."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)


def _round(metric: Metric) -> dict[str, Any]:
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in metric._asdict().items()}
