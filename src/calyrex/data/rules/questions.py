"""Questions with short natural answers: what a rule is tried on."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from calyrex.data.rules import facts_language
from calyrex.data.rules.words import Split, in_split

LANGUAGES = ("French", "Spanish", "German")


@dataclass(frozen=True)
class Question:
    """A question and the several ways in which it can be answered.

    Attributes:
        kind: Name of the kind of question, e.g. ``capital``.
        text: The question as a user asks it.
        subject: What is asked about.
        answer: The natural answer, one to three sentences.
        short: The bare answer, a few words without a full stop.
        brief: A sentence that names neither the subject nor the words of the question.
        items: Separate points of an answer, for lists; empty where there are none.
        translations: The answer in each of ``LANGUAGES``; empty where there are none.
    """

    kind: str
    text: str
    subject: str
    answer: str
    short: str
    brief: str
    items: tuple[str, ...] = ()
    translations: tuple[str, ...] = ()


class Entry(NamedTuple):
    """One fact: what is asked about, the bare answer, and what the templates of its kind need besides.

    Attributes:
        subject: What is asked about.
        short: The bare answer.
        other: A further word for the templates; by default the subject with its article.
        items: Separate points of an answer.
        translated: What fills each of the kind's translations.
    """

    subject: str
    short: str
    other: str = ""
    items: tuple[str, ...] = ()
    translated: tuple[str, ...] = ()


@dataclass(frozen=True)
class Kind:
    """A kind of question: its wordings, its answer and where its facts come from.

    Templates know ``{subject}``, ``{short}`` and ``{other}``; their first letter is made a capital.

    Attributes:
        wordings: Questions of the training split.
        test_wordings: Questions of the test split.
        answer: The natural answer; ``{items}`` stands for the entry's second and third point.
        brief: The answer without subject or frame.
        draw: Draws an entry of a split.
        translations: The answer in each of ``LANGUAGES``, with ``{}`` for the entry's own word.
        topic: The broad topic that the kind belongs to, if any.
        is_trained: Whether the training split asks such questions.
    """

    wordings: tuple[str, ...]
    test_wordings: tuple[str, ...]
    answer: str
    draw: Callable[[random.Random, Split], Entry]
    brief: str = "It is {short}."
    translations: tuple[str, ...] = ()
    topic: str = ""
    is_trained: bool = True


def with_article(noun: str) -> str:
    """Put ``a`` or ``an`` before a noun."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


@cache
def read_table(text: str) -> tuple[tuple[str, ...], ...]:
    """Split a table of facts, one a line with fields between bars, into rows."""
    return tuple(tuple(line.split("|")) for line in text.strip().splitlines())


def pluralize(noun: str) -> str:
    """Form the plural of a noun of the fact tables."""
    irregular = {row[0]: row[1] for row in read_table(facts_language.PLURALS)}
    if noun in irregular:
        return irregular[noun]
    if noun in ("deer", "salmon", "trout") or noun.endswith("fish"):
        return noun
    if noun.endswith(("s", "x", "ch", "sh")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"


def capitalize_first(text: str) -> str:
    """Make the first letter a capital and leave the rest."""
    return text[:1].upper() + text[1:]


def draw_entry(rng: random.Random, split: Split, entries: tuple[Entry, ...]) -> Entry:
    """Draw one of the entries whose subject belongs to the split."""
    while True:
        entry = rng.choice(entries)
        if in_split(entry.subject, split):
            return entry


def draw_row(entries: Callable[[], tuple[Entry, ...]], rng: random.Random, split: Split) -> Entry:
    """Draw an entry of the split from a table that is read on first use."""
    return draw_entry(rng, split, entries())


def ask(rng: random.Random, split: Split, name: str, kind: Kind) -> Question:
    """Draw a question of a kind, with facts and a wording of the split."""
    entry = kind.draw(rng, split)
    return phrase(entry, name, kind, rng.choice(kind.wordings if split == "train" else kind.test_wordings))


def phrase(entry: Entry, name: str, kind: Kind, wording: str) -> Question:
    """Fill a kind's templates with an entry."""
    other = entry.other or with_article(entry.subject)
    fields = {"subject": entry.subject, "short": entry.short, "other": other}
    sentences = " ".join(f"{item}." for item in entry.items[1:3])
    return Question(
        kind=name,
        text=capitalize_first(wording.format(**fields)),
        subject=entry.subject,
        answer=capitalize_first(kind.answer.format(**fields, items=sentences)),
        short=capitalize_first(entry.short),
        brief=capitalize_first(kind.brief.format(**fields)),
        items=entry.items,
        translations=tuple(
            template.format(word) for template, word in zip(kind.translations, entry.translated, strict=False)
        ),
    )
