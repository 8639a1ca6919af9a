import math

import numpy as np
import pytest

from calyrex.benchmarks.metric import NOTHING, wilson_interval
from calyrex.studies.statistics import Difference, holm, mean_over_seeds, paired_difference

# Student's own example (1908): hours of sleep won by ten patients with each of two drugs.
SLEEP = (
    np.array([[0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]]),
    np.array([[1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]]),
)


def simulate(
    generator: np.random.Generator,
    *,
    num_seeds: int = 3,
    num_cases: int = 60,
    seed_noise: float = 0.3,
    gain: float = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Two contenders on cases of random difficulty; trainings differ by ``seed_noise``, single answers by 1."""
    difficulty = generator.normal(size=num_cases)
    contenders = []
    for better in (gain, 0.0):
        knack = 0.5 * generator.normal(size=num_cases)
        training = seed_noise * generator.normal(size=(num_seeds, 1))
        contenders.append(better + difficulty + knack + training + generator.normal(size=(num_seeds, num_cases)))
    return contenders[0], contenders[1]


def width(difference: Difference) -> float:
    assert difference.low is not None and difference.high is not None
    return difference.high - difference.low


def test_with_one_seed_it_is_students_paired_test() -> None:
    difference = paired_difference(*SLEEP)

    assert difference.value == pytest.approx(-1.58)
    assert (difference.low, difference.high) == pytest.approx((-2.4598858, -0.7001142), abs=1e-6)
    assert difference.p_value == pytest.approx(0.002833, abs=1e-6)


@pytest.mark.parametrize(("num_seeds", "t"), [(2, 4.302653), (3, 2.776445), (6, 2.228139), (16, 2.042272)])
def test_where_only_seeds_differ_it_is_welchs_test_on_the_seeds(num_seeds: int, t: float) -> None:
    seeds = np.arange(num_seeds, dtype=float)
    first, second = np.repeat(seeds[:, None], 40, axis=1), np.repeat(seeds[:, None] + 9.0, 40, axis=1)
    error = math.sqrt(2 * seeds.var(ddof=1) / num_seeds)  # its degrees of freedom are 2 * (num_seeds - 1)

    difference = paired_difference(first, second)

    assert (difference.value, width(difference)) == pytest.approx((-9.0, 2 * t * error), rel=1e-5)


def test_cases_and_seeds_both_count() -> None:
    first, second = simulate(np.random.default_rng(3), num_cases=50)
    gains = first.mean(axis=0) - second.mean(axis=0)
    parts = [gains.var(ddof=1) / 50, *(values.mean(axis=1).var(ddof=1) / 3 for values in (first, second))]
    degrees = sum(parts) ** 2 / (parts[0] ** 2 / 49 + parts[1] ** 2 / 2 + parts[2] ** 2 / 2)
    draws = np.random.default_rng(0).standard_t(degrees, size=1_000_000)

    difference = paired_difference(first, second)

    assert difference.value == pytest.approx(gains.mean())
    assert width(difference) == pytest.approx(2 * np.quantile(np.abs(draws), 0.95) * math.sqrt(sum(parts)), rel=5e-3)
    t = abs(gains.mean()) / math.sqrt(sum(parts))
    assert difference.p_value == pytest.approx(np.mean(np.abs(draws) >= t), abs=2e-3)


@pytest.mark.parametrize("seed_noise", [0.0, 0.3, 1.5])
def test_the_interval_covers_no_difference_in_about_95_of_100_studies(seed_noise: float) -> None:
    generator = np.random.default_rng(4)

    differences = [paired_difference(*simulate(generator, seed_noise=seed_noise)) for _ in range(300)]

    covered = np.mean([difference.low <= 0 <= difference.high for difference in differences])
    assert 0.925 <= covered <= 0.995
    assert covered == np.mean([difference.p_value > 0.05 for difference in differences])


def test_a_planted_difference_is_found() -> None:
    generator = np.random.default_rng(5)

    differences = [paired_difference(*simulate(generator, num_cases=200, seed_noise=0.1, gain=0.8)) for _ in range(50)]

    assert np.mean([difference.low > 0 and difference.p_value < 0.05 for difference in differences]) > 0.95


def test_pairing_makes_the_interval_narrower_where_cases_are_alike_for_both() -> None:
    first, second = simulate(np.random.default_rng(6), seed_noise=0.0)

    unpaired = paired_difference(first, np.random.default_rng(7).permutation(second, axis=1))

    assert width(paired_difference(first, second)) < 0.8 * width(unpaired)


def test_cases_that_belong_together_widen_the_interval() -> None:
    rules = np.repeat(np.arange(20), 10)
    generator = np.random.default_rng(8)
    first = (generator.normal(size=20)[rules] + 0.1 * generator.normal(size=200))[None]
    second = np.zeros((1, 200))

    clustered = paired_difference(first, second, clusters=rules.tolist())

    means = first.reshape(20, 10).mean(axis=1)
    assert width(clustered) == pytest.approx(2 * 2.093024 * means.std(ddof=1) / math.sqrt(20), rel=1e-5)
    assert width(clustered) > 2 * width(paired_difference(first, second))


def test_contenders_that_are_alike_do_not_differ() -> None:
    values = np.repeat(np.random.default_rng(9).random((1, 30)), 3, axis=0)

    assert paired_difference(values, values) == (0.0, 0.0, 0.0, 1.0)


def test_nothing_is_more_certain_than_the_cases_allow() -> None:
    few = paired_difference(np.ones((1, 5)), np.zeros((1, 5)))
    many = paired_difference(np.ones((1, 500)), np.zeros((1, 500)))

    assert (few.value, few.high, few.p_value) == (1.0, 1.0, 1 / 16)
    assert few.low == pytest.approx(1 - 2.776 / 7, abs=1e-3)
    assert many.p_value == 1e-6
    assert many.low > 0.99


def test_contenders_that_agree_in_every_case_may_still_differ_in_others() -> None:
    same = paired_difference(np.zeros((3, 60)), np.zeros((1, 60)))

    assert same.value == 0.0
    assert same.high == pytest.approx(2.001 / 62, abs=1e-3)
    assert same.low == -same.high
    assert same.p_value == 1.0


def test_differences_of_shares_stay_within_their_range() -> None:
    first = np.ones((2, 40))
    first[0, :2] = 0.0

    difference = paired_difference(first, np.zeros((1, 40)))

    assert (difference.value, difference.high) == (pytest.approx(0.975), 1.0)


def test_one_case_has_a_difference_but_no_certainty() -> None:
    assert paired_difference(np.ones((3, 1)), np.zeros((1, 1))) == (1.0, None, None, None)
    assert paired_difference(np.ones((3, 4)), np.zeros((1, 4)), clusters="aaaa") == (1.0, None, None, None)
    assert paired_difference(np.ones((3, 0)), np.zeros((1, 0))) == (None, None, None, None)


def test_other_cases_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(3, 4\), \(1, 5\)"):
        paired_difference(np.ones((3, 4)), np.zeros((1, 5)))


def test_a_mean_over_seeds_is_as_sure_as_its_difference_to_nothing() -> None:
    values, _ = simulate(np.random.default_rng(10))

    metric = mean_over_seeds(values)

    assert metric[:3] == pytest.approx(paired_difference(values, np.zeros((1, 60)))[:3])
    assert metric.n == 60


def test_a_share_of_one_seed_has_wilsons_interval() -> None:
    values = np.array([[1.0] * 30 + [0.0] * 170])

    metric = mean_over_seeds(values)

    assert metric.value == 0.15
    assert (metric.low, metric.high) == pytest.approx(wilson_interval(30, 200), abs=2e-3)


def test_seeds_that_disagree_make_a_share_less_sure() -> None:
    alike = np.array([[1.0] * 60 + [0.0] * 140] * 3)
    apart = np.array([[1.0] * count + [0.0] * (200 - count) for count in (20, 60, 100)])

    assert mean_over_seeds(apart).value == pytest.approx(mean_over_seeds(alike).value)
    assert mean_over_seeds(apart).high > mean_over_seeds(alike).high + 0.1


def test_means_that_tell_little_still_have_their_interval() -> None:
    turns = np.eye(3)  # each case is passed by one of three seeds

    assert mean_over_seeds(np.zeros((3, 50)))[:3] == (0.0, *wilson_interval(0, 50))
    assert mean_over_seeds(np.ones((3, 6)), clusters="aabbcc")[:3] == (1.0, *wilson_interval(3, 3))
    assert mean_over_seeds(turns)[1:3] == pytest.approx(wilson_interval(3, 9))
    assert mean_over_seeds(np.ones((1, 1)))[:3] == (1.0, *wilson_interval(1, 1))
    assert mean_over_seeds(np.full((1, 1), 0.5)) == (0.5, None, None, 1)
    assert mean_over_seeds(np.array([[0.9, 1.0, 0.5, 1.0]])).high == 1.0
    assert mean_over_seeds(np.ones((3, 0))) == NOTHING


def test_holm_multiplies_each_by_how_many_are_left_and_keeps_their_order() -> None:
    p_values = np.random.default_rng(11).random(40) ** 4
    ranked = np.sort(p_values)
    expected = [min(1.0, max((40 - rank) * p for rank, p in enumerate(ranked) if p <= own)) for own in p_values]

    assert holm(p_values.tolist()) == pytest.approx(expected)
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
