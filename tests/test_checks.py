"""A comparison checks itself: seeds agree more than methods do, and the control falls to the base's level."""

from typing import Any

import pytest

from calyrex.studies.checks import check


def document(**values: list[float]) -> dict[str, Any]:
    """One headline measure; each contender's values by seed."""
    by_name = {name.replace("shuffled", "calyrex:shuffled"): own for name, own in values.items()}
    measure = {
        "is_headline": True,
        "group": "security",
        "num_cases": 10,
        "values": {name: {"value": sum(own) / len(own), "by_seed": own} for name, own in by_name.items()},
    }
    return {"measures": [measure], "contenders": []}


@pytest.mark.parametrize(("seeds", "holds"), [([0.60, 0.62, 0.61], True), ([0.3, 0.9, 0.6], False)])
def test_seeds_must_differ_by_less_than_the_methods(seeds: list[float], holds: bool) -> None:
    (found,) = check(document(calyrex=seeds, parallel_mlp=[0.4, 0.4, 0.4]))

    assert found["name"] == "seeds"
    assert found["holds"] is holds


def test_the_distances_are_in_the_text() -> None:
    (found,) = check(document(calyrex=[0.50, 0.54], parallel_mlp=[0.40]))

    assert "differ by 4.0 points on average" in found["text"]
    assert "by 12.0." in found["text"]


@pytest.mark.parametrize(("control", "holds"), [(0.21, True), (0.10, True), (0.45, False)])
def test_the_control_must_fall_to_the_base(control: float, holds: bool) -> None:
    found = {one["name"]: one for one in check(document(calyrex=[0.6], shuffled=[control], base=[0.2]))}

    assert found["shuffled"]["holds"] is holds
    assert f"{100 * control:.1f} %" in found["shuffled"]["text"]


def test_nothing_is_said_of_what_was_not_measured() -> None:
    assert list(check({"measures": [], "contenders": []})) == []
    assert list(check(document(calyrex=[0.6]))) == []


@pytest.mark.parametrize(("chosen", "holds"), [(1e-3, True), (5e-4, False), (2e-3, False)])
def test_the_best_learning_rate_must_lie_inside_the_grid(chosen: float, holds: bool) -> None:
    search = [{"learning_rate": rate, "loss": abs(rate - chosen)} for rate in (5e-4, 1e-3, 2e-3)]
    entry = {"label": "LoRA", "learning_rate": chosen, "search": search, "is_control": False}
    base = {"label": "Base", "learning_rate": None, "search": [], "is_control": False}

    (found,) = check({"measures": [], "contenders": [base, entry]})

    assert found["holds"] is holds
    assert (f"LoRA ({chosen:g})" in found["text"]) is not holds
