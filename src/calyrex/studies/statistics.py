"""What a comparison may claim: differences over test cases and training seeds, and the price of asking often.

A result would come out otherwise with other test cases and with other training seeds, so both count as drawn by chance.
The squared standard error of a mean over both is the sum of one part over cases, taken from their means over the seeds,
and one part for each contender over its seeds, taken from their means over the cases. What is chance in a single answer
is in both parts and so counted twice, which errs on the safe side: this is the min F' of H. H. Clark, "The
language-as-fixed-effect fallacy", Journal of Verbal Learning and Verbal Behavior 1973. Intervals and p-values come from
Student's t with the degrees of freedom of F. E. Satterthwaite, "An approximate distribution of estimates of variance
components", Biometrics Bulletin 1946. Pairing and clusters are those of E. Miller, "Adding error bars to evals",
arXiv:2411.00640.

Why no bootstrap over seeds: three seeds drawn again from themselves vary by only two thirds of their variance, and no
quantile of 27 combinations makes good for knowing it from three numbers. Where the seeds matter, its 95 % interval
covers the truth in about 80 % of simulated studies with three seeds each, this one in 94 to 97 %; where the seeds do
not matter, both in up to 99 %.

What three seeds still cannot tell: that the means of trainings are roughly normal is assumed, not seen, and p-values
below 0.001 come about twice as often as they should (with two seeds, ten times). A contender with one seed adds no part
of its own; where that one was trained, the result speaks of that training only.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from calyrex.benchmarks.metric import NOTHING, Z_95, Clusters, Metric, wilson_interval

_SMALLEST_P = 1e-6
"""Beyond this, a p-value speaks of the tails of the assumed law rather than of the data."""

_NUM_ANGLES = 10_001
Values: TypeAlias = NDArray[np.float64]


class Difference(NamedTuple):
    """How much more one contender has than another, and how sure that is.

    Attributes:
        value: Mean of the first minus mean of the second, in the unit of the values. None where nothing was measured.
        low: Lower end of its 95 % interval. None where a single case, or a single cluster, has no spread.
        high: Upper end of its 95 % interval; None as for ``low``.
        p_value: Two-sided, above 0 and at most 1; None as for ``low``.
    """

    value: float | None
    low: float | None
    high: float | None
    p_value: float | None


class _Error(NamedTuple):
    """Standard error of a mean, its degrees of freedom, and how many cases or clusters it comes from."""

    size: float
    degrees: float
    num_groups: int


def paired_difference(first: Values, second: Values, clusters: Clusters = None) -> Difference:
    """Return the difference of two contenders on the same cases, over cases and seeds.

    The p-value never falls below ``2 ** (1 - G)``, the least that turning the signs of ``G`` cases or clusters could
    reach, so that a handful of cases decides nothing. Where values are 0 or 1, the standard error is at least
    ``1 / (G + 2)``: contenders that agree in every case may still differ in others. It is that of no disagreement in
    A. Agresti and Y. Min, "Simple improved confidence intervals for comparing matched proportions", Statistics in
    Medicine 2005.

    Args:
        first: One value per seed and case, ``[S, N]``; a contender that is not trained has one seed.
        second: The same for the other contender: other seeds, the same cases in the same order.
        clusters: What each case shares with others, such as its rule; None where nothing.

    Raises:
        ValueError: If the cases are not the same in number, or a contender has no seed.
    """
    if first.ndim != 2 or second.ndim != 2 or first.shape[1] != second.shape[1] or not len(first) or not len(second):
        raise ValueError(f"two arrays [S, N] with the same N and S >= 1 expected, got {first.shape}, {second.shape}")
    if not first.shape[1]:
        return Difference(None, None, None, None)
    value = float(first.mean() - second.mean())
    error = _error(first.mean(axis=0) - second.mean(axis=0), [first, second], clusters)
    if error is None:
        return Difference(value, None, None, None)
    smallest = 1 / (error.num_groups + 2)
    if _are_flags(first) and _are_flags(second) and error.size < smallest:
        error = error._replace(size=smallest, degrees=error.num_groups - 1)
    if math.isclose(value, 0.0, abs_tol=1e-12) and error.size == 0:
        return Difference(0.0, 0.0, 0.0, 1.0)
    spread = _quantile(error.degrees) * error.size
    limit = 1.0 if _are_shares(first) and _are_shares(second) else math.inf
    p_value = _p_value(abs(value) / error.size, error.degrees) if error.size else 0.0
    floor = max(_SMALLEST_P, 2.0 ** (1 - error.num_groups))
    return Difference(value, max(value - spread, -limit), min(value + spread, limit), max(p_value, floor))


def mean_over_seeds(values: Values, clusters: Clusters = None) -> Metric:
    """Return the mean of a contender over cases and seeds, with its interval over both.

    Where all values are 0 or 1 it is Wilson's interval of as many cases as would be as sure: the effective sample size
    of E. L. Korn and B. I. Graubard, "Confidence intervals for proportions with small expected number of positive
    counts estimated from survey data", Survey Methodology 1998; where all values agree, of as many cases as there are
    clusters.

    Args:
        values: One value per seed and case, ``[S, N]``.
        clusters: As for ``paired_difference``.
    """
    if not values.size:
        return NOTHING
    value = float(values.mean())
    error = _error(values.mean(axis=0), [values], clusters)
    low, high = None, None
    if _are_flags(values):
        n = _effective_size(values, error)
        low, high = wilson_interval(value * n, n)
    elif error is not None:
        spread = _quantile(error.degrees) * error.size
        floor, ceiling = (0.0, 1.0) if _are_shares(values) else (-math.inf, math.inf)
        low, high = max(value - spread, floor), min(value + spread, ceiling)
    return Metric(value, low, high, values.shape[1])


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values adjusted for how many there are, in the order given.

    All that stay below 0.05 may be claimed together with a 5 % risk that any of them is wrong.
    Source: S. Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 1979.
    """
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted


def _error(cases: Values, contenders: Sequence[Values], clusters: Clusters) -> _Error | None:
    """Return the standard error of the mean of ``cases`` ``[N]``; None for a single case or a single cluster."""
    places = np.arange(len(cases))
    if clusters is not None:
        numbers = {name: number for number, name in enumerate(dict.fromkeys(clusters))}
        places = np.array([numbers[name] for name in clusters])
    num_groups = int(places.max()) + 1
    if num_groups == 1:
        return None
    deviations = np.bincount(places, weights=cases - cases.mean())  # one sum for each case or cluster
    variance = num_groups / (num_groups - 1) * float(np.square(deviations).sum()) / len(cases) ** 2
    parts = [(variance, num_groups - 1)]
    for values in contenders:
        if len(values) > 1:
            parts.append((float(values.mean(axis=1).var(ddof=1)) / len(values), len(values) - 1))
    # Sums of numbers that are exactly alike may differ in the last bit.
    smallest = (1e-12 * max(float(np.abs(values).max()) for values in contenders)) ** 2
    parts = [(part, degrees) for part, degrees in parts if part > smallest]
    total = sum(part for part, _ in parts)
    degrees = total**2 / sum(part**2 / degrees for part, degrees in parts) if parts else 1.0
    return _Error(math.sqrt(total), degrees, num_groups)


def _effective_size(values: Values, error: _Error | None) -> float:
    """Return how many independent cases would give a share, of values 0 and 1, with the same standard error."""
    value = float(values.mean())
    if error is None:
        return 1.0
    if value in (0.0, 1.0):
        return float(error.num_groups)
    spread = _quantile(error.degrees) * error.size
    return min(float(values.size), value * (1 - value) * (Z_95 / spread) ** 2 if spread else math.inf)


def _are_flags(values: Values) -> bool:
    return bool(np.isin(values, (0.0, 1.0)).all())


def _are_shares(values: Values) -> bool:
    return bool(values.min() >= 0 and values.max() <= 1)


def _student(degrees: float) -> tuple[Values, Values]:
    """Return angles from 0 to pi/2 and how likely Student's ``|t| = sqrt(degrees) * tan(angle)`` stays below each."""
    angles = np.linspace(0.0, math.pi / 2, _NUM_ANGLES)
    density = np.cos(angles) ** (degrees - 1)
    below = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    return angles, below / below[-1]


def _quantile(degrees: float) -> float:
    """Return what ``|t|`` exceeds in 5 % of cases."""
    angles, below = _student(degrees)
    return math.sqrt(degrees) * math.tan(float(np.interp(0.95, below, angles)))


def _p_value(t: float, degrees: float) -> float:
    """Return how likely ``|t|`` is at least as large as the one given."""
    angles, below = _student(degrees)
    return float(1.0 - np.interp(math.atan(t / math.sqrt(degrees)), angles, below))
