"""Words for the figures of a study's document, any part of which may be missing."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

Document: TypeAlias = Mapping[str, Any]


def rows_of(parent: Document, key: str) -> list[Document]:
    """Return a list of a document, empty where it is missing."""
    return list(parent.get(key) or [])


def label_of(measure: Document) -> str:
    """Return what a measure is called."""
    return str(measure.get("label") or measure.get("name") or "a measure without a name")


def unit_of(measure: Document) -> str:
    """Return the unit of a measure, a share where it says none."""
    return str(measure.get("unit") or "share")


def is_higher_better(measure: Document) -> bool:
    """Say whether more of a measure is better."""
    return measure.get("higher_is_better") is not False


def values_of(measure: Document, names: Iterable[str]) -> dict[str, float]:
    """Return the values of those contenders that have one."""
    rows = measure.get("values") or {}
    values = {name: (rows.get(name) or {}).get("value") for name in names}
    return {name: value for name, value in values.items() if value is not None}


def say_value(measure: Document, name: str) -> str:
    """Word a contender's value: ``45.2 %``."""
    value = measure["values"][name]["value"]
    return f"{100 * value:.1f} %" if unit_of(measure) == "share" else say_amount([value], unit_of(measure))


def say_amount(numbers: Sequence[float], unit: str) -> str:
    """Word a difference, and its interval if one follows it: ``12.3 points [4.0 to 20.6]``."""
    scale, name, decimals = (
        (100, "points", 1) if unit == "share" else (1, "nats", 2 if max(map(abs, numbers)) >= 0.1 else 4)
    )
    value, *ends = [f"{number:z.{decimals}f}" for number in (scale * number for number in numbers)]
    return f"{value} {name}" + (f" [{' to '.join(ends)}]" if ends else "")


def say_count(number: int, noun: str) -> str:
    """Word a number of things: ``3 seeds``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def enumerate_words(items: Sequence[str]) -> str:
    """Join texts: ``a, b and c``."""
    return " and ".join(filter(None, [", ".join(items[:-1]), items[-1]]))
