"""The arithmetic: medians, spread, ratios with an interval, geometric means."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

CONFIDENCE = 0.9
T = TypeVar("T")


@dataclass(frozen=True)
class Ratio:
    """Median of the ratios within rounds, and an interval that should hold its true value."""

    value: float
    low: float
    high: float

    @property
    def tie(self) -> bool:
        """Cannot be told from noise."""
        return self.low <= 1.0 <= self.high


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
    return Ratio(median(ratios), low, high)


def geometric_mean(values: Sequence[float]) -> float:
    """Of positive values, one at least."""
    return math.exp(math.fsum(math.log(value) for value in values) / len(values))


def rotated(items: Sequence[T], by: int) -> list[T]:
    """The same order, begun elsewhere."""
    start = by % len(items)
    return [*items[start:], *items[:start]]
