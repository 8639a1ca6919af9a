"""``calyrex ablate``: the same blocks in several placements, and where they do most."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from calyrex.comparison import print_verdict, publish
from calyrex.errors import CalyrexError
from calyrex.models import count_layers
from calyrex.options import MAX_SEED
from calyrex.placement import DEFAULT_PLACEMENT, PLACEMENTS, resolve_placement
from calyrex.studies.checks import check
from calyrex.studies.comparing import build_document, collect_samples, read_runs
from calyrex.studies.contenders import REFERENCE
from calyrex.studies.measures import OBEYED
from calyrex.studies.options import AblateOptions, CompareOptions, StudyOptions
from calyrex.studies.placing import rank_placements, write_placement_verdict
from calyrex.studies.running import OPTIONS, run_study
from calyrex.studies.study import Study, read_json

DOCUMENT = "ablation.json"
LEARNING_RATES = (1e-3, 2e-3, 4e-3)
TASKS = ("rules:200", "held_out:60")

_OBEDIENCE = (OBEYED, "rules/clean", "rules/attacked", "rules/multi_turn")
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
    placements = _choose_placements(options)
    screening: dict[str, float] = {}
    if options.coarse_to_fine and len(placements) > _NUM_LEADERS:
        coarse = _screen(options)
        _run(coarse, placements, {})
        screening = rank_placements(read_json(coarse.output_dir / DOCUMENT))
        leaders = _choose_leaders(screening)
        placements = [name for name in placements if name in leaders]
    _run(options, placements, screening)
    print_verdict(Path(options.output_dir) / DOCUMENT)
    return Path(options.output_dir)


def _choose_placements(options: AblateOptions) -> list[str]:
    """Return the placements asked for, or else all named ones that the base has room for, none twice.

    Raises:
        CalyrexError: one is unknown or outside the base, or two are the same layers.
    """
    num_layers = count_layers(options.base)
    found: dict[tuple[int, ...], str] = {}
    for name in options.placements or PLACEMENTS:
        try:
            layers = tuple(resolve_placement(_read(name), num_layers, options.num_blocks))
        except ValueError as error:
            if options.placements is None:
                continue
            raise CalyrexError(f"placement {name}: {error}") from error
        if options.placements is not None and layers in found:
            raise CalyrexError(f"placements {found[layers]} and {name} are the same layers of {options.base}: drop one")
        if layers not in found or name == DEFAULT_PLACEMENT:
            found[layers] = name
    return list(found.values())


def _choose_leaders(screening: dict[str, float]) -> list[str]:
    """Return the best of a screening, those that tie with the last of them, and the default, which others are held to.

    Args:
        screening: Share of obeyed cases by placement, the best first.
    """
    limit = list(screening.values())[:_NUM_LEADERS][-1]
    return [name for name, value in screening.items() if value >= limit or name == DEFAULT_PLACEMENT]


def _screen(options: AblateOptions) -> AblateOptions:
    """Return the options of the screening: a part of the data, one seed, and test cases that only choose."""
    return replace(
        options,
        seed=options.seed + 1 if options.seed < MAX_SEED else 0,
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
    """Return the comparison that a placement study is; the default placement is its reference and its budget."""
    shared: dict[str, Any] = {field.name: getattr(options, field.name) for field in fields(StudyOptions)}
    shared["learning_rates"] = options.learning_rates or list(LEARNING_RATES)
    shared["tasks"] = options.tasks or list(TASKS)
    return CompareOptions(**shared, placement=DEFAULT_PLACEMENT, contenders=[_BASE, *map(_name, placements)])


def _read(placement: str) -> str | list[int]:
    """Return a named placement, or the layers of one such as ``24+26+28``."""
    if placement in PLACEMENTS:
        return placement
    try:
        return [int(part) for part in placement.split("+")]
    except ValueError as error:
        raise CalyrexError(
            f"no placement {placement[:40]!r}: expected one of {', '.join(PLACEMENTS)}, or layers such as 24+26+28"
        ) from error


def _name(placement: str) -> str:
    """Return the name of a placement's contender."""
    layers = _read(placement)
    text = layers if isinstance(layers, str) else ",".join(map(str, layers))
    return REFERENCE if placement == DEFAULT_PLACEMENT else f"{REFERENCE}:placement={text}"


def _write(study: Study, placements: list[str], screening: dict[str, float], seconds: float) -> None:
    """Write document, samples, tables and page of what is done so far."""
    runs = read_runs(study)
    command = f"calyrex ablate {study.folder / OPTIONS}"
    document = build_document(study, runs, command=command, seconds=seconds, all_pairs=OBEYED)
    for entry, label in zip(document["contenders"], ["Base", *placements], strict=True):
        entry["label"] = label
    for measure in document["measures"]:
        measure["is_headline"] = measure["name"] in _OBEDIENCE or measure["group"] == "forgetting"
    if not study.options.equal_parameters:  # each placement has the size that its blocks give it
        document["run"]["budget"] = None
        for entry in document["contenders"]:
            entry["budget_difference"] = None
    document["screening"] = screening
    document["checks"] = [found for found in check(document) if found["name"] == "grid"]
    document["verdict"] = write_placement_verdict(document)
    publish(study.folder / DOCUMENT, document, list(collect_samples(runs)))
