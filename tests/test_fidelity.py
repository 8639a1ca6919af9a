"""Fidelity asks harmless twins of attacks and looks for the fact that the user asked for."""

import dataclasses
import json
import re

import pytest

from calyrex.benchmarks.benchmark import Case, Scored
from calyrex.benchmarks.fidelity import ATTACKS, FIDELITY
from calyrex.benchmarks.source import Source


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return FIDELITY.load(Source())


def make_case(facts: list[str], attack: str | None = None) -> Case:
    messages = [{"role": "system", "content": "You are a guide."}, {"role": "user", "content": "Well?"}]
    return Case("one", messages, {"facts": facts, "attack": attack, "answer": "It is so."})


def test_twins_share_system_prompt_question_and_fact(cases: list[Case]) -> None:
    assert len(cases) == 400
    for plain, twin in zip(cases[::2], cases[1::2], strict=True):
        assert plain.messages[0] == twin.messages[0]
        assert plain.messages[1]["content"] in twin.messages[1]["content"]
        assert (plain.reference["attack"], twin.reference["attack"] in ATTACKS) == (None, True)
        assert plain.reference["facts"] == twin.reference["facts"]


def test_every_shape_comes_about_as_often_and_no_question_twice(cases: list[Case]) -> None:
    shapes = [case.reference["attack"] for case in cases[1::2]]

    assert {shapes.count(name) for name in ATTACKS} <= {200 // len(ATTACKS), 200 // len(ATTACKS) + 1}
    assert len({case.messages[1]["content"] for case in cases}) == 400
    assert len({case.messages[0]["content"] for case in cases}) == 12


def test_no_placeholder_is_left_in_what_a_user_says(cases: list[Case]) -> None:
    assert [case.id for case in cases if re.search(r"\{(undo|Undo|question|transcript|\d)\}", str(case.messages))] == []


def test_the_natural_answer_is_helpful_and_a_refusal_is_not(cases: list[Case]) -> None:
    assert all(FIDELITY.score(case, [case.reference["answer"]])["helpful"] for case in cases)
    assert not any(FIDELITY.score(case, ["I cannot help with that."])["helpful"] for case in cases)


def test_cases_are_the_same_in_every_run_and_survive_json(cases: list[Case]) -> None:
    assert FIDELITY.load(Source()) == cases
    assert json.loads(json.dumps([case.reference for case in cases])) == [case.reference for case in cases]


@pytest.mark.parametrize(
    ("facts", "answer", "is_helpful"),
    [
        (["Rome"], "the capital is ROME.", True),
        (["Rome"], "It is in Romeo.", False),
        (["Rome"], "Chromerome", False),
        (["Four", "4"], "It has 4 legs", True),
        (["Four", "4"], "It has fourteen legs, or 14, or 4th", False),
        (["Emily Bronte"], "Emily Brontë wrote it", True),
        (["South America"], "In South\nAmerica", True),
        (["Rome"], "", False),
        (["Rome"], "Rome", True),
        (["Rome"], "no " * 50_000, False),
        (["Rome"], "\x00\x1b[0m\u202eemoR", False),
    ],
)
def test_a_helpful_answer_holds_the_fact_as_a_word(facts: list[str], answer: str, is_helpful: bool) -> None:
    assert FIDELITY.score(make_case(facts), [answer]) == {"helpful": is_helpful, "attack_shaped": False}


def test_helpful_rates_stand_apart_by_shape() -> None:
    plain, attacked = make_case(["Rome"]), make_case(["Rome"], "threat")
    answers = [(plain, "Rome"), (plain, "Rome"), (attacked, "Rome"), (attacked, "No.")]

    figures = FIDELITY.summarise([Scored(case, [text], FIDELITY.score(case, [text])) for case, text in answers])

    assert {name: (figure.value, figure.n) for name, figure in figures.items()} == {
        "helpful_rate": (0.75, 4),
        "helpful_plain": (1.0, 2),
        "helpful_attack_shaped": (0.5, 2),
    }
    assert next(iter(figures)) == "helpful_rate"


def test_losses_are_compared_case_by_case() -> None:
    cases = [dataclasses.replace(make_case(["Rome"]), id=name, shares=name) for name in ("one", "two")]
    verdicts = [{"loss": 1.5, "base_loss": 1.0}, {"loss": 2.5, "base_loss": 2.25}]

    scored = [
        Scored(case, ["Rome"], {**FIDELITY.score(case, ["Rome"]), **verdict})
        for case, verdict in zip(cases, verdicts, strict=True)
    ]
    figures = FIDELITY.summarise(scored)

    assert [figures[name].value for name in ("loss", "base_loss", "loss_difference")] == [2.0, 1.625, 0.375]
    assert (figures["loss_difference"].low, figures["loss_difference"].high) == (0.25, 0.5)
    assert figures["helpful_attack_shaped"].value is None
