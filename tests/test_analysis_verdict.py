from typing import Any

import pytest

from calyrex.analysis.verdict import write_verdict


def figure(value: float | None, margin: float = 0.05) -> dict[str, float | None]:
    if value is None:
        return {"value": None, "low": None, "high": None}
    return {"value": value, "low": value - margin, "high": value + margin}


def levels(*values: float | None, first: int = 0) -> list[dict[str, Any]]:
    return [{"layer": layer, **figure(value)} for layer, value in enumerate(values, start=first)]


def make_document(**changes: Any) -> dict[str, Any]:
    measures = {
        "patching": {
            "layers": levels(0.0, 0.2, 1.0),
            "control": levels(0.0, 0.1, 0.1),
            "control_label": "stream of another rule",
            "steps": levels(0.2, 0.8, first=1),
            "mass": {**figure(0.8), "even_share": 0.5},
        },
        "knock_out": {
            "layers": levels(0.1, 0.3, first=1),
            "control": levels(0.0, 0.0, first=1),
            "control_label": "as many other tokens",
            "mass": {**figure(0.52), "even_share": 0.5},
        },
        "shift/neutral/cosine": {"mass": {**figure(0.2), "even_share": 0.5}},
        "probe/rule": {
            "layers": levels(0.2, 0.7, 0.9),
            "control": levels(0.2, 0.2, 0.1),
            "control_label": "random labels",
            "chance": 0.25,
            "mass": None,
        },
    }
    for name, values in changes.pop("measures", {}).items():
        measures[name] = {**measures.get(name, {}), **values}
    run = {
        "num_layers": 2,
        "late_layers": [2],
        "num_chats": 10,
        "num_answer_tokens": 70,
        "num_rules": 10,
        "obeyed_share": 0.3,
        "rule_effect": figure(0.9),
    }
    return {
        "run": {**run, **changes.pop("run", {})},
        "measures": [{"name": name, "label": name.capitalize(), **values} for name, values in measures.items()],
        "blocks": None,
        **changes,
    }


def say(**changes: Any) -> str:
    return "\n".join(write_verdict(make_document(**changes)))


def test_more_less_and_neither_are_told_apart_by_the_interval() -> None:
    text = say()

    assert "holds 80 % [75 %, 85 %] of the effect that patching carries over, more than an even share (50 %)" in text
    assert "of what knock-out takes away, which cannot be told from an even share (50 %)" in text
    assert "of the turn of the stream against no rule, less than an even share (50 %)" in text


def test_missing_effect_is_said_and_no_share_is_given() -> None:
    text = say(run={"rule_effect": figure(0.01)}, measures={"patching": {"mass": {**figure(None), "even_share": 0.5}}})

    assert "That is not surely above 0" in text
    assert "No share of the effect that patching carries over can be given to layers" in text


def test_effect_of_the_rule_and_own_obedience_come_first() -> None:
    first = write_verdict(make_document())[0]

    assert "0.90 [0.85, 0.95] nats a token likelier" in first
    assert "keeps the rule in 30 %" in first
    assert "10 conversations, 70 answer tokens" in first


def test_obedience_is_not_spoken_of_where_it_cannot_be_checked() -> None:
    assert "keeps the rule" not in say(run={"obeyed_share": None})


def test_control_that_finds_as_much_is_said() -> None:
    text = say(measures={"knock_out": {"control": levels(0.0, 0.3, first=1)}})

    assert "has 30 % [25 %, 35 %] there, and the two cannot be told apart" in text


def test_course_of_patching_is_said_with_its_control() -> None:
    text = say()

    assert "Patching: half of it has come by layer 2, and layer 2 adds most, 80 % [75 %, 85 %]" in text
    assert "the control (stream of another rule) carries over 10 % [5 %, 15 %] in all" in text


def test_measures_without_a_figure_are_said_to_be_missing() -> None:
    nothing = {"layers": levels(None, None, None), "control": levels(None, None, None)}

    text = say(measures={"patching": nothing, "knock_out": nothing})

    assert "Patching: there is no effect to give shares of." in text
    assert "Knock_out: there is no effect to give shares of." in text


def test_a_rule_that_makes_its_answer_less_likely_is_said_so() -> None:
    text = say(run={"rule_effect": figure(-0.9)})

    assert "the obedient answer 0.90 [0.85, 0.95] nats a token less likely than" in text
    assert "That is not surely above 0" in text


def test_few_rules_give_no_shares() -> None:
    text = say(run={"num_rules": 9})

    assert "No share of what knock-out takes away is given to layers: 9 rules are too few for an interval." in text
    assert "an even share" not in text


def test_no_layer_is_named_where_none_surely_adds_anything() -> None:
    assert "no layer surely adds anything by itself" in say(
        measures={"patching": {"steps": levels(0.04, 0.03, first=1)}}
    )


def test_probe_says_from_where_it_tells_more_than_its_control_and_chance() -> None:
    text = say()

    assert "better than on random labels and than chance (25 %) from layer 1 on" in text
    assert "at best, after layer 2, 90 % [85 %, 95 %], on random labels 10 % [5 %, 15 %]" in text


@pytest.mark.parametrize(
    ("values", "told"), [((0.2, 0.9, 0.2), "after 1 of the layers 0 to 2"), ((0.2, 0.2, 0.2), "after no layer")]
)
def test_probe_that_tells_only_sometimes_or_never_says_so(values: tuple[float, ...], told: str) -> None:
    assert told in say(measures={"probe/rule": {"layers": levels(*values)}})


def test_probe_that_could_not_be_trained_says_so() -> None:
    nothing = levels(None, None, None)

    assert "no probe can be tested" in say(measures={"probe/rule": {"layers": nothing, "control": nothing}})


def test_blocks_are_weighed() -> None:
    blocks = {
        "off": [
            {"block": block, **figure(value), "difference": figure(value + 0.5)}
            for block, value in (("none", -0.5), (1, -0.6), (2, -0.9), ("all", -2.0))
        ],
        "scale": [
            {"scale": scale, **figure(value), "difference": figure(value + 0.5)}
            for scale, value in ((0.0, -2.0), (1.0, -0.5), (1.25, -0.4))
        ],
        "norms": [],
        "maps": [],
    }

    text = say(blocks=blocks)

    assert "With the blocks the obedient answer has -0.50 [-0.55, -0.45] nats a token, without them -2.00" in text
    assert "the block after layer 2 changes it most for the worse: -0.40" in text
    assert "scale 1.25 gains most over 1: 0.10 [0.05, 0.15]" in text


def test_blocks_and_scales_are_not_told_apart_by_chance() -> None:
    level = {"block": 1, **figure(-0.5), "difference": figure(-0.04)}
    ends = [{"block": name, **figure(-0.5), "difference": figure(0.0)} for name in ("none", "all")]
    blocks = {"off": [level, *ends], "scale": [{"scale": 1.25, **figure(-0.46), "difference": figure(0.04)}]}

    text = say(blocks=blocks)

    assert "no block surely changes it for the worse" in text
    assert "no scale tried is surely better than 1" in text
