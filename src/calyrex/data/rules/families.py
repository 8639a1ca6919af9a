"""The rule families: how a rule is chosen for a question and how an answer is made to obey it."""

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType

from calyrex.data.rules import topics
from calyrex.data.rules.codewords import choose_secret, draw_asking, rewrite_secret
from calyrex.data.rules.kinds import KINDS, draw_question, kind_names
from calyrex.data.rules.questions import LANGUAGES, Question, capitalize_first
from calyrex.data.rules.words import Split, draw_common, draw_name, draw_noun, draw_word, in_split, read_words

_MAIN_KEYS = read_words("answer reply result text value output response content message solution data fact")
_SECOND_KEYS = read_words("topic subject about theme item matter asked question input query regarding focus")
_STARTERS = frozenset(
    read_words(
        """
        A An The It Its In On There These This They Some Many People Eggs Twice That Those To
        Le La Il C'est El Lo Hay Está Es Das Die Der
        """
    )
)
_COMMON_WORDS = frozenset(
    read_words("the and are has was for with from that this its some who what which can does not called one")
)


@dataclass(frozen=True)
class Family:
    """How rules of one family are made and kept.

    Attributes:
        stage: When it rewrites an answer that several rules shape: 0 content, 1 name, 2 opening and
            closing words, 3 letters, 4 wrapping.
        choose: Chooses the arguments of a rule that suits a question.
        rewrite: Makes a text obey: text, question, arguments.
        first: Draws the question that a rule is chosen for.
        further: Draws another question for a rule: its arguments, the first question.
        asks_first: Chance that the first question is the one that is asked.
    """

    stage: int
    choose: Callable[[random.Random, Split, Question], tuple[str, ...]]
    rewrite: Callable[[str, Question, tuple[str, ...]], str]
    first: Callable[[random.Random, Split], Question]
    further: Callable[[random.Random, Split, tuple[str, ...], Question], Question]
    asks_first: float = 1.0


def _draw_any(rng: random.Random, split: Split) -> Question:
    names = kind_names(split)
    name = rng.choice(names)
    # Portraits have long answers; half of them would cost more tokens than they teach.
    return draw_question(rng, split, (rng.choice(names) if name in ("animal", "country") else name,))


def _draw_another(rng: random.Random, split: Split, arguments: tuple[str, ...], first: Question) -> Question:
    return _draw_any(rng, split)


def _choose_nothing(rng: random.Random, split: Split, question: Question) -> tuple[str, ...]:
    return ()


def _choose_word(rng: random.Random, split: Split, question: Question) -> tuple[str, ...]:
    return (draw_word(rng, split),)


def _choose_name(rng: random.Random, split: Split, question: Question) -> tuple[str, ...]:
    return (draw_name(rng, split),)


def _choose_tag(rng: random.Random, split: Split, question: Question) -> tuple[str, ...]:
    return (draw_noun(rng, split),)


def _rewrite_uppercase(text: str, question: Question, arguments: tuple[str, ...]) -> str:
    return text.replace("ß", "ẞ").upper()


def _rewrite_lowercase(text: str, question: Question, arguments: tuple[str, ...]) -> str:
    return text.lower()


def _rewrite_prefix(text: str, question: Question, arguments: tuple[str, ...]) -> str:
    return f"{arguments[0]}. {text}"


def _rewrite_suffix(text: str, question: Question, arguments: tuple[str, ...]) -> str:
    return f"{text} {arguments[0]}"


def _rewrite_quotes(text: str, question: Question, arguments: tuple[str, ...]) -> str:
    return '"' + text.replace('"', "'") + '"'


def _rewrite_name(text: str, question: Question, arguments: tuple[str, ...]) -> str:
    is_common = question.kind == "science" or text.startswith(capitalize_first(question.subject.lower()))
    is_plain = text.split(maxsplit=1)[0] in _STARTERS or (is_common and question.subject not in text)
    return f"{arguments[0]}, {text[0].lower() + text[1:] if is_plain else text}"


def _rewrite_exclamation(text: str, question: Question, arguments: tuple[str, ...]) -> str:
    return re.sub(r"[.?](?=\s|$)", "!", text)


def _rewrite_tags(text: str, question: Question, arguments: tuple[str, ...]) -> str:
    return f"<{arguments[0]}>{text}</{arguments[0]}>"


def _draw_listed(rng: random.Random, split: Split) -> Question:
    return draw_question(rng, split, rng.choice((("list",), ("list",), ("animal", "country"))))


def _draw_another_listed(rng: random.Random, split: Split, arguments: tuple[str, ...], first: Question) -> Question:
    return _draw_listed(rng, split)


def _choose_count(rng: random.Random, split: Split, question: Question) -> tuple[str, ...]:
    return (str(rng.randint(2, min(4, max(2, len(question.items))))),)


def _rewrite_bullets(text: str, question: Question, arguments: tuple[str, ...]) -> str:
    sentences = re.split(r"(?<=[.!?])\s+", text)
    is_own = text != question.answer and len(sentences) >= int(arguments[0])
    points = sentences if is_own else question.items
    return "\n".join(f"- {point}" for point in points[: int(arguments[0])])


def _choose_keys(rng: random.Random, split: Split, question: Question) -> tuple[str, ...]:
    first = rng.choice([key for key in _MAIN_KEYS if in_split(key, split)])
    if rng.random() < 0.7:
        first = draw_common(rng, split)
    second = rng.choice([key for key in _SECOND_KEYS if in_split(key, split)])
    return (first, second) if rng.random() < 0.3 else (first,)


def _rewrite_json(text: str, question: Question, arguments: tuple[str, ...]) -> str:
    values = (question.short if text == question.answer else text, question.subject)
    return json.dumps(dict(zip(arguments, values, strict=False)), ensure_ascii=False)


def _forbiddable(question: Question, split: Split) -> list[str]:
    used = set(re.findall(r"[a-z]+", question.brief.lower())) | _COMMON_WORDS
    words = sorted(set(re.findall(r"\b[A-Za-z][a-z]{2,}\b", question.answer)), key=lambda word: (word.lower(), word))
    return [word for word in words if word.lower() not in used and in_split(word, split)]


def _draw_forbiddable(rng: random.Random, split: Split) -> Question:
    while True:
        question = _draw_any(rng, split)
        if _forbiddable(question, split):
            return question


def _draw_similar(rng: random.Random, split: Split, arguments: tuple[str, ...], first: Question) -> Question:
    return draw_question(rng, split, (first.kind,)) if rng.random() < 0.6 else _draw_any(rng, split)


def _choose_forbidden(rng: random.Random, split: Split, question: Question) -> tuple[str, ...]:
    words = _forbiddable(question, split) or [draw_noun(rng, split)]
    word = rng.choice(words)
    is_name = (f" {word}" in question.answer and word[0].isupper()) or word in question.subject.split()
    return (word if is_name else word.lower(),)


def _rewrite_forbidden(text: str, question: Question, arguments: tuple[str, ...]) -> str:
    is_used = re.search(rf"(?<!\w){re.escape(arguments[0])}(?!\w)", text, re.IGNORECASE)
    return question.brief if is_used else text


def _choose_topic(rng: random.Random, split: Split, question: Question) -> tuple[str, ...]:
    topic, pattern = topics.choose_topic(rng, split, question)
    return topic, topics.draw_refusal(rng, split), pattern


def _draw_topical(rng: random.Random, split: Split, arguments: tuple[str, ...], first: Question) -> Question:
    is_on_topic = rng.random() < 0.5
    return topics.draw_about(rng, split, arguments[2], first, is_on_topic=is_on_topic)


def _rewrite_topic(text: str, question: Question, arguments: tuple[str, ...]) -> str:
    return arguments[1] if re.search(arguments[2], question.text, re.IGNORECASE) else text


def _draw_translated(rng: random.Random, split: Split) -> Question:
    names = tuple(name for name in kind_names(split) if KINDS[name].translations)
    while True:
        question = draw_question(rng, split, names)
        if question.translations:
            return question


def _draw_another_translated(rng: random.Random, split: Split, arguments: tuple[str, ...], first: Question) -> Question:
    return _draw_translated(rng, split)


def _choose_language(rng: random.Random, split: Split, question: Question) -> tuple[str, ...]:
    return (rng.choice(LANGUAGES),)


def _rewrite_language(text: str, question: Question, arguments: tuple[str, ...]) -> str:
    return question.translations[LANGUAGES.index(arguments[0])] if question.translations else text


def _choose_limit(rng: random.Random, split: Split, question: Question) -> tuple[str, ...]:
    least, most = len(question.short.split()), len(question.answer.split()) - 1
    return (str(rng.randint(least, max(least, min(most, 6)))),)


def _rewrite_length(text: str, question: Question, arguments: tuple[str, ...]) -> str:
    return text if len(text.split()) <= int(arguments[0]) else f"{capitalize_first(question.short)}."


FAMILIES = MappingProxyType(
    {
        "uppercase": Family(3, _choose_nothing, _rewrite_uppercase, _draw_any, _draw_another),
        "lowercase": Family(3, _choose_nothing, _rewrite_lowercase, _draw_any, _draw_another),
        "prefix": Family(2, _choose_word, _rewrite_prefix, _draw_any, _draw_another),
        "suffix": Family(2, _choose_word, _rewrite_suffix, _draw_any, _draw_another),
        "quotes": Family(4, _choose_nothing, _rewrite_quotes, _draw_any, _draw_another),
        "bullets": Family(0, _choose_count, _rewrite_bullets, _draw_listed, _draw_another_listed),
        "json": Family(4, _choose_keys, _rewrite_json, _draw_any, _draw_another),
        "forbidden_word": Family(0, _choose_forbidden, _rewrite_forbidden, _draw_forbiddable, _draw_similar),
        "forbidden_topic": Family(0, _choose_topic, _rewrite_topic, topics.draw_topical, _draw_topical, 0.65),
        "language": Family(0, _choose_language, _rewrite_language, _draw_translated, _draw_another_translated),
        "secret": Family(0, choose_secret, rewrite_secret, _draw_any, draw_asking, 0.25),
        "name": Family(1, _choose_name, _rewrite_name, _draw_any, _draw_another),
        "length": Family(0, _choose_limit, _rewrite_length, _draw_any, _draw_another),
        "exclamation": Family(4, _choose_nothing, _rewrite_exclamation, _draw_any, _draw_another),
        "tags": Family(4, _choose_tag, _rewrite_tags, _draw_any, _draw_another),
    }
)
HELD_OUT_FAMILIES = ("exclamation", "tags")
TRAINED_FAMILIES = tuple(name for name in FAMILIES if name not in HELD_OUT_FAMILIES)
