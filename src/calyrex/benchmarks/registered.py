"""What Inspect AI finds by itself: the provider ``calyrex`` and a task for each benchmark with generated answers.

So that ``inspect eval calyrex/ifeval --model openai/gpt-4o`` asks any model the same, and
``inspect eval calyrex/ifeval --model calyrex/smollm2-135m -M adapter=FOLDER`` one of ours.
"""

from collections.abc import Callable
from pathlib import Path

from inspect_ai import Task, task
from inspect_ai.model import get_model

from calyrex.benchmarks.benchmark import Benchmark
from calyrex.benchmarks.provider import calyrex
from calyrex.benchmarks.registry import BENCHMARKS
from calyrex.benchmarks.source import Source
from calyrex.benchmarks.tasks import make_task

__all__ = ["TASKS", "calyrex"]


def _register(benchmark: Benchmark) -> Callable[..., Task]:
    def make(data_dir: str | None = None, seed: int = 0, judge: str | None = None) -> Task:
        source = Source(Path(data_dir) if data_dir else None, seed)
        return make_task(benchmark, benchmark.load(source), get_model(judge) if judge else None)

    return task(name=benchmark.name)(make)


TASKS = {name: _register(benchmark) for name, benchmark in BENCHMARKS.items()}
"""Each takes ``data_dir``, ``seed`` and, where a judge is needed, ``judge``: the name of an Inspect model."""
