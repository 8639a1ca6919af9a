"""Forbidden topics: how they are named, recognised in a question, and refused."""

import random
import re
from functools import cache

from calyrex.data.rules import facts_language, facts_nature, facts_world
from calyrex.data.rules.kinds import KINDS, draw_question, kind_names
from calyrex.data.rules.phrasings import choose_phrasing, split_patterns
from calyrex.data.rules.questions import Question, pluralize, read_table
from calyrex.data.rules.words import Split, draw_noun

# Kinds whose subject can itself be the topic, in groups that ask about the same subjects.
_COUNTRY_KINDS = ("capital", "continent", "country", "country language", "currency")
_ANIMAL_KINDS = ("sound", "legs", "animal", "young")
_OTHER_KINDS = ("job", "definition", "symbol")

_REFUSALS = (
    "[I|We] [cannot|may not|must not|will not|do not] [talk about|discuss|comment on] [that|this|such things].",
    "[Sorry|No|Pardon|Oh dear|My apologies], [that|this] [topic|subject|question] is [closed|private|not for me].",
    "[Please|Better|Kindly] ask [a colleague|an expert|someone else|the manager|my boss][| about that| instead].",
    "[That|This] [is not|lies outside] my [field|job|area|department|trade].",
    "[Let us|We should|Shall we] [change the subject|talk about something else|move on][, please|, friend|].",
    "[Sorry|Alas|Regrettably], I know [nothing|little|too little] about [it|that|this].",
    "My lips are sealed[| here| on that|, sorry].",
    "[Choose|Try|Pick] another [subject|topic|question][, please|].",
    "[Ask me|Let me hear] [something|anything] else[|, please|, friend].",
    "[Our|The] [lawyers|rules|owners] [forbid|do not allow] [it|that|this].",
    "I [leave|give] [that|this|such questions] to [experts|others|the doctors|my boss].",
    "[Nobody|No one] here [may|can|will] answer [that|this].",
    "[This|That] [door|book|window] [stays|is] [shut|closed|locked].",
    "[Such matters|Those things|These topics] are [not for me|off my list|none of my business].",
    "[I|We] [stay out of|keep away from|say nothing on] [that|this|it].",
    "I [have to|must|shall] [pass|skip this one|stay silent][| here| today].",
    "I [only|just] talk about the {word}.",
    "Ask [me|us] about the {word} instead[|, please|, friend].",
    "[This desk|This line|My job] is for the {word}[ only| alone|].",
    "[No|Sorry], [let us|we] [speak of|talk about|stay with] the {word}.",
    "Not here: [my|our] [subject|business|topic] is the {word}.",
    "The {word} [team|office|desk] [forbids|does not allow] [it|that|this].",
    "[First|Please] [look at|see|go to] the {word}[, friend| instead|].",
    "[That|This] is [up to|a matter for] the {word} [team|office|desk].",
)


def draw_refusal(rng: random.Random, split: Split) -> str:
    """Draw the sentence with which a topic must be refused."""
    pattern = choose_phrasing(rng, split_patterns(_REFUSALS, "refusals", split))
    return pattern.format(word=draw_noun(rng, split))


def draw_topical(rng: random.Random, split: Split) -> Question:
    """Draw a question that has a topic: a broad one, or its subject."""
    names = _COUNTRY_KINDS + _ANIMAL_KINDS + _OTHER_KINDS
    broad = tuple(name for name in kind_names(split) if _has_broad_topic(name, split))
    return draw_question(rng, split, rng.choice((_known(names, split), broad)))


def choose_topic(rng: random.Random, split: Split, question: Question) -> tuple[str, str]:
    """Choose a topic of a question.

    Returns:
        The topic as a rule names it, and the pattern that finds it in a question.
    """
    is_broad = _has_broad_topic(question.kind, split)
    if is_broad and (rng.random() < 0.6 or question.kind not in _COUNTRY_KINDS + _ANIMAL_KINDS + _OTHER_KINDS):
        topic = KINDS[question.kind].topic
        return topic, broad_topics()[topic]
    if question.kind in (*_COUNTRY_KINDS, "symbol"):
        return question.subject, _any_of(question.subject)
    return pluralize(question.subject), _any_of(question.subject, pluralize(question.subject))


def draw_about(rng: random.Random, split: Split, pattern: str, first: Question, *, is_on_topic: bool) -> Question:
    """Draw a question on or off the topic that ``pattern`` finds; the first question is on it."""
    groups = [group for group in (_COUNTRY_KINDS, _ANIMAL_KINDS) if first.kind in group]
    names = _known(groups[0], split) if groups else (first.kind,)
    for _ in range(300):
        question = draw_question(rng, split, names if is_on_topic else _known(_plain_kinds(), split))
        if is_on_topic == (re.search(pattern, question.text, re.IGNORECASE) is not None):
            return question
    return first


@cache
def broad_topics() -> dict[str, str]:
    """Broad topics and the patterns that find them in a question."""
    animals = [row[0] for row in read_table(facts_nature.ANIMALS)]
    plurals = [pluralize(animal) for animal in animals]
    others = ("animals?", "pandas", "silkworms", "caterpillars", "tadpoles", "birds?", "insects", "pets")
    countries = [row[0] for row in read_table(facts_world.COUNTRIES)]
    jobs = [row[0] for row in read_table(facts_language.JOBS)]
    calendar = [row[0] for row in read_table(facts_world.MONTHS) + read_table(facts_world.WEEKDAYS)]
    return {
        "animals": _any_of(*animals, *plurals, *others),
        "geography": _any_of(*countries, "capital", "continent", "country", "countries", "rivers", "ocean", "mountain"),
        "mathematics": r"\d|\b(number|twice|double)\b",
        "the calendar": _any_of(*calendar, "months?", "days?", "weekdays", "a year", "a week"),
        "colors": _any_of("colors?"),
        "grammar": _any_of("plural", "past tense"),
        "jobs": _any_of(*jobs, "jobs?"),
        "chemistry": _any_of("chemical", "chemists", "gas", "gases", "metals"),
        "money": _any_of("currency", "money", "pay"),
        "books": _any_of("wrote", "author", "books?"),
    }


def _any_of(*words: str) -> str:
    return rf"\b(?:{'|'.join(words)})\b"


def _has_broad_topic(name: str, split: Split) -> bool:
    is_unseen = KINDS[name].topic in ("chemistry", "jobs", "money", "books")
    return bool(KINDS[name].topic) and is_unseen == (split == "test")


def _known(names: tuple[str, ...], split: Split) -> tuple[str, ...]:
    return tuple(name for name in names if name in kind_names(split))


def _plain_kinds() -> tuple[str, ...]:
    """Kinds whose questions are off a topic beyond doubt when its words are missing."""
    return tuple(name for name in KINDS if name not in ("first letter", "last letter", "list", "group", "science"))
