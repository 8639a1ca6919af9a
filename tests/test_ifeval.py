import json
from pathlib import Path

import pytest

from calyrex.benchmarks.benchmark import Scored
from calyrex.benchmarks.ifeval import IFEVAL, SYS_IFEVAL, check_instructions, lm_eval_checks, score_ifeval
from calyrex.benchmarks.long_ifeval import LENGTHS, LONG_IFEVAL
from calyrex.benchmarks.source import Source
from calyrex.errors import CalyrexError
from eval_data import IFEVAL_ROWS, write_ifeval, write_rows

ANSWERS = [
    "",
    "Hello.",
    "Hello, you.",
    "here is a leaf and there is another leaf on the same old tree in the garden.",
    "Here Is A Leaf And A Leaf.",
    "*Sure, here it is:*\nHello there.\nBye, bye.",
    "One. Two. Three. Four.",
    "[" * 20_000,
    "word " * 20_000,
]


@pytest.fixture
def source(tmp_path: Path) -> Source:
    write_ifeval(tmp_path)
    return Source(tmp_path)


@pytest.mark.parametrize("row", IFEVAL_ROWS, ids=lambda row: str(row["key"]))
@pytest.mark.parametrize("answer", ANSWERS, ids=lambda text: text[:12] or "nothing")
def test_flags_are_those_of_lm_eval(row: dict[str, object], answer: str) -> None:
    checks = lm_eval_checks()

    strict, loose = check_instructions(row, answer)

    theirs = checks.process_results(row, [answer])
    assert strict == theirs["inst_level_strict_acc"]
    assert loose == theirs["inst_level_loose_acc"]


def test_json_without_end_does_not_follow_and_does_not_crash() -> None:
    row = {"key": 1, "prompt": "", "instruction_id_list": ["detectable_format:json_format"], "kwargs": [{}]}

    assert check_instructions(row, "[" * 200_000) == ([False], [False])


def test_a_prompt_counts_as_followed_only_with_all_its_instructions(source: Source) -> None:
    case = IFEVAL.load(source)[1]

    verdict = score_ifeval(case, ["Only one of the two is kept here: leaf and leaf."])

    assert verdict["strict"] is False
    assert (verdict["num_strict"], verdict["num_instructions"]) == (1.0, 2.0)


def test_average_is_the_mean_of_the_strict_shares_of_prompts_and_of_instructions(source: Source) -> None:
    verdicts = [
        {"strict": True, "loose": True, "num_strict": 1.0, "num_loose": 1.0, "num_instructions": 1.0},
        {"strict": False, "loose": True, "num_strict": 2.0, "num_loose": 3.0, "num_instructions": 3.0},
    ]
    scored = [Scored(case, [""], verdict) for case, verdict in zip(IFEVAL.load(source), verdicts, strict=False)]

    metrics = IFEVAL.summarise(scored)

    assert metrics["prompt_strict"].value == 1 / 2
    assert metrics["instruction_strict"].value == 3 / 4
    assert metrics["average"].value == pytest.approx((1 / 2 + 3 / 4) / 2)
    assert metrics["instruction_loose"].value == 1.0


def test_system_prompts_hold_the_instructions_of_sys_ifeval(source: Source) -> None:
    cases = SYS_IFEVAL.load(source)

    assert [message["role"] for message in cases[0].messages] == ["system", "user"]
    assert cases[0].messages[0]["content"] == IFEVAL_ROWS[0]["prompt"]


def test_long_ifeval_puts_the_same_prompts_behind_conversations_of_each_length(source: Source) -> None:
    cases = LONG_IFEVAL.load(source)

    assert len(cases) == len(IFEVAL_ROWS) * len(LENGTHS)
    assert len({case.id for case in cases}) == len(cases)
    for case in cases:
        roles = [message["role"] for message in case.messages]
        assert roles[0] == "system"
        assert roles[1:] == ["user", "assistant"] * (len(roles) // 2 - 1) + ["user"]
        num_characters = sum(len(message["content"]) for message in case.messages[1:-1])
        assert num_characters / 6 < case.reference["length"] < num_characters


def test_long_ifeval_tells_the_lengths_apart(source: Source) -> None:
    case = LONG_IFEVAL.load(source)[0]
    scored = [Scored(case, ["Hello."], LONG_IFEVAL.score(case, ["Hello."]))]

    metrics = LONG_IFEVAL.summarise(scored)

    assert metrics[f"prompt_strict_{LENGTHS[0]}"].n == 1
    assert metrics[f"prompt_strict_{LENGTHS[-1]}"].value is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kwargs": []}, "input_data.jsonl line 1 must have key, prompt, instruction_id_list, kwargs"),
        ({"prompt": None}, "input_data.jsonl line 1 must have"),
        ({"instruction_id_list": ["made:up"]}, "does not know: made:up"),
    ],
)
def test_a_row_that_lm_eval_cannot_check_is_named(tmp_path: Path, change: dict[str, object], message: str) -> None:
    write_rows(tmp_path / "ifeval" / "input_data.jsonl", [{**IFEVAL_ROWS[0], **change}])

    with pytest.raises(CalyrexError, match=message):
        IFEVAL.load(Source(tmp_path))


def test_language_checks_give_the_same_flag_each_time() -> None:
    row = {
        "key": 1,
        "prompt": "",
        "instruction_id_list": ["language:response_language"],
        "kwargs": [{"language": "en"}],
    }
    answer = "leaf tea"  # two to three languages, by chance

    assert len({json.dumps(check_instructions(row, answer)) for _ in range(20)}) == 1
