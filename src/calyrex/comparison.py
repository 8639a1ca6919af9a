"""``calyrex compare``: contenders on equal terms, and who keeps the system prompt best."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console

from calyrex.errors import CalyrexError
from calyrex.report.comparison import PAGE, TABLE, write_comparison
from calyrex.studies.checks import check
from calyrex.studies.comparing import build_document, collect_samples, read_runs
from calyrex.studies.contenders import REFERENCE
from calyrex.studies.options import CompareOptions
from calyrex.studies.running import OPTIONS, run_study
from calyrex.studies.study import Study, read_json, write_json
from calyrex.studies.verdict import write_verdict

DOCUMENT, SAMPLES = "comparison.json", "samples.jsonl"


def compare(options: CompareOptions) -> Path:
    """Run what is missing of a comparison and write its tables and its report.

    Returns:
        The output folder, with ``report.html``, ``table.md``, ``comparison.json`` and ``samples.jsonl``.

    Raises:
        CalyrexError: options do not fit, data are missing, the folder holds another study, or a job failed.
    """
    study = Study(options)
    if REFERENCE not in [contender.name for contender in study.contenders]:
        raise CalyrexError(f"contenders must hold {REFERENCE}, which the others are compared with")
    run_study(study, options, lambda seconds: _write(study, seconds))
    print_verdict(study.folder / DOCUMENT)
    return study.folder


def _write(study: Study, seconds: float) -> None:
    """Write document, samples, tables and page of what is done so far."""
    runs = read_runs(study)
    document = build_document(study, runs, command=f"calyrex compare {study.folder / OPTIONS}", seconds=seconds)
    document["checks"] = list(check(document))
    document["verdict"] = write_verdict(document)
    publish(study.folder / DOCUMENT, document, list(collect_samples(runs)))


def publish(path: Path, document: dict[str, Any], samples: list[dict[str, Any]]) -> None:
    """Write the document of a study to a file, and samples, tables and page beside it."""
    write_json(path, document)
    lines = (json.dumps(sample, ensure_ascii=False) + "\n" for sample in samples)
    path.with_name(SAMPLES).write_text("".join(lines), encoding="utf-8")
    write_comparison(path.parent, document, samples)


def print_verdict(path: Path) -> None:
    """Print the verdict of a study's document, and where the rest lies."""
    console = Console()
    for sentence in read_json(path)["verdict"]:
        console.print(sentence, soft_wrap=True, markup=False, highlight=False)
    console.print(f"report   {path.with_name(PAGE)}", soft_wrap=True)
    console.print(f"tables   {path.with_name(TABLE)}", soft_wrap=True)
