"""``/v1/calyrex/check``: which built-in rules a system prompt sets, and whether an answer keeps them."""

import itertools
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from calyrex.data.rules.codewords import NOUNS
from calyrex.data.rules.phrasings import RULES
from calyrex.data.rules.questions import LANGUAGES
from calyrex.data.rules.rule import Rule
from calyrex.data.rules.topics import broad_topics
from calyrex.data.rules.words import NUMBER_WORDS

MAX_SYSTEM = 4000
"""Characters of a system prompt that are searched."""

_NOUN = "|".join(noun for nouns in NOUNS.values() for noun in nouns)
_SECONDS = {"forbidden_topic": r"[^\"\n]{1,120}", "secret": _NOUN}  # a refusal stands in quotation marks
_CHOICE = re.compile(r"\[([^\]]*)\]")
_MAX_COMPILED = 512
_END = r"(?:[.!](?=\s|$)|(?<=[\"”])(?=\s|$)|(?=\s*(?:\n|$)))"
_WORD = r"[^\s\"“”.,:;!?()<>\[\]{}][^\n\"“”.:;!?<>\[\]{}]{0,60}?"
_KEYS = r'the keys? "[^"\n]{1,40}"(?: and "[^"\n]{1,40}")*'
_NUMBER = "|".join([r"\d{1,3}", *NUMBER_WORDS])
_HOLES = {"number": rf"(?P<number>{_NUMBER})", "words": rf"(?P<number>{_NUMBER}) words?", "keys": rf"(?P<keys>{_KEYS})"}


class Found(NamedTuple):
    """A rule that a system prompt sets.

    Attributes:
        rule: the rule.
        start: where its text begins.
        end: where it ends.
    """

    rule: Rule
    start: int
    end: int


def check_rules(system: str, question: str, answer: str) -> list[dict[str, object]]:
    """Return the rules that can be recognised, in their order, and whether an answer keeps each."""
    return [
        {"text": found.rule.text, "family": found.rule.family, "kept": found.rule.check(question, answer)}
        for found in find_rules(system)
    ]


def find_rules(system: str) -> list[Found]:
    """Recognise the built-in rules in a system prompt by their phrasings, the longest where several fit."""
    text = system[:MAX_SYSTEM]
    found = sorted(_find_all(text), key=lambda each: (each.start - each.end, each.start))
    chosen: list[Found] = []
    for each in found:
        if all(each.end <= other.start or each.start >= other.end for other in chosen):
            chosen.append(each)
    return sorted(chosen, key=lambda each: each.start)


def _find_all(text: str) -> Iterator[Found]:
    lowered = text.lower()
    for family, patterns in RULES.items():
        second = _SECONDS.get(family, _WORD)
        # Compiling all of them takes seconds, and hardly any can match.
        for pattern in (pattern for pattern in patterns if _is_possible(pattern, lowered)):
            for match in _compile(pattern, second).finditer(text):
                arguments = _read_arguments(family, match.groupdict())
                if arguments is not None:
                    yield Found(Rule(family, match[0].strip(), arguments), match.start(), match.end())


def _is_possible(pattern: str, text: str) -> bool:
    """Tell whether all fixed words of a phrasing, and those of one alternative of each choice, stand in a text."""
    parts = _CHOICE.split(pattern.lower())  # fixed text and choices take turns
    return all(any(_has_words(text, each) for each in part.split("|")) for part in parts)


def _has_words(text: str, fixed: str) -> bool:
    return all(word in text for word in re.findall(r"\w+", re.sub(r"\{\w+\}", " ", fixed)))


@lru_cache(maxsize=_MAX_COMPILED)
def _compile(pattern: str, second: str) -> re.Pattern[str]:
    """Return what finds a phrasing.

    Args:
        pattern: the phrasing, with its choices and arguments.
        second: what matches its argument 1.
    """
    holes = {**_HOLES, "0": rf"(?P<0>{_WORD})", "1": rf"(?P<1>{second})"}
    counter = itertools.count()

    def fill(text: str) -> str:
        """Return what matches a text with arguments in it; each group gets a number of its own."""
        pieces = re.split(r"\{(\w+)\}", text)  # fixed text and names of arguments take turns
        for at in range(1, len(pieces), 2):
            name = pieces[at]
            pieces[at] = re.sub(r"\?P<\w+>", f"?P<a{name}_{next(counter)}>", holes[name])
        return "".join(piece if at % 2 else _fixed(piece) for at, piece in enumerate(pieces))

    parts = _CHOICE.split(pattern.rstrip(".!"))
    body = "".join(
        f"(?:{'|'.join(map(fill, part.split('|')))})" if at % 2 else fill(part) for at, part in enumerate(parts)
    )
    return re.compile(rf"(?:(?<=\s)|^){body}{_END}", re.IGNORECASE | re.MULTILINE)


def _fixed(text: str) -> str:
    return re.sub(r"(?:\\ |\s)+", r"\\s+", re.escape(text))


def _read_arguments(family: str, groups: dict[str, str | None]) -> tuple[str, ...] | None:
    """Return what the check of a family needs to know; None where the text is no such rule after all."""
    given: dict[str, str] = {}
    for group, value in groups.items():
        if value is not None:
            given.setdefault(group.split("_")[0].removeprefix("a"), value.strip())
    first = re.sub(r"^(?:the )?word ", "", given.get("0", ""), flags=re.IGNORECASE).strip("\"'“” ")
    if family in ("bullets", "length"):
        number = (given.get("number") or given.get("words") or "").casefold()  # a long s matches an s
        return (str(NUMBER_WORDS.index(number)) if number in NUMBER_WORDS else number,)
    if family == "json":
        return tuple(re.findall(r'"([^"]+)"', given["keys"]))
    if family == "language":
        return next(((name,) for name in LANGUAGES if name.lower() == first.lower()), None)
    if family == "forbidden_topic":
        return first, given.get("1", ""), _topic_pattern(first)
    if "0" in given:
        return (first,) if first else None
    return ()


def _topic_pattern(topic: str) -> str:
    """Return what finds a topic in a question: a broad one by its words, any other by its name."""
    broad = {name.lower(): pattern for name, pattern in broad_topics().items()}
    return broad.get(topic.lower(), rf"\b{re.escape(topic.removesuffix('s'))}s?\b")
