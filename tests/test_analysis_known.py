"""The instruments on a model in which the layer that carries the rule is known."""

import itertools
from typing import Any

import pytest

from calyrex.analysis.measuring import measure
from calyrex.analysis.summary import Sample, summarise
from forced_runs import NUM_LAYERS, NUM_RULES, NUM_WORDINGS, known_model, known_runs

LAYERS = (1, 3, 6)


@pytest.fixture(scope="module", params=LAYERS)
def known(request: pytest.FixtureRequest) -> tuple[int, dict[str, Any]]:
    """The layer that carries the rule, and the measures by name."""
    model, records, rules, families = known_model(request.param), [], [], []
    for rule, wording, copy in itertools.product(range(NUM_RULES), range(NUM_WORDINGS), range(2)):
        record = measure(model, known_runs(rule, wording), f"{rule} {wording} {copy}")
        records.append({**record, "obeyed": rule < 2})
        rules.append(f"rule {rule} in wording {wording}")
        families.append(f"family {rule}")
    sample = Sample(records=records, rules=rules, families=families, num_layers=NUM_LAYERS, seed=0)
    return request.param, {measure["name"]: measure for measure in summarise(sample)}


def values(levels: list[dict[str, Any]]) -> list[float]:
    return [level["value"] for level in levels]


def test_patching_jumps_from_nothing_to_all_at_the_layer_that_carries_the_rule(known: tuple[int, dict]) -> None:
    layer, measures = known

    found = measures["patching"]

    assert values(found["layers"]) == pytest.approx([float(at >= layer) for at in range(NUM_LAYERS + 1)], abs=1e-5)


def test_the_stream_of_another_rule_carries_nothing_over(known: tuple[int, dict]) -> None:
    layer, measures = known

    control = values(measures["patching"]["control"])

    assert control[:layer] == pytest.approx([0.0] * layer, abs=1e-5)
    assert max(control[layer:]) < -1  # it makes the other rule's answer likely


def test_knock_out_loses_all_at_the_layer_that_carries_the_rule_and_nothing_elsewhere(known: tuple[int, dict]) -> None:
    layer, measures = known

    found = measures["knock_out"]

    expected = [float(at == layer) for at in range(1, NUM_LAYERS + 1)]
    assert [level["layer"] for level in found["layers"]] == list(range(1, NUM_LAYERS + 1))
    assert values(found["layers"]) == pytest.approx(expected, abs=1e-5)


def test_knocking_out_other_tokens_loses_nothing(known: tuple[int, dict]) -> None:
    _, measures = known

    assert values(measures["knock_out"]["control"]) == pytest.approx([0.0] * NUM_LAYERS, abs=1e-5)


@pytest.mark.parametrize("name", ["other_rule/cosine", "other_rule/norm", "neutral/cosine", "neutral/norm"])
def test_stream_shifts_from_the_layer_on_that_carries_the_rule(known: tuple[int, dict], name: str) -> None:
    layer, measures = known

    found = values(measures[f"shift/{name}"]["layers"])

    assert found[:layer] == pytest.approx([0.0] * layer, abs=1e-6)
    assert min(found[layer:]) > 0.5


@pytest.mark.parametrize("name", ["probe/rule", "probe/obeys"])
def test_probe_is_at_chance_below_that_layer_and_perfect_from_it_on(known: tuple[int, dict], name: str) -> None:
    layer, measures = known

    found = measures[name]

    assert max(values(found["layers"])[:layer]) <= found["chance"]
    assert values(found["layers"])[layer:] == [1.0] * (NUM_LAYERS + 1 - layer)


@pytest.mark.parametrize("name", ["probe/rule", "probe/obeys"])
def test_probe_on_random_labels_finds_nothing(known: tuple[int, dict], name: str) -> None:
    _, measures = known

    control = measures[name]["control"]

    assert all(level["low"] <= measures[name]["chance"] for level in control)


def test_mass_of_the_last_layers_is_all_where_the_last_layer_carries_the_rule_and_else_nothing(
    known: tuple[int, dict],
) -> None:
    layer, measures = known

    masses = {name: measure["mass"] for name, measure in measures.items() if measure["mass"]}

    assert set(masses) == {name for name in measures if not name.startswith("probe")}
    for mass in masses.values():
        assert mass["value"] == pytest.approx(float(layer == NUM_LAYERS), abs=1e-5)
        assert mass["even_share"] == pytest.approx(1 / NUM_LAYERS)
