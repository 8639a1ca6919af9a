"""Jobs of a study side by side, each in a process of its own.

Small matrices leave most of a core's time unused when several cores share one of them: two jobs with one thread each
end much sooner than one after the other with two threads. A process of its own also says how much memory a job took.
"""

import multiprocessing
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

import torch
from transformers.utils import logging

from calyrex.errors import CalyrexError

Job = TypeVar("Job")
_MAX_WORKERS = 4


def default_workers() -> int:
    """Return how many jobs run at a time where the user does not say: one for each core up to four, one on a GPU."""
    if torch.cuda.is_available():
        return 1
    return max(1, min(_MAX_WORKERS, _num_cores()))


def run_jobs(work: Callable[[Job], None], jobs: Sequence[Job], num_workers: int) -> Iterator[Job]:
    """Run jobs, so many at a time, and yield each when it is done.

    Args:
        work: a function of a module, called with a job in a process of its own.
        jobs: picklable, started in this order.
        num_workers: how many run at a time; the cores are shared out among them.

    Raises:
        CalyrexError: a job raised it, or its process was killed; the others are stopped.
    """
    if not jobs:
        return
    context = multiprocessing.get_context("spawn")
    threads = max(1, _num_cores() // num_workers)
    executor = ProcessPoolExecutor(num_workers, context, initializer=_begin, initargs=(threads,), max_tasks_per_child=1)
    futures: dict[Future[None], Job] = {executor.submit(work, job): job for job in jobs}
    try:
        for future in as_completed(futures):
            future.result()
            yield futures[future]
    except BrokenProcessPool as error:
        raise CalyrexError(
            "a job was killed, perhaps for want of memory; give the same command again, with fewer workers"
        ) from error
    finally:
        for process in list((executor._processes or {}).values()):
            process.terminate()
        executor.shutdown(cancel_futures=True)


def _begin(num_threads: int) -> None:
    """Prepare a process: its share of the cores, and an end with its parent, however that ends."""
    torch.set_num_threads(num_threads)
    logging.disable_progress_bar()
    warnings.filterwarnings("ignore", ".*is_gradient_checkpointing.*", FutureWarning)  # as the command line does
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
