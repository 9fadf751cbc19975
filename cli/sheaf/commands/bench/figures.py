"""Statistics: medians, spread, ratios with a confidence interval, geometric means."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

CONFIDENCE = 0.9
NORMAL_90 = 1.645  # 90% of a normal distribution lie within this many standard deviations
ENOUGH = 5  # from this many values on, the extremes enclose the median with that confidence
T = TypeVar("T")


@dataclass(frozen=True)
class Ratio:
    """The median of ratios, and its confidence interval."""

    value: float
    low: float
    high: float
    count: int  # of rounds

    @property
    def tie(self) -> bool:
        """Whether the ratio cannot be distinguished from 1: the interval contains 1, or there are too few rounds."""
        return self.count < ENOUGH or self.low <= 1.0 <= self.high


def spread(values: Sequence[float]) -> float:
    """The difference of the extremes divided by the median; 0 if the median is 0."""
    middle = median(values)
    return (max(values) - min(values)) / middle if middle else 0.0


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """
    The confidence interval of the median, for any distribution. The k-th lowest and the k-th highest value enclose the
    median with probability 1 - 2 P(Binomial(n, 1/2) < k). The result is that of the largest k that reaches the confidence,
    or the extremes if none does (fewer than five values).
    """
    ordered = sorted(values)
    n = len(ordered)
    k, tail = 1, 1.0  # tail: number of outcomes below k, out of 2^n
    while k + 1 <= (n + 1) // 2:
        wider = tail + math.comb(n, k)
        if 1 - 2 * wider / 2**n < confidence:
            break
        k, tail = k + 1, wider
    return ordered[k - 1], ordered[n - k]


def paired_ratio(values: Sequence[float], base: Sequence[float]) -> Ratio:
    """The ratio of two series of the same rounds. A disturbance of a whole round cancels out."""
    ratios = [value / other for value, other in zip(values, base, strict=True)]
    low, high = median_interval(ratios)
    return Ratio(median(ratios), low, high, len(ratios))


def unpaired_ratio(values: Sequence[float], base: Sequence[float]) -> Ratio:
    """
    The ratio of two series of different runs: the median of the ratios of all pairs (Hodges-Lehmann estimator), with bounds
    from the normal approximation of the rank sum.
    """
    pairs = sorted(value / other for value in values for other in base)
    n, m = len(values), len(base)
    cut = int(n * m / 2 - NORMAL_90 * math.sqrt(n * m * (n + m + 1) / 12))
    cut = max(0, min(cut, (len(pairs) - 1) // 2))
    return Ratio(median(pairs), pairs[cut], pairs[-1 - cut], min(n, m))


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean of at least one positive value."""
    return math.exp(math.fsum(math.log(value) for value in values) / len(values))


def shuffled(items: Sequence[T], seed: int, number: int) -> list[T]:
    """
    The items in the order of round `number`. The order depends only on the seed and the number, and is random, so that no
    item always follows the same one.
    """
    return random.Random(f"{seed}/{number}").sample(items, len(items))
