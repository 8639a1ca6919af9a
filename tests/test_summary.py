from typing import Any

import numpy as np
import pytest

from calyrex.analysis.summary import Sample, late_layers, summarise

NUM_CHATS, NUM_RULES, NUM_LAYERS = 30, 10, 8


def make_sample(*, effect: float = 1.0, num_rules: int = NUM_RULES) -> Sample:
    """Conversations under some rules, in which every figure has noise of its own."""
    rng = np.random.default_rng(0)
    records: list[dict[str, Any]] = []
    for _ in range(NUM_CHATS):
        with_rule, neutral = -1.0 + rng.normal(0, 0.1), -1.0 - effect + rng.normal(0, 0.1)
        climb = np.linspace(0, 1, NUM_LAYERS + 1) ** 2
        records.append(
            {
                "log_probability": {"with_rule": with_rule, "other_rule": neutral, "neutral": neutral},
                "shift": {
                    f"{run}/{kind}": (climb * rng.uniform(0.5, 1.5)).tolist()
                    for run in ("other_rule", "neutral")
                    for kind in ("cosine", "norm")
                },
                "patching": {
                    "value": (neutral + climb * (with_rule - neutral)).tolist(),
                    "control": (neutral + rng.normal(0, 0.1, NUM_LAYERS + 1)).tolist(),
                },
                "knock_out": {
                    "value": (with_rule - rng.uniform(0, 0.3, NUM_LAYERS)).tolist(),
                    "control": (with_rule + rng.normal(0, 0.1, NUM_LAYERS)).tolist(),
                },
            }
        )
    rules = [f"rule {number % num_rules}" for number in range(NUM_CHATS)]
    return Sample(records=records, rules=rules, families=None, num_layers=NUM_LAYERS, seed=0)


def plain_interval(top: list[float], bottom: list[float], rules: list[str]) -> tuple[float, float]:
    """Return the bootstrap interval of a ratio of sums, whole rules drawn together."""
    names = list(dict.fromkeys(rules))
    found = []
    for drawn in np.random.default_rng(0).integers(len(names), size=(2000, len(names))):
        own = [place for name in drawn for place, rule in enumerate(rules) if rule == names[name]]
        found.append(sum(top[place] for place in own) / sum(bottom[place] for place in own))
    low, high = np.quantile(found, [0.025, 0.975])
    return low, high


@pytest.fixture(scope="module")
def sample() -> Sample:
    return make_sample()


@pytest.fixture(scope="module")
def measures(sample: Sample) -> dict[str, dict[str, Any]]:
    return by_name(sample)


def by_name(sample: Sample) -> dict[str, dict[str, Any]]:
    return {measure["name"]: measure for measure in summarise(sample)}


@pytest.mark.parametrize(
    ("num_layers", "late"),
    [(1, [1]), (4, [4]), (28, [25, 26, 27, 28]), (30, [27, 28, 29, 30]), (32, [29, 30, 31, 32])],
)
def test_late_layers_are_the_last_eighth(num_layers: int, late: list[int]) -> None:
    assert late_layers(num_layers) == late


def test_shift_is_the_mean_over_conversations_with_whole_rules_drawn_together(
    sample: Sample, measures: dict[str, dict[str, Any]]
) -> None:
    level = measures["shift/neutral/norm"]["layers"][5]

    values = [record["shift"]["neutral/norm"][5] for record in sample.records]
    low, high = plain_interval(values, [1.0] * NUM_CHATS, list(sample.rules))
    assert level == {
        "layer": 5,
        "value": pytest.approx(sum(values) / NUM_CHATS),
        "low": pytest.approx(low),
        "high": pytest.approx(high),
    }


@pytest.mark.parametrize("part", ["layers", "control"])
def test_recovered_is_a_ratio_of_means(sample: Sample, measures: dict[str, dict[str, Any]], part: str) -> None:
    level = measures["patching"][part][3]

    key = "value" if part == "layers" else "control"
    told = [record["log_probability"] for record in sample.records]
    gained = [record["patching"][key][3] - record["log_probability"]["neutral"] for record in sample.records]
    whole = [one["with_rule"] - one["neutral"] for one in told]
    assert level["value"] == pytest.approx(sum(gained) / sum(whole))
    assert (level["low"], level["high"]) == pytest.approx(plain_interval(gained, whole, list(sample.rules)))


def test_lost_is_a_ratio_of_means(sample: Sample, measures: dict[str, dict[str, Any]]) -> None:
    level = measures["knock_out"]["layers"][2]

    told = [record["log_probability"] for record in sample.records]
    lost = [record["log_probability"]["with_rule"] - record["knock_out"]["value"][2] for record in sample.records]
    assert level["layer"] == 3
    assert level["value"] == pytest.approx(sum(lost) / sum(one["with_rule"] - one["neutral"] for one in told))


def test_mass_of_a_cumulative_measure_is_what_it_gains_in_the_last_layers(
    sample: Sample, measures: dict[str, dict[str, Any]]
) -> None:
    mass = measures["shift/other_rule/cosine"]["mass"]

    values = [record["shift"]["other_rule/cosine"] for record in sample.records]
    late, whole = [own[8] - own[7] for own in values], [own[8] - own[0] for own in values]
    assert mass["value"] == pytest.approx(sum(late) / sum(whole))
    assert (mass["low"], mass["high"]) == pytest.approx(plain_interval(late, whole, list(sample.rules)))
    assert mass["even_share"] == 1 / 8


def test_mass_of_the_knock_out_is_the_sum_over_the_last_layers(
    sample: Sample, measures: dict[str, dict[str, Any]]
) -> None:
    mass = measures["knock_out"]["mass"]

    told = [record["log_probability"]["with_rule"] for record in sample.records]
    lost = [
        [own - value for value in record["knock_out"]["value"]]
        for own, record in zip(told, sample.records, strict=True)
    ]
    assert mass["value"] == pytest.approx(sum(own[7] for own in lost) / sum(map(sum, lost)))


def test_mass_is_none_where_there_is_no_sure_effect() -> None:
    found = by_name(make_sample(effect=-0.5))

    assert found["patching"]["mass"] == {"value": None, "low": None, "high": None, "even_share": 1 / 8}
    assert found["knock_out"]["mass"]["value"] is not None


def test_shares_of_the_effect_are_none_where_it_is_not_surely_there() -> None:
    found = by_name(make_sample(effect=-0.5))

    for part in ("layers", "control", "steps"):
        assert {level["value"] for level in found["patching"][part]} == {None}, part
    assert {level["value"] for level in found["knock_out"]["layers"]} == {None}


def test_mass_is_none_where_the_rules_are_too_few_for_an_interval() -> None:
    assert {one["mass"]["value"] for one in summarise(make_sample(num_rules=9))} == {None}


def test_a_step_of_patching_is_what_a_layer_adds(measures: dict[str, dict[str, Any]]) -> None:
    layers, step = measures["patching"]["layers"], measures["patching"]["steps"][4]

    assert step["layer"] == 5
    assert step["value"] == pytest.approx(layers[5]["value"] - layers[4]["value"])
    assert step["low"] < step["value"] < step["high"]
