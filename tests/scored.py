"""Verdicts that the tests of benchmarks make up."""

from calyrex.benchmarks.benchmark import Benchmark, Case, Scored


def score_all(benchmark: Benchmark, pairs: list[tuple[Case, str]]) -> list[Scored]:
    """Score one answer to each case."""
    return [Scored(case, [answer], benchmark.score(case, [answer])) for case, answer in pairs]


ODD_ANSWERS = [
    "",
    " ",
    "word",
    "0",
    "\x00\x1b[2J\u202e",
    "word " * 20_000,
    "{" * 100_000,
    "1" * 100_000,
    "#### " * 20_000,
]
