"""One evaluation: benchmarks one after the other on one model, each asked once and recorded when it is done."""

import dataclasses
import logging
import random
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from rich.progress import Progress

from calyrex.benchmarks.benchmark import Benchmark, Case, Scored, check_cases
from calyrex.benchmarks.fidelity import FIDELITY
from calyrex.benchmarks.harness import evaluate_mmlu
from calyrex.benchmarks.losses import measure_losses
from calyrex.benchmarks.mmlu import LICENCE, NAME, ORIGIN, load_questions, summarise_mmlu
from calyrex.benchmarks.registry import BENCHMARKS, benchmark_versions
from calyrex.benchmarks.repetition import SystemPrompt, check_repetition
from calyrex.benchmarks.results import Results
from calyrex.benchmarks.running import run_benchmark
from calyrex.benchmarks.source import Source
from calyrex.benchmarks.subject import Subject
from calyrex.errors import CalyrexError
from calyrex.options import EvalOptions
from calyrex.training.folder import versions

_logger = logging.getLogger(__name__)
Loaded = TypeVar("Loaded")


def open_results(folder: Path, options: EvalOptions, subject: Subject) -> Results:
    """Open the results of an evaluation in its folder, which exists.

    Raises:
        CalyrexError: The folder holds results of another evaluation or of another program.
    """
    if options.repeat_system and subject.local is not None:
        check_repetition(subject.local.tokenizer)
    settings = {name: getattr(options, name) for name in ("data_dir", "limit", "system", "repeat_system", "seed")}
    return Results(
        folder, {"identity": {**subject.identity, **settings}, "versions": {**versions(), **benchmark_versions()}}
    )


def require_data(tasks: Iterable[str], source: Source) -> None:
    """Refuse tasks whose data are missing, before hours of other work.

    Raises:
        CalyrexError: A task's data cannot be read; the text says where to get them.
    """
    for task in tasks:
        load = load_questions if task == NAME else BENCHMARKS[task].load
        try:
            load(source)
        except CalyrexError as error:
            raise CalyrexError(f"task {task} cannot be evaluated: {error}") from error


class _Skipped(CalyrexError):
    """What a task needs is not there; the text says what."""


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """One model and what is asked of it."""

    options: EvalOptions
    subject: Subject
    results: Results
    progress: Progress
    broken_off: list[CalyrexError] = dataclasses.field(default_factory=list)

    def run(self, task: str) -> None:
        """Evaluate a task, or say why not."""
        if self.results.is_done(task, self._judge_name):
            return
        started = time.monotonic()
        try:
            record = self._run_mmlu() if task == NAME else self._run_benchmark(BENCHMARKS[task])
        except CalyrexError as reason:
            _logger.warning("%s is skipped: %s", task, reason)
            self.results.skip(task, str(reason))
            if not isinstance(reason, _Skipped):
                self.broken_off.append(reason)
            return
        self.results.add(task, {**record, "seconds": round(time.monotonic() - started, 1)})

    def _run_benchmark(self, benchmark: Benchmark) -> dict[str, Any]:
        is_judged = benchmark.questions is not None
        if is_judged and self.subject.judge is None:
            raise _Skipped("it needs a judge model: give --judge and --judge-url")
        cases = self._load(lambda: check_cases(benchmark.name, benchmark.load(self._source)))
        cases = [_with_system(case, self.options) for case in self._choose(cases)]
        bar = self.progress.add_task(benchmark.name, total=len(cases))
        outcome = run_benchmark(
            benchmark,
            cases,
            self.subject,
            answers=self.results.answers,
            logs=self.options.output_dir / "logs",
            on_case=lambda: self.progress.advance(bar),
        )
        scored = self._add_losses(outcome.scored) if benchmark is FIDELITY else outcome.scored
        self.results.write_samples(benchmark.name, scored, outcome.left_out)
        return {
            "metrics": benchmark.summarise(scored) if scored else {},
            **_describe(len(scored), len(outcome.left_out), benchmark.origin, benchmark.licence),
            **({"judge": self._judge_name} if is_judged else {}),
        }

    def _run_mmlu(self) -> dict[str, Any]:
        local = self.subject.local
        if local is None:
            raise _Skipped("it needs log-likelihoods, which a served model does not give")
        system = self.options.system
        questions = self._load(lambda: load_questions(self._source))
        questions = self._choose(questions)
        bar = self.progress.add_task(NAME, total=len(questions))
        scored = evaluate_mmlu(
            local.model,
            local.tokenizer,
            questions,
            system=SystemPrompt(system, self.options.repeat_system) if system else None,
            cache_file=self.results.answers / "mmlu.sqlite",
            on_progress=lambda share: self.progress.update(bar, completed=share * len(questions)),
        )
        self.results.write_samples(NAME, scored, [])
        return {
            "metrics": summarise_mmlu(scored) if scored else {},
            **_describe(len(scored), len(questions) - len(scored), ORIGIN, LICENCE),
        }

    @property
    def _judge_name(self) -> str | None:
        return f"{self.options.judge} at {self.options.judge_url}" if self.options.judge else None

    @property
    def _source(self) -> Source:
        return Source(self.options.data_dir, self.options.seed)

    def _load(self, load: Callable[[], list[Loaded]]) -> list[Loaded]:
        try:
            return load()
        except CalyrexError as error:
            raise _Skipped(str(error)) from error

    def _choose(self, cases: list[Loaded]) -> list[Loaded]:
        """Return the fixed random subset that is asked."""
        if self.options.limit is None or self.options.limit >= len(cases):
            return cases
        chosen = random.Random(self.options.seed).sample(range(len(cases)), self.options.limit)
        return [cases[i] for i in sorted(chosen)]

    def _add_losses(self, scored: list[Scored]) -> list[Scored]:
        """Add what the reference answers cost the model and its base, where they are in this process."""
        local = self.subject.local
        if local is None or not scored:
            return scored
        bar = self.progress.add_task("fidelity, losses", total=len(scored))
        losses = measure_losses(
            local.model,
            local.tokenizer,
            [one.case for one in scored],
            on_case=lambda count: self.progress.advance(bar, count),
        )
        return [
            dataclasses.replace(one, verdict={**one.verdict, **loss._asdict()})
            for one, loss in zip(scored, losses, strict=True)
        ]


def _describe(num_cases: int, num_left_out: int, origin: str, licence: str) -> dict[str, Any]:
    return {"num_cases": num_cases, "num_left_out": num_left_out, "origin": origin, "licence": licence}


def _with_system(case: Case, options: EvalOptions) -> Case:
    """Put the options' system prompt before a case that brings none, and note whether it is to be said again."""
    messages = case.messages
    if options.system is not None and messages[0]["role"] != "system":
        messages = [{"role": "system", "content": options.system}, *messages]
    return dataclasses.replace(case, messages=messages, repeats_system=options.repeat_system)
