import math

import numpy as np
import pytest

from calyrex.benchmarks.metric import NOTHING, mean, ratio, share, slope


def test_share_is_the_fraction_of_true_cases_within_its_wilson_interval() -> None:
    metric = share([True] * 8 + [False] * 2)

    assert metric.value == 0.8
    assert (metric.low, metric.high) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert metric.n == 10


def test_ratio_counts_cases_by_their_weight() -> None:
    pairs = [(1.0, 1.0), (0.0, 3.0), (2.0, 4.0)]

    assert ratio(pairs).value == pytest.approx(3 / 8)


def test_bootstrap_interval_is_that_of_drawing_whole_cases_again() -> None:
    values = np.random.default_rng(5).normal(size=200)
    draws = np.random.default_rng(0).integers(200, size=(2000, 200))
    expected = np.quantile([values[draw].mean() for draw in draws], [0.025, 0.975])

    metric = mean(values)

    assert metric.value == pytest.approx(values.mean())
    assert (metric.low, metric.high) == pytest.approx(tuple(expected))


def test_slope_is_that_of_least_squares() -> None:
    x = np.repeat([0.0, 1.0, 2.0, 3.0], 10)
    y = 0.5 * x + np.random.default_rng(1).normal(size=len(x))

    metric = slope(list(zip(x, y, strict=True)))

    assert metric.value == pytest.approx(np.polyfit(x, y, 1)[0])
    assert metric.low < metric.value < metric.high


def test_slope_through_one_place_is_no_number() -> None:
    metric = slope([(1.0, 0.0), (1.0, 1.0)])

    assert metric == (None, None, None, 2)


@pytest.mark.parametrize("figure", [share, mean, ratio, slope])
def test_no_cases_give_no_figure(figure: object) -> None:
    assert figure([]) == NOTHING


def test_the_same_cases_give_the_same_interval_twice() -> None:
    values = [math.sin(number) for number in range(50)]

    assert mean(values) == mean(values)


def test_cases_that_belong_together_are_drawn_together() -> None:
    flags = [rule % 2 == 0 for rule in range(20) for _ in range(10)]
    rules = [rule for rule in range(20) for _ in range(10)]
    rates = np.array(flags, dtype=float).reshape(20, 10).mean(axis=1)
    draws = np.random.default_rng(0).integers(20, size=(2000, 20))
    expected = np.quantile([rates[draw].mean() for draw in draws], [0.025, 0.975])

    metric = share(flags, rules)

    assert (metric.low, metric.high) == pytest.approx(tuple(expected))
    assert metric.n == 200
    assert metric.high - metric.low > 2 * (share(flags).high - share(flags).low)


def test_clusters_that_all_agree_still_have_an_interval() -> None:
    metric = share([False] * 30, [number // 10 for number in range(30)])

    assert (metric.value, metric.low) == (0.0, 0.0)
    assert metric.high == share([False] * 3).high


@pytest.mark.parametrize("n", range(1, 60))
def test_intervals_stay_within_0_and_1(n: int) -> None:
    assert share([False] * n).low == 0.0
    assert share([True] * n).high == pytest.approx(1.0)
    assert share([True] * n).high <= 1.0
