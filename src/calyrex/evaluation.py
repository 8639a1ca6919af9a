"""``calyrex eval``: benchmarks on a base, an adapter or a served model, as one table."""

import dataclasses
import logging
import random
import time
from collections.abc import Sequence
from pathlib import Path

from inspect_ai.model import Model
from rich.console import Console
from rich.progress import Progress

from calyrex.benchmarks.benchmark import Benchmark, Case
from calyrex.benchmarks.registry import BENCHMARKS, choose_tasks
from calyrex.benchmarks.results import Results
from calyrex.benchmarks.running import run_benchmark
from calyrex.benchmarks.source import Source
from calyrex.benchmarks.subject import Subject, open_judge, open_subject
from calyrex.errors import CalyrexError
from calyrex.flags import save_options
from calyrex.options import EvalOptions
from calyrex.report.evaluation import print_table, write_table
from calyrex.training.folder import locked, versions
from calyrex.training.progress import make_progress

_logger = logging.getLogger(__name__)


def evaluate(options: EvalOptions) -> Path:
    """Run benchmarks and write ``results.json``, ``table.md``, all samples and Inspect's logs.

    A task that cannot be evaluated, for want of its data or of a judge, is skipped with the reason; the others run.

    Returns:
        The output folder.

    Raises:
        CalyrexError: A task is unknown, the model cannot be loaded or reached, the folder is of another evaluation,
            or no task could be evaluated.
    """
    tasks = choose_tasks(options.tasks)
    folder = Path(options.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder), make_progress() as progress:
        subject = open_subject(options)
        settings = {name: getattr(options, name) for name in ("data_dir", "limit", "system", "seed")}
        results = Results(folder, {"identity": {**subject.identity, **settings}, "versions": versions()})
        save_options(options, folder / "options.yaml")
        evaluation = _Evaluation(options, subject, open_judge(options), results, progress)
        for task in tasks:
            evaluation.run(task)
            write_table(folder / "table.md", results)
    print_table(Console(), results, folder)
    if not any("metrics" in results.entries[task] for task in tasks):
        raise CalyrexError(f"no task could be evaluated: {results.entries[tasks[0]]['skipped']}")
    return folder


@dataclasses.dataclass(frozen=True)
class _Evaluation:
    """One model and what is asked of it."""

    options: EvalOptions
    subject: Subject
    judge: Model | None
    results: Results
    progress: Progress

    def run(self, task: str) -> None:
        """Evaluate a task, or say why not."""
        if self.results.is_done(task, self.options.judge):
            return
        benchmark = BENCHMARKS[task]
        if benchmark.questions is not None and self.judge is None:
            return self._skip(task, "needs a judge model: give --judge and --judge-url")
        try:
            cases = self._choose(benchmark)
        except CalyrexError as error:
            return self._skip(task, str(error))
        self._run_cases(benchmark, cases)

    def _choose(self, benchmark: Benchmark) -> list[Case]:
        """Return the cases of a benchmark that are asked, with the system prompt for those that have none."""
        cases = benchmark.load(Source(self.options.data_dir, self.options.seed))
        if self.options.limit is not None and self.options.limit < len(cases):
            chosen = random.Random(self.options.seed).sample(range(len(cases)), self.options.limit)
            cases = [cases[i] for i in sorted(chosen)]
        return [_with_system(case, self.options.system) for case in cases]

    def _run_cases(self, benchmark: Benchmark, cases: Sequence[Case]) -> None:
        started = time.monotonic()
        bar = self.progress.add_task(benchmark.name, total=len(cases))
        outcome = run_benchmark(
            benchmark,
            cases,
            self.subject,
            self.judge if benchmark.questions is not None else None,
            folder=self.options.output_dir,
            on_case=lambda: self.progress.advance(bar),
        )
        metrics = benchmark.summarise(outcome.scored) if outcome.scored else {}
        self.results.write_samples(benchmark.name, outcome.scored, outcome.left_out)
        self.results.add(
            benchmark.name,
            metrics,
            {
                "num_cases": len(outcome.scored),
                "num_left_out": len(outcome.left_out),
                "judge": self.options.judge if benchmark.questions is not None else None,
                "seconds": round(time.monotonic() - started, 1),
                "measures": benchmark.measures,
                "origin": benchmark.origin,
                "licence": benchmark.licence,
            },
        )

    def _skip(self, task: str, reason: str) -> None:
        _logger.warning("%s is skipped: %s", task, reason)
        self.results.skip(task, reason)


def _with_system(case: Case, system: str | None) -> Case:
    if system is None or case.messages[0]["role"] == "system":
        return case
    return dataclasses.replace(case, messages=[{"role": "system", "content": system}, *case.messages])
