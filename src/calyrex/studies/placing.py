"""The verdict of a placement study in words, worked out from its document alone."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from calyrex.studies.measures import OBEYED
from calyrex.studies.verdict import say_forgetting
from calyrex.studies.wording import Document, enumerate_words, rows_of, say_amount, say_count, say_value, values_of

_BASE = "base"
_LATE = "late8th"
_WINDOWS = ("early8th", "mid8th")
"""Named placements of the same width as the last eighth."""
_NOTE = "Brackets hold 95 % intervals; significant is what remains so after the correction for many comparisons."


def rank_placements(document: Document) -> dict[str, float]:
    """Return the share of obeyed cases by the label of each placement, the best first."""
    labels = _labels(document)
    return {labels[name]: value for name, value in _rank(_find_obeyed(document), labels).items()}


def write_placement_verdict(document: Document) -> list[str]:
    """Say which placement is best, which are really behind it, and what the last eighth does against other windows.

    Args:
        document: What ``ablation.json`` holds; any part may be missing, empty or null.
    """
    measure, labels = _find_obeyed(document), _labels(document)
    ranked = list(_rank(measure, labels))
    failed = [check for check in rows_of(document, "checks") if check.get("holds") is False]
    if len(ranked) < 2:
        return ["Nothing is decided yet: fewer than two placements have been measured."]
    return [
        " ".join([*_say_best(measure, labels, ranked), _NOTE]),
        *_say_windows(measure, labels),
        *_say_cheapest(document, measure, labels),
        *_say_screening(document),
        *(f"A check does not hold: {check.get('text') or check.get('name')}" for check in failed),
        *say_forgetting(document),
    ]


def _rank(measure: Document, names: Iterable[str]) -> dict[str, float]:
    """Return the values of those that have one, the best first."""
    values = values_of(measure, names)
    return {name: values[name] for name in sorted(values, key=values.__getitem__, reverse=True)}


def _say_best(measure: Document, labels: Mapping[str, str], ranked: Sequence[str]) -> Iterator[str]:
    """Yield which placement is best, how far behind the next one is, and how the others are."""
    values, first = values_of(measure, ranked), ranked[0]
    best = [name for name in ranked if values[name] == values[first]]
    others = ranked[len(best) :]
    seeds = len(measure["values"][first].get("by_seed") or [])
    scope = f"{say_count(int(measure.get('num_cases') or 0), 'case')} and {say_count(seeds, 'seed')}"
    if len(best) > 1:
        yield (
            f"{enumerate_words([labels[name] for name in best])} share the first place: they obey in "
            f"{say_value(measure, first)} of {scope}."
        )
    else:
        second, *others = others
        yield f"Best is {labels[first]}, which obeys in {say_value(measure, first)} of {scope};"
        yield f"next is {labels[second]} with {say_value(measure, second)}, {_say_gap(measure, first, second)}."
    behind = [name for name in others if _is_significant(measure, first, name)]
    near = [name for name in others if name not in behind]
    if behind:
        texts = [f"{labels[name]} ({say_value(measure, name)})" for name in behind]
        yield f"Significantly behind the best: {enumerate_words(texts)}."
    if near:
        yield f"Not significantly behind it: {enumerate_words([labels[name] for name in near])}."
    base = values_of(measure, [_BASE])
    if base:
        yield f"The base obeys in {say_value(measure, _BASE)}, {_say_gap(measure, first, _BASE)}."


def _say_windows(measure: Document, labels: Mapping[str, str]) -> Iterator[str]:
    """Yield how blocks over the last eighth do against windows of the same width elsewhere."""
    names = {label: name for name, label in labels.items() if values_of(measure, [name])}
    rivals = [label for label in _WINDOWS if label in names]
    if _LATE in names and rivals:
        texts = [f"{label} is {_say_gap(measure, names[_LATE], names[label])}" for label in rivals]
        yield f"Against {_LATE}, windows of the same width: {enumerate_words(texts)}."


def _say_cheapest(document: Document, measure: Document, labels: Mapping[str, str]) -> Iterator[str]:
    """Yield which placement gains most over the base for each million parameters."""
    values, base = values_of(measure, labels), values_of(measure, [_BASE])
    sizes = {row["name"]: row.get("trainable_parameters") for row in rows_of(document, "contenders")}
    gains = {
        name: (values[name] - base[_BASE]) / size for name, size in sizes.items() if base and size and name in values
    }
    if len(gains) > 1 and len({sizes[name] for name in gains}) > 1:
        best = max(gains, key=gains.__getitem__)
        if gains[best] <= 0:
            return
        gain = say_amount([1e6 * gains[best]], "share")
        yield f"Most gain for its size: {labels[best]}, {gain} over the base for each million parameters."


def _say_screening(document: Document) -> Iterator[str]:
    screening: Mapping[str, float] = document.get("screening") or {}
    if screening:
        texts = [f"{label} {100 * value:.1f} %" for label, value in screening.items()]
        yield f"Chosen by a screening with less data, one seed and other test cases: {', '.join(texts)}."


def _say_gap(measure: Document, first: str, second: str) -> str:
    """Word how far the second is behind the first: ``significantly behind by 12.3 points [4.0 to 20.6]``."""
    difference = _find_difference(measure, first, second)
    if difference is None:
        return "at a distance that was not tested"
    gap, ends = difference
    way = "behind" if gap >= 0 else "ahead"
    surely = "significantly" if _is_significant(measure, first, second) else "not significantly"
    bounds = sorted(ends) if gap >= 0 else sorted(-end for end in ends)
    return f"{surely} {way} by {say_amount([abs(gap), *bounds], 'share')}"


def _is_significant(measure: Document, first: str, second: str) -> bool:
    return any(
        bool(row.get("is_significant"))
        for row in rows_of(measure, "differences")
        if {row.get("first"), row.get("second")} == {first, second}
    )


def _find_difference(measure: Document, first: str, second: str) -> tuple[float, list[float]] | None:
    """Return how much more the first has than the second and the ends of its interval, which may be missing."""
    for row in rows_of(measure, "differences"):
        if {row.get("first"), row.get("second")} == {first, second} and row.get("value") is not None:
            sign = 1.0 if row["first"] == first else -1.0
            ends = [sign * row[end] for end in ("low", "high") if row.get(end) is not None]
            return sign * row["value"], ends if len(ends) == 2 else []
    return None


def _find_obeyed(document: Document) -> Document:
    found: dict[str, Any] = {}
    return next((one for one in rows_of(document, "measures") if one.get("name") == OBEYED), found)


def _labels(document: Document) -> dict[str, str]:
    """Return the labels of the placements by name."""
    rows = [row for row in rows_of(document, "contenders") if row.get("name") and row["name"] != _BASE]
    return {row["name"]: str(row.get("label") or row["name"]) for row in rows}
