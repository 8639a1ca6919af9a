"""Named placements hold the layers that they say, and what is outside the model is refused."""

import pytest

from calyrex.placement import PLACEMENTS, resolve_placement


@pytest.mark.parametrize(
    ("num_layers", "layers"),
    [
        (28, [24, 25, 26, 27, 28]),
        (32, [28, 29, 30, 31, 32]),
        (30, [26, 27, 28, 29, 30]),
        (4, [3, 4]),
        (1, [1]),
    ],
)
def test_late8th_is_the_last_eighth(num_layers: int, layers: list[int]) -> None:
    assert resolve_placement("late8th", num_layers) == layers


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("all", list(range(1, 29))),
        ("every2", list(range(2, 29, 2))),
        ("every4", [4, 8, 12, 16, 20, 24, 28]),
        ("early8th", [1, 2, 3, 4, 5]),
        ("mid8th", [12, 13, 14, 15, 16]),
        ("middle", [12, 15, 18, 20, 23]),
        ("late4th", [21, 23, 25, 26, 28]),
        ("last", [28]),
    ],
)
def test_named_placements_of_28_layers(name: str, layers: list[int]) -> None:
    assert resolve_placement(name, 28) == layers


@pytest.mark.parametrize("name", PLACEMENTS)
@pytest.mark.parametrize("num_layers", [4, 12, 30, 80])
def test_every_placement_stays_inside_the_model(name: str, num_layers: int) -> None:
    layers = resolve_placement(name, num_layers)

    assert layers == sorted(set(layers))
    assert layers[0] >= 1
    assert layers[-1] <= num_layers


def test_the_middle_of_30_layers_is_spread_evenly() -> None:
    assert resolve_placement("middle", 30) == [13, 16, 19, 22, 25]


def test_a_list_is_taken_as_it_is() -> None:
    assert resolve_placement([26, 24], 28) == [24, 26]


@pytest.mark.parametrize(
    ("placement", "num_layers", "message"),
    [
        ([0], 28, "between 1 and 28, got 0"),
        ([29], 28, "between 1 and 28, got 29"),
        ([], 28, "at least one layer between 1 and 28"),
        ([3, 3], 28, "each layer once"),
        ("central", 28, "one of all, every2.*got 'central'"),
        ("every4", 3, "'every4' names no layer of a model with layers 1 to 3"),
    ],
)
def test_what_is_outside_the_model_is_refused(placement: str | list[int], num_layers: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolve_placement(placement, num_layers)


def test_no_blocks_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="num_blocks must be at least 1, got 0"):
        resolve_placement("late8th", 28, num_blocks=0)
