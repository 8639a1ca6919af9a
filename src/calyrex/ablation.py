"""``calyrex ablate``: the same blocks in several placements, and where they do most."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from calyrex.comparison import print_verdict, publish
from calyrex.errors import CalyrexError
from calyrex.placement import DEFAULT_PLACEMENT, PLACEMENTS
from calyrex.studies.checks import check
from calyrex.studies.comparing import build_document, collect_samples, read_runs
from calyrex.studies.contenders import REFERENCE
from calyrex.studies.measures import OBEYED
from calyrex.studies.options import AblateOptions, CompareOptions, StudyOptions
from calyrex.studies.placing import rank_placements, write_placement_verdict
from calyrex.studies.running import OPTIONS, run_study
from calyrex.studies.study import Study, read_json

DOCUMENT = "ablation.json"
LEARNING_RATES = (1e-3,)
TASKS = ("rules:200", "held_out:60")

_BASE = "base"
_SCREENING = "screening"
_NUM_LEADERS = 3
_SCREENING_DIVISOR = 4


def ablate(options: AblateOptions) -> Path:
    """Run what is missing of a placement study and write its tables and its report.

    Returns:
        The output folder, with ``report.html``, ``table.md``, ``ablation.json`` and ``samples.jsonl``; where the study
        goes from coarse to fine, the same of the screening in ``screening``.

    Raises:
        CalyrexError: options do not fit, data are missing, the folder holds another study, or a job failed.
    """
    placements = options.placements or list(PLACEMENTS)
    screening: dict[str, float] = {}
    if options.coarse_to_fine:
        coarse = _screen(options)
        _run(coarse, placements, {})
        screening = rank_placements(read_json(coarse.output_dir / DOCUMENT))
        placements = [name for name in placements if name in list(screening)[:_NUM_LEADERS]]
    _run(options, placements, screening)
    print_verdict(Path(options.output_dir) / DOCUMENT)
    return Path(options.output_dir)


def _screen(options: AblateOptions) -> AblateOptions:
    """Return the options of the screening: a part of the data, and one seed."""
    return replace(
        options,
        output_dir=Path(options.output_dir) / _SCREENING,
        num_rules=-(-options.num_rules // _SCREENING_DIVISOR),
        num_chats=-(-options.num_chats // _SCREENING_DIVISOR),
        seeds=(options.seeds or [0])[:1],
        coarse_to_fine=False,
    )


def _run(options: AblateOptions, placements: list[str], screening: dict[str, float]) -> None:
    study = Study(_to_compare(options, placements))
    if "rules" not in study.num_cases:
        raise CalyrexError(f"tasks must hold rules, by which placements are ranked, got {', '.join(study.num_cases)}")
    run_study(study, options, lambda seconds: _write(study, placements, screening, seconds))


def _to_compare(options: AblateOptions, placements: list[str]) -> CompareOptions:
    """Return the comparison that a placement study is: the default placement, or else the first, is its reference."""
    reference = DEFAULT_PLACEMENT if DEFAULT_PLACEMENT in placements else placements[0]
    shared: dict[str, Any] = {field.name: getattr(options, field.name) for field in fields(StudyOptions)}
    shared["learning_rates"] = options.learning_rates or list(LEARNING_RATES)
    shared["tasks"] = options.tasks or list(TASKS)
    return CompareOptions(
        **shared, placement=_read(reference), contenders=[_BASE, *(_name(one, reference) for one in placements)]
    )


def _read(placement: str) -> str | list[int]:
    """Return a named placement, or the layers of one such as ``24+26+28``."""
    if placement in PLACEMENTS:
        return placement
    if not all(part.isdecimal() for part in placement.split("+")):
        raise CalyrexError(
            f"no placement {placement!r}: expected one of {', '.join(PLACEMENTS)}, or layers such as 24+26+28"
        )
    return [int(part) for part in placement.split("+")]


def _name(placement: str, reference: str) -> str:
    """Return the name of a placement's contender."""
    layers = _read(placement)
    text = layers if isinstance(layers, str) else ",".join(map(str, layers))
    return REFERENCE if placement == reference else f"{REFERENCE}:placement={text}"


def _write(study: Study, placements: list[str], screening: dict[str, float], seconds: float) -> None:
    """Write document, samples, tables and page of what is done so far."""
    runs = read_runs(study)
    command = f"calyrex ablate {study.folder / OPTIONS}"
    document = build_document(study, runs, command=command, seconds=seconds, all_pairs=OBEYED)
    for entry, label in zip(document["contenders"], ["Base", *placements], strict=True):
        entry["label"] = label
    document["screening"] = screening
    document["checks"] = [found for found in check(document) if found["name"] == "grid"]
    document["verdict"] = write_placement_verdict(document)
    publish(study.folder / DOCUMENT, document, list(collect_samples(runs)))
