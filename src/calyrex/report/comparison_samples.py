"""The samples of a comparison as the page's browser reads them: texts and verdicts, small enough for thousands."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from calyrex.report import comparison_rows as rows

_MAX_CHOICES = 12
"""A fact with more different values than this is shown but not filtered by."""


class Samples(NamedTuple):
    """What the browser holds.

    Attributes:
        contenders: name, label and seeds of each, in the order of the answers.
        tasks: the samples' tasks.
        facts: name and values of each fact that can be filtered by.
        entries: one for each sample: ``id``, ``task``, ``facts`` (name to text), ``messages`` (role and text),
            ``answers`` and ``passed`` (a list for each contender, one entry for each seed).
    """

    contenders: list[tuple[str, str, list[int]]]
    tasks: list[str]
    facts: list[tuple[str, list[str]]]
    entries: list[dict[str, Any]]


def collect_samples(document: rows.Document, samples: Sequence[Mapping[str, Any]]) -> Samples:
    """Bring the samples into the browser's form."""
    labels = rows.labels(document)
    unknown = (name for sample in samples for name in sample.get("answers") or {} if name not in labels)
    seeds = {str(entry["name"]): rows.list_of(entry, "seeds") for entry in rows.list_of(document, "contenders")}
    labels |= {name: name for name in unknown}
    contenders = [(name, label, seeds.get(name, [])) for name, label in labels.items()]
    entries = [_entry(sample, list(labels)) for sample in samples]
    tasks = list(dict.fromkeys(entry["task"] for entry in entries))
    return Samples(contenders, tasks, _facts(entries), entries)


def _entry(sample: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    answers, passed = sample.get("answers") or {}, sample.get("passed") or {}
    return {
        "id": str(sample.get("id", "")),
        "task": str(sample.get("task", "")),
        "facts": {str(key): "none" if value is None else str(value) for key, value in _items(sample.get("shows"))},
        "messages": [_message(message) for message in rows.list_of(sample, "messages")],
        "answers": [[_text(answer) for answer in answers.get(name) or []] for name in names],
        "passed": [[None if flag is None else bool(flag) for flag in passed.get(name) or []] for name in names],
    }


def _items(facts: Mapping[str, Any] | None) -> list[tuple[str, Any]]:
    return list((facts or {}).items())


def _message(message: Mapping[str, Any]) -> tuple[str, str]:
    """Return role and text; calls of tools are written as JSON below the text."""
    parts = [_text(message[key]) for key in ("content", "tool_calls") if message.get(key)]
    return str(message.get("role", "")), "\n".join(parts)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _facts(entries: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    values: dict[str, dict[str, None]] = {}
    for entry in entries:
        for key, value in entry["facts"].items():
            values.setdefault(key, {})[value] = None
    return [(key, sorted(found, key=_by_number)) for key, found in values.items() if 1 < len(found) <= _MAX_CHOICES]


def _by_number(text: str) -> tuple[bool, int, str]:
    return not text.isdecimal(), int(text) if text.isdecimal() else 0, text
