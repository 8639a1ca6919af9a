"""IFEval: instructions that a program can verify, in the user turn or in the system prompt.

Zhou et al. 2023, "Instruction-Following Evaluation for Large Language Models". The checks are those of lm-eval, run as
lm-eval runs them. ``prompt_strict`` is the share of prompts whose instructions are all followed,
``instruction_strict`` that of single instructions; the loose ones forgive a first or last line and asterisks.
``average`` is the mean of the two strict figures, as model cards report it.
"""

import random
from collections.abc import Callable, Sequence
from functools import cache
from types import ModuleType
from typing import Any

from calyrex.benchmarks.benchmark import Benchmark, Case, Scored, Verdict, clusters_of
from calyrex.benchmarks.metric import Metric, Sums, of_sums, ratio, share
from calyrex.benchmarks.sentences import provide_sentence_splitter
from calyrex.benchmarks.source import Hub, Source
from calyrex.errors import CalyrexError

MAX_NEW_TOKENS = 512
ORIGIN = "Zhou et al. 2023, arXiv 2311.07911"
_HUB = Hub("google/IFEval", "train")
_FILE = "ifeval/input_data.jsonl"
_SYSTEM_FILE = "realguardrails/ifeval/sys_ifeval.jsonl"
_SYSTEM_REPOSITORY = "https://github.com/normster/RealGuardrails (evals/ifeval/inputs)"
_FIELDS = ("key", "prompt", "instruction_id_list", "kwargs")


def load_ifeval(source: Source) -> list[Case]:
    """Load the prompts with their instructions in the user turn.

    Raises:
        CalyrexError: There are no data, or a row lacks a field.
    """
    rows = source.rows(_FILE, _HUB)
    return [_make_case(row, [{"role": "user", "content": row.get("prompt")}], origin) for row, origin in rows]


def load_sys_ifeval(source: Source) -> list[Case]:
    """Load the prompts with their instructions moved into the system prompt, as RealGuardrails did.

    Raises:
        CalyrexError: There are no data, or a row lacks a field.
    """
    rows = source.rows(_SYSTEM_FILE, _SYSTEM_REPOSITORY)
    return [_make_case(row, row.get("messages"), origin) for row, origin in rows]


def score_ifeval(case: Case, answers: Sequence[str]) -> Verdict:
    """Check every instruction of a case, strictly and loosely."""
    strict, loose = check_instructions(case.reference, answers[-1])
    return {
        "strict": all(strict),
        "loose": all(loose),
        "num_strict": float(sum(strict)),
        "num_loose": float(sum(loose)),
        "num_instructions": float(len(strict)),
    }


def summarise_ifeval(scored: Sequence[Scored]) -> dict[str, Metric]:
    """Return the four figures of the paper, and the mean of the strict ones first."""
    verdicts, clusters = [one.verdict for one in scored], clusters_of(scored)
    counts = [(float(v["strict"]), 1.0, float(v["num_strict"]), float(v["num_instructions"])) for v in verdicts]
    return {
        "average": of_sums(counts, _average, clusters),
        "prompt_strict": share((verdict["strict"] for verdict in verdicts), clusters),
        "instruction_strict": ratio([(strict, given) for _, _, strict, given in counts], clusters),
        "prompt_loose": share((verdict["loose"] for verdict in verdicts), clusters),
        "instruction_loose": ratio([(float(v["num_loose"]), float(v["num_instructions"])) for v in verdicts], clusters),
    }


def check_instructions(reference: dict[str, Any], answer: str) -> tuple[list[bool], list[bool]]:
    """Tell which instructions an answer follows, strictly and loosely, by lm-eval's checks.

    Args:
        reference: ``key``, ``prompt``, ``instruction_id_list`` and ``kwargs`` of a row.
        answer: What the model said.

    Returns:
        A flag for each instruction, strict; and loose.
    """
    checks = lm_eval_checks()
    state = random.getstate()
    random.seed(0)  # a missing argument of a check is drawn at random
    try:
        strict = _follow(checks.test_instruction_following_strict, reference, answer)
        loose = _follow(checks.test_instruction_following_loose, reference, answer)
    finally:
        random.setstate(state)
    return strict, loose


def _follow(test: Callable[[Any, str], Any], reference: dict[str, Any], answer: str) -> list[bool]:
    """Check one instruction at a time, so that one check that gives up costs no other its verdict."""
    flags: list[bool] = []
    for name, arguments in zip(reference["instruction_id_list"], reference["kwargs"], strict=True):
        one = {**reference, "instruction_id_list": [name], "kwargs": [arguments]}
        example = lm_eval_checks().InputExample(**{field: one[field] for field in _FIELDS})
        try:
            flags.append(bool(test(example, answer).follow_all_instructions))
        except RecursionError:  # JSON without end
            flags.append(False)
    return flags


@cache
def lm_eval_checks() -> ModuleType:
    """Return lm-eval's module of checks, with its detection of languages made deterministic.

    Raises:
        CalyrexError: lm-eval, or what its checks need, is not installed.
    """
    try:
        import langdetect

        provide_sentence_splitter()  # lm-eval would download one when it is imported
        from lm_eval.tasks.ifeval import utils
    except ImportError as error:
        raise CalyrexError(f"IFEval needs lm-eval's checks ({error}): pip install 'calyrex[eval]'") from error
    langdetect.DetectorFactory.seed = 0
    checks: ModuleType = utils
    return checks


def _average(sums: Sums) -> Sums:
    average: Sums = (sums[0] / sums[1] + sums[2] / sums[3]) / 2
    return average


def _make_case(row: dict[str, Any], messages: Any, origin: str) -> Case:
    missing = [field for field in _FIELDS if row.get(field) is None]
    is_chat = isinstance(messages, list) and all({"role", "content"} <= set(message) for message in messages)
    if missing or not is_chat or not _is_paired(row["instruction_id_list"], row["kwargs"]):
        raise CalyrexError(
            f"{origin} must have {', '.join(_FIELDS)} and messages, and as many kwargs as "
            "instructions: get the original file"
        )
    unknown = set(row["instruction_id_list"]) - set(lm_eval_checks().instructions_registry.INSTRUCTION_DICT)
    if unknown:
        raise CalyrexError(f"{origin} has an instruction that lm-eval does not know: {min(unknown)}")
    for name, arguments in zip(row["instruction_id_list"], row["kwargs"], strict=True):
        _check_arguments(origin, name, arguments)
    chat = [{"role": message["role"], "content": message["content"]} for message in messages]
    return Case(str(row["key"]), chat, {field: row[field] for field in _FIELDS})


def _is_paired(names: Any, arguments: Any) -> bool:
    is_list = isinstance(names, list) and isinstance(arguments, list) and len(names) == len(arguments)
    return is_list and all(isinstance(name, str) for name in names)


def _check_arguments(origin: str, name: str, arguments: Any) -> None:
    """Make sure that a check of lm-eval takes its arguments, which it says only when it runs."""
    check = lm_eval_checks().instructions_registry.INSTRUCTION_DICT[name](name)
    try:
        check.build_description(**{argument: value for argument, value in arguments.items() if value})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CalyrexError(f"{origin}: {name} does not take {arguments!r} ({error})") from error


IFEVAL = Benchmark(
    name="ifeval",
    measures="verifiable instructions in the user turn",
    origin=ORIGIN,
    licence="Apache-2.0",
    max_new_tokens=MAX_NEW_TOKENS,
    load=load_ifeval,
    score=score_ifeval,
    summarise=summarise_ifeval,
)

SYS_IFEVAL = Benchmark(
    name="sys_ifeval",
    measures="verifiable instructions in the system prompt",
    origin=f"{ORIGIN}; RealGuardrails, arXiv 2502.12197",
    licence="MIT, from Apache-2.0",
    max_new_tokens=MAX_NEW_TOKENS,
    load=load_sys_ifeval,
    score=score_ifeval,
    summarise=summarise_ifeval,
)
