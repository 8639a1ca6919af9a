"""All benchmarks and suites by name."""

import importlib.metadata
from collections.abc import Sequence

from calyrex.benchmarks.benchmark import Benchmark
from calyrex.benchmarks.fidelity import FIDELITY
from calyrex.benchmarks.glaive import GLAIVE
from calyrex.benchmarks.gsm8k import GSM8K
from calyrex.benchmarks.ifeval import IFEVAL, SYS_IFEVAL
from calyrex.benchmarks.ih_challenge import IH_CHALLENGE
from calyrex.benchmarks.injecagent import INJECAGENT
from calyrex.benchmarks.long_ifeval import LONG_IFEVAL
from calyrex.benchmarks.long_rules import LONG_RULES
from calyrex.benchmarks.mmlu import NAME as MMLU
from calyrex.benchmarks.msj import MSJ
from calyrex.benchmarks.realguardrails import REALGUARDRAILS
from calyrex.benchmarks.rules import RULES
from calyrex.benchmarks.squad import SQUAD
from calyrex.benchmarks.sysbench import SYSBENCH
from calyrex.benchmarks.tensortrust import TENSORTRUST
from calyrex.errors import CalyrexError

BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        IFEVAL,
        SYS_IFEVAL,
        LONG_IFEVAL,
        SYSBENCH,
        GSM8K,
        SQUAD,
        GLAIVE,
        INJECAGENT,
        TENSORTRUST,
        MSJ,
        IH_CHALLENGE,
        REALGUARDRAILS,
        RULES,
        LONG_RULES,
        FIDELITY,
    )
}
"""Those whose answers are generated; MMLU, from log-likelihoods, is the other one."""

SUITES: dict[str, tuple[str, ...]] = {
    "paper": (
        *("ifeval", "long_ifeval", "sysbench", "mmlu", "gsm8k", "squad", "glaive"),
        *("ih_challenge", "injecagent", "msj", "tensortrust"),
    ),
    "adherence": ("ifeval", "sys_ifeval", "long_ifeval", "sysbench", "realguardrails", "rules", "long_rules"),
    "security": ("injecagent", "tensortrust", "msj", "ih_challenge", "long_rules"),
    "capability": ("mmlu", "gsm8k", "squad", "glaive", "fidelity"),
    "all": (*BENCHMARKS, MMLU),
}


def benchmark_versions() -> dict[str, str]:
    """Return the versions of the libraries that verdicts depend on."""
    return {name: importlib.metadata.version(name) for name in ("inspect-ai", "langdetect", "lm-eval", "nltk")}


def choose_tasks(names: Sequence[str]) -> list[str]:
    """Return the tasks that names of tasks and suites stand for, each once, in the order given.

    Raises:
        CalyrexError: A name is unknown, or there is none.
    """
    tasks: list[str] = []
    for name in names:
        if name not in SUITES and name not in BENCHMARKS and name != MMLU:
            known = ", ".join((*BENCHMARKS, MMLU))
            raise CalyrexError(f"no task {name!r}: expected tasks among {known}, or suites among {', '.join(SUITES)}")
        tasks += [task for task in SUITES.get(name, (name,)) if task not in tasks]
    if not tasks:
        raise CalyrexError("expected at least one task, such as --tasks ifeval")
    return tasks
