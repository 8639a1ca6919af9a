"""What an analysis measured of the blocks of an anchored model, read from its document, also incomplete."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from calyrex.report import numbers
from calyrex.report.analysis_rows import Point, points_of
from calyrex.report.comparison_rows import Document, list_of

CLASSES = {
    "system": "system prompt",
    "user": "user",
    "assistant": "earlier answers",
    "answer": "the answer",
    "template": "template",
}
"""The classes of tokens and their names for readers."""

_ALL_ON, _ALL_OFF = "none", "all"
_MARKS = {"\n": "↵", "\t": "⇥", "\r": "␍"}
_EMPTY, _SPACE = "∅", "␣"


class Off(NamedTuple):
    """The log-probability with some blocks switched off.

    Attributes:
        label: which are off.
        point: its place is a running number; the value is a mean in nats a token.
        difference: the mean difference to all on over the same conversations, at the same place.
        is_reference: whether all blocks are on.
    """

    label: str
    point: Point
    difference: Point
    is_reference: bool


class AttentionMap(NamedTuple):
    """Where the answer of one conversation looks in its system prompt.

    Attributes:
        name: the conversation.
        question: the last thing the user said.
        system_tokens: readable texts of the ``S`` system tokens.
        answer_tokens: readable texts of the ``A`` answer tokens.
        weights: by the name of a block, ``[A, S]``, means over the heads.
    """

    name: str
    question: str
    system_tokens: list[str]
    answer_tokens: list[str]
    weights: dict[str, list[list[float]]]

    def average(self) -> list[list[float]]:
        """Return the mean over the blocks, ``[A, S]``."""
        blocks = list(self.weights.values())
        return [[sum(column) / len(blocks) for column in zip(*rows, strict=True)] for rows in zip(*blocks, strict=True)]


def norms_by_class(document: Document) -> dict[str, list[Point]]:
    """Return the norm of each block's contribution relative to the stream's: points over the blocks by class."""
    entries = list_of(_blocks(document), "norms")
    classes = dict.fromkeys([*CLASSES, *(str(entry.get("class", "")) for entry in entries)])
    found = {
        name: points_of([entry for entry in entries if str(entry.get("class", "")) == name], "block")
        for name in classes
    }
    return {
        CLASSES.get(name, name): points
        for name, points in found.items()
        if any(point.value is not None for point in points)
    }


def scale_points(document: Document) -> list[Point]:
    """Return the mean log-probability at each scale of the blocks, in nats a token."""
    points = points_of(list_of(_blocks(document), "scale"), "scale")
    return points if any(point.value is not None for point in points) else []


def switched_off(document: Document) -> list[Off]:
    """Return the mean log-probability with all blocks on, each one off in turn, and all off."""
    entries = [entry for entry in list_of(_blocks(document), "off") if numbers.finite(entry.get("value")) is not None]
    order = {_ALL_ON: -1.0, _ALL_OFF: float("inf")}
    entries.sort(key=lambda entry: order.get(str(entry.get("block")), numbers.finite(entry.get("block")) or 0.0))
    names = {_ALL_ON: "all on", _ALL_OFF: "all off"}
    return [
        Off(
            names.get(name, f"block {name} off"),
            _point(place, entry),
            _point(place, entry.get("difference") or {}),
            name == _ALL_ON,
        )
        for place, entry in enumerate(entries)
        if (name := str(entry.get("block")))
    ]


def _point(place: int, entry: Document) -> Point:
    return Point(place, *(numbers.finite(entry.get(key)) for key in ("value", "low", "high")))


def attention_maps(document: Document) -> list[AttentionMap]:
    """Return the maps that have texts and weights."""
    maps = [_read_map(entry) for entry in list_of(_blocks(document), "maps")]
    return [found for found in maps if found.weights]


def spell_token(text: str) -> str:
    """Write a token on one line: marks for ends of lines, tabs, spaces alone, and no text at all."""
    if text and not text.strip(" "):
        return _SPACE * len(text)
    return "".join(_MARKS.get(character, character) for character in text) or _EMPTY


def _blocks(document: Document) -> Mapping[str, Any]:
    return document.get("blocks") or {}


def _read_map(entry: Mapping[str, Any]) -> AttentionMap:
    system, answer = ([spell_token(str(token)) for token in list_of(entry, f"{key}_tokens")] for key in _TEXTS)
    given = entry.get("weights") or {}
    shape = [len(system)] * len(answer)
    weights = {
        str(block): rows
        for block, rows in given.items()
        if answer and system and [len(row or []) for row in rows or []] == shape and _are_finite(rows)
    }
    return AttentionMap(str(entry.get("id", "")), str(entry.get("question") or ""), system, answer, weights)


def _are_finite(rows: list[list[Any]]) -> bool:
    return all(numbers.finite(weight) is not None for row in rows for weight in row)


_TEXTS = ("system", "answer")
