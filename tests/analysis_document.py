"""A made-up analysis of a model with thirty layers, with and without blocks: no figure in it was measured."""

import math
import random
from collections.abc import Callable
from typing import Any

NUM_LAYERS = 30
CLASSES = ("system", "user", "assistant", "answer", "template")
SYSTEM = (
    *("Answer", " in", " upper", " case", " only", ",", " and"),
    *(" never", " say", " the", " word", " b", "lue", ".\n"),
)
ANSWERS = (
    ("THE", " SKY", " HAS", " THE", " COLOUR", " OF", " THE", " SEA", "."),
    ("IT", " IS", " A", " QUARTER", " PAST", " NINE", ",", " AS", " FAR", " AS", " I", " KNOW", "."),
    ("NO", ".\n", "ASK", " ME", " SOMETHING", " ELSE", "."),
)
QUESTIONS = ("Which colour does the sky have?", "What time is it?", "Say the word, please, just once.")
SHIFTS = (
    ("shift/other_rule/cosine", "against another rule", "cosine distance", 0.11),
    ("shift/neutral/cosine", "against a neutral prompt", "cosine distance", 0.15),
    ("shift/other_rule/norm", "against another rule", "relative norm", 0.42),
    ("shift/neutral/norm", "against a neutral prompt", "relative norm", 0.5),
)
PROBES = (
    ("probe/rule", "which rule family is in force", 0.93, 0.14),
    ("probe/obeys", "whether the model's own answer will obey", 0.78, 0.61),
)


def make_document(*, num_blocks: int = 5, num_layers: int = NUM_LAYERS, seed: int = 0) -> dict[str, Any]:
    """Return a complete document of ``calyrex analyze``."""
    draw = random.Random(seed)
    late = list(range(7 * num_layers // 8 + 1, num_layers + 1))
    has_blocks = num_blocks > 0
    blocks = list(range(num_layers - num_blocks + 1, num_layers + 1))
    return {
        "run": {
            "command": "calyrex analyze --model smollm2-135m" + (" --adapter runs/mine" if has_blocks else ""),
            "versions": {"calyrex": "0.1.0", "torch": "2.13.0", "transformers": "5.24.0", "peft": "0.21.0"},
            "commit": "0123abc",
            "machine": "2 cores, x86_64, Linux",
            "seconds": 612.0,
            "options": {"model": "smollm2-135m", "num_chats": 200, "seed": 0, "output_dir": "runs/analyze"},
            "model": "smollm2-135m",
            "adapter": "runs/mine" if has_blocks else None,
            "num_layers": num_layers,
            "late_layers": late,
            "blocks": blocks,
            "num_chats": 200,
            "num_answer_tokens": 2312,
            "data": "built-in rules",
            "licence": "Apache-2.0",
            "log_probability": {"with_rule": -1.204, "other_rule": -1.913, "neutral": -1.822},
            "obeyed_share": 0.31,
        },
        "measures": [
            *(_shift(draw, late, num_layers, *texts) for texts in SHIFTS),
            *(_probe(draw, num_layers, *texts) for texts in PROBES),
            _patching(draw, late, num_layers),
            _knock_out(draw, late, num_layers),
        ],
        "blocks": _blocks(draw, blocks) if has_blocks else None,
        "verdict": [
            "The last four of 30 layers hold more than an even share of what a rule moves in the stream: 31.0 % of the "
            "cosine distance [27.1–35.2], where an even share is 13.3 %.",
            "Of the effect on the answer they hold 21.4 % [17.0–26.1], more than an even share.",
            "Of what is lost when a layer may not read the system prompt, they hold 6.1 % [2.0–10.4], less than an "
            "even share: the answer reads the rule in the middle of the model.",
        ],
    }


def _curve(draw: random.Random, layers: range, height: Callable[[float], float], error: float) -> list[dict[str, Any]]:
    values = [height(layer / layers[-1]) + draw.gauss(0, error / 3) for layer in layers]
    return [
        {"layer": layer, "value": value, "low": value - error, "high": value + error}
        for layer, value in zip(layers, values, strict=True)
    ]


def _rise(depth: float, middle: float = 0.55, width: float = 0.12) -> float:
    return 1 / (1 + math.exp((middle - depth) / width))


def _mass(value: float | None, late: list[int], num_layers: int) -> dict[str, Any] | None:
    even = len(late) / num_layers
    return None if value is None else {"value": value, "low": value - 0.045, "high": value + 0.05, "even_share": even}


def _shift(
    draw: random.Random, late: list[int], num_layers: int, name: str, label: str, unit: str, height: float
) -> dict[str, Any]:
    layers = range(num_layers + 1)
    return {
        "name": name,
        "label": f"shift {label}, {unit}",
        "explanation": "How far the stream at the answer's positions lies from what it is "
        f"with {label.removeprefix('against ')}.",
        "unit": unit,
        "is_cumulative": True,
        "layers": _curve(draw, layers, lambda depth: height * (0.6 * _rise(depth) + 0.4 * depth**8), 0.05 * height),
        "control": None,
        "control_label": None,
        "chance": None,
        "mass": _mass(0.25 + height / 5, late, num_layers),
    }


def _probe(draw: random.Random, num_layers: int, name: str, label: str, height: float, chance: float) -> dict[str, Any]:
    layers = range(num_layers + 1)
    return {
        "name": name,
        "label": f"probe: {label}",
        "explanation": "Accuracy of a linear probe on the stream at the last token of the prompt, on rules it was not "
        "trained on.",
        "unit": "accuracy",
        "is_cumulative": False,
        "layers": _curve(draw, layers, lambda depth: chance + (height - chance) * _rise(depth, 0.2), 0.04),
        "control": _curve(draw, layers, lambda depth: chance + 0.02 * depth, 0.04),
        "control_label": "random labels",
        "chance": chance,
        "mass": None,
    }


def _patching(draw: random.Random, late: list[int], num_layers: int) -> dict[str, Any]:
    layers = range(num_layers + 1)
    points = _curve(draw, layers, lambda depth: 0.75 * _rise(depth, 0.6) + 0.27 * depth**6 - 0.005, 0.04)
    points[0] |= {"value": 0.0, "low": 0.0, "high": 0.0}
    points[-1] |= {"value": 1.0, "low": 1.0, "high": 1.0}
    return {
        "name": "patching",
        "label": "activation patching: what is recovered",
        "explanation": "The stream after one layer is taken from the run with the rule; shown is how much of the "
        "rule's effect on the obedient answer comes back.",
        "unit": "share",
        "is_cumulative": True,
        "layers": points,
        "control": _curve(draw, layers, lambda depth: -0.1 * _rise(depth, 0.6), 0.03),
        "control_label": "the stream under another rule",
        "chance": None,
        "mass": _mass(0.214, late, num_layers),
    }


def _knock_out(draw: random.Random, late: list[int], num_layers: int) -> dict[str, Any]:
    layers = range(1, num_layers + 1)
    return {
        "name": "knock_out",
        "label": "attention knock-out: what is lost",
        "explanation": "The answer may not look at the system prompt in one layer; shown is how much of the rule's "
        "effect is lost.",
        "unit": "share",
        "is_cumulative": False,
        "layers": _curve(draw, layers, lambda depth: 0.17 * math.exp(-(((depth - 0.5) / 0.16) ** 2)), 0.02),
        "control": _curve(draw, layers, lambda depth: 0.004, 0.01),
        "control_label": "as many random other tokens of the prompt",
        "chance": None,
        "mass": _mass(0.061, late, num_layers),
    }


def _blocks(draw: random.Random, blocks: list[int]) -> dict[str, Any]:
    def around(value: float, error: float) -> dict[str, float]:
        return {"value": value, "low": value - error, "high": value + error}

    norms = [
        {"block": block, "class": name, "num_tokens": 1234, **around(draw.uniform(0.02, 0.14), 0.012)}
        for block in blocks
        for name in CLASSES
    ]
    scale = [{"scale": step / 4, **around(-1.9 + 0.7 * math.exp(-((step / 4 - 1.2) ** 2)), 0.09)} for step in range(9)]
    levels = {"none": -1.2, **{block: -1.2 - draw.uniform(0.0, 0.3) for block in blocks}, "all": -1.9}
    off = [
        {"block": block, **around(value, 0.09), "difference": around(value + 1.2, 0.04 if block != "none" else 0.0)}
        for block, value in levels.items()
    ]
    maps = [_map(draw, number, blocks) for number in range(len(ANSWERS))]
    return {"norms": norms, "scale": scale, "off": off, "maps": maps}


def _map(draw: random.Random, number: int, blocks: list[int]) -> dict[str, Any]:
    answer = ANSWERS[number]
    return {
        "id": f"rules-{number}",
        "system_tokens": list(SYSTEM),
        "answer_tokens": list(answer),
        "question": QUESTIONS[number],
        "weights": {str(block): [_weights(draw) for _ in answer] for block in blocks},
    }


def _weights(draw: random.Random) -> list[float]:
    raw = [math.exp(draw.gauss(0, 1.3)) for _ in SYSTEM]
    return [weight / sum(raw) for weight in raw]
