"""The verdict of an analysis in words, worked out from its document alone."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from calyrex.analysis.summary import MIN_RULES

Document: TypeAlias = Mapping[str, Any]

_NOTE = "Brackets hold 95 % intervals."
_HALF = 0.5
_HOLDERS = {
    "patching": "of the effect that patching carries over",
    "knock_out": "of what knock-out takes away",
    "shift/other_rule/cosine": "of the turn of the stream against another rule",
    "shift/neutral/cosine": "of the turn of the stream against no rule",
}
"""Measures whose mass is said in words, the causal ones first."""


def write_verdict(document: Document) -> list[str]:
    """Say what the rule does, where it lives, what can be read off, and what the blocks do.

    Nothing is called more or less than an even share unless the interval excludes it.

    Args:
        document: What ``analysis.json`` holds.
    """
    measures = {measure["name"]: measure for measure in document["measures"]}
    run = document["run"]
    return [
        _say_effect(run),
        *(_say_mass(measures[name], what, run) for name, what in _HOLDERS.items() if name in measures),
        _say_course(measures["patching"]),
        _say_strongest(measures["knock_out"]),
        *(_say_probe(measures[name]) for name in ("probe/rule", "probe/obeys") if name in measures),
        *_say_blocks(document.get("blocks")),
    ]


def _say_effect(run: Document) -> str:
    effect = run["rule_effect"]
    scope = f"{run['num_chats']} conversations, {run['num_answer_tokens']} answer tokens"
    is_less = effect["value"] is not None and effect["value"] < 0
    size = {"value": -effect["value"], "low": -effect["high"], "high": -effect["low"]} if is_less else effect
    text = (
        f"With its rule the model finds the obedient answer {_spread(size, _nats)} nats a token "
        f"{'less likely' if is_less else 'likelier'} than with a neutral system prompt ({scope})."
    )
    if run["obeyed_share"] is not None:
        text += f" Its own answer keeps the rule in {_percent(run['obeyed_share'])} of the conversations."
    if not _is_above(effect, 0.0):
        text += " That is not surely above 0: there is no effect to place, and shares of it mean nothing."
    return f"{text} {_NOTE}"


def _say_mass(measure: Document, what: str, run: Document) -> str:
    """Say whether the last layers hold more than their share."""
    mass, late = measure["mass"], run["late_layers"]
    layers = f"The last {len(late)} of {run['num_layers']} layers" if len(late) > 1 else "The last layer"
    if run["num_rules"] < MIN_RULES:
        return f"No share {what} is given to layers: {run['num_rules']} rules are too few for an interval."
    if mass["value"] is None:
        return f"No share {what} can be given to layers: as a whole it is not surely above 0."
    even = mass["even_share"]
    if _is_above(mass, even):
        judgement = f"more than an even share ({_percent(even)})"
    elif mass["high"] < even:
        judgement = f"less than an even share ({_percent(even)})"
    else:
        judgement = f"which cannot be told from an even share ({_percent(even)})"
    verb = "hold" if len(late) > 1 else "holds"
    return f"{layers} {verb} {_spread(mass, _percent)} {what}, {judgement}."


def _say_course(measure: Document) -> str:
    """Say where the patched effect comes in, and how much of it any other rule brings."""
    levels, control = _known(measure["layers"]), measure["control"][-1]
    if not levels:
        return f"{measure['label']}: there is no effect to give shares of."
    half = next((level["layer"] for level in levels if level["value"] >= _HALF), levels[-1]["layer"])
    step = max(_known(measure["steps"]), key=lambda step: float(step["value"]))
    most = f"layer {step['layer']} adds most, {_spread(step, _percent)}"
    if not _is_above(step, 0.0):
        most = "no layer surely adds anything by itself"
    return (
        f"{measure['label']}: half of it has come by layer {half}, and {most}; "
        f"the control ({measure['control_label']}) carries over {_spread(control, _percent)} in all."
    )


def _say_strongest(measure: Document) -> str:
    """Say which layer loses most, and whether the control loses as much there."""
    levels = _known(measure["layers"])
    if not levels:
        return f"{measure['label']}: there is no effect to give shares of."
    strongest = max(levels, key=lambda level: float(level["value"]))
    control = next(level for level in measure["control"] if level["layer"] == strongest["layer"])
    text = (
        f"{measure['label']} is largest in layer {strongest['layer']}, {_spread(strongest, _percent)}; "
        f"the control ({measure['control_label']}) has {_spread(control, _percent)} there"
    )
    is_apart = control["high"] is not None and _is_above(strongest, control["high"])
    return f"{text}." if is_apart else f"{text}, and the two cannot be told apart."


def _say_probe(measure: Document) -> str:
    """Say from which layer on a probe tells more than the same probe on random labels, and the best layer."""
    pairs = list(zip(measure["layers"], measure["control"], strict=True))
    if not _known(measure["layers"]):
        return (
            f"{measure['label']}: no probe can be tested, since all conversations have the same label, or one label "
            "stands under a single rule."
        )
    best, control = max(pairs, key=lambda pair: pair[0]["value"])
    told = [value["layer"] for value, other in pairs if _is_above(value, max(other["high"], measure["chance"]))]
    start = f"from layer {told[0]} on" if told == list(range(told[0] if told else 0, len(pairs))) else ""
    where = start or (f"after {len(told)} of the layers 0 to {len(pairs) - 1}" if told else "after no layer")
    return (
        f"{measure['label']}: surely better than on random labels and than chance ({_percent(measure['chance'])}) "
        f"{where}; at best, after layer {best['layer']}, {_spread(best, _percent)}, on random labels "
        f"{_spread(control, _percent)}."
    )


def _say_blocks(blocks: Document | None) -> list[str]:
    """Say what the answer gains by the blocks, and which one it hangs on most."""
    if not blocks:
        return []
    off = {level["block"]: level for level in blocks["off"]}
    single = {name: level for name, level in off.items() if name not in ("all", "none")}
    most = min(single, key=lambda name: single[name]["difference"]["value"])
    cost = single[most]["difference"]
    best = max(blocks["scale"], key=lambda level: level["value"])
    alone = f"the block after layer {most} changes it most for the worse: {_spread(cost, _nats)}"
    if cost["high"] is None or cost["high"] >= 0:
        alone = "no block surely changes it for the worse"
    scale = f"scale {best['scale']:g} gains most over 1: {_spread(best['difference'], _nats)}"
    if not _is_above(best["difference"], 0.0):
        scale = "no scale tried is surely better than 1"
    return [
        f"With the blocks the obedient answer has {_spread(off['none'], _nats)} nats a token, without them "
        f"{_spread(off['all'], _nats)}. Switched off alone, {alone}; {scale}."
    ]


def _known(levels: Sequence[Document]) -> list[Document]:
    return [level for level in levels if level["value"] is not None]


def _is_above(figure: Document, limit: float) -> bool:
    return figure["low"] is not None and figure["low"] > limit


def _spread(figure: Document, spell: Any) -> str:
    if figure["value"] is None:
        return "an unknown number"
    return f"{spell(figure['value'])} [{spell(figure['low'])}, {spell(figure['high'])}]"


def _percent(value: float) -> str:
    return f"{100 * value:z.0f} %"


def _nats(value: float) -> str:
    return f"{value:z.2f}"
