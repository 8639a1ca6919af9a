"""Figures with 95 % intervals: shares, means, ratios of sums and slopes."""

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Z_95 = 1.959964
"""Two-sided 95 % quantile of the normal distribution."""

_NUM_RESAMPLES = 2000
Sums: TypeAlias = NDArray[np.float64]
Clusters: TypeAlias = Sequence[Hashable] | None


class Metric(NamedTuple):
    """A figure and how sure it is.

    Attributes:
        value: The figure; a share is in 0 .. 1. None where nothing was measured.
        low: Lower end of its 95 % interval.
        high: Upper end of its 95 % interval.
        n: Number of cases that it comes from.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int


NOTHING = Metric(None, None, None, 0)
"""The figure of no cases at all."""


def wilson_interval(successes: float, n: float) -> tuple[float, float]:
    """Return the 95 % Wilson score interval of a proportion, both ends in 0 .. 1.

    Source: E. B. Wilson, "Probable inference", JASA 1927.
    """
    if n == 0:
        return 0.0, 1.0
    p = successes / n
    centre = p + Z_95**2 / (2 * n)
    spread = Z_95 * math.sqrt(p * (1 - p) / n + Z_95**2 / (4 * n**2))
    return max(0.0, (centre - spread) / (1 + Z_95**2 / n)), min(1.0, (centre + spread) / (1 + Z_95**2 / n))


def share(flags: Iterable[bool | float], clusters: Clusters = None) -> Metric:
    """Return the share of cases that are true, with its interval.

    Wilson's interval where each case stands for itself, else the bootstrap over clusters; where all cases agree,
    which tells a bootstrap nothing, Wilson's with as many cases as there are clusters.

    Args:
        flags: Whether each case is true.
        clusters: What each case shares with others, such as its rule; None where nothing.
    """
    values = [bool(flag) for flag in flags]
    if not values:
        return NOTHING
    proportion = sum(values) / len(values)
    num_clusters = len(values) if clusters is None else len(set(clusters))
    if num_clusters < len(values) and 0 < proportion < 1:
        return ratio([(float(value), 1.0) for value in values], clusters)
    low, high = wilson_interval(proportion * num_clusters, num_clusters)
    return Metric(proportion, low, high, len(values))


def mean(values: Iterable[float], clusters: Clusters = None) -> Metric:
    """Return the mean of a value per case, with its interval; as a share where all are 0 or all are 1."""
    numbers = [float(value) for value in values]
    if set(numbers) in ({0.0}, {1.0}):
        return share(numbers, clusters)
    return ratio([(number, 1.0) for number in numbers], clusters)


def ratio(pairs: Sequence[tuple[float, float]], clusters: Clusters = None) -> Metric:
    """Return the sum of the numerators over the sum of the denominators, with an interval over cases.

    Args:
        pairs: Numerator and denominator of each case, such as instructions kept and instructions given.
        clusters: As for ``share``.
    """
    return of_sums(pairs, lambda sums: sums[0] / sums[1], clusters)


def slope(points: Sequence[tuple[float, float]], clusters: Clusters = None) -> Metric:
    """Return the least-squares slope of ``y`` over ``x``, with an interval over the points.

    Args:
        points: ``x`` and ``y`` of each case; at least two different ``x``, else there is no slope.
        clusters: As for ``share``.
    """
    return of_sums(
        [(1.0, x, y, x * x, x * y) for x, y in points],
        lambda sums: (sums[0] * sums[4] - sums[1] * sums[2]) / (sums[0] * sums[3] - sums[1] ** 2),
        clusters,
    )


def of_sums(rows: Sequence[Sequence[float]], statistic: Callable[[Sums], Sums], clusters: Clusters = None) -> Metric:
    """Return a figure that is a function of sums over cases, with its bootstrap interval.

    Clusters of cases are drawn again with replacement, whole, since what belongs together is not independent; the
    draws are the same in every run. The percentile bootstrap of Efron, "Bootstrap methods", Annals of Statistics 1979.

    Args:
        rows: The numbers of each case that are summed.
        statistic: The figure from the sums, an array with one row for each number: of all cases, or of each draw.
        clusters: As for ``share``.
    """
    if not len(rows):
        return NOTHING
    table = np.asarray(rows, dtype=np.float64)
    if clusters is not None:
        places = {name: place for place, name in enumerate(dict.fromkeys(clusters))}
        summed = np.zeros((len(places), table.shape[1]))
        np.add.at(summed, [places[name] for name in clusters], table)
        table = summed
    draws = np.random.default_rng(0).integers(len(table), size=(_NUM_RESAMPLES, len(table)))
    counts = np.stack([np.bincount(draw, minlength=len(table)) for draw in draws])
    with np.errstate(divide="ignore", invalid="ignore"):
        value = float(statistic(table.sum(axis=0)))
        resampled = statistic((counts @ table).T)
    resampled = resampled[np.isfinite(resampled)]
    if not math.isfinite(value) or not len(resampled):
        return Metric(None, None, None, len(rows))
    low, high = np.quantile(resampled, [0.025, 0.975])
    return Metric(value, float(low), float(high), len(rows))
