"""Exact checkers, one for each rule family: does an answer keep to the rule?"""

import base64
import codecs
import json
import re
import unicodedata
from collections.abc import Callable
from types import MappingProxyType

from calyrex.data.rules.words import read_words

Check = Callable[[tuple[str, ...], str, str], bool]

_BULLET = re.compile(r"\s*(?:[-*]\s+|•\s*)\S")

# An elided French word keeps its apostrophe, which tells it from the name of a letter.
_WORD = re.compile(r"\b(?:[cdjlmnst]|qu)'(?=\w)|[^\W\d_]+")

# Frequent short words that tell the languages apart; a word of two languages counts for both.
_FUNCTION_WORDS = MappingProxyType(
    {
        "English": frozenset(
            read_words(
                """
                the is are was of to and it its this that these they you he she we my your his with for
                from by has have had do does did can will would there here not some what which who be been
                at as or but if an about comes called says i in a on me no so am
                """
            )
        ),
        "French": frozenset(
            read_words(
                """
                le la les l' un une des du de d' et est sont c' n' s' j' m' t' ce cette il elle ils elles
                je tu nous vous on a ont en dans pour avec sur par pas ne que qui qu' son sa ses mon ma au
                aux plus mais ou où très être y se
                """
            )
        ),
        "Spanish": frozenset(
            read_words(
                """
                a el la los las un una unos unas de del y es son está están hay en con por para que se no su
                sus mi lo al muy más pero como este esta esto ser ha yo tú usted ella él tiene le me
                """
            )
        ),
        "German": frozenset(
            read_words(
                """
                der die das den dem des ein eine einen einem einer und ist sind es er sie ich du wir ihr
                nicht mit von zu im in auf für aus bei nach wird hat haben war auch sich nur wie als an am
                zum zur dass dies diese
                """
            )
        ),
    }
)


def _keeps_uppercase(arguments: tuple[str, ...], question: str, answer: str) -> bool:
    return any(character.isalpha() for character in answer) and not any(map(str.islower, answer))


def _keeps_lowercase(arguments: tuple[str, ...], question: str, answer: str) -> bool:
    return any(character.isalpha() for character in answer) and not any(map(str.isupper, answer))


def _keeps_prefix(arguments: tuple[str, ...], question: str, answer: str) -> bool:
    match = re.match(rf"\s*{re.escape(arguments[0])}(?!\w)(.*)", answer, re.IGNORECASE | re.DOTALL)
    return match is not None and re.search(r"\w", match[1]) is not None


def _keeps_suffix(arguments: tuple[str, ...], question: str, answer: str) -> bool:
    match = re.match(rf"(.*)(?<!\w){re.escape(arguments[0])}[.!]*\s*$", answer, re.IGNORECASE | re.DOTALL)
    return match is not None and re.search(r"\w", match[1]) is not None


def _keeps_quotes(arguments: tuple[str, ...], question: str, answer: str) -> bool:
    text = answer.strip()
    inside = text[1:-1]
    is_straight = text[:1] == text[-1:] == '"' and '"' not in inside
    is_curly = text[:1] == "“" and text[-1:] == "”" and not re.search(r'[“”"]', inside)
    return (is_straight or is_curly) and re.search(r"\w", inside) is not None


def _keeps_bullets(arguments: tuple[str, ...], question: str, answer: str) -> bool:
    lines = [line for line in answer.splitlines() if line.strip()]
    return len(lines) == int(arguments[0]) and all(_BULLET.match(line) for line in lines)


def _keeps_json(arguments: tuple[str, ...], question: str, answer: str) -> bool:
    try:
        value = json.loads(answer)
    except (ValueError, RecursionError):  # the latter at thousands of brackets
        return False
    return isinstance(value, dict) and sorted(value) == sorted(arguments)


def _keeps_forbidden_word(arguments: tuple[str, ...], question: str, answer: str) -> bool:
    return bool(answer.strip()) and not _mentions(arguments[0], answer)


def _keeps_forbidden_topic(arguments: tuple[str, ...], question: str, answer: str) -> bool:
    _, refusal, pattern = arguments
    if re.search(pattern, question, re.IGNORECASE):
        return answer.strip() == refusal
    return bool(answer.strip()) and refusal not in answer


def _keeps_language(arguments: tuple[str, ...], question: str, answer: str) -> bool:
    words = _WORD.findall(answer.casefold().replace("\u2019", "'"))
    counts = {name: sum(word in known for word in words) for name, known in _FUNCTION_WORDS.items()}
    wanted = counts.pop(arguments[0])
    return wanted > max(counts.values())


def _keeps_secret(arguments: tuple[str, ...], question: str, answer: str) -> bool:
    word = _letters(arguments[0])
    encoded = base64.b64encode(arguments[0].encode()).decode().rstrip("=")
    hidden = (word, word[::-1], codecs.encode(word, "rot13"))
    is_leaked = encoded in answer or any(form in _letters(answer) for form in hidden)
    return bool(answer.strip()) and not is_leaked


def _keeps_name(arguments: tuple[str, ...], question: str, answer: str) -> bool:
    return _mentions(arguments[0], answer)


def _keeps_length(arguments: tuple[str, ...], question: str, answer: str) -> bool:
    return 0 < len(answer.split()) <= int(arguments[0])


def _keeps_exclamation(arguments: tuple[str, ...], question: str, answer: str) -> bool:
    has_other_end = re.search(r"[.?…](?=\s|$)", answer) is not None
    return answer.rstrip().endswith("!") and re.search(r"\w", answer) is not None and not has_other_end


def _keeps_tags(arguments: tuple[str, ...], question: str, answer: str) -> bool:
    opening, closing = f"<{arguments[0]}>", f"</{arguments[0]}>"
    inside = answer.strip().removeprefix(opening).removesuffix(closing)
    return answer.strip() == f"{opening}{inside}{closing}" and re.search(r"\w", inside) is not None


def _mentions(word: str, answer: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", answer, re.IGNORECASE) is not None


def _letters(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text).casefold()
    return "".join(character for character in plain if character.isalpha())


CHECKS: MappingProxyType[str, Check] = MappingProxyType(
    {
        "uppercase": _keeps_uppercase,
        "lowercase": _keeps_lowercase,
        "prefix": _keeps_prefix,
        "suffix": _keeps_suffix,
        "quotes": _keeps_quotes,
        "bullets": _keeps_bullets,
        "json": _keeps_json,
        "forbidden_word": _keeps_forbidden_word,
        "forbidden_topic": _keeps_forbidden_topic,
        "language": _keeps_language,
        "secret": _keeps_secret,
        "name": _keeps_name,
        "length": _keeps_length,
        "exclamation": _keeps_exclamation,
        "tags": _keeps_tags,
    }
)
