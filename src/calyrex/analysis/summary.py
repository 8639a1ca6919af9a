"""The records of all conversations -> figures per layer, with intervals, and what share the last layers hold.

Intervals are 95 % bootstrap intervals over conversations, in which all conversations under one rule are drawn together
(``calyrex.benchmarks.metric``).

The last layers are the last eighth, those above ``floor(7 L / 8)``. Of a figure that adds up from layer to layer
(shift, patching) their share, the *mass*, is what it gains there over what it gains in all; of the knock-out, whose
layers are tried one by one, it is the sum over them over the sum over all. It is None where the whole is not surely
above 0 or the rules are too few for an interval, and nothing is clipped: a share may be below 0 or above 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from calyrex.analysis.measuring import Record, unpack
from calyrex.analysis.probes import Flags, draw_labels, probe_layers
from calyrex.benchmarks.metric import NOTHING, Metric, mean, ratio

Table: TypeAlias = NDArray[np.float64]
"""One row for each conversation and one column for each layer."""

MIN_RULES = 10
"""With fewer rules a percentile bootstrap is little more than the smallest and the largest of them."""

_SHIFTS = {
    "other_rule": ("another rule", "with another conversation's system prompt"),
    "neutral": ("no rule", "with a neutral system prompt"),
}
_KINDS = {
    "cosine": ("direction", "cosine distance", "One minus the cosine of the angle between the stream with the rule"),
    "norm": ("size", "relative norm", "Norm of the difference, over that of the stream with the rule, between it"),
}


@dataclass(frozen=True)
class Sample:
    """What was measured of the conversations of an analysis, in their order.

    Attributes:
        records: One for each conversation.
        rules: What conversations under the same rule have in common.
        families: Family of each rule; None for a user's own chats.
        num_layers: ``L``.
        seed: Seed of folds and random labels.
    """

    records: Sequence[Record]
    rules: Sequence[str]
    families: Sequence[str] | None
    num_layers: int
    seed: int

    def table(self, *path: str) -> Table:
        """Return a figure of each conversation and layer by where it stands in the records."""
        rows = []
        for record in self.records:
            value: Any = record
            for key in path:
                value = value[key]
            rows.append(value)
        return np.asarray(rows, dtype=np.float64)

    @cached_property
    def effects(self) -> Table:
        """How much likelier each answer is with the rule than with the neutral system prompt, ``[N]``."""
        return self.table("log_probability", "with_rule") - self.table("log_probability", "neutral")

    def metric(self, values: Table) -> Metric:
        """Return the mean of one value per conversation."""
        return mean(values.tolist(), self.rules)

    @cached_property
    def has_effect(self) -> bool:
        """Whether the rule surely has an effect that shares can be given of."""
        low = self.metric(self.effects).low
        return low is not None and low > 0

    @property
    def has_intervals(self) -> bool:
        """Whether there are rules enough for a bootstrap over them."""
        return len(set(self.rules)) >= MIN_RULES

    def relative(self, values: Table) -> Metric:
        """Return the mean of one value per conversation over the rule's mean effect, nothing where it has none."""
        if not self.has_effect:
            return NOTHING
        return ratio(list(zip(values.tolist(), self.effects.tolist(), strict=True)), self.rules)

    def mass(self, late: Table, whole: Table) -> dict[str, Any]:
        """Return which share of the whole the last layers hold, beside their share of the layers."""
        total = self.metric(whole)
        is_there = self.has_intervals and total.low is not None and total.low > 0
        found = ratio(list(zip(late.tolist(), whole.tolist(), strict=True)), self.rules) if is_there else NOTHING
        return {**spell(found), "even_share": len(late_layers(self.num_layers)) / self.num_layers}


def late_layers(num_layers: int) -> list[int]:
    """Return the last eighth of the layers, by their numbers from 1."""
    return list(range(7 * num_layers // 8 + 1, num_layers + 1))


def summarise(sample: Sample) -> list[dict[str, Any]]:
    """Return the figures of every measure; the probes only where the rules have families."""
    shifts = [_shift(sample, other, kind) for other in _SHIFTS for kind in _KINDS]
    probes = [_probe_rule(sample), _probe_obeys(sample)] if sample.families is not None else []
    return [*shifts, *probes, _patching(sample), _knock_out(sample)]


def spell(metric: Metric) -> dict[str, float | None]:
    """Return a figure and its interval by name."""
    return {"value": metric.value, "low": metric.low, "high": metric.high}


def _levels(metrics: Sequence[Metric], first: int = 0) -> list[dict[str, Any]]:
    return [{"layer": layer, **spell(metric)} for layer, metric in enumerate(metrics, start=first)]


def _shift(sample: Sample, other: str, kind: str) -> dict[str, Any]:
    table = sample.table("shift", f"{other}/{kind}")
    whose, run = _SHIFTS[other]
    aspect, unit, formula = _KINDS[kind]
    before = late_layers(sample.num_layers)[0] - 1
    return {
        "name": f"shift/{other}/{kind}",
        "label": f"Shift against {whose}, {aspect}",
        "explanation": f"{formula} and that of the same conversation {run}, at the positions of the answer. It says "
        "where the stream changes, not whether the change matters.",
        "unit": unit,
        "is_cumulative": True,
        "layers": _levels([sample.metric(column) for column in table.T]),
        "control": None,
        "control_label": None,
        "chance": None,
        "mass": sample.mass(table[:, -1] - table[:, before], table[:, -1] - table[:, 0]),
    }


def _probe_rule(sample: Sample) -> dict[str, Any]:
    return {
        "name": "probe/rule",
        "label": "Which kind of rule is in force, read off by a probe",
        "explanation": "Balanced accuracy of a linear probe that tells the rule's family from the stream at the last "
        "prompt token, under rules that it was not trained on. It says what can be read off, not what the model uses.",
        **_probe(sample, list(sample.families or ())),
    }


def _probe_obeys(sample: Sample) -> dict[str, Any]:
    return {
        "name": "probe/obeys",
        "label": "Whether the model will obey, read off by a probe",
        "explanation": "Balanced accuracy of a linear probe that tells from the stream at the last prompt token "
        "whether the model's own answer will keep the rule, under rules that it was not trained on.",
        **_probe(sample, [record["obeyed"] for record in sample.records]),
    }


def _probe(sample: Sample, labels: Sequence[object]) -> dict[str, Any]:
    features = np.stack([unpack(record["stream"], sample.num_layers) for record in sample.records])
    told_labels = (labels, draw_labels(labels, sample.seed))
    scores = [probe_layers(features, told, sample.rules, sample.seed) for told in told_labels]
    nothing = [NOTHING] * (sample.num_layers + 1)
    value, control = (
        _levels(nothing if flags is None else [_balance(row, told, sample.rules) for row in flags])
        for flags, told in zip(scores, told_labels, strict=True)
    )
    return {
        "unit": "accuracy",
        "is_cumulative": False,
        "layers": value,
        "control": control,
        "control_label": "random labels",
        "chance": 1 / len(set(labels)),
        "mass": None,
    }


def _balance(right: Flags, labels: Sequence[object], rules: Sequence[str]) -> Metric:
    """Return the mean over the labels of the share of their conversations that were told right."""
    weights = [1 / labels.count(label) for label in labels]
    return ratio([(weight * flag, weight) for weight, flag in zip(weights, right.tolist(), strict=True)], rules)


def _patching(sample: Sample) -> dict[str, Any]:
    neutral = sample.table("log_probability", "neutral")[:, None]
    gained, control = (sample.table("patching", name) - neutral for name in ("value", "control"))
    before = late_layers(sample.num_layers)[0] - 1
    return {
        "name": "patching",
        "label": "Effect of the rule carried over by patching",
        "explanation": "How much of the rule's effect on the obedient answer comes back in the run with the neutral "
        "system prompt when its stream at the answer's positions is replaced, after this layer, by that of the run "
        "with the rule. What a layer adds is the step to it from the layer before.",
        "unit": "share",
        "is_cumulative": True,
        "layers": _levels([sample.relative(column) for column in gained.T]),
        "control": _levels([sample.relative(column) for column in control.T]),
        "control_label": "stream of another rule",
        "steps": _levels([sample.relative(step) for step in np.diff(gained, axis=1).T], first=1),
        "chance": None,
        "mass": sample.mass(gained[:, -1] - gained[:, before], gained[:, -1] - gained[:, 0]),
    }


def _knock_out(sample: Sample) -> dict[str, Any]:
    with_rule = sample.table("log_probability", "with_rule")[:, None]
    lost, control = (with_rule - sample.table("knock_out", name) for name in ("value", "control"))
    before = late_layers(sample.num_layers)[0] - 1
    return {
        "name": "knock_out",
        "label": "Effect of the rule lost by knock-out",
        "explanation": "How much of the rule's effect on the obedient answer is lost when the answer's positions "
        "cannot attend to the system prompt in this layer's self-attention. Layers that can stand in for each other "
        "lose little one by one.",
        "unit": "share",
        "is_cumulative": False,
        "layers": _levels([sample.relative(column) for column in lost.T], first=1),
        "control": _levels([sample.relative(column) for column in control.T], first=1),
        "control_label": "as many other tokens",
        "chance": None,
        "mass": sample.mass(lost[:, before:].sum(axis=1), lost.sum(axis=1)),
    }
