"""The evaluation of one run: the same cases for all contenders, through the same code as ``calyrex eval``."""

import dataclasses
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from peft import LoraModel, PeftModel
from rich.progress import Progress

from calyrex.benchmarks.benchmark import Case, Scored
from calyrex.benchmarks.evaluating import Evaluation, open_results
from calyrex.benchmarks.losses import answer_losses
from calyrex.benchmarks.metric import mean
from calyrex.benchmarks.provider import LocalModel
from calyrex.benchmarks.results import Results
from calyrex.benchmarks.subject import Subject, open_subject
from calyrex.errors import CalyrexError
from calyrex.generation import Prefill
from calyrex.masking import Message
from calyrex.options import EvalOptions
from calyrex.studies.contenders import Contender
from calyrex.studies.measures import HELD_OUT, MEASURES
from calyrex.studies.prompts import FrozenPrompts
from calyrex.studies.study import HELD_OUT_CHATS, NUM_HELD_OUT, PROMPTS, Study
from calyrex.training.fingerprint import hash_base, hash_model
from calyrex.training.folder import versions

PLAIN, WITH_SYSTEM = "eval", "eval-with-system"
"""Folders of a run's evaluations: as the tasks are, and what may be forgotten with a neutral system prompt."""


def evaluate_run(study: Study, contender: Contender, folder: Path) -> None:
    """Evaluate a run, as far as an earlier start has not.

    Args:
        study: the comparison.
        contender: the contender.
        folder: the run's folder, with its adapter if it has one.

    Raises:
        CalyrexError: a task cannot be evaluated.
    """
    options = EvalOptions(
        tasks=list(study.num_cases),
        model=study.options.base,
        adapter=str(folder) if contender.is_trained else None,
        output_dir=folder / PLAIN,
        data_dir=study.options.data_dir,
        repeat_system=contender.method == "repetition",
        dtype=study.options.dtype,
        seed=study.options.seed,
    )
    subject = open_subject(options)
    # A study may be moved: what its adapters are is told by their weights, not by where they lie.
    subject = dataclasses.replace(subject, identity={**subject.identity, "adapter": contender.name})
    if subject.local is not None:
        subject.local.prefill = _find_prefill(study, contender, subject.local)
        model = subject.local.model
        if isinstance(model, PeftModel) and isinstance(model.base_model, LoraModel):
            model.base_model.merge_adapter()  # as LoRA is served: its answers cost what the base's cost
    _evaluate(study, subject, options, list(study.num_cases))
    forgettable = [task for task in study.num_cases if f"{task}+system" in {measure.task for measure in MEASURES}]
    if forgettable:
        options = dataclasses.replace(
            options, output_dir=folder / WITH_SYSTEM, system=study.options.neutral_system, tasks=forgettable
        )
        _evaluate(study, subject, options, forgettable)


def _find_prefill(study: Study, contender: Contender, local: LocalModel) -> Prefill | None:
    """Return what fills caches from prompts that all share; None for a contender that changes or repeats prompts."""
    frozen = {one.name: study.last_frozen_layer(one) for one in study.contenders if one.is_trained}
    depths = [depth for depth in frozen.values() if depth is not None]
    # The base leaves all layers alone, and shares with those that most others leave alone.
    depth = max(depths, key=depths.count, default=None) if contender.method == "base" else frozen.get(contender.name)
    if depth is None:
        return None
    model = local.model
    base = hash_base(model) if isinstance(model, PeftModel) else hash_model(model)
    key = hashlib.sha256(f"{base} {versions()} {local.dtype}".encode()).hexdigest()[:16]
    return FrozenPrompts(study.folder / PROMPTS, depth, key).prefill


def _evaluate(study: Study, subject: Subject, options: EvalOptions, tasks: Iterable[str]) -> None:
    options.output_dir.mkdir(exist_ok=True)
    results = open_results(options.output_dir, options, subject)
    for task in tasks:
        if task == HELD_OUT:
            _measure_held_out(study, subject, options, results)
            continue
        limited = dataclasses.replace(options, limit=study.num_cases[task])
        evaluation = Evaluation(limited, subject, results, Progress(disable=True))
        evaluation.run(task)
        if evaluation.broken_off:
            raise evaluation.broken_off[0]
        if "skipped" in results.entries[task]:
            raise CalyrexError(f"task {task} cannot be evaluated: {results.entries[task]['skipped']}")


def _measure_held_out(study: Study, subject: Subject, options: EvalOptions, results: Results) -> None:
    if results.is_done(HELD_OUT, None) or subject.local is None:
        return
    cases = held_out_cases(study, study.num_cases[HELD_OUT] or NUM_HELD_OUT)
    if options.system is not None:
        system: Message = {"role": "system", "content": options.system}
        cases = [dataclasses.replace(case, messages=[system, *case.messages]) for case in cases]
    cases = [dataclasses.replace(case, repeats_system=options.repeat_system) for case in cases]
    losses = answer_losses(subject.local.model, subject.local.tokenizer, cases)
    scored = [
        Scored(case, [case.reference["answer"]], {"loss": loss}) for case, loss in zip(cases, losses, strict=True)
    ]
    results.write_samples(HELD_OUT, scored, [])
    results.add(HELD_OUT, {"metrics": {"loss": mean(losses)}, "num_cases": len(cases)})


def held_out_cases(study: Study, count: int) -> list[Case]:
    """Return the study's held-out chats as cases, the answer that they got as their reference."""
    lines = (study.folder / HELD_OUT_CHATS).read_text(encoding="utf-8").splitlines()
    return [
        Case(id=f"held-out-{number}", messages=messages[:-1], reference={"answer": messages[-1]["content"]})
        for number, messages in enumerate(map(json.loads, lines[:count]), start=1)
    ]
