"""One benchmark on one model, through Inspect; answers that are known already are not asked for again."""

import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import inspect_ai
from inspect_ai.log import EvalLog, list_eval_logs
from inspect_ai.model import CachePolicy

from calyrex.benchmarks.benchmark import Benchmark, Case, Scored
from calyrex.benchmarks.subject import Subject
from calyrex.benchmarks.tasks import make_task, read_sample
from calyrex.errors import CalyrexError

_logger = logging.getLogger(__name__)


class Outcome(NamedTuple):
    """What a model made of a benchmark.

    Attributes:
        scored: The cases that were answered.
        left_out: The cases that are longer than the model's context.
    """

    scored: list[Scored]
    left_out: list[Case]


def run_benchmark(
    benchmark: Benchmark,
    cases: Sequence[Case],
    subject: Subject,
    *,
    answers: Path,
    logs: Path,
    on_case: Callable[[], object],
) -> Outcome:
    """Ask a model all cases of a benchmark and give the verdicts.

    Args:
        benchmark: The benchmark.
        cases: Those of its cases that are asked.
        subject: The model under test, and the judge that some benchmarks need.
        answers: Where answers are kept as they come; with those in it a run that was stopped goes on.
        logs: Where Inspect's logs go.
        on_case: Called after each case.

    Raises:
        CalyrexError: The template cannot hold a conversation, or a server does not answer.
        KeyboardInterrupt: The run was interrupted.
    """
    _remove_logs(logs, benchmark.name)
    failures: list[CalyrexError] = []
    task = make_task(benchmark, cases, subject.judge, on_case, failures, CachePolicy(expiry=None))
    with _answers_kept_in(answers):
        written = inspect_ai.eval(
            task,
            model=subject.model,
            display="none",
            log_dir=str(logs),
            log_level="error",
            log_realtime=False,
            max_samples=len(cases),
            score_display=False,
        )
    if not written or written[0].status == "cancelled":
        raise KeyboardInterrupt  # Inspect swallows it
    if not any(path.is_file() for path in answers.rglob("*")):
        _logger.warning("answers could not be kept in %s: a run that is stopped begins anew", answers)
    return _read_log(written[0], cases, failures)


def _read_log(log: EvalLog, cases: Sequence[Case], failures: Sequence[CalyrexError]) -> Outcome:
    if failures:
        raise failures[0]
    if log.status != "success":
        raise _explain(log)
    samples = {str(sample.id): sample for sample in log.samples or []}
    scored = [read_sample(samples[case.id], case) for case in cases]
    left_out = [case for case, one in zip(cases, scored, strict=True) if one is None]
    return Outcome([one for one in scored if one is not None], left_out)


def _explain(log: EvalLog) -> Exception:
    """Return what ended a run: a server, the disk, or a mistake of ours with its traceback."""
    message, trace = (log.error.message, log.error.traceback) if log.error else (log.status, log.status)
    said = re.findall(r"\b(?:openai|httpx2?)\.\w+: .*", trace)
    text = " ".join((said[-1] if said else message).split())[:300]
    if re.search(r"\b(openai|httpx2?)\b", trace):
        return CalyrexError(f"a server gave no answer ({text}); what it has answered is kept: run the command again")
    if re.search(r"\bOSError\b|\[Errno", trace):
        return CalyrexError(f"cannot write {log.location} ({text}); make room or choose another folder")
    return RuntimeError(trace)


def _remove_logs(folder: Path, name: str) -> None:
    """Remove the logs of earlier starts, which the next one holds again as a whole."""
    if folder.is_dir():
        for log in list_eval_logs(str(folder)):
            if log.task == name:
                Path(log.name.removeprefix("file://")).unlink(missing_ok=True)


@contextmanager
def _answers_kept_in(folder: Path) -> Iterator[None]:
    """Point Inspect's cache to a folder, and undo what Inspect does to the process's logging."""
    variable, root = "INSPECT_CACHE_DIR", logging.getLogger()
    earlier, level, handlers = os.environ.get(variable), root.level, list(root.handlers)
    os.environ[variable] = str(folder)
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        if earlier is None:
            del os.environ[variable]
        else:
            os.environ[variable] = earlier
