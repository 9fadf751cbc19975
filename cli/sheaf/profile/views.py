"""Views of a profile: stacks with values and their standard errors, made from one snapshot or from two of one process.

Each sample with weight w stands for w allocations, so sums of w * y are unbiased estimates of the truth, and sums of
w * (w - 1) * y * y estimate their variances (see sheaf/profile.h). Errors here are the roots of these sums.
"""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from sheaf import table
from sheaf.errors import SheafError
from sheaf.profile.area import SIZES, TIMES, Sample, Snapshot, Stack

AGES = (
    (1_000, "younger than 1 s"), (10_000, "1 s to 10 s"), (60_000, "10 s to 1 min"), (600_000, "1 min to 10 min"),
    (3_600_000, "10 min to 1 h"), (86_400_000, "1 h to 1 day"),
)  # fmt: skip
OLDEST = "older than 1 day"
AGE_BANDS = [*(name for _, name in AGES), OLDEST]


@dataclass(frozen=True)
class Column:
    """What a value is: its name in files, such as inuse_space; its unit, bytes or count; its heading in tables."""

    name: str
    unit: str
    heading: str


@dataclass(frozen=True)
class Row:
    """
    A stack with a value and a standard error for each column; an error is None where it is not known. `labels` are groups
    around the stack, the outermost first, such as an age; `pcs` are return addresses, the innermost first. A row without
    both is of allocations whose stack is not known.
    """

    labels: tuple[str, ...]
    pcs: tuple[int, ...]
    values: tuple[float, ...]
    errors: tuple[float | None, ...]


@dataclass(frozen=True)
class Profile:
    """
    One view. `main` is the column that tables and flame graphs show. `period` is the sampling rate in bytes, `time_ns` when
    the view ends and `duration_ns` how long the time is that it covers. `notes` are sentences that a reader should know.
    """

    view: str
    title: str
    columns: tuple[Column, ...]
    rows: list[Row]
    main: int
    period: int
    time_ns: int
    duration_ns: int
    snapshot: Snapshot = field(repr=False)  # the later one
    notes: tuple[str, ...] = ()

    @property
    def pcs(self) -> set[int]:
        """All return addresses."""
        return {pc for row in self.rows for pc in row.pcs}

    def total(self, column: int | None = None) -> tuple[float, float | None]:
        """The sum of a column, by default the main one, and its standard error. Stacks are sampled independently."""
        at = self.main if column is None else column
        return sum(row.values[at] for row in self.rows), combined(row.errors[at] for row in self.rows)


_LIVE = (Column("inuse_objects", "count", "live objects"), Column("inuse_space", "bytes", "live bytes"))
_ALLOC = (Column("alloc_objects", "count", "allocations"), Column("alloc_space", "bytes", "allocated bytes"))
_PEAK = (Column("peak_objects", "count", "objects at the peak"), Column("peak_space", "bytes", "bytes at the peak"))
_GROWTH = (Column("growth_objects", "count", "growth in objects"), Column("growth_space", "bytes", "growth in bytes"))
_WASTED = (Column("wasted_space", "bytes", "wasted bytes"),)
_FREES = (Column("frees", "count", "frees"),)


def combined(errors: Iterable[float | None]) -> float | None:
    """The standard error of a sum of independent values; None if one of theirs is not known."""
    total = 0.0
    for error in errors:
        if error is None:
            return None
        total += error * error
    return math.sqrt(total)


def _root(variance: float) -> float:
    return math.sqrt(max(0.0, variance))


def _notes(snapshot: Snapshot, first: Snapshot | None = None) -> tuple[str, ...]:
    """What limits the figures of a snapshot."""
    header, notes = snapshot.header, []
    if not snapshot.complete:
        notes.append("The profile changed while it was read, or its process was killed while it wrote: some figures may be off "
                     "by a few samples.")  # fmt: skip
    if header.lost_samples:
        notes.append(f"{header.lost_samples} of {header.taken} samples were lost because too many were live: the figures are too "
                     "low; sample less often with a larger --rate.")  # fmt: skip
    if header.lost_stacks:
        notes.append(f"The stacks of {header.lost_stacks} of {header.taken} samples did not fit into the record and count as "
                     "(unknown stack).")  # fmt: skip
    if header.slowed:
        notes.append(f"{header.slowed} of {header.taken} samples were taken at a lower rate to save time; their figures have "
                     "larger errors.")  # fmt: skip
    if header.pid_of_parent:
        notes.append(f"The figures include what process {header.pid_of_parent} had allocated before it forked this one.")
    return tuple(notes)


def _profile(snapshot: Snapshot, view: str, title: str, columns: tuple[Column, ...], rows: Iterable[Row], main: int,
             first: Snapshot | None = None, notes: tuple[str, ...] = ()) -> Profile:
    """A profile that covers the time from the first snapshot, or since sampling began. Leaves out rows of zeros."""
    rows = [row for row in rows if any(row.values)]
    rows.sort(key=lambda row: (-row.values[main], row.labels, row.pcs))
    begin = first.moment_ms if first else 0
    return Profile(view, title, columns, rows, main, snapshot.header.rate,
                   snapshot.header.start_ns + snapshot.moment_ms * 1_000_000, max(0, snapshot.moment_ms - begin) * 1_000_000,
                   snapshot, (*_notes(snapshot), *notes))


def _count_error(samples: Iterable[Sample]) -> float:
    return _root(sum(s.weight * (s.weight - 1) for s in samples))


def _bytes_error(samples: Iterable[Sample]) -> float:
    return _root(sum(s.weight * (s.weight - 1) * s.size * s.size for s in samples))


def _by_stack(samples: Iterable[Sample]) -> dict[int, list[Sample]]:
    groups: defaultdict[int, list[Sample]] = defaultdict(list)
    for sample in samples:
        groups[sample.stack].append(sample)
    return groups


def _key(sample: Sample) -> tuple[int, int, int, int, int]:
    """What tells a sample from another at the same address later."""
    return sample.address, sample.time_ms, sample.size, sample.stack, sample.thread


def _same_process(first: Snapshot, second: Snapshot) -> None:
    if (first.pid, first.header.start_ns) != (second.pid, second.header.start_ns):
        raise SheafError(f"{first.path} and {second.path}: profiles of different processes; name two of one process")


_NOTHING = Stack((), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0, 0)


def live(snapshot: Snapshot, first: Snapshot | None = None) -> Profile:
    """Objects and bytes that are live, by stack."""
    samples = _by_stack(snapshot.samples)
    rows = []
    for at, stack in snapshot.stacks.items():
        errors = _count_error(samples.get(at, ())), _root(stack.live_variance)
        rows.append(Row((), stack.pcs, (stack.live_count, stack.live_bytes), errors))
    return _profile(snapshot, "live", "live bytes", _LIVE, rows, 1)


def allocated(snapshot: Snapshot, first: Snapshot | None = None) -> Profile:
    """Allocations and their bytes since sampling began, or since the first snapshot."""
    rows = []
    for at, stack in snapshot.stacks.items():
        base = first.stacks.get(at, _NOTHING) if first else _NOTHING
        values = stack.alloc_count - base.alloc_count, stack.alloc_bytes - base.alloc_bytes
        rows.append(Row((), stack.pcs, values, (None, _root(stack.alloc_variance - base.alloc_variance))))
    seconds = (snapshot.moment_ms - first.moment_ms) / 1000 if first else 0
    title = f"bytes allocated in {seconds:.1f} s" if first else "bytes allocated since sampling began"
    return _profile(snapshot, "allocated", title, _ALLOC, rows, 1, first)


def peak(snapshot: Snapshot, first: Snapshot | None = None) -> Profile:
    """
    Objects and bytes that were live when all live bytes were at their peak. Their variances are not in the area. They are
    estimated by the variance for each byte of all allocations of the stack, because most have about the same size.
    """
    rows = []
    for stack in snapshot.stacks.values():
        variance = stack.peak_bytes * stack.alloc_variance / stack.alloc_bytes if stack.alloc_bytes else 0.0
        rows.append(Row((), stack.pcs, (stack.peak_count, stack.peak_bytes), (None, _root(variance))))
    return _profile(snapshot, "peak", f"live bytes at their peak, {snapshot.header.peak_ms / 1000:.1f} s after sampling began",
                    _PEAK, rows, 1)  # fmt: skip


def _need_two(first: Snapshot | None, view: str) -> Snapshot:
    if first is None:
        raise SheafError(f"--view {view}: needs a process that runs; name its PID, with --seconds N")
    return first


def growth(snapshot: Snapshot, first: Snapshot | None = None) -> Profile:
    """
    The change of live objects and bytes between two snapshots. Samples that are live in both cancel out exactly, so that
    the error comes only from those that are live in one of them.
    """
    first = _need_two(first, "growth")
    _same_process(first, snapshot)
    old, new = {_key(s) for s in first.samples}, {_key(s) for s in snapshot.samples}
    changed = [s for s in snapshot.samples if _key(s) not in old] + [s for s in first.samples if _key(s) not in new]
    groups, rows = _by_stack(changed), []
    for at in snapshot.stacks.keys() | first.stacks.keys():
        before, after = first.stacks.get(at, _NOTHING), snapshot.stacks.get(at, _NOTHING)
        if at not in groups:  # sums of numbers with fractions differ by rounding
            continue
        values = after.live_count - before.live_count, after.live_bytes - before.live_bytes
        errors = _count_error(groups[at]), _bytes_error(groups[at])
        rows.append(Row((), after.pcs or before.pcs, values, errors))
    title = f"growth of live bytes in {(snapshot.moment_ms - first.moment_ms) / 1000:.1f} s"
    return _profile(snapshot, "growth", title, _GROWTH, rows, 1, first)


def _sampled_rows(groups: dict[tuple[tuple[str, ...], int], list[Sample]], snapshot: Snapshot) -> list[Row]:
    """Rows with objects and bytes of live samples, which are grouped by labels and stack."""
    rows = []
    for (labels, at), samples in groups.items():
        values = sum(s.weight for s in samples), sum(s.weight * s.size for s in samples)
        errors = _count_error(samples), _bytes_error(samples)
        rows.append(Row(labels, snapshot.stacks[at].pcs, values, errors))
    return rows


def age_band(age_ms: int) -> str:
    """The name of the band that an age belongs to."""
    return AGE_BANDS[bisect.bisect_right([limit for limit, _ in AGES], age_ms)]


def age(snapshot: Snapshot, first: Snapshot | None = None) -> Profile:
    """Live objects and bytes by age and stack. A leak has bytes of every age."""
    groups: defaultdict[tuple[tuple[str, ...], int], list[Sample]] = defaultdict(list)
    for sample in snapshot.samples:
        groups[(age_band(snapshot.age_ms(sample)),), sample.stack].append(sample)
    return _profile(snapshot, "age", "live bytes by age", _LIVE, _sampled_rows(groups, snapshot), 1)


def _milliseconds(n: int) -> str:
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if n >= size:
            return f"{n / size:.3g} {unit}"
    return f"{n} ms"


def size_name(row: int) -> str:
    """The sizes in a row of the table of lifetimes."""
    return f"above {table.size(16 << SIZES - 2)}" if row == SIZES - 1 else f"up to {table.size(16 << row)}"


def time_name(column: int) -> str:
    """The lifetimes in a column of the table of lifetimes."""
    if column == TIMES - 1:
        return f"lived {_milliseconds(1 << TIMES - 2)} or longer"
    return f"lived less than {_milliseconds(1 << column)}"


def lifetimes(snapshot: Snapshot, first: Snapshot | None = None) -> Profile:
    """Frees by size and lifetime since sampling began, or since the first snapshot. Their errors are not known."""
    rows = []
    for row, numbers in enumerate(snapshot.lifetimes):
        for column, count in enumerate(numbers):
            base = first.lifetimes[row][column] if first else 0.0
            rows.append(Row((size_name(row), time_name(column)), (), (count - base,), (None,)))
    return _profile(snapshot, "lifetimes", "frees by size and lifetime", _FREES, rows, 0, first)


def wasted(snapshot: Snapshot, first: Snapshot | None = None) -> Profile:
    """Bytes between what live allocations requested and what they take up, by stack."""
    groups, rows = _by_stack(snapshot.samples), []
    for at, stack in snapshot.stacks.items():
        variance = sum(s.weight * (s.weight - 1) * max(0, s.room - s.size) ** 2 for s in groups.get(at, ()))
        rows.append(Row((), stack.pcs, (stack.live_wasted,), (_root(variance),)))
    return _profile(snapshot, "wasted", "bytes of live allocations beyond what was requested", _WASTED, rows, 0)


def heap(snapshot: Snapshot, first: Snapshot | None = None) -> Profile:
    """
    Live, allocated and peak values in one profile, as heap profiles of other tools have them. With a first snapshot, growth
    takes the place of what is live, allocations count since then, and there is no peak.
    """
    parts = [growth(snapshot, first) if first else live(snapshot), allocated(snapshot, first)]
    parts += [] if first else [peak(snapshot)]
    columns = (*_LIVE, *_ALLOC, *(() if first else _PEAK))
    values: defaultdict[tuple[int, ...], list[float]] = defaultdict(lambda: [0.0] * len(columns))
    errors: defaultdict[tuple[int, ...], list[float | None]] = defaultdict(lambda: [0.0] * len(columns))
    for part, profile in enumerate(parts):
        for row in profile.rows:
            for i, (value, error) in enumerate(zip(row.values, row.errors, strict=True), 2 * part):
                values[row.pcs][i] += value
                errors[row.pcs][i] = combined((errors[row.pcs][i], error))
    rows = [Row((), pcs, tuple(values[pcs]), tuple(errors[pcs])) for pcs in values]
    return _profile(snapshot, "heap", parts[0].title, columns, rows, 1, first)


View = Callable[[Snapshot, Snapshot | None], Profile]
VIEWS: dict[str, View] = {"live": live, "allocated": allocated, "peak": peak, "growth": growth, "age": age,
                          "lifetimes": lifetimes, "wasted": wasted}  # fmt: skip


def available(snapshot: Snapshot, first: Snapshot | None = None) -> list[Profile]:
    """All views that these snapshots give, without empty ones."""
    profiles: Sequence[Profile] = [make(snapshot, first) for name, make in VIEWS.items() if first or name != "growth"]
    return [profile for profile in profiles if profile.rows]
