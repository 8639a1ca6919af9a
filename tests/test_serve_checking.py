import pytest

from calyrex.data.rules import generate_corpus
from calyrex.serve.checking import MAX_SYSTEM, check_rules, find_rules


@pytest.mark.parametrize("split", ["train", "test"])
def test_rules_of_the_corpus_are_recognised_with_their_arguments(split: str) -> None:
    examples = list(generate_corpus(150, seed=3, split=split))

    for example in examples:
        system = " ".join(rule.text for rule in example.rules)
        found = {each.rule.family: each.rule for each in find_rules(system)}
        for rule in example.rules:
            assert rule.family in found, rule.text
            assert found[rule.family].arguments[:1] == rule.arguments[:1], rule.text


def test_a_kept_and_a_broken_rule_are_told_apart() -> None:
    system = 'Answer in capital letters. Start every answer with "Ahoy". Be kind.'

    checked = check_rules(system, "Who?", "Ahoy! HE.")

    assert checked == [
        {"text": "Answer in capital letters.", "family": "uppercase", "kept": False},
        {"text": 'Start every answer with "Ahoy".', "family": "prefix", "kept": True},
    ]


@pytest.mark.parametrize("system", ["", "You are a helpful assistant.", '"' * MAX_SYSTEM, "Never say " * 400])
def test_a_prompt_without_a_known_rule_has_none(system: str) -> None:
    assert check_rules(system, "Who?", "I.") == []
