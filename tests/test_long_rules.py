import itertools
import math

import pytest

from calyrex.benchmarks.benchmark import Case, Scored
from calyrex.benchmarks.long_rules import LONG_RULES, TURNS
from calyrex.benchmarks.source import Source
from calyrex.data.rules import TRAINED_FAMILIES, Rule
from calyrex.models import load_tokenizer
from calyrex.span import encode_chat


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return LONG_RULES.load(Source())


def rule_of(case: Case) -> Rule:
    return Rule(case.reference["family"], case.reference["rule"], tuple(case.reference["arguments"]))


def by_rule(cases: list[Case]) -> list[list[Case]]:
    return [list(group) for _, group in itertools.groupby(cases, key=lambda case: case.shares)]


def scored(case: Case, *, obeyed: bool) -> Scored:
    return Scored(case, [""], {"obeyed": obeyed})


def test_sixty_rules_are_asked_after_every_number_of_turns(cases: list[Case]) -> None:
    groups = by_rule(cases)

    assert len(groups) == 60
    assert all(tuple(case.reference["turns"] for case in group) == TURNS for group in groups)
    assert TURNS == (0, 4, 16, 48)
    assert cases[2].id == "uppercase-0-turns-16"


def test_trained_families_take_turns(cases: list[Case]) -> None:
    families = [group[0].reference["family"] for group in by_rule(cases)]

    assert families == families[:10] * 6
    assert set(families) <= set(TRAINED_FAMILIES)


def test_rule_and_question_are_the_same_after_every_number_of_turns(cases: list[Case]) -> None:
    for group in by_rule(cases):
        assert {case.messages[0]["content"] for case in group} == {group[0].reference["rule"]}
        assert {case.messages[-1]["content"] for case in group} == {group[0].reference["question"]}


def test_a_longer_conversation_begins_with_the_shorter_one(cases: list[Case]) -> None:
    for group in by_rule(cases):
        for shorter, longer in itertools.pairwise(group):
            assert longer.messages[: len(shorter.messages) - 1] == shorter.messages[:-1]


def test_every_turn_breaks_the_rule_and_no_question_comes_twice(cases: list[Case]) -> None:
    for case in cases[len(TURNS) - 1 :: len(TURNS)]:
        questions, answers = case.messages[1::2], case.messages[2:-1:2]
        assert len({message["content"] for message in questions}) == len(questions) == 49
        assert {message["role"] for message in questions} == {"user"}
        assert {message["role"] for message in answers} == {"assistant"}
        for user, assistant in zip(questions, answers, strict=False):
            assert not rule_of(case).check(user["content"], assistant["content"])


@pytest.mark.real_model
def test_the_longest_conversation_has_at_most_1500_tokens_of_the_built_in_model(cases: list[Case]) -> None:
    tokenizer = load_tokenizer("smollm2-135m")

    longest = max(cases, key=lambda case: sum(len(message["content"]) for message in case.messages))

    assert encode_chat(tokenizer, longest.messages)["input_ids"].shape[1] <= 1500


def test_the_seed_fixes_the_cases(cases: list[Case]) -> None:
    again, other = LONG_RULES.load(Source(seed=0)), LONG_RULES.load(Source(seed=1))

    assert again == cases
    assert [case.messages for case in other] != [case.messages for case in cases]


def test_an_answer_that_keeps_the_rule_is_obedient(cases: list[Case]) -> None:
    assert LONG_RULES.score(cases[0], ["A KITTEN."]) == {"obeyed": True}
    assert LONG_RULES.score(cases[0], ["A kitten."]) == {"obeyed": False}


@pytest.mark.parametrize("answers", [[], [""], ["x" * 100_000], ["[" * 100_000], [" \n\x00" * 30_000]])
def test_any_answer_gets_a_verdict(cases: list[Case], answers: list[str]) -> None:
    verdicts = [LONG_RULES.score(case, answers) for case in cases[:: len(TURNS)]]

    assert {tuple(verdict) for verdict in verdicts} == {("obeyed",)}


def test_the_headline_is_the_share_after_turns_and_the_slope_its_change_for_each_doubling(cases: list[Case]) -> None:
    rows = [scored(case, obeyed=case.reference["turns"] <= 4) for case in cases]

    metrics = LONG_RULES.summarise(rows)

    assert next(iter(metrics)) == "obeyed_after_turns"
    assert (metrics["obeyed_after_turns"].value, metrics["obeyed_after_turns"].n) == (1 / 3, 180)
    assert [metrics[f"obeyed_{turns}"].value for turns in TURNS] == [1.0, 1.0, 0.0, 0.0]
    x, y = [math.log2(1 + turns) for turns in TURNS], [1, 1, 0, 0]
    products = sum((a - sum(x) / 4) * (b - sum(y) / 4) for a, b in zip(x, y, strict=True))
    assert metrics["slope"].value == pytest.approx(products / sum((a - sum(x) / 4) ** 2 for a in x))


def test_the_question_alone_has_no_figures_of_turns(cases: list[Case]) -> None:
    metrics = LONG_RULES.summarise([scored(cases[0], obeyed=True)])

    assert metrics["obeyed_0"].value == 1.0
    assert metrics["obeyed_after_turns"].value is None
    assert metrics["slope"].value is None
