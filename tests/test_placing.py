"""A placement study names the best placement, and calls no other worse unless that is sure."""

from typing import Any

import pytest

from calyrex.studies.placing import rank_placements, write_placement_verdict

VALUES = {"base": 0.1, "late8th": 0.5, "early8th": 0.2, "mid8th": 0.45, "last": 0.4}
SIZES = {"late8th": 5_000_000, "early8th": 5_000_000, "mid8th": 5_000_000, "last": 1_000_000}


def document(significant: float = 0.2, **more: Any) -> dict[str, Any]:
    """A made-up study in which a gap of at least ``significant`` is significant."""
    names = list(VALUES)
    differences = [
        {
            "first": first,
            "second": second,
            "value": VALUES[first] - VALUES[second],
            "low": VALUES[first] - VALUES[second] - 0.1,
            "high": VALUES[first] - VALUES[second] + 0.1,
            "is_significant": abs(VALUES[first] - VALUES[second]) >= significant,
        }
        for place, first in enumerate(names)
        for second in names[place + 1 :]
    ]
    measure = {
        "name": "rules/obeyed",
        "num_cases": 200,
        "values": {name: {"value": value, "by_seed": [value] * 3} for name, value in VALUES.items()},
        "differences": differences,
    }
    contenders = [{"name": name, "label": name, "trainable_parameters": SIZES.get(name, 0)} for name in VALUES]
    return {"contenders": contenders, "measures": [measure], **more}


def test_placements_are_ranked_without_the_base() -> None:
    assert list(rank_placements(document())) == ["late8th", "mid8th", "last", "early8th"]


@pytest.mark.parametrize(("significant", "surely"), [(0.2, "not significantly"), (0.04, "significantly")])
def test_the_best_is_named_and_how_surely_the_next_is_behind(significant: float, surely: str) -> None:
    first = write_placement_verdict(document(significant))[0]

    assert first.startswith(
        "Best is late8th, which obeys in 50.0 % of 200 cases and 3 seeds; next is mid8th with 45.0 %, "
    )
    assert f"45.0 %, {surely} behind by 5.0 points [-5.0 to 15.0]." in first


def test_the_others_are_sorted_by_whether_they_are_surely_behind() -> None:
    first = write_placement_verdict(document())[0]

    assert "Significantly behind the best: early8th (20.0 %). Not significantly behind it: last." in first
    assert "The base obeys in 10.0 %, significantly behind by 40.0 points [30.0 to 50.0]." in first


def test_placements_that_tie_share_the_first_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(VALUES, "mid8th", 0.5)

    assert write_placement_verdict(document())[0].startswith(
        "late8th and mid8th share the first place: they obey in 50.0 % of 200 cases and 3 seeds. Significantly behind"
    )


def test_a_loss_is_not_weighed_as_a_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(VALUES, "base", 0.6)

    verdict = write_placement_verdict(document())

    assert "The base obeys in 60.0 %, not significantly ahead by 10.0 points [0.0 to 20.0]." in verdict[0]
    assert not any("Most gain" in sentence for sentence in verdict)


def test_the_last_eighth_is_held_against_windows_of_its_width() -> None:
    assert (
        "Against late8th, windows of the same width: early8th is significantly behind by 30.0 points [20.0 to 40.0] "
        "and mid8th is not significantly behind by 5.0 points [-5.0 to 15.0]."
    ) in write_placement_verdict(document())


def test_the_gain_is_weighed_against_the_size() -> None:
    assert "Most gain for its size: last, 30.0 points over the base for each million parameters." in (
        write_placement_verdict(document())
    )


def test_a_screening_is_not_hidden() -> None:
    verdict = write_placement_verdict(document(screening={"late8th": 0.31, "all": 0.3}))

    assert "Chosen by a screening with less data, one seed and other test cases: late8th 31.0 %, all 30.0 %." in verdict


@pytest.mark.parametrize("empty", [{}, {"contenders": [], "measures": []}, {"contenders": None, "measures": None}])
def test_a_study_without_results_decides_nothing(empty: dict[str, Any]) -> None:
    assert write_placement_verdict(empty) == ["Nothing is decided yet: fewer than two placements have been measured."]
