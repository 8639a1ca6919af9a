"""The verdict of a comparison in words, worked out from its document alone."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

Document: TypeAlias = Mapping[str, Any]

_BASE = "base"
_NOTE = "Brackets hold 95 % intervals; significant is what remains so after the correction for many comparisons."


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
    headline = [measure for measure in _rows(document, "measures") if measure.get("is_headline")]
    results = [_Result(measure, _duels(measure, race)) for measure in headline]
    failed = [check for check in _rows(document, "checks") if check.get("holds") is False]
    return [
        _say_outcome(results, race),
        *(f"A check does not hold: {check.get('text') or check.get('name')}" for check in failed),
        *(text for result in results if (text := _say_result(result, race))),
        *_say_forgetting(_rows(document, "measures"), race),
    ]


def _say_outcome(results: Sequence[_Result], race: _Race) -> str:
    """Say how often the reference contender wins, loses and neither, and where it loses to whom."""
    duels = [duel for result in results for duel in result.duels]
    if race.reference is None or not duels:
        return "Nothing is decided yet: no contender has been compared with the reference on a headline measure."
    who, measures = race.shown[race.reference], [result for result in results if result.duels]
    wins = [duel for duel in duels if duel.is_significant and duel.gain > 0]
    losses = [duel for duel in duels if duel.is_significant and duel.gain < 0]
    scope = f"{_count(len(duels), 'comparison')} on {_count(len(measures), 'headline measure')}"
    if not wins and not losses:
        return f"Nothing could be decided: {who} differs significantly from no other contender ({scope}). {_NOTE}"
    if len(wins) == len(results) * len(race.rivals):
        return f"{who} is significantly better than every other contender on every headline measure ({scope}). {_NOTE}"
    num_open = len(duels) - len(wins) - len(losses)
    better = [f"{rival} is better on {_enumerate(_lost(results, rival))}" for rival in _unique(losses)]
    counts = f"{who} is significantly better in {len(wins)} of {scope}, worse in {len(losses)}; {num_open} undecided."
    return " ".join([counts, *([f"{'; '.join(better)}."] if better else []), _NOTE])


def _say_result(result: _Result, race: _Race) -> str:
    """Say how the reference contender fares on a measure against each other one, and whose value is best."""
    measure, duels = result
    who = race.shown.get(race.reference or "", "")
    wins = [f"{duel.rival} by {duel.margin}" for duel in duels if duel.is_significant and duel.gain > 0]
    clauses = [f"{who} is significantly ahead of {_enumerate(wins)}"] if wins else []
    clauses += [
        f"{duel.rival} is significantly ahead of {who} by {duel.margin}"
        for duel in duels
        if duel.is_significant and duel.gain < 0
    ]
    undecided = [f"{duel.rival} ({_say_lean(duel)})" for duel in duels if not duel.is_significant]
    clauses += [f"no significant difference between {who} and {_enumerate(undecided)}"] if undecided else []
    texts = ["; ".join(clauses) + ".", _say_best(measure, race)] if clauses else [_say_best(measure, race)]
    text = " ".join(text for text in texts if text)
    title = _label(measure)
    return f"{title[:1].upper()}{title[1:]}: {text}" if text else ""


def _say_best(measure: Document, race: _Race) -> str:
    """Say whose value is best, and whether the second is really behind."""
    values = _values(measure, race.shown)
    ranked = sorted(values, key=values.__getitem__, reverse=_is_higher_better(measure))
    if len(ranked) < 2:
        return "".join(f"Only {race.shown[name]} has been measured ({_say_value(measure, name)})." for name in ranked)
    first, second = ranked[:2]
    best = [race.shown[name] for name in ranked if values[name] == values[first]]
    if len(best) > 1:
        return f"{_enumerate(best)} share the best value ({_say_value(measure, first)})."
    duel = _duel(measure, first, second, race)
    behind = "not significantly behind"
    if duel is None:
        behind = "whose distance was not tested"
    elif duel.is_significant:
        behind = "significantly behind"
    shown = [f"{race.shown[name]} ({_say_value(measure, name)})" for name in (first, second)]
    return f"Best is {shown[0]}, then {shown[1]}, {behind}."


def _say_forgetting(measures: Sequence[Document], race: _Race) -> list[str]:
    """Say who moved furthest from the base, on each measure of forgetting where that is sure, or else on the first."""
    texts: dict[str, bool] = {}
    for measure in (measure for measure in measures if measure.get("group") == "forgetting"):
        values = _values(measure, [_BASE, *race.trained])
        base = values.pop(_BASE, None)
        if base is None or not values:
            continue
        furthest = max(values, key=lambda name: abs(values[name] - base))
        moved = values[furthest] - base
        if moved == 0:
            texts[f"Forgetting, by {_label(measure)}: no contender moved from the base."] = False
            continue
        duel = _duel(measure, furthest, _BASE, race)
        surely = "not tested" if duel is None else "significant" if duel.is_significant else "not significant"
        way = "better" if (moved > 0) == _is_higher_better(measure) else "worse"
        amount = _amount([abs(moved)], _unit(measure))
        text = (
            f"Forgetting, by {_label(measure)}: {race.shown[furthest]} moved furthest from the base, "
            f"by {amount} for the {way} ({surely})."
        )
        texts[text] = duel is not None and duel.is_significant
    return [text for text, is_sure in texts.items() if is_sure] or list(texts)[:1]


def _read_race(document: Document) -> _Race:
    """Return who takes part: all but controls, with what stands before the first comma of their labels if it will do.

    What stands behind it moves into brackets where two would look alike, since a comma ends a name in a sentence.
    """
    racing = [row for row in _rows(document, "contenders") if row.get("name") and not row.get("is_control")]
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
    for row in _rows(measure, "differences"):
        if {row.get("first"), row.get("second")} != {first, second} or row.get("value") is None:
            continue
        sign = 1.0 if (row["first"] == first) == _is_higher_better(measure) else -1.0
        gain = sign * row["value"]
        ahead = -sign if gain < 0 else sign
        ends = [ahead * row[end] for end in ("low", "high") if row.get(end) is not None]
        margin = _amount([abs(gain), *(sorted(ends) if len(ends) == 2 else [])], _unit(measure))
        return _Duel(race.shown.get(second, second), gain, bool(row.get("is_significant")) and gain != 0, margin)
    return None


def _say_lean(duel: _Duel) -> str:
    return f"{'ahead' if duel.gain < 0 else 'behind'} by {duel.margin}" if duel.gain else f"level at {duel.margin}"


def _lost(results: Sequence[_Result], rival: str) -> list[str]:
    """Return the labels of the measures on which the rival is significantly ahead."""
    return [
        _label(measure)
        for measure, duels in results
        if any(duel.rival == rival and duel.is_significant and duel.gain < 0 for duel in duels)
    ]


def _amount(numbers: Sequence[float], unit: str) -> str:
    """Word a difference, and its interval if one follows it: ``12.3 points [4.0 to 20.6]``."""
    scale, name, decimals = (
        (100, "points", 1) if unit == "share" else (1, "nats", 2 if max(map(abs, numbers)) >= 0.1 else 4)
    )
    value, *ends = [f"{number:z.{decimals}f}" for number in (scale * number for number in numbers)]
    return f"{value} {name}" + (f" [{' to '.join(ends)}]" if ends else "")


def _say_value(measure: Document, name: str) -> str:
    value = measure["values"][name]["value"]
    return f"{100 * value:.1f} %" if _unit(measure) == "share" else _amount([value], _unit(measure))


def _values(measure: Document, names: Iterable[str]) -> dict[str, float]:
    """Return the values of those contenders that have one."""
    rows = measure.get("values") or {}
    values = {name: (rows.get(name) or {}).get("value") for name in names}
    return {name: value for name, value in values.items() if value is not None}


def _unit(measure: Document) -> str:
    return str(measure.get("unit") or "share")


def _is_higher_better(measure: Document) -> bool:
    return measure.get("higher_is_better") is not False


def _label(measure: Document) -> str:
    return str(measure.get("label") or measure.get("name") or "a measure without a name")


def _rows(parent: Document, key: str) -> list[Document]:
    return list(parent.get(key) or [])


def _unique(duels: Sequence[_Duel]) -> list[str]:
    return list(dict.fromkeys(duel.rival for duel in duels))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _enumerate(items: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(items[:-1]), items[-1]]))
