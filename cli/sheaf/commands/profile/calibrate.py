"""Sums over samples, calibrated to a total that was counted.

The sums of all stacks together miss the total by what chance did, and this residual is shared out by the variances of the
stacks: where all weights are alike, each stack gets its share of the total (the ratio estimator of Cochran, Sampling
Techniques, 1977, chapter 6), and where some stacks are thinned out, the residual is mostly theirs (the optimal regression
estimator of Montanari, 1987).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sheaf.commands.profile.drawn import NOTHING_SEEN, Drawn, total

_ROUNDS = 50  # in which a residual is shared out; nearly always, one or two do
_PLAUSIBLE = 1.5  # residuals up to so many times the error of the sum are taken for chance


@dataclass(frozen=True)
class Calibrated:
    """
    The value of each stack with its error, which is the half-width of an interval that holds the truth in 95 of 100 cases.
    `before` is what the samples leave to allocations from before sampling, `rest` what they do not account for otherwise.
    Values, `before` and `rest` sum up to the total.
    """

    values: list[float]
    errors: list[float]
    before: float
    rest: float
    rest_error: float


def _fitted(parts: Sequence[Drawn], residual: float) -> list[float]:
    """The amounts with a residual shared out by variance, and none below what is certain of it."""
    values, free = [part.amount for part in parts], set(range(len(parts)))
    for _ in range(_ROUNDS):
        spread = sum(parts[i].variance for i in free)
        shares = {i: parts[i].variance if spread else parts[i].amount for i in free}
        whole = sum(shares.values())
        if whole <= 0:
            break
        fitted = {i: parts[i].amount + residual * shares[i] / whole for i in free}
        low = [i for i in free if fitted[i] < parts[i].certain]
        if not low:
            for i in free:
                values[i] = fitted[i]
            return values
        for i in low:
            values[i] = parts[i].certain
            residual += parts[i].amount - parts[i].certain
            free.remove(i)
    return values


def _scaled(values: list[float], most: float) -> list[float]:
    whole = sum(values)
    return [value * most / whole for value in values] if whole > most else values


def _error(part: Drawn, value: float, others: Drawn, unseen: float, most: float) -> float:
    """
    The error of a calibrated value. Its own chance and that of all others shift it in proportion to their variances; limits
    of both sides are combined as squares (Zou and Donner, 2008). The interval without calibration holds as well, and the
    truth lies in both.
    """
    spread = part.variance + others.variance
    share = part.variance / spread if spread else 0.0
    above = math.hypot(others.above if others.samples else 0.0, min(unseen, most))
    low = value - math.hypot((1 - share) * part.below, share * above)
    high = value + math.hypot((1 - share) * part.above, share * others.below)
    low, high = max(low, part.amount - part.below), min(high, part.amount + part.above)
    return max(value - low, high - value, 0.0)


def calibrate(parts: Sequence[Drawn], counted: float, before: float = 0.0, heaviest: float = 0.0) -> Calibrated:
    """
    Calibrate the sums of stacks to what was counted. Up to `before` of that may be what no sample stands for. `heaviest` is
    the largest amount that one sample of a stack stands for that was sampled earlier and is not among the parts.
    """
    drawn = total(parts)
    residual = counted - drawn.amount
    early = min(max(0.0, residual), before)
    chance = min(residual - early, _PLAUSIBLE * drawn.above) if drawn.amount else 0.0
    values = _scaled(_fitted(parts, chance), counted)
    rest = max(0.0, counted - early - sum(values))
    if rest <= 1e-9 * counted:
        rest = 0.0
    if before:
        errors = [max(part.error, abs(value - part.amount)) for part, value in zip(parts, values, strict=True)]
    else:
        unit = max(drawn.step, heaviest)
        errors = [
            _error(part, value, drawn.without(part), NOTHING_SEEN * unit, counted)
            for part, value in zip(parts, values, strict=True)
        ]
    return Calibrated(values, errors, early, rest, drawn.above if rest and drawn.amount else 0.0)


@dataclass(frozen=True)
class Change:
    """What came and what went between two moments: sums over the samples that are live in only one of them."""

    came: Drawn
    went: Drawn

    @property
    def amount(self) -> float:
        """The change of the sum."""
        return self.came.amount - self.went.amount

    @property
    def variance(self) -> float:
        """That of the change; what is live at both moments adds nothing to it."""
        return self.came.variance + self.went.variance

    def limits(self, step: float = 0.0) -> tuple[float, float]:
        """
        How far the truth may lie below and above the change. Something may have come or gone even if nothing of it was drawn;
        `step` is what a sample of it would have stood for, if there is no sample at all.
        """
        step = (self.came + self.went).step or step
        more, less = (one.above if one.samples else NOTHING_SEEN * step for one in (self.came, self.went))
        return math.hypot(self.came.below, less), math.hypot(self.went.below, more)


def calibrate_change(parts: Sequence[Change], counted: float, before: float = 0.0) -> Calibrated:
    """Calibrate the changes of stacks to one that was counted. Of what there was before sampling, some may have gone."""
    came, went = total(part.came for part in parts), total(part.went for part in parts)
    every = came + went
    residual = counted - sum(part.amount for part in parts)
    early = max(-before, min(0.0, residual))
    below, above = Change(came, went).limits()
    chance = max(-_PLAUSIBLE * below, min(_PLAUSIBLE * above, residual - early)) if every.variance else 0.0
    values, errors = [], []
    for part in parts:
        share = part.variance / every.variance if every.variance else 0.0
        values.append(part.amount + share * chance)
        less, more = part.limits()
        others_less, others_more = Change(came.without(part.came), went.without(part.went)).limits(every.step)
        low = max(values[-1] - math.hypot((1 - share) * less, share * others_more), part.amount - less)
        high = min(values[-1] + math.hypot((1 - share) * more, share * others_less), part.amount + more)
        if before:
            low, high = part.amount - less, part.amount + more
        errors.append(max(values[-1] - low, high - values[-1], 0.0))
    rest = counted - early - sum(values)
    if abs(rest) <= 1e-9 * (abs(counted) + every.amount):
        rest = 0.0
    return Calibrated(values, errors, early, rest, max(below, above) if rest and parts else 0.0)
