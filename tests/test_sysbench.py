"""SysBench reads both of its formats, asks about each turn, and counts as the original does."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from calyrex.benchmarks.benchmark import Case, Scored
from calyrex.benchmarks.source import Source
from calyrex.benchmarks.sysbench import SYSBENCH
from calyrex.errors import CalyrexError
from eval_data import ALIGNMENTS, NUM_CRITERIA, rebuilt


def original(number: int = 7, *, dependent: bool = True) -> dict[str, Any]:
    messages = [{"role": "system", "content": "Be brief."}]
    infos = {}
    for i, (alignment, n) in enumerate(zip(ALIGNMENTS, NUM_CRITERIA, strict=True), start=1):
        user = f"Question {i}"
        messages += [{"role": "user", "content": user}, {"role": "assistant", "content": "Reference"}]
        criteria = {
            str(j + 1): {"criteria_id": j + 1, "criteria_content": f"Rule {i}{j}", "criteria_type": "form"}
            for j in range(n)
        }
        infos[user] = {"alignment": alignment, "criteria": criteria}
    return {
        "system_id": number,
        "system_prompt": "Be brief.",
        "messages": messages,
        "prompt_infos": infos,
        "rounds_related": dependent,
    }


def load_rebuilt(folder: Path, rows: list[Any]) -> list[Case]:
    (folder / "sysbench").mkdir(exist_ok=True)
    text = "\n".join(map(json.dumps, rows))
    (folder / "sysbench" / "sysbench_reconstructed.jsonl").write_text(text, encoding="utf-8")
    return SYSBENCH.load(Source(folder))


def write_original(folder: Path, rows: list[Any]) -> None:
    (folder / "sysbench").mkdir(exist_ok=True)
    (folder / "sysbench" / "system_benchmark_eval_datas.json").write_text(json.dumps(rows), encoding="utf-8")


def judge(case: Case, flags: str) -> Scored:
    """Let a judge say yes (+), no (-) or nothing readable (?) to the whole of each turn."""
    words = {"+": "yes", "-": "no", "?": "who knows"}
    replies = [
        "\n".join(f"{number}: {words[flag]}" for number in range(1, n + 1))
        for flag, n in zip(flags, NUM_CRITERIA, strict=True)
    ]
    return Scored(case, replies, SYSBENCH.score(case, replies))


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return load_rebuilt(tmp_path, [rebuilt()])[0]


def test_both_formats_give_the_same_cases_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    write_original(tmp_path, [original(10), original(9, dependent=False)])
    from_original = SYSBENCH.load(Source(tmp_path))
    (tmp_path / "sysbench" / "system_benchmark_eval_datas.json").unlink()

    from_rebuilt = load_rebuilt(tmp_path, [rebuilt(9, dependent=False), rebuilt(10)])

    assert from_original == from_rebuilt
    assert [case.id for case in from_original] == ["9", "10"]


def test_a_case_is_a_system_prompt_and_five_user_turns_that_are_all_answered(case: Case) -> None:
    assert case.answers_each_turn
    assert [message["role"] for message in case.messages] == ["system", *["user"] * 5]
    assert case.reference["turns"][1] == {"alignment": "misalign", "criteria": ["Rule 20 | form", "Rule 21 | form"]}


def test_the_judge_sees_each_turn_after_the_answers_of_the_turns_before(case: Case) -> None:
    asked = SYSBENCH.questions(case, [f"Reply {number}" for number in range(1, 6)])

    assert len(asked) == 5
    assert "[user]\nQuestion 1\n\n[assistant]\nReply 1\n\n[user]\nQuestion 2\n</conversation>" in asked[1]
    assert "<answer>\nReply 2\n</answer>" in asked[1]
    assert "1. Rule 20 | form\n2. Rule 21 | form" in asked[1]
    assert "Question 3" not in asked[1]
    assert "Reply 3" not in asked[1]


def test_a_dialogue_is_stable_up_to_its_first_broken_turn(case: Case) -> None:
    verdict = judge(case, "++-++").verdict

    assert [verdict[f"turn_{number}"] for number in range(1, 6)] == [True, True, False, True, True]
    assert (verdict["stable_turns"], verdict["criteria"], verdict["fulfilled"], verdict["unjudged"]) == (
        2.0,
        8.0,
        7.0,
        0.0,
    )


@pytest.mark.parametrize(("flags", "stable"), [("+++++", 5), ("-++++", 0), ("++++-", 4), ("?++++", 0), ("-----", 0)])
def test_stable_turns_are_counted_from_the_first_turn(case: Case, flags: str, stable: int) -> None:
    assert judge(case, flags).verdict["stable_turns"] == stable


def test_one_broken_criterion_breaks_its_turn_only(case: Case) -> None:
    verdict = SYSBENCH.score(case, ["1: yes", "1: yes\n2: no", "1: yes", "1: yes", "1: yes\n2: yes\n3: yes"])

    assert (verdict["turn_2"], verdict["fulfilled"]) == (False, 7.0)


def test_an_unreadable_judgement_is_counted_and_not_fulfilled(case: Case) -> None:
    verdict = SYSBENCH.score(case, ["1: yes", "1: yes", "1: yes", "1: yes", "hard to say"])

    assert (verdict["turn_2"], verdict["turn_5"]) == (False, False)
    assert (verdict["fulfilled"], verdict["unjudged"]) == (4.0, 4.0)


@pytest.mark.parametrize("reply", ["", "yes", "\x00\x1b[31m", "1: yes " * 20_000])
def test_any_reply_gets_a_verdict_of_the_same_names(case: Case, reply: str) -> None:
    assert list(SYSBENCH.score(case, [reply] * 5)) == list(judge(case, "+++++").verdict)


def test_the_rates_are_those_of_the_paper(tmp_path: Path) -> None:
    first, second = load_rebuilt(tmp_path, [rebuilt(1), rebuilt(2, dependent=False)])

    figures = SYSBENCH.summarise([judge(first, "++-++"), judge(second, "-+++?")])

    assert next(iter(figures)) == "csr"
    assert {name: figure.value for name, figure in figures.items()} == pytest.approx(
        {
            "csr": (7 + 4) / 16,
            "isr": (4 + 3) / 10,
            "ssr": (2 / 5 + 0 / 5) / 2,
            "isr_aligned": (2 + 2) / 6,
            "isr_misaligned": (2 + 1) / 4,
            "ssr_dependent": 2 / 5,
            "ssr_parallel": 0.0,
            "unjudged": 3 / 16,
        }
    )


def test_a_split_that_does_not_occur_has_no_figure(case: Case) -> None:
    assert SYSBENCH.summarise([judge(case, "+++++")])["ssr_parallel"].value is None


def broken(**changes: Any) -> dict[str, Any]:
    return {**rebuilt(), **changes}


@pytest.mark.parametrize(
    "row",
    [
        5,
        "text",
        {},
        broken(turns=rebuilt()["turns"][:4]),
        broken(system_id="7"),
        broken(system_prompt=None),
        broken(turns=[{**turn, "criteria": []} for turn in rebuilt()["turns"]]),
        broken(turns=[{**turn, "criteria": [1]} for turn in rebuilt()["turns"]]),
        broken(turns=[{**turn, "alignment": "unknown"} for turn in rebuilt()["turns"]]),
        {**original(), "prompt_infos": {}},
        {**original(), "messages": None},
    ],
)
def test_a_row_of_another_shape_is_named_in_one_line(tmp_path: Path, row: Any) -> None:
    with pytest.raises(
        CalyrexError, match=r"sysbench_reconstructed\.jsonl line 2(?: is no dialogue|: expected an object, got)"
    ) as caught:
        load_rebuilt(tmp_path, [rebuilt(), row])

    assert "\n" not in str(caught.value)


def test_without_data_it_says_where_to_get_them() -> None:
    with pytest.raises(CalyrexError, match=r"github\.com/PKU-Baichuan-MLSystemLab/SysBench"):
        SYSBENCH.load(Source())


@pytest.mark.slow
def test_the_real_file_has_its_published_size() -> None:
    folder = os.environ.get("CALYREX_EVAL_DATA")
    if folder is None:
        pytest.skip("set CALYREX_EVAL_DATA to a folder with the benchmarks' files")

    cases = SYSBENCH.load(Source(Path(folder)))

    turns = [turn for case in cases for turn in case.reference["turns"]]
    assert (len(cases), sum(case.reference["is_dependent"] for case in cases)) == (500, 356)
    assert sum(turn["alignment"] == "misalign" for turn in turns) == 549
    assert sum(len(turn["criteria"]) for turn in turns) == 5952
