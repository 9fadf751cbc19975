"""The arithmetic: medians, spread, ratios with an interval, geometric means."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

CONFIDENCE = 0.9
NORMAL_90 = 1.645  # standard deviations that hold 90%
ENOUGH = 5  # values from which on the extremes hold the median at that confidence
T = TypeVar("T")


@dataclass(frozen=True)
class Ratio:
    """Median of the ratios within rounds, and an interval that should hold its true value."""

    value: float
    low: float
    high: float
    count: int  # of rounds

    @property
    def tie(self) -> bool:
        """Cannot be told from noise: the interval holds 1, or there are too few rounds for one."""
        return self.count < ENOUGH or self.low <= 1.0 <= self.high


def spread(values: Sequence[float]) -> float:
    """Distance of the extremes, as a share of the median."""
    middle = median(values)
    return (max(values) - min(values)) / middle if middle else 0.0


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """
    Between two order statistics, without any assumption on the distribution: the k-th lowest and the k-th highest hold
    the median with probability 1 - 2 P(Binomial(n, 1/2) < k). The largest k that reaches the confidence; the extremes
    where none does (fewer than five values).
    """
    ordered = sorted(values)
    n = len(ordered)
    k, tail = 1, 1.0  # tail: number of outcomes below k, of 2^n
    while k + 1 <= (n + 1) // 2:
        wider = tail + math.comb(n, k)
        if 1 - 2 * wider / 2**n < confidence:
            break
        k, tail = k + 1, wider
    return ordered[k - 1], ordered[n - k]


def paired_ratio(values: Sequence[float], base: Sequence[float]) -> Ratio:
    """Round by round, so that what slowed a whole round cancels out."""
    ratios = [value / other for value, other in zip(values, base, strict=True)]
    low, high = median_interval(ratios)
    return Ratio(median(ratios), low, high, len(ratios))


def unpaired_ratio(values: Sequence[float], base: Sequence[float]) -> Ratio:
    """
    Of two runs whose rounds do not belong together: the median of all pairs' ratios, and between which of them the true
    one should lie (Hodges and Lehmann; the bounds from the normal approximation of the rank sum).
    """
    pairs = sorted(value / other for value in values for other in base)
    n, m = len(values), len(base)
    cut = int(n * m / 2 - NORMAL_90 * math.sqrt(n * m * (n + m + 1) / 12))
    cut = max(0, min(cut, (len(pairs) - 1) // 2))
    return Ratio(median(pairs), pairs[cut], pairs[-1 - cut], min(n, m))


def geometric_mean(values: Sequence[float]) -> float:
    """Of positive values, one at least."""
    return math.exp(math.fsum(math.log(value) for value in values) / len(values))


def shuffled(items: Sequence[T], seed: int, number: int) -> list[T]:
    """The order of round `number`: random, so that nobody always has the same predecessor, and the same for the same seed."""
    return random.Random(f"{seed}/{number}").sample(items, len(items))
