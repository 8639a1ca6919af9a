"""What the runs of a comparison say together: the document that tables, figures and verdict are made from."""

import json
import os
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calyrex.errors import CalyrexError
from calyrex.studies.contenders import REFERENCE, Contender
from calyrex.studies.evaluating import PLAIN, WITH_SYSTEM
from calyrex.studies.jobs import DONE, TRAINING
from calyrex.studies.measures import MEASURES, Measure, Sample, shown_facts
from calyrex.studies.statistics import holm, mean_over_seeds, paired_difference
from calyrex.studies.study import DATA, SIZES, Study, read_json
from calyrex.training.folder import find_commit, versions

SIGNIFICANT = 0.05
_BASE = "base"
_WITH_SYSTEM_SUFFIX = "+system"
_TASKS = {measure.task for measure in MEASURES}
_Values = NDArray[np.float64]
Runs = dict[str, dict[int, dict[str, dict[str, Sample]]]]
"""By contender and seed, the samples of each task by their ids."""


def build_document(
    study: Study, runs: Runs, *, command: str, seconds: float, all_pairs: str | None = None
) -> dict[str, Any]:
    """Put together what the runs have measured so far.

    Args:
        study: the comparison, prepared.
        runs: what ``read_runs`` has read.
        command: the command line that runs it.
        seconds: wall time of all starts so far.
        all_pairs: name of the measure on which every contender is compared with every other.

    Returns:
        The content of ``comparison.json``, without verdict and checks.
    """
    sizes = read_json(study.folder / SIZES, "budget", "contenders")
    measures = [
        _measure(measure, runs, is_for_all=measure.name == all_pairs)
        for measure in MEASURES
        if _is_measured(measure, runs)
    ]
    _correct(measures)
    return {
        "run": {
            "command": command,
            "versions": versions(),
            "commit": find_commit(),
            "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}",
            "seconds": round(seconds, 1),
            "options": json.loads(json.dumps(vars(study.options), default=str)),
            "data": read_json(study.folder / DATA),
            "budget": sizes["budget"],
            "reference": REFERENCE,
        },
        "contenders": [_describe(study, one, sizes["contenders"], list(runs[one.name])) for one in study.contenders],
        "measures": measures,
    }


def collect_samples(runs: Runs) -> Iterator[dict[str, Any]]:
    """Yield every test case with the answers of all contenders and whether they passed."""
    first_of_task = {measure.task: measure for measure in reversed(MEASURES)}
    every = [run for own in runs.values() for run in own.values()]
    for task in (task for task in first_of_task if any(task in run for run in every)):
        verdict = first_of_task[task].verdict
        flips = not first_of_task[task].higher_is_better
        for case in next(run[task] for run in every if task in run).values():
            answers: dict[str, list[str]] = {}
            passed: dict[str, list[bool | None]] = {}
            for name, own in runs.items():
                found = [run[task][case["id"]] for run in own.values() if case["id"] in run.get(task, {})]
                answers[name] = ["\n".join(sample["answers"]) for sample in found]
                flags = [sample["verdict"].get(verdict) for sample in found]
                passed[name] = [flag != flips if isinstance(flag, bool) else None for flag in flags]
            yield {
                "task": task,
                "id": case["id"],
                "messages": case["messages"],
                "shows": shown_facts(case),
                "answers": answers,
                "passed": passed,
            }


def read_runs(study: Study) -> Runs:
    """Read the samples of all runs that are done."""
    runs: Runs = {}
    for contender in study.contenders:
        folders = {seed: study.run_folder(contender, seed) for seed in study.seeds_of(contender)}
        done = {seed: folder for seed, folder in folders.items() if (folder / DONE).exists()}
        runs[contender.name] = {seed: _read_samples(folder, study.num_cases) for seed, folder in done.items()}
    return runs


def _read_samples(folder: Path, tasks: Iterable[str]) -> dict[str, dict[str, Sample]]:
    """Read the samples of a run, those with a neutral system prompt where a task is asked twice.

    Raises:
        CalyrexError: a file is damaged.
    """
    samples: dict[str, dict[str, Sample]] = {}
    for task in tasks:
        for part, name in ((PLAIN, task), (WITH_SYSTEM, f"{task}{_WITH_SYSTEM_SUFFIX}")):
            if name not in _TASKS:
                continue
            path = folder / part / "samples" / f"{task}.jsonl"
            if not path.exists():  # a task that has joined since
                continue
            try:
                lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
                samples[name] = {line["id"]: line for line in lines if line["verdict"] is not None}
            except (ValueError, TypeError, KeyError) as error:
                raise CalyrexError(f"{path} is damaged: delete it and give the same command again") from error
    return samples


def _is_measured(measure: Measure, runs: Runs) -> bool:
    return any(measure.task in run for own in runs.values() for run in own.values())


def _measure(measure: Measure, all_runs: Runs, *, is_for_all: bool) -> dict[str, Any]:
    """Return a measure's values and its differences, p-values not yet corrected."""
    runs = {name: [run[measure.task] for run in own.values() if measure.task in run] for name, own in all_runs.items()}
    runs = {name: own for name, own in runs.items() if own}
    shared = set.intersection(*(set(run) for own in runs.values() for run in own))
    cases = [sample for sample in next(iter(runs.values()))[0].values() if sample["id"] in shared]
    cases = [sample for sample in cases if measure.belongs(sample)]
    clusters = [str(sample["shares"] or sample["id"]) for sample in cases]
    values = {name: _table(own, [case["id"] for case in cases], measure.verdict) for name, own in runs.items()}
    return {
        "name": measure.name,
        "label": measure.label,
        "group": measure.group,
        "unit": measure.unit,
        "higher_is_better": measure.higher_is_better,
        "is_headline": measure.is_headline,
        "num_cases": len(cases),
        "values": {
            name: {
                **dict(zip(("value", "low", "high"), mean_over_seeds(table, clusters)[:3], strict=True)),
                "by_seed": [float(row.mean()) for row in table] if len(cases) else [],
            }
            for name, table in values.items()
        },
        "differences": [
            {"first": first, "second": second, **paired_difference(values[first], values[second], clusters)._asdict()}
            for first, second in (combinations(values, 2) if is_for_all else _pairs(measure, values))
        ],
    }


def _table(runs: Sequence[Mapping[str, Sample]], ids: Sequence[str], verdict: str) -> _Values:
    """Return the values of a contender, one row per seed, ``[S, N]``."""
    return np.array([[float(run[name]["verdict"][verdict]) for name in ids] for run in runs]).reshape(len(runs), -1)


def _pairs(measure: Measure, values: Mapping[str, _Values]) -> Iterator[tuple[str, str]]:
    """Yield what is compared: the reference with every other; where something may be forgotten, all with the base."""
    if measure.group == "forgetting" and _BASE in values:
        yield from ((name, _BASE) for name in values if name != _BASE)
        return
    if REFERENCE in values:
        yield from ((REFERENCE, name) for name in values if name != REFERENCE)
    others = [name for name in values if name not in (REFERENCE, _BASE)]
    if _BASE in values:
        yield from ((name, _BASE) for name in others)


def _correct(measures: Sequence[dict[str, Any]]) -> None:
    """Add to all differences of the comparison their p-values corrected for their number."""
    tested = [
        difference for measure in measures for difference in measure["differences"] if difference["p_value"] is not None
    ]
    for difference, adjusted in zip(tested, holm([one["p_value"] for one in tested]), strict=True):
        difference |= {"adjusted_p_value": adjusted, "is_significant": adjusted < SIGNIFICANT}
    for measure in measures:
        for difference in measure["differences"]:
            difference.setdefault("adjusted_p_value", None)
            difference.setdefault("is_significant", False)


def _describe(study: Study, contender: Contender, sizes: Mapping[str, Any], seeds: list[int]) -> dict[str, Any]:
    """Return what a contender is and what it has cost; means over its seeds."""
    files = [study.run_folder(contender, seed) / TRAINING for seed in study.seeds_of(contender)]
    records = {path.parent.name.removeprefix("seed-"): read_json(path) for path in files if path.exists()}

    def mean(name: str) -> float | None:
        return float(np.mean([record[name] for record in records.values()])) if records else None

    return {
        "name": contender.name,
        "label": contender.label,
        "is_trained": contender.is_trained,
        "is_control": contender.is_shuffled,
        "seeds": seeds,
        **{key: value for key, value in sizes[contender.name].items() if key != "last_frozen_layer"},
        "learning_rate": next(iter(records.values()))["learning_rate"] if records else None,
        "search": study.trials_of(contender) if contender.is_trained else [],
        "tokens": mean("tokens"),
        "train_seconds": mean("cpu_seconds"),
        "wall_seconds": mean("wall_seconds"),
        "peak_memory_bytes": mean("peak_memory_bytes"),
        "added_flops_per_token": mean("added_flops_per_token") if contender.is_trained else 0,
        "losses": {seed: record["losses"] for seed, record in records.items()},
    }
