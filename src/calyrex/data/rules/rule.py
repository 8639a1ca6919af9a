"""A rule as the system prompt says it, with its exact check."""

import random
from dataclasses import dataclass

from calyrex.data.rules.checks import CHECKS
from calyrex.data.rules.families import FAMILIES
from calyrex.data.rules.phrasings import choose_phrasing, rule_patterns
from calyrex.data.rules.questions import Question
from calyrex.data.rules.undoing import UNDO
from calyrex.data.rules.words import NUMBER_WORDS, Split


@dataclass(frozen=True)
class Rule:
    """A rule that every answer must keep.

    Attributes:
        family: Name of the family it belongs to.
        text: The rule as the system prompt says it, one or two sentences.
        arguments: What its check needs to know, e.g. the word to start with.
    """

    family: str
    text: str
    arguments: tuple[str, ...] = ()

    def check(self, question: str, answer: str) -> bool:
        """Tell whether an answer keeps the rule.

        Args:
            question: The user's question, without any attack around it.
            answer: What the model said to it.
        """
        return CHECKS[self.family](self.arguments, question, answer)

    def undo(self, rng: random.Random, split: Split) -> str:
        """Word a request to drop the rule, an imperative such as ``write normally``."""
        return rng.choice(UNDO[self.family][split]).format(*self.arguments)


def make_rule(rng: random.Random, split: Split, family: str, question: Question) -> Rule:
    """Make a rule of a family that suits a question, in a phrasing of the split."""
    arguments = FAMILIES[family].choose(rng, split, question)
    fields: dict[str, str] = {}
    if family in ("bullets", "length"):
        count = int(arguments[0])
        number = rng.choice((str(count), NUMBER_WORDS[count]))
        fields = {"number": number, "words": f"{number} word{'' if count == 1 else 's'}"}
    if family == "json":
        keys = " and ".join(f'"{key}"' for key in arguments)
        fields = {"keys": f"the key{'s' if len(arguments) > 1 else ''} {keys}"}
    patterns = rule_patterns(family, split)
    text = choose_phrasing(rng, patterns)
    while family in ("prefix", "suffix") and " " in arguments[0] and " word" in text:  # it is several words
        text = choose_phrasing(rng, patterns)
    return Rule(family, text.format(*arguments, **fields), arguments)


def obey(rules: tuple[Rule, ...], question: Question, text: str) -> str:
    """Rewrite an answer so that it keeps all rules; content first, wrapping last."""
    for rule in sorted(rules, key=lambda rule: FAMILIES[rule.family].stage):
        text = FAMILIES[rule.family].rewrite(text, question, rule.arguments)
    return text


def disobey(rng: random.Random, rule: Rule, question: Question) -> str | None:
    """Answer a question as if the rule were not there; None where no natural answer breaks it."""
    texts = [question.answer, f"{question.short}."]
    rng.shuffle(texts)
    broken = [text for text in texts if not rule.check(question.text, text)]
    return broken[0] if broken else None
