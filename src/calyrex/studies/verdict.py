"""The verdict of a comparison in words, worked out from its document alone."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from calyrex.studies.wording import (
    Document,
    enumerate_words,
    is_higher_better,
    label_of,
    rows_of,
    say_amount,
    say_count,
    say_value,
    unit_of,
    values_of,
)

_BASE = "base"
_NOTE = "Brackets hold 95 % intervals; significant is what remains so after the correction for many comparisons."

_SURE = ("significantly ahead of", "significantly behind")
_UNSURE = ("not significantly ahead of", "not significantly behind")
_LEVEL = "level with"
_STANDINGS = (*_SURE, *_UNSURE, _LEVEL)


class _Race(NamedTuple):
    """Who takes part, by name as shown; a reference that is not among them is None."""

    shown: Mapping[str, str]
    reference: str | None
    trained: Sequence[str]

    @property
    def rivals(self) -> list[str]:
        return [name for name in self.shown if name != self.reference]


class _Duel(NamedTuple):
    """One contender against a rival on one measure: ``gain`` is above 0 where the rival is behind."""

    rival: str
    gain: float
    is_significant: bool
    margin: str


class _Result(NamedTuple):
    """A headline measure and the reference contender's duels on it."""

    measure: Document
    duels: list[_Duel]


def write_verdict(document: Document) -> list[str]:
    """Say who wins, by how much and how surely; a study that is still running is judged by what it has so far.

    Nothing is called better unless the difference is significant after the correction for many comparisons. Controls
    are not in the race.

    Args:
        document: What ``comparison.json`` holds; any part may be missing, empty or null.

    Returns:
        The outcome as a whole, a warning for each check that failed, one text for each headline measure, and one on
        who moved furthest from the base.
    """
    race = _read_race(document)
    headline = [measure for measure in rows_of(document, "measures") if measure.get("is_headline")]
    results = [_Result(measure, _duels(measure, race)) for measure in headline]
    failed = [check for check in rows_of(document, "checks") if check.get("holds") is False]
    return [
        _say_outcome(results, race),
        *(f"A check does not hold: {check.get('text') or check.get('name')}" for check in failed),
        *(text for result in results if (text := _say_result(result, race))),
        *say_forgetting(document),
    ]


def _say_outcome(results: Sequence[_Result], race: _Race) -> str:
    """Say how often the reference contender wins, loses and neither, and where it loses to whom."""
    duels = [duel for result in results for duel in result.duels]
    if race.reference is None or not duels:
        return "Nothing is decided yet: no contender has been compared with the reference on a headline measure."
    who, measures = race.shown[race.reference], [result for result in results if result.duels]
    wins = [duel for duel in duels if duel.is_significant and duel.gain > 0]
    losses = [duel for duel in duels if duel.is_significant and duel.gain < 0]
    scope = f"{say_count(len(duels), 'comparison')} on {say_count(len(measures), 'headline measure')}"
    if not wins and not losses:
        return f"Nothing could be decided: {who} differs significantly from no other contender ({scope}). {_NOTE}"
    if len(wins) == len(results) * len(race.rivals):
        return f"{who} is significantly better than every other contender on every headline measure ({scope}). {_NOTE}"
    num_open = len(duels) - len(wins) - len(losses)
    better = [f"{rival} is better on {enumerate_words(_lost(results, rival))}" for rival in _unique(losses)]
    counts = f"{who} is significantly better in {len(wins)} of {scope}, worse in {len(losses)}; {num_open} undecided."
    return " ".join([counts, *([f"{'; '.join(better)}."] if better else []), _NOTE])


def _say_result(result: _Result, race: _Race) -> str:
    """Say how the reference contender fares on a measure against each other one, and whose value is best."""
    measure, duels = result
    who = race.shown.get(race.reference or "", "")
    clauses = [
        f"{standing} {enumerate_words([_say_margin(duel) for duel in some])}"
        for standing in _STANDINGS
        if (some := [duel for duel in duels if _standing(duel) == standing])
    ]
    texts = [f"{who} is {'; '.join(clauses)}." if clauses else "", _say_best(measure, race)]
    text = " ".join(text for text in texts if text)
    title = label_of(measure)
    return f"{title[:1].upper()}{title[1:]}: {text}" if text else ""


def _say_best(measure: Document, race: _Race) -> str:
    """Say whose value is best, and whether the second is really behind."""
    values = values_of(measure, race.shown)
    ranked = sorted(values, key=values.__getitem__, reverse=is_higher_better(measure))
    if len(ranked) < 2:
        return "".join(f"Only {race.shown[name]} has been measured ({say_value(measure, name)})." for name in ranked)
    first, second = ranked[:2]
    best = [race.shown[name] for name in ranked if values[name] == values[first]]
    if len(best) > 1:
        return f"{enumerate_words(best)} share the best value ({say_value(measure, first)})."
    duel = _duel(measure, first, second, race)
    behind = "not significantly behind"
    if duel is None:
        behind = "whose distance was not tested"
    elif duel.is_significant:
        behind = "significantly behind"
    shown = [f"{race.shown[name]} ({say_value(measure, name)})" for name in (first, second)]
    return f"Best is {shown[0]}, then {shown[1]}, {behind}."


def say_forgetting(document: Document) -> list[str]:
    """Say who moved furthest from the base, on each measure of forgetting where that is sure, or else on the first."""
    texts: dict[str, bool] = {}
    race = _read_race(document)
    for measure in (measure for measure in rows_of(document, "measures") if measure.get("group") == "forgetting"):
        values = values_of(measure, [_BASE, *race.trained])
        base = values.pop(_BASE, None)
        if base is None or not values:
            continue
        furthest = max(values, key=lambda name: abs(values[name] - base))
        moved = values[furthest] - base
        if moved == 0:
            texts[f"Forgetting, by {label_of(measure)}: no contender moved from the base."] = False
            continue
        duel = _duel(measure, furthest, _BASE, race)
        surely = "not tested" if duel is None else "significant" if duel.is_significant else "not significant"
        way = "better" if (moved > 0) == is_higher_better(measure) else "worse"
        amount = say_amount([abs(moved)], unit_of(measure))
        text = (
            f"Forgetting, by {label_of(measure)}: {race.shown[furthest]} moved furthest from the base, "
            f"by {amount} for the {way} ({surely})."
        )
        texts[text] = duel is not None and duel.is_significant
    return [text for text, is_sure in texts.items() if is_sure] or list(texts)[:1]


def _read_race(document: Document) -> _Race:
    """Return who takes part: all but controls, with what stands before the first comma of their labels if it will do.

    What stands behind it moves into brackets where two would look alike, since a comma ends a name in a sentence.
    """
    racing = [row for row in rows_of(document, "contenders") if row.get("name") and not row.get("is_control")]
    parts = {row["name"]: (row.get("label") or row["name"]).partition(", ") for row in racing}
    heads = [head for head, _, _ in parts.values()]
    shown = {
        name: head if not rest or heads.count(head) == 1 else f"{head} ({rest})"
        for name, (head, _, rest) in parts.items()
    }
    reference = (document.get("run") or {}).get("reference")
    trained = [row["name"] for row in racing if row.get("is_trained")]
    return _Race(shown, reference if reference in shown else None, trained)


def _duels(measure: Document, race: _Race) -> list[_Duel]:
    if race.reference is None:
        return []
    duels = [_duel(measure, race.reference, rival, race) for rival in race.rivals]
    return [duel for duel in duels if duel is not None]


def _duel(measure: Document, first: str, second: str, race: _Race) -> _Duel | None:
    """Return how the first fares against the second; None where the document does not say."""
    for row in rows_of(measure, "differences"):
        if {row.get("first"), row.get("second")} != {first, second} or row.get("value") is None:
            continue
        sign = 1.0 if (row["first"] == first) == is_higher_better(measure) else -1.0
        gain = sign * row["value"]
        ahead = -sign if gain < 0 else sign
        ends = [ahead * row[end] for end in ("low", "high") if row.get(end) is not None]
        margin = say_amount([abs(gain), *(sorted(ends) if len(ends) == 2 else [])], unit_of(measure))
        return _Duel(race.shown.get(second, second), gain, bool(row.get("is_significant")) and gain != 0, margin)
    return None


def _standing(duel: _Duel) -> str:
    """Return how the reference stands to a rival, one of ``_STANDINGS``."""
    if not duel.gain:
        return _LEVEL
    ahead, behind = _SURE if duel.is_significant else _UNSURE
    return ahead if duel.gain > 0 else behind


def _say_margin(duel: _Duel) -> str:
    return f"{duel.rival} {'by' if duel.gain else 'at'} {duel.margin}"


def _lost(results: Sequence[_Result], rival: str) -> list[str]:
    """Return the labels of the measures on which the rival is significantly ahead."""
    return [
        label_of(measure)
        for measure, duels in results
        if any(duel.rival == rival and duel.is_significant and duel.gain < 0 for duel in duels)
    ]


def _unique(duels: Sequence[_Duel]) -> list[str]:
    return list(dict.fromkeys(duel.rival for duel in duels))
