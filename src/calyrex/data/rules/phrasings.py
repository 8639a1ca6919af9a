"""How each rule is said in a system prompt.

``{0}`` and ``{1}`` are the rule's arguments, ``{number}`` is a number, ``{words}`` a number of words and
``{keys}`` JSON keys. ``[a|b]`` is a choice: what is learned should be the meaning of a rule, not some sentences.
A quarter of each family's patterns, drawn at random once and for all, belongs to the test split.
"""

import itertools
import random
import re
from functools import cache
from types import MappingProxyType

from calyrex.data.rules import phrasings_content, phrasings_form
from calyrex.data.rules.words import Split

_CHOICE = re.compile(r"\[([^\]]*)\]")

RULES = MappingProxyType({**phrasings_form.PATTERNS, **phrasings_content.PATTERNS})


@cache
def rule_patterns(family: str, split: Split) -> tuple[str, ...]:
    """Return a split's patterns of a rule."""
    return split_patterns(RULES[family], family, split)


def split_patterns(patterns: tuple[str, ...], seed: str, split: Split) -> tuple[str, ...]:
    """Return the quarter of the patterns that ``seed`` draws for the test split, or the rest."""
    held_out = set(random.Random(seed).sample(patterns, len(patterns) // 4))
    return tuple(pattern for pattern in patterns if (pattern in held_out) == (split == "test"))


def choose_phrasing(rng: random.Random, patterns: tuple[str, ...]) -> str:
    """Draw a pattern and an alternative for each of its choices."""
    return _CHOICE.sub(lambda choice: rng.choice(choice[1].split("|")), rng.choice(patterns))


def expand_phrasing(pattern: str) -> list[str]:
    """Return every sentence that a pattern can become."""
    parts = _CHOICE.split(pattern)  # fixed text and choices take turns
    options = [part.split("|") if index % 2 else [part] for index, part in enumerate(parts)]
    return ["".join(choice) for choice in itertools.product(*options)]
