"""A judge is asked about everything it must know, and its verdicts are read in whatever form it writes them."""

import pytest

from calyrex.benchmarks.judgement import ask_judge, read_judgement


def test_the_question_holds_conversation_answer_and_numbered_criteria() -> None:
    conversation = [{"role": "system", "content": "Speak Latin."}, {"role": "user", "content": "Who are you?"}]

    question = ask_judge(conversation, "Marcus sum.", ["Is Latin", "Is short"], advice="Be strict.")

    for part in ("[system]\nSpeak Latin.", "[user]\nWho are you?", "<answer>\nMarcus sum.\n</answer>", "Be strict."):
        assert part in question
    assert "1. Is Latin\n2. Is short" in question
    assert question.endswith("1: yes or no\n2: yes or no\n")


def test_braces_in_an_answer_stay_as_they_are() -> None:
    assert '{"a": {answer}}' in ask_judge([], '{"a": {answer}}', ["Is JSON"])


@pytest.mark.parametrize(
    "reply",
    [
        "1: yes\n2: no",
        "It opens in Latin but goes on.\n\n1: Yes\n2: No\n",
        "**1.** Yes\n**2**: **No**",
        '```json\n{"1": "yes", "2": "no"}\n```',
        '{"1": true, "2": false}',
        '{\n  1: "是",\n  2: "否"\n}',
        "1：是\n2：否。",
        "1) yes - it is Latin\n2) no - nine sentences",
        "[1] = yes; [2] = no",
        "1: yes\r\n2: no\r\n",
        "Criterion 1: yes (fulfilled)\nCriterion 2: no",
        "1. No apology is needed here.\n1: no\nOn reflection:\n1: yes\n2: no",
    ],
)
def test_verdicts_are_read_in_every_usual_form(reply: str) -> None:
    assert read_judgement(reply, 2) == [True, False]


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "yes",
        "I cannot judge this.",
        "1: yes or no\n2: yes or no",
        "11: yes\n12: no",
        "1: 是否",
        "x" * 100_000,
        "1: " * 30_000,
    ],
)
def test_a_reply_without_verdicts_has_none(reply: str) -> None:
    assert read_judgement(reply, 2) == [None, None]


def test_a_criterion_that_the_reply_leaves_out_has_no_verdict() -> None:
    assert read_judgement("1: yes\n3: no", 3) == [True, None, False]


@pytest.mark.parametrize(("reply", "verdict"), [("Yes.", True), ("It rambles.\n**No**", False), ("Maybe.", None)])
def test_a_single_criterion_needs_no_number(reply: str, verdict: bool | None) -> None:
    assert read_judgement(reply, 1) == [verdict]
