"""SysBench: whether a model keeps a system prompt's constraints through a dialogue of five turns, judged by a model.

Source: Qin et al., "SysBench: Can Large Language Models Follow System Messages?", ICLR 2025, and its repository
https://github.com/PKU-Baichuan-MLSystemLab/SysBench (``eval_system_bench.py``, ``utils.py``, ``plot/tab*.py``). Each
user turn comes with criteria, each of a constraint type; the model answers all five turns, its own answers as
history. The paper's three levels, and their splits:

- ``csr``, constraint satisfaction rate: criteria fulfilled of all criteria (Table 2 and 6, total);
- ``isr``, instruction satisfaction rate: turns with every criterion fulfilled of all turns; ``isr_aligned`` and
  ``isr_misaligned`` where the user's turn goes along with the system prompt or against it (Table 3);
- ``ssr``, session stability rate: turns fulfilled in a row from the first one on, of five; ``ssr_dependent`` and
  ``ssr_parallel`` where later turns build on earlier ones or not (Table 4).

The original asks its judge again until the reply can be read. Here a criterion without a readable verdict counts as
not fulfilled, and ``unjudged`` tells the share of such criteria. The judge's question is worded anew.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from calyrex.benchmarks.benchmark import Benchmark, Case, Scored, Verdict
from calyrex.benchmarks.judgement import ask_judge, read_judgement
from calyrex.benchmarks.metric import Metric, mean, ratio
from calyrex.benchmarks.source import Source
from calyrex.errors import CalyrexError

NUM_TURNS = 5

_ORIGINAL = "sysbench/system_benchmark_eval_datas.json"
_REBUILT = "sysbench/sysbench_reconstructed.jsonl"
_PUBLISHED_AT = "https://github.com/PKU-Baichuan-MLSystemLab/SysBench/tree/main/datas"
_ALIGNMENTS = ("align", "misalign")
_ADVICE = "The criteria follow from the system prompt and the user's last message; judge strictly by their words."


class _Turn(NamedTuple):
    user: str
    alignment: str
    criteria: list[str]


def _load(source: Source) -> list[Case]:
    """Read the dialogues: the original file, or one line for each dialogue with ``turns``.

    Raises:
        CalyrexError: There is no such file, or a row is no dialogue of five turns.
    """
    cases = [_read_case(record.value, record.origin) for record in source.rows(_choose_file(source), _PUBLISHED_AT)]
    return sorted(cases, key=lambda case: int(case.id))


def _questions(case: Case, answers: Sequence[str]) -> list[str]:
    """Ask the judge about each turn: its criteria, after the conversation with the model's own answers."""
    asked = []
    conversation = [case.messages[0]]
    for user, answer, turn in zip(case.messages[1:], answers, case.reference["turns"], strict=True):
        conversation.append(user)
        asked.append(ask_judge(conversation, answer, turn["criteria"], advice=_ADVICE))
        conversation.append({"role": "assistant", "content": answer})
    return asked


def _score(case: Case, replies: Sequence[str]) -> Verdict:
    """Read the judge's reply on each turn.

    Returns:
        ``turn_1`` .. ``turn_5``: whether all criteria of the turn are fulfilled; ``stable_turns``: how many turns in a
        row are, from the first on, 0 .. 5; ``criteria``, ``fulfilled`` and ``unjudged``: numbers of criteria.
    """
    judged = [
        read_judgement(reply, len(turn["criteria"]))
        for reply, turn in zip(replies, case.reference["turns"], strict=True)
    ]
    flags = [all(verdicts) for verdicts in judged]
    every = [verdict for verdicts in judged for verdict in verdicts]
    return {
        **{f"turn_{number}": flag for number, flag in enumerate(flags, start=1)},
        "stable_turns": float([*flags, False].index(False)),
        "criteria": float(len(every)),
        "fulfilled": float(every.count(True)),
        "unjudged": float(every.count(None)),
    }


def _summarise(scored: Sequence[Scored]) -> dict[str, Metric]:
    """Return the rates of the three levels and their splits; intervals are over dialogues."""
    return {
        "csr": ratio([(item.verdict["fulfilled"], item.verdict["criteria"]) for item in scored]),
        "isr": ratio([_count_turns(item, _ALIGNMENTS) for item in scored]),
        "ssr": _stability(scored),
        "isr_aligned": ratio([_count_turns(item, ("align",)) for item in scored]),
        "isr_misaligned": ratio([_count_turns(item, ("misalign",)) for item in scored]),
        "ssr_dependent": _stability([item for item in scored if item.case.reference["is_dependent"]]),
        "ssr_parallel": _stability([item for item in scored if not item.case.reference["is_dependent"]]),
        "unjudged": ratio([(item.verdict["unjudged"], item.verdict["criteria"]) for item in scored]),
    }


def _count_turns(item: Scored, alignments: Sequence[str]) -> tuple[float, float]:
    """Count the turns of an alignment that are fulfilled, and all of them."""
    flags = [
        bool(item.verdict[f"turn_{number}"])
        for number, turn in enumerate(item.case.reference["turns"], start=1)
        if turn["alignment"] in alignments
    ]
    return float(sum(flags)), float(len(flags))


def _stability(scored: Sequence[Scored]) -> Metric:
    return mean(item.verdict["stable_turns"] / NUM_TURNS for item in scored)


def _choose_file(source: Source) -> str:
    """Return the original file, or the rebuilt one where that alone lies in the data folder."""
    folder = source.data_dir
    is_rebuilt = folder is not None and not (folder / _ORIGINAL).is_file() and (folder / _REBUILT).is_file()
    return _REBUILT if is_rebuilt else _ORIGINAL


def _read_case(row: Any, origin: str) -> Case:
    try:
        number, system, is_dependent, turns = _read_original(row) if "prompt_infos" in row else _read_rebuilt(row)
    except (KeyError, TypeError, AttributeError) as error:
        raise CalyrexError(f"{origin} is no dialogue of SysBench: {type(error).__name__} at {error}") from error
    texts = [system, *(turn.user for turn in turns)]
    is_sound = len(turns) == NUM_TURNS and all(turn.criteria and turn.alignment in _ALIGNMENTS for turn in turns)
    if not is_sound or type(number) is not int or not all(isinstance(text, str) for text in texts):
        raise CalyrexError(
            f"{origin} is no dialogue of SysBench: expected a number as system_id, a system prompt and {NUM_TURNS} "
            f"user turns, each with criteria and an alignment among {', '.join(_ALIGNMENTS)}"
        )
    users = [{"role": "user", "content": turn.user} for turn in turns]
    return Case(
        id=str(number),
        messages=[{"role": "system", "content": system}, *users],
        reference={
            "is_dependent": bool(is_dependent),
            "turns": [{"alignment": turn.alignment, "criteria": turn.criteria} for turn in turns],
        },
        answers_each_turn=True,
    )


def _read_original(row: Mapping[str, Any]) -> tuple[Any, Any, Any, list[_Turn]]:
    """Read an entry of the original file, which finds what it knows of a turn by the text of the user's message."""
    turns = []
    for user in [message["content"] for message in row["messages"] if message["role"] == "user"]:
        info = row["prompt_infos"][user]
        criteria = [f"{item['criteria_content']} | {item['criteria_type']}" for item in info["criteria"].values()]
        turns.append(_Turn(user, info["alignment"], criteria))
    return row["system_id"], row["system_prompt"], row["rounds_related"], turns


def _read_rebuilt(row: Mapping[str, Any]) -> tuple[Any, Any, Any, list[_Turn]]:
    """Read a line of the rebuilt file, whose criteria begin with their number."""
    turns = [
        _Turn(turn["user"], turn["alignment"], [re.sub(r"^\d+\.\s*", "", text) for text in turn["criteria"]])
        for turn in row["turns"]
    ]
    return row["system_id"], row["system_prompt"], row["multi_rounds_related"], turns


SYSBENCH = Benchmark(
    name="sysbench",
    measures="keeping a system prompt's constraints over five turns, in Chinese",
    origin="Qin et al. 2024, github.com/PKU-Baichuan-MLSystemLab/SysBench",
    licence="none stated",
    max_new_tokens=1024,
    load=_load,
    score=_score,
    summarise=_summarise,
    questions=_questions,
)
