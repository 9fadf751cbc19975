"""What samples say of the sum that they stand for, and how far off it may be.

Each object is drawn with a probability 1/w of its own, and a drawn one counts w times. Sums of w*y are then right on average
(Horvitz and Thompson, 1952), with the variance sum(w * (w - 1) * y * y). How many samples there are effectively follows from
the sum of squares (Kish, 1965), and their number varies like that of rare events (Poisson).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

_Z = 1.959964  # standard deviations around a normal mean that hold 95%
NOTHING_SEEN = 3.689  # events that were expected at most, with 97.5% certainty, where none was seen


def upper_limit(events: float) -> float:
    """The largest expected number of events with which as few as these are seen in 2.5% of cases (Wilson and Hilferty)."""
    if events <= 0:
        return NOTHING_SEEN
    next_one = events + 1
    return next_one * (1 - 1 / (9 * next_one) + _Z / (3 * math.sqrt(next_one))) ** 3


def lower_limit(events: float) -> float:
    """The smallest expected number of events with which as many as these are seen in 2.5% of cases."""
    if events <= 0:
        return 0.0
    return min(events, events * max(0.0, 1 - 1 / (9 * events) - _Z / (3 * math.sqrt(events))) ** 3)


@dataclass(frozen=True)
class Drawn:
    """
    A sum over samples: `amount` is the sum of w*y, `square` that of w*w*y*y, and `variance` that of w*(w-1)*y*y. Sums over
    different samples can be added and subtracted.
    """

    amount: float = 0.0
    square: float = 0.0
    variance: float = 0.0

    def __add__(self, other: Drawn) -> Drawn:
        return Drawn(self.amount + other.amount, self.square + other.square, self.variance + other.variance)

    def without(self, part: Drawn) -> Drawn:
        """The rest of the sum; never negative, whatever rounding does."""
        return Drawn(
            *(
                max(0.0, mine - its) if its < mine * (1 - 1e-12) else 0.0
                for mine, its in ((self.amount, part.amount), (self.square, part.square), (self.variance, part.variance))
            )
        )

    def times(self, factor: float) -> Drawn:
        """The sum with each y multiplied by a factor."""
        return Drawn(self.amount * factor, self.square * factor * factor, self.variance * factor * factor)

    @property
    def samples(self) -> float:
        """The effective number of samples."""
        return self.amount * self.amount / self.square if self.square > 0 else 0.0

    @property
    def unit(self) -> float:
        """What one sample of average weight adds to the sum."""
        return self.square / self.amount if self.amount > 0 else 0.0

    @property
    def chance(self) -> float:
        """From 0, where every object was drawn, to 1, where only a few were: the factor of errors for finite populations."""
        return math.sqrt(min(1.0, self.variance / self.square)) if self.square > 0 else 1.0

    @property
    def step(self) -> float:
        """By how much one sample more or less changes what is not certain of the sum."""
        return self.unit * self.chance

    @property
    def certain(self) -> float:
        """The part of the sum that is known for certain: each sample counted once."""
        return self.amount * (1 - min(1.0, self.variance / self.square)) if self.square > 0 else 0.0

    @property
    def above(self) -> float:
        """How far the truth may lie above the sum."""
        return self.step * (upper_limit(self.samples) - self.samples)

    @property
    def below(self) -> float:
        """
        How far the truth may lie below the sum. A stack is shown only because it was drawn at least once, and so the first
        sample proves nothing: the limit is that of one sample less.
        """
        return self.step * (self.samples - lower_limit(self.samples - 1))

    @property
    def error(self) -> float:
        """The larger of the two."""
        return max(self.above, self.below)


def drawn(pairs: Iterable[tuple[float, float]]) -> Drawn:
    """The sum over samples of these weights and values."""
    amount = square = variance = 0.0
    for w, y in pairs:
        amount += w * y
        square += w * w * y * y
        variance += w * (w - 1) * y * y
    return Drawn(amount, square, variance)


def weighed(count: float, square: float) -> Drawn:
    """The sum of weights, from it and the sum of their squares, which are at least as large."""
    square = max(square, count)
    return Drawn(count, square, square - count)


def total(parts: Iterable[Drawn]) -> Drawn:
    """The sum of all parts."""
    found = Drawn()
    for part in parts:
        found += part
    return found
