"""Estimates of what changed between two snapshots of a process.

What is live in both was drawn once, and its chance cancels out. The changes of the stacks of a stratum are calibrated to the
counted change of the stratum.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from sheaf.commands.profile.area import Sample, Snapshot, Stack, Stratum
from sheaf.commands.profile.calibrate import Calibrated, Change, calibrate_change
from sheaf.commands.profile.drawn import NOTHING_SEEN, drawn, total
from sheaf.commands.profile.estimate import Estimates, Figure, add_unseen
from sheaf.commands.profile.unseen import Unseen
from sheaf.errors import SheafError


def same_process(first: Snapshot, second: Snapshot) -> None:
    """Raise SheafError if two snapshots are not of one process, which was sampled without starting anew in between."""
    if (first.pid, first.header.start_ns, len(first.strata)) != (second.pid, second.header.start_ns, len(second.strata)):
        raise SheafError(f"{first.path} and {second.path}: profiles of different processes; name two of one process")


def _key(sample: Sample) -> tuple[int, int, int, int, int]:
    """What tells a sample from another at the same address later."""
    return sample.address, sample.time_ms, sample.size, sample.stack, sample.thread


@dataclass
class _Changed:
    """The samples of one stack that are live in only one of the snapshots."""

    came: list[Sample]
    went: list[Sample]

    def of(self, exponents: tuple[int, int]) -> Change:
        """The change of a sum: of objects, or of requested bytes or bytes taken up, by the powers of size and room."""
        size, room = exponents
        return Change(*(drawn((one.weight, one.size**size * one.room**room) for one in part) for part in (self.came, self.went)))


_OBJECTS, _BYTES, _TAKEN = (0, 0), (1, 0), (0, 1)


def _changed(first: Snapshot, second: Snapshot) -> dict[int, _Changed]:
    found: defaultdict[int, _Changed] = defaultdict(lambda: _Changed([], []))
    old, new = {_key(one) for one in first.samples}, {_key(one) for one in second.samples}
    for one in second.samples:
        if _key(one) not in old:
            found[one.stack].came.append(one)
    for one in first.samples:
        if _key(one) not in new:
            found[one.stack].went.append(one)
    return found


def _mean(changed: _Changed) -> float:
    """The mean requested size of what came and went."""
    every = [*changed.came, *changed.went]
    return sum(one.weight * one.size for one in every) / sum(one.weight for one in every)


def _stratum(made: Estimates, group: dict[int, _Changed], before: Stratum, after: Stratum, always: bool) -> None:
    """Fill in the changes of the stacks of one stratum."""
    objects = [one.of(_OBJECTS) for one in group.values()]
    counts = calibrate_change(objects, after.live_count - before.live_count, min(after.before_count, before.live_count))
    if after.size or always:
        sizes, taken = (
            counts,
            Calibrated([], [], counts.before * after.size, counts.rest * after.size, counts.rest_error * after.size),
        )
    else:
        sizes = taken = calibrate_change(
            [one.of(_TAKEN) for one in group.values()],
            after.live_bytes - before.live_bytes,
            min(after.before_bytes, before.live_bytes),
        )
    if not always:
        step = total(part for one in group.values() for part in (one.of(_TAKEN).came, one.of(_TAKEN).went)).step
        made.unseen = math.hypot(made.unseen, NOTHING_SEEN * step)
    sum_of = Figure()
    for i, (at, changed) in enumerate(group.items()):
        mean, requested = _mean(changed), changed.of(_BYTES).amount
        if always:
            figure = Figure(objects[i].amount, requested)
        elif after.size:
            figure = Figure(
                counts.values[i],
                requested + (counts.values[i] - objects[i].amount) * mean,
                0.0,
                counts.errors[i],
                counts.errors[i] * mean,
            )
        else:
            every = changed.of(_TAKEN)
            room = every.came.amount + every.went.amount
            share = mean * (objects[i].came.amount + objects[i].went.amount) / room if room else 1.0
            figure = Figure(counts.values[i], sizes.values[i] * share, 0.0, counts.errors[i], sizes.errors[i] * share)
        made.stacks[at] = figure
        sum_of += Figure(figure.objects, figure.bytes)
    if not always:
        if counts.rest or taken.rest:
            rest = Figure(counts.rest, taken.rest, 0.0, counts.rest_error, taken.rest_error)
            made.unsampled[after.size] = made.unsampled.get(after.size, Figure()) + rest
        made.before += Figure(counts.before, taken.before)
        sum_of += Figure(counts.rest + counts.before, taken.rest + taken.before)
    made.sum += sum_of


def growth(snapshot: Snapshot, first: Snapshot) -> Estimates:
    """The change of what is live. Stacks of which nothing came or went are left out."""
    same_process(first, snapshot)
    groups: defaultdict[int, dict[int, _Changed]] = defaultdict(dict)
    stacks = {**first.stacks, **snapshot.stacks}
    for at, changed in _changed(first, snapshot).items():
        groups[stacks[at].stratum][at] = changed
    made = Estimates()
    if not any(one.live_count for one in (*first.strata, *snapshot.strata)):  # nothing was counted
        made.calibrated = False
        _uncounted(made, (item for group in groups.values() for item in group.items()))
        return made
    for i, (before, after) in enumerate(zip(first.strata, snapshot.strata, strict=True)):
        _stratum(made, groups.get(i, {}), before, after, i == len(first.strata) - 1)
    most = [
        (max(before.live_count, after.live_count), max(before.live_bytes, after.live_bytes))
        for before, after in zip(first.strata, snapshot.strata, strict=True)
    ]
    add_unseen(made, Unseen(snapshot, most), stacks)
    return made


def _uncounted(made: Estimates, changes: Iterable[tuple[int, _Changed]]) -> None:
    for at, changed in changes:
        objects, size = changed.of(_OBJECTS), changed.of(_BYTES)
        made.stacks[at] = Figure(objects.amount, size.amount, 0.0, max(objects.limits()), max(size.limits()))
        made.sum += made.stacks[at]


def _less(now: float, then: float) -> float:
    return max(0.0, now - then)


def since(snapshot: Snapshot, first: Snapshot) -> Snapshot:
    """The snapshot with only those allocations that were made after the first one."""
    same_process(first, snapshot)
    stacks: dict[int, Stack] = {}
    for at, stack in snapshot.stacks.items():
        base = first.stacks.get(at)
        if base is None:
            stacks[at] = stack
        elif stack.samples > base.samples:  # sums of numbers with fractions may differ by rounding
            stacks[at] = replace(
                stack,
                alloc_count=_less(stack.alloc_count, base.alloc_count),
                alloc_bytes=_less(stack.alloc_bytes, base.alloc_bytes),
                alloc_square=_less(stack.alloc_square, base.alloc_square),
            )
        else:
            stacks[at] = replace(stack, alloc_count=0.0, alloc_bytes=0.0, alloc_square=0.0)
    strata = [
        replace(
            after,
            alloc_count=max(0, after.alloc_count - before.alloc_count),
            alloc_bytes=max(0, after.alloc_bytes - before.alloc_bytes),
        )
        for before, after in zip(first.strata, snapshot.strata, strict=True)
    ]
    return replace(snapshot, stacks=stacks, strata=strata)
