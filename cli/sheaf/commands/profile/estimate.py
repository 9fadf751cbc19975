"""Estimates of what each stack holds, from its samples and from what was counted in all.

A snapshot has counted totals for each stratum: a size class, or large blocks. Samples say how the totals are shared out among
stacks. Errors are half-widths of intervals that hold the truth in 95 of 100 cases.
"""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sheaf.commands.profile.area import Sample, Snapshot, Stack, Stratum
from sheaf.commands.profile.calibrate import Calibrated, calibrate
from sheaf.commands.profile.drawn import NOTHING_SEEN, Drawn, drawn, total, weighed
from sheaf.commands.profile.unseen import Unseen

LIVE, PEAK, ALLOCATED = "live", "peak", "alloc"
_DEVIATIONS = 1.96  # standard deviations for which errors of sizes stand


@dataclass(frozen=True)
class Figure:
    """Objects, requested bytes and wasted bytes, each with its error."""

    objects: float = 0.0
    bytes: float = 0.0
    wasted: float = 0.0
    objects_error: float = 0.0
    bytes_error: float = 0.0
    wasted_error: float = 0.0

    def __add__(self, other: Figure) -> Figure:
        """The sum of figures whose errors are independent."""
        return Figure(
            self.objects + other.objects,
            self.bytes + other.bytes,
            self.wasted + other.wasted,
            math.hypot(self.objects_error, other.objects_error),
            math.hypot(self.bytes_error, other.bytes_error),
            math.hypot(self.wasted_error, other.wasted_error),
        )


@dataclass
class Estimates:
    """
    Figures by the offset of their stack. `unsampled` has what was counted and has no samples, by the size of its class (0 for
    large blocks), and `before` what was allocated before sampling; their bytes are those taken up. `sum` has the totals with
    their errors, which are smaller than those of the stacks because totals are counted. `unseen` is how many bytes stacks may
    have of which nothing was drawn at all. `calibrated` is false where nothing was counted.
    """

    stacks: dict[int, Figure] = field(default_factory=dict)
    unsampled: dict[int, Figure] = field(default_factory=dict)
    before: Figure = Figure()
    sum: Figure = Figure()
    unseen: float = 0.0
    calibrated: bool = True


@dataclass(frozen=True)
class _Sums:
    """One of the sums that a stack has in one stratum; `taken` are bytes that its objects take up."""

    at: int
    count: float
    bytes: float
    square: float
    taken: float

    @property
    def drawn(self) -> Drawn:
        return weighed(self.count, self.square)


@dataclass(frozen=True)
class _Counted:
    """What a stratum holds in all. Sizes of objects lie above `below` and are at most `size`, which is 0 for large blocks."""

    size: int
    below: int
    count: int
    bytes: int
    before_count: int
    before_bytes: int


def _counted(one: Stratum, kind: str, below: int) -> _Counted:
    count, size = {
        LIVE: (one.live_count, one.live_bytes),
        PEAK: (one.peak_count, one.peak_bytes),
        ALLOCATED: (one.alloc_count, one.alloc_bytes),
    }[kind]
    early = (0, 0) if kind == ALLOCATED else (min(one.before_count, count), min(one.before_bytes, size))
    return _Counted(one.size, below, count, size, *early)


def classes(strata: Sequence[Stratum]) -> list[int]:
    """For each stratum the largest size that belongs to a smaller class."""
    sizes = sorted({one.size for one in strata[:-2]})
    return [sizes[at - 1] if (at := bisect.bisect_left(sizes, one.size)) else 0 for one in strata]


def _sums(at: int, stack: Stack, kind: str) -> _Sums:
    if kind == LIVE:
        return _Sums(at, stack.live_count, stack.live_bytes, stack.live_square, stack.live_bytes + stack.live_wasted)
    # What was wasted then is not known; most likely it was the same share.
    share = 1 + stack.live_wasted / stack.live_bytes if stack.live_bytes else 1.0
    if kind == PEAK:
        return _Sums(at, stack.peak_count, stack.peak_bytes, stack.peak_square, stack.peak_bytes * share)
    return _Sums(at, stack.alloc_count, stack.alloc_bytes, stack.alloc_square, stack.alloc_bytes * share)


def size_deviation(mean: float, samples: float, size: int, below: int) -> float:
    """
    How far the mean of requested sizes may be off in a class: by Bhatia and Davis, a variable between two bounds has a
    variance of at most the product of its mean's distances to them. The middle of the class counts as one more sample.
    """
    if samples <= 0 or size <= below:
        return 0.0
    likely = (min(max(mean, below), size) * samples + (size + below) / 2) / (samples + 1)
    return _DEVIATIONS * math.sqrt(max(0.0, (size - likely) * (likely - below)) / samples)


def _of_class(sums: _Sums, part: Drawn, objects: float, error: float, one: _Counted) -> Figure:
    """The figure of a stack in a size class: its objects have the mean size of its samples."""
    mean = min(sums.bytes / sums.count, one.size)
    off = objects * part.chance * size_deviation(mean, part.samples, one.size, one.below)
    wasted = one.size - mean
    errors = error, math.hypot(error * mean, off), math.hypot(error * wasted, off)
    return Figure(objects, objects * mean, objects * wasted, *errors)


def _large(sums: _Sums, objects: float, error: float, taken: float, taken_error: float) -> Figure:
    """The figure of a stack of large blocks: of the bytes that they take up, the share of its samples was requested."""
    share = min(1.0, sums.bytes / sums.taken) if sums.taken else 1.0
    return Figure(objects, taken * share, taken * (1 - share), error, taken_error * share, taken_error * (1 - share))


def _exact(sums: _Sums) -> Figure:
    return Figure(sums.count, sums.bytes, max(0.0, sums.taken - sums.bytes))


class _Estimator:
    """Fills Estimates, one stratum after the other."""

    def __init__(self, snapshot: Snapshot, kind: str) -> None:
        self.snapshot, self.kind, self.made = snapshot, kind, Estimates()
        self._groups: defaultdict[int, list[_Sums]] = defaultdict(list)
        self._heaviest: defaultdict[int, float] = defaultdict(float)  # of stacks that have no sample among these
        for at, stack in snapshot.stacks.items():
            sums = _sums(at, stack, kind)
            if sums.count > 0:
                self._groups[stack.stratum].append(sums)
            elif stack.alloc_count > 0:
                earlier = weighed(stack.alloc_count, stack.alloc_square)
                self._heaviest[stack.stratum] = max(self._heaviest[stack.stratum], earlier.step)
        self.counted = [_counted(one, kind, below) for one, below in zip(snapshot.strata, classes(snapshot.strata), strict=True)]
        self.made.calibrated = any(one.count for one in self.counted) or self._groups.keys() <= {len(self.counted) - 1}
        for i, one in enumerate(self.counted):
            self._stratum(i, one, self._groups.get(i, []))

    def _stratum(self, number: int, one: _Counted, group: list[_Sums]) -> None:
        if number == len(self.snapshot.strata) - 1:
            self._always(one, group)
        elif not self.made.calibrated or (number == len(self.snapshot.strata) - 2 and self.kind == ALLOCATED):
            self._uncounted(one, group)  # allocations of large blocks are not counted
        elif number == len(self.snapshot.strata) - 2:
            self._sampled_blocks(one, group, self._heaviest[number])
        else:
            self._class(one, group, self._heaviest[number])

    def _put(self, at: int, figure: Figure) -> None:
        self.made.stacks[at] = figure

    def _unseen(self, most: int, step: float) -> None:
        self.made.unseen = math.hypot(self.made.unseen, min(most, NOTHING_SEEN * step))

    def _total(self, figure: Figure) -> None:
        self.made.sum += figure

    def _left(self, one: _Counted, objects: Calibrated, taken: Calibrated) -> None:
        """What was counted and is no stack's."""
        if objects.rest or taken.rest:
            figure = Figure(objects.rest, taken.rest, 0.0, objects.rest_error, taken.rest_error)
            self.made.unsampled[one.size] = self.made.unsampled.get(one.size, Figure()) + figure
        self.made.before += Figure(objects.before, taken.before)

    def _class(self, one: _Counted, group: list[_Sums], heaviest: float) -> None:
        parts = [sums.drawn for sums in group]
        made = calibrate(parts, one.count, one.before_count, heaviest)
        figures = [
            _of_class(sums, part, value, error, one)
            for sums, part, value, error in zip(group, parts, made.values, made.errors, strict=True)
        ]
        for sums, figure in zip(group, figures, strict=True):
            self._put(sums.at, figure)
        taken = Calibrated([], [], made.before * one.size, made.rest * one.size, made.rest_error * one.size)
        self._left(one, made, taken)
        self._unseen(one.bytes, one.size * max(heaviest, total(parts).step))
        objects, size, wasted = (sum(getattr(figure, name) for figure in figures) for name in ("objects", "bytes", "wasted"))
        every = total(parts)
        off = objects * every.chance * size_deviation(size / objects, every.samples, one.size, one.below) if objects else 0.0
        count_error = every.error if made.before else 0.0
        mean = size / objects if objects else 0.0
        self._total(
            Figure(
                objects + made.rest + made.before,
                size + taken.rest + taken.before,
                wasted,
                0.0,
                math.hypot(off, count_error * (one.size - mean)),
                math.hypot(off, count_error * (one.size - mean)),
            )
        )

    def _sampled_blocks(self, one: _Counted, group: list[_Sums], heaviest: float) -> None:
        parts = [sums.drawn for sums in group]
        blocks = calibrate(parts, one.count, one.before_count, heaviest)
        # Each sample stands for about as many bytes, and so bytes have the effective number of samples of blocks.
        sizes = [part.times(sums.taken / sums.count) for part, sums in zip(parts, group, strict=True)]
        most = one.bytes / one.count if one.count else 0.0
        taken = calibrate(sizes, one.bytes, one.before_bytes, heaviest * most)
        figure = Figure(blocks.before + blocks.rest, taken.before + taken.rest)
        for i, sums in enumerate(group):
            made = _large(sums, blocks.values[i], blocks.errors[i], taken.values[i], taken.errors[i])
            self._put(sums.at, made)
            figure += Figure(made.objects, made.bytes, made.wasted)
        self._left(one, blocks, taken)
        self._unseen(one.bytes, max(heaviest * most, total(sizes).step))
        self._total(figure)

    def _always(self, one: _Counted, group: list[_Sums]) -> None:
        """Every block was drawn. Counts may be a moment older, and so they say only what was there before sampling."""
        for sums in group:
            self._put(sums.at, _exact(sums))
            self._total(_exact(sums))
        count, size = sum(sums.count for sums in group), sum(sums.taken for sums in group)
        missing = max(0.0, one.count - count), max(0.0, one.bytes - size)
        if one.before_bytes and missing[1]:
            early = Figure(min(missing[0], one.before_count), min(missing[1], one.before_bytes))
            self.made.before += early
            self._total(early)
            missing = missing[0] - early.objects, missing[1] - early.bytes
        if missing[0] and self.snapshot.header.lost_samples and self.made.calibrated:
            lost = Figure(*missing)
            self.made.unsampled[0] = self.made.unsampled.get(0, Figure()) + lost
            self._total(lost)

    def _uncounted(self, one: _Counted, group: list[_Sums]) -> None:
        """Figures from samples alone."""
        for sums in group:
            part = sums.drawn
            figure = (
                _of_class(sums, part, part.amount, part.error, one)
                if one.size
                else _large(sums, part.amount, part.error, sums.taken, part.times(sums.taken / sums.count).error)
            )
            self._put(sums.at, figure)
        every = total(sums.drawn for sums in group)
        size, wasted = sum(sums.bytes for sums in group), sum(max(0.0, sums.taken - sums.bytes) for sums in group)
        if every.amount:
            relative = every.error / every.amount
            self._total(Figure(every.amount, size, wasted, every.error, size * relative, wasted * relative))


def add_unseen(made: Estimates, unseen: Unseen, where: Mapping[int, Stack]) -> None:
    """Add to the errors of each stack what it may hold in strata where it was not drawn."""
    groups: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
    for at in made.stacks:
        groups[where[at].pcs].append(at)
    for pcs, entries in groups.items():
        objects, size = unseen.errors(pcs, {where[at].stratum for at in entries})
        made.stacks[entries[0]] += Figure(objects_error=objects, bytes_error=size)


def estimates(snapshot: Snapshot, kind: str) -> Estimates:
    """What is live (LIVE), was live at the peak (PEAK) or was allocated since sampling began (ALLOCATED)."""
    estimator = _Estimator(snapshot, kind)
    most = [(math.inf, math.inf) if kind == ALLOCATED and not one.size else (one.count, one.bytes) for one in estimator.counted]
    add_unseen(estimator.made, Unseen(snapshot, most), snapshot.stacks)
    return estimator.made


def scales(snapshot: Snapshot, made: Estimates) -> dict[int, tuple[float, float]]:
    """For each stack the factors by which the objects and the bytes of its live samples have to be multiplied."""
    found = {}
    for at, figure in made.stacks.items():
        stack = snapshot.stacks[at]
        found[at] = (
            figure.objects / stack.live_count if stack.live_count else 1.0,
            figure.bytes / stack.live_bytes if stack.live_bytes else 1.0,
        )
    return found


def sampled(samples: Iterable[Sample], scale: tuple[float, float]) -> Figure:
    """The figure of some live samples of one stack, by the factors of the stack."""
    pairs = [(one.weight, one.size) for one in samples]
    count, size = drawn((w, 1) for w, _ in pairs).times(scale[0]), drawn(pairs).times(scale[1])
    return Figure(count.amount, size.amount, 0.0, count.error, size.error)
