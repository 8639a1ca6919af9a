"""The built-in rule corpus: system rules, conversations and obedient answers, made by procedure.

``generate_corpus`` is the way in. Everything is deterministic by seed, and every rule has an exact check.
"""

from calyrex.data.rules.corpus import TEST_SEED_OFFSET, RuleExample, generate_corpus
from calyrex.data.rules.families import HELD_OUT_FAMILIES, TRAINED_FAMILIES
from calyrex.data.rules.rule import Rule

__all__ = ["HELD_OUT_FAMILIES", "TEST_SEED_OFFSET", "TRAINED_FAMILIES", "Rule", "RuleExample", "generate_corpus"]
