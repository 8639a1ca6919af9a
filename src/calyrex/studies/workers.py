"""Jobs of a study side by side, each in a process of its own.

Small matrices leave most of a core's time unused when several cores share one of them: two jobs with one thread each
end much sooner than one after the other with two threads. A process of its own also says how much memory a job took.
"""

import multiprocessing
import os
import signal
import threading
import traceback
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import TypeVar

import torch
from transformers.utils import logging

from calyrex.errors import CalyrexError

Job = TypeVar("Job")
_MAX_WORKERS = 4
_CONTEXT = multiprocessing.get_context("spawn")


def default_workers() -> int:
    """Return how many jobs run at a time where the user does not say: one for each core up to four, one on a GPU."""
    if torch.cuda.is_available():
        return 1
    return max(1, min(_MAX_WORKERS, _num_cores()))


def run_jobs(
    work: Callable[[Job], None],
    jobs: Sequence[Job],
    num_workers: int,
    needs: Callable[[Job], Collection[Job]] = lambda _job: (),
) -> Iterator[Job]:
    """Run jobs, so many at a time, and yield each when it is done.

    Args:
        work: a function of a module, called with a job in a process of its own.
        jobs: picklable; of those that are ready the first is started first.
        num_workers: how many run at a time; the cores are shared out among them.
        needs: the jobs that must be done before a job begins; those that are not among ``jobs`` count as done.

    Raises:
        CalyrexError: a job's process was killed; the others are stopped.
        ValueError: jobs wait for each other.
        Exception: what a job raised, with its traceback as a note; the others are stopped.
    """
    threads = max(1, _num_cores() // num_workers)
    waiting = list(jobs)
    running: dict[Connection, tuple[SpawnProcess, Job]] = {}
    try:
        while waiting or running:
            undone = [*waiting, *(job for _process, job in running.values())]
            ready = [job for job in waiting if not any(needed in undone for needed in needs(job))]
            for job in ready[: num_workers - len(running)]:
                waiting.remove(job)
                outcome, process = _start(work, job, threads)
                running[outcome] = process, job
            if not running:
                raise ValueError(f"jobs that wait for each other: {', '.join(map(str, waiting))}")
            ended = wait(list(running))
            for outcome in [one for one in running if one in ended]:
                _raise_from(outcome)
                process, job = running.pop(outcome)
                process.join()
                yield job
    finally:
        for process, _job in running.values():
            process.kill()
            process.join()


def _start(work: Callable[[Job], None], job: Job, threads: int) -> tuple[Connection, SpawnProcess]:
    """Start a job; return where its outcome arrives, and its process."""
    outcome, sender = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(target=_run, args=(sender, threads, work, job))
    process.start()
    sender.close()
    return outcome, process


def _raise_from(outcome: Connection) -> None:
    """Raise what a job raised, if anything."""
    try:
        error: Exception | None = outcome.recv()
    except EOFError:
        raise CalyrexError(
            "a job was killed, perhaps for want of memory; give the same command again, with fewer workers"
        ) from None
    if error is not None:
        raise error


def _run(sender: Connection, num_threads: int, work: Callable[[Job], None], job: Job) -> None:
    """Do a job in a process of its own, with its share of the cores and an end with its parent, however that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the study, which hears it too, ends its jobs
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(num_threads)
    logging.disable_progress_bar()
    warnings.filterwarnings("ignore", ".*is_gradient_checkpointing.*", FutureWarning)  # as the command line does
    try:
        work(job)
    except Exception as error:
        error.add_note(traceback.format_exc())
        sender.send(error)
    else:
        sender.send(None)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
