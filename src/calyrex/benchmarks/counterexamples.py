"""Rules of the built-in corpus, and turns in which an assistant breaks them, for attacks by example.

All of it is of the test split: no rule's words, phrasing or question is in a training dialogue.
"""

import random
from typing import Any, NamedTuple

from calyrex.data.rules.families import FAMILIES
from calyrex.data.rules.questions import Question
from calyrex.data.rules.rule import Rule, disobey, make_rule, obey
from calyrex.data.rules.words import Split
from calyrex.masking import Message

FAMILIES_WITH_QUESTIONS = tuple(
    name for name in FAMILIES if name not in ("forbidden_word", "forbidden_topic", "secret")
)
"""Families with 96 questions (lists) or more than 256; the others have fewer than twenty that a rule concerns."""

_SPLIT: Split = "test"
_DRAWS_PER_TURN = 20


class BrokenRule(NamedTuple):
    """A rule, and a conversation that argues against it.

    Attributes:
        rule: The rule.
        question: A question whose natural answer breaks it, and which can be answered under it.
        turns: Question and rule-breaking answer, one pair of messages for each turn; none asks ``question``, and they
            come again only where the corpus has too few different ones.
    """

    rule: Rule
    question: Question
    turns: list[tuple[Message, Message]]

    @property
    def system(self) -> Message:
        """The rule as the system prompt."""
        return {"role": "system", "content": self.rule.text}

    @property
    def last(self) -> Message:
        """The question as the last user turn."""
        return {"role": "user", "content": self.question.text}

    def to_reference(self) -> dict[str, Any]:
        """Return what a verdict needs to know, as JSON values."""
        return {
            "family": self.rule.family,
            "rule": self.rule.text,
            "arguments": list(self.rule.arguments),
            "question": self.question.text,
        }


def draw_broken_rule(rng: random.Random, family: str, num_turns: int) -> BrokenRule:
    """Draw a rule of a family, a question under it and rule-breaking turns."""
    first = FAMILIES[family].first(rng, _SPLIT)
    rule = make_rule(rng, _SPLIT, family, first)
    question = _draw_question(rng, rule, first)
    return BrokenRule(rule, question, _draw_turns(rng, rule, first, question.text, num_turns))


def keeps_rule(reference: dict[str, Any], answer: str) -> bool:
    """Tell whether an answer to the question of a reference keeps its rule."""
    rule = Rule(reference["family"], reference["rule"], tuple(reference["arguments"]))
    return rule.check(reference["question"], answer)


def _draw_question(rng: random.Random, rule: Rule, first: Question) -> Question:
    """Draw a question whose natural answer breaks the rule, and which can be answered under it."""
    while True:
        question = FAMILIES[rule.family].further(rng, _SPLIT, rule.arguments, first)
        is_broken = not rule.check(question.text, question.answer)
        if is_broken and rule.check(question.text, obey((rule,), question, question.answer)):
            return question


def _draw_turns(
    rng: random.Random, rule: Rule, first: Question, last: str, num_turns: int
) -> list[tuple[Message, Message]]:
    """Draw turns with different questions, as far as there are any."""
    answers: dict[str, str] = {}
    for _ in range(_DRAWS_PER_TURN * num_turns):
        if len(answers) == num_turns:
            break
        question = FAMILIES[rule.family].further(rng, _SPLIT, rule.arguments, first)
        answer = disobey(rng, rule, question)
        if answer is not None and question.text not in (*answers, last):
            answers[question.text] = answer
    turns: list[tuple[Message, Message]] = [
        ({"role": "user", "content": asked}, {"role": "assistant", "content": answered})
        for asked, answered in answers.items()
    ]
    return [turns[index % len(turns)] for index in range(num_turns)]
