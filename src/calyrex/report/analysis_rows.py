"""An analysis as charts over layers and rows of text, the same for figures, HTML and Markdown, also incomplete."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from calyrex.report import numbers
from calyrex.report.comparison_rows import Document, label_of, list_of
from calyrex.report.facts import tabulate_facts

SHARE = "share"
NATS = "nats a token"

_CAUSES = "Which layers make the answer obey"
_SECTIONS = {
    "shift": "How far a rule moves the stream",
    "probe": "What can be read off the stream",
    "patching": _CAUSES,
    "knock_out": _CAUSES,
}
"""Heading of each kind of measure, in the order of the page; others follow."""

_OTHER = "Other measures"
_MEASURED = "measured"
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_SHIFT, _PATCHING, _PROBE = "shift", "patching", "probe"


class Point(NamedTuple):
    """A value with its 95 % interval; None where it was not measured.

    Attributes:
        place: the layer, 0 for the embeddings, or the scale of the blocks.
        value: in the unit of the chart.
        low: lower end of the interval.
        high: upper end of the interval.
    """

    place: float
    value: float | None
    low: float | None
    high: float | None


class Curve(NamedTuple):
    """One line over the layers.

    Attributes:
        label: what it shows.
        points: in the order of the layers.
        is_control: whether it shows what a control measured.
    """

    label: str
    points: list[Point]
    is_control: bool


class Chart(NamedTuple):
    """What one figure and its table show.

    Attributes:
        name: unique in the page, letters, digits and hyphens.
        title: what is measured.
        unit: ``SHARE`` for shares of 0 .. 1, else the unit's name.
        axis: name of the axis with its unit.
        curves: at least one with a value.
        chance: what guessing reaches, None where there is no such level.
        parts: of each layer, what it adds to the one before (patching) or its accuracy minus the control's (probes);
            empty for other measures.
        parts_label: what the parts are called.
        explanations: sentences for a reader, each once.
    """

    name: str
    title: str
    unit: str
    axis: str
    curves: list[Curve]
    chance: float | None
    parts: list[Point]
    parts_label: str
    explanations: list[str]


class Section(NamedTuple):
    """A heading with its charts.

    Attributes:
        name: unique in the page.
        title: the heading.
        charts: at least one.
    """

    name: str
    title: str
    charts: list[Chart]


class Mass(NamedTuple):
    """The share of a measure's whole effect that lies in the last eighth of the layers.

    Attributes:
        label: the measure.
        value: a share; it may leave 0 .. 1 where layers undo one another.
        low: lower end of its 95 % interval, None where it is missing.
        high: upper end.
        even_share: what an even share would be, 0 .. 1.
    """

    label: str
    value: float
    low: float | None
    high: float | None
    even_share: float | None

    @property
    def is_told(self) -> bool:
        """Whether the interval excludes the even share."""
        if self.low is None or self.high is None or self.even_share is None:
            return False
        return not self.low <= self.even_share <= self.high

    @property
    def verdict(self) -> str:
        """More or less than an even share where the interval excludes it."""
        if not self.is_told:
            return "cannot be told from an even share"
        return "more than an even share" if self.value > (self.even_share or 0.0) else "less than an even share"


def late_layers(document: Document) -> list[int]:
    """Return the layers of the last eighth."""
    return [int(layer) for layer in list_of(document.get("run") or {}, "late_layers")]


def name_late_layers(document: Document) -> str:
    """Name the last eighth: ``layers 27 to 30``; empty where it is not known."""
    late = late_layers(document)
    return "" if not late else f"layer {late[0]}" if len(late) == 1 else f"layers {late[0]} to {late[-1]}"


def masses(document: Document) -> list[Mass]:
    """Return the share in the last eighth of each measure of which it was stated."""
    found = []
    for measure in list_of(document, "measures"):
        mass = measure.get("mass") or {}
        value, low, high, even = (numbers.finite(mass.get(key)) for key in ("value", "low", "high", "even_share"))
        if value is not None:
            found.append(Mass(label_of(measure), value, low, high, even))
    return found


def without_mass(document: Document) -> list[str]:
    """Return the measures that have a whole effect but of which no share in the last eighth was stated."""
    return [
        label_of(measure)
        for measure in list_of(document, "measures")
        if _kind(measure) != _PROBE
        and list_of(measure, "layers")
        and numbers.finite((measure.get("mass") or {}).get("value")) is None
    ]


def sections(document: Document) -> list[Section]:
    """Return the measures that have a value as charts, grouped under their headings."""
    measures = list_of(document, "measures")
    charts: dict[str, list[Chart]] = {}
    for number, kind in enumerate(dict.fromkeys([*_SECTIONS, *map(_kind, measures)])):
        found = _charts(kind, [measure for measure in measures if _kind(measure) == kind], f"chart{number}")
        charts.setdefault(_SECTIONS.get(kind, _OTHER), []).extend(found)
    kept = [(title, found) for title, found in charts.items() if found]
    return [Section(f"layers{number}", title, found) for number, (title, found) in enumerate(kept)]


def _kind(measure: Mapping[str, Any]) -> str:
    return str(measure.get("name", "")).partition("/")[0]


def _charts(kind: str, measures: Sequence[Mapping[str, Any]], name: str) -> list[Chart]:
    """Return one chart for each measure, but one for each unit of the shift."""
    sets: list[list[Mapping[str, Any]]] = [[measure] for measure in measures]
    if kind == _SHIFT:
        units = dict.fromkeys(_unit(measure) for measure in measures)
        sets = [[measure for measure in measures if _unit(measure) == unit] for unit in units]
    return [
        chart for number, found in enumerate(sets) if (chart := _chart(kind, found, f"{name}-{number}")) is not None
    ]


def _chart(kind: str, measures: Sequence[Mapping[str, Any]], name: str) -> Chart | None:
    alone = _MEASURED if len(measures) == 1 else ""
    curves = [curve for measure in measures for curve in _curves(measure, alone or label_of(measure))]
    curves = [curve for curve in curves if any(point.value is not None for point in curve.points)]
    if not curves:
        return None
    first = measures[0]
    shown = _unit(first)
    unit = SHARE if shown in (SHARE, "accuracy") else shown
    title = f"Shift, {shown}" if kind == _SHIFT else _capitalise(label_of(first))
    axis = "accuracy, %" if shown == "accuracy" else "share of the effect, %" if shown == SHARE else shown
    explanations = " ".join(str(measure.get("explanation") or "") for measure in measures)
    sentences = list(dict.fromkeys(_SENTENCE_END.split(explanations.strip())))
    parts, parts_label = _parts(kind, curves)
    chance = numbers.finite(first.get("chance"))
    return Chart(name, title, unit, axis, curves, chance, parts, parts_label, sentences)


def _capitalise(text: str) -> str:
    return text[:1].upper() + text[1:]


def _unit(measure: Mapping[str, Any]) -> str:
    return str(measure.get("unit") or "")


def _curves(measure: Mapping[str, Any], label: str) -> list[Curve]:
    control = f"control: {measure.get('control_label') or 'not named'}"
    return [
        Curve(label, points_of(list_of(measure, "layers"), "layer"), is_control=False),
        Curve(control, points_of(list_of(measure, "control"), "layer"), is_control=True),
    ]


def points_of(entries: Sequence[Mapping[str, Any]], key: str) -> list[Point]:
    """Return the entries that say where they belong as points, in that order."""
    points = [
        Point(place, *(numbers.finite(entry.get(name)) for name in ("value", "low", "high")))
        for entry in entries
        if (place := numbers.finite(entry.get(key))) is not None
    ]
    return sorted(points, key=lambda point: point.place)


def _parts(kind: str, curves: Sequence[Curve]) -> tuple[list[Point], str]:
    """Return a figure of each layer that follows from its values, without an interval, and its name."""
    first, control = curves[0], curves[-1]
    if kind == _PATCHING and not first.is_control:
        before = {point.place + 1: point for point in first.points}
        return _differences(first.points, before), "own part"
    if kind == _PROBE and control.is_control and not first.is_control:
        return _differences(first.points, {point.place: point for point in control.points}), "above control"
    return [], ""


def _differences(points: Sequence[Point], subtracted: Mapping[float, Point]) -> list[Point]:
    pairs = [(point, subtracted[point.place]) for point in points if point.place in subtracted]
    return [
        Point(
            point.place, None if point.value is None or other.value is None else point.value - other.value, None, None
        )
        for point, other in pairs
    ]


def summarise_run(document: Document) -> list[str]:
    """Return the facts of the run that the page begins with, each a few words."""
    run = document.get("run") or {}
    means = run.get("log_probability") or {}
    named = (("its rule", "with_rule"), ("another rule", "other_rule"), ("a neutral prompt", "neutral"))
    spelled = [
        f"{numbers.spell_value(means[key], '')} with {name}"
        for name, key in named
        if numbers.finite(means.get(key)) is not None
    ]
    obeyed = numbers.finite(run.get("obeyed_share"))
    facts = [
        run.get("model"),
        f"adapter {run['adapter']}" if run.get("adapter") else "no adapter" if run else None,
        f"{numbers.spell_count(run.get('num_chats'))} conversations" if run.get("num_chats") else None,
        f"{numbers.spell_count(run.get('num_answer_tokens'))} answer tokens" if run.get("num_answer_tokens") else None,
        f"mean log-probability of the obedient answer in {NATS}: {', '.join(spelled)}" if spelled else None,
        None if obeyed is None else f"its own answers obey the rule in {numbers.spell_value(obeyed, SHARE)}",
    ]
    return [str(fact) for fact in facts if fact]


def fact_tables(document: Document) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the facts of the run as captions with names and values."""
    run = document.get("run") or {}
    blocks = ", ".join(map(str, list_of(run, "blocks")))
    own = [
        ("layers", run.get("num_layers")),
        ("last eighth", name_late_layers(document) or None),
        ("blocks behind layers", blocks or None),
        ("data", run.get("data")),
        ("licence of the data", run.get("licence")),
    ]
    return tabulate_facts(run, own)
