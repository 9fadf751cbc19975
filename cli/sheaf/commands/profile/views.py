"""Views of a profile: stacks with values and their errors, made from one snapshot or from two of one process.

All values are estimates that are calibrated to what was counted (estimate.py), so that the sum of all rows is the truth.
"""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from sheaf.commands.profile import growth as changes
from sheaf.commands.profile.area import SIZES, TIMES, Sample, Snapshot
from sheaf.commands.profile.estimate import ALLOCATED, LIVE, PEAK, Estimates, Figure, estimates, sampled, scales
from sheaf.errors import SheafError
from sheaf.rendering import sizes

AGES = (
    (1_000, "younger than 1 s"),
    (10_000, "1 s to 10 s"),
    (60_000, "10 s to 1 min"),
    (600_000, "1 min to 10 min"),
    (3_600_000, "10 min to 1 h"),
    (86_400_000, "1 h to 1 day"),
)
OLDEST = "older than 1 day"
NO_AGE = "age not known"
AGE_BANDS = [*(name for _, name in AGES), OLDEST, NO_AGE]
RELIABLE = 0.8  # of the value, up to which an error may be
_NEGLIGIBLE = 1 / 100  # of the total, up to which a row speaks for itself
UNSAMPLED = "(not sampled)"
BEFORE = "(allocated before sampling)"


@dataclass(frozen=True)
class Column:
    """What a value is: its name in files, such as inuse_space; its unit, bytes or count; its heading in tables."""

    name: str
    unit: str
    heading: str


@dataclass(frozen=True)
class Row:
    """
    A stack with a value and an error for each column. An error is the half-width of an interval that holds the truth in 95 of
    100 cases, and None where it is not known. `labels` are groups around the stack, the outermost first, such as an age;
    `pcs` are return addresses, the innermost first. A row without addresses is of allocations whose stack is not known;
    `name` says which if they were not sampled.
    """

    labels: tuple[str, ...]
    pcs: tuple[int, ...]
    values: tuple[float, ...]
    errors: tuple[float | None, ...]
    name: str = ""


def reliable(value: float, error: float | None) -> bool:
    """
    Whether a figure says anything: an error nearly as large as the value itself means that there are fewer than about ten
    samples, or that a change may be chance.
    """
    return error is None or error <= RELIABLE * abs(value)


@dataclass(frozen=True)
class Profile:
    """
    One view. `main` is the column that tables and flame graphs show. `period` is the sampling rate in bytes, `time_ns` when
    the view ends and `duration_ns` how long the time is that it covers. `sums` are the totals of all columns with their
    errors, which are smaller than those of rows because totals are counted; `unseen` is how many bytes stacks may have of
    which nothing was drawn. `notes` are sentences that a reader should know.
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
    sums: tuple[tuple[float, float | None], ...] = ()
    notes: tuple[str, ...] = ()
    unseen: float = 0.0

    @property
    def pcs(self) -> set[int]:
        """All return addresses."""
        return {pc for row in self.rows for pc in row.pcs}

    def total(self, column: int | None = None) -> tuple[float, float | None]:
        """The total of a column, by default the main one, and its error."""
        return self.sums[self.main if column is None else column]

    def unreliable(self, row: Row) -> bool:
        """Whether the main value of a row is unreliable."""
        return not reliable(row.values[self.main], row.errors[self.main])


_LIVE = (Column("inuse_objects", "count", "live objects"), Column("inuse_space", "bytes", "live bytes"))
_ALLOC = (Column("alloc_objects", "count", "allocations"), Column("alloc_space", "bytes", "allocated bytes"))
_PEAK = (Column("peak_objects", "count", "objects at the peak"), Column("peak_space", "bytes", "bytes at the peak"))
_GROWTH = (Column("growth_objects", "count", "growth in objects"), Column("growth_space", "bytes", "growth in bytes"))
_WASTED = (Column("wasted_space", "bytes", "wasted bytes"),)
_FREES = (Column("frees", "count", "frees"),)


def combined(errors: Iterable[float | None]) -> float | None:
    """The error of a sum of independent values; None if one of theirs is not known."""
    total = 0.0
    for error in errors:
        if error is None:
            return None
        total += error * error
    return math.sqrt(total)


class Errors:
    """
    Errors of sums over rows. Rows of one class are not independent, because their sum is known. So a sum is as exact as the
    sum of all other rows and of what was not drawn, if that is more exact than its own rows are.
    """

    def __init__(self, profile: Profile) -> None:
        self._all = sum((row.errors[profile.main] or 0.0) ** 2 for row in profile.rows)
        self._total = profile.total()[1] or 0.0
        self._others = math.hypot(self._total, profile.unseen)

    def of(self, squares: float) -> float:
        """The error of a sum, by the sum of the squares of its rows' errors."""
        return math.sqrt(min(squares, max(0.0, self._all - squares) + self._others**2))

    @property
    def of_all(self) -> float:
        """The error of the sum of all rows."""
        return self._total


def _notes(snapshot: Snapshot, first: Snapshot | None = None) -> tuple[str, ...]:
    """What limits the figures of a snapshot."""
    header, notes = snapshot.header, []
    if not snapshot.complete:
        notes.append(
            "The profile changed while it was read, or its process was killed while it wrote: some figures may be off "
            "by a few samples."
        )
    if header.lost_samples:
        notes.append(
            f"{header.lost_samples} of {header.taken} samples were lost because too many were live: the figures are too "
            "low; sample less often with a larger --rate."
        )
    if header.lost_stacks:
        notes.append(
            f"The stacks of {header.lost_stacks} of {header.taken} samples did not fit into the record and count as "
            "(unknown stack)."
        )
    if header.slowed:
        notes.append(
            f"{header.slowed} of {header.taken} samples were taken at a lower rate to save time; stacks that had them "
            "have larger errors."
        )
    if header.pid_of_parent:
        notes.append(f"The figures include what process {header.pid_of_parent} had allocated before it forked this one.")
    return tuple(notes)


def _unreliable(rows: Sequence[Row], main: int) -> list[str]:
    """How many rows are unreliable, as a sentence."""
    few = [row for row in rows if not reliable(row.values[main], row.errors[main])]
    if not few:
        return []
    whole = sum(abs(row.values[main]) for row in rows)
    share = 100 * sum(abs(row.values[main]) for row in few) / whole if whole else 0.0
    return [
        f"{len(few)} of {len(rows)} stacks, with {share:.1f}% of the total, are unreliable: they have too few samples, and "
        "their errors are nearly as large as their values, or larger."
    ]


def _unsampled(made: Estimates) -> list[str]:
    """What has no samples, as a sentence."""
    if not made.calibrated:
        return ["The process had not counted its objects yet: the figures come from samples alone."]
    largest = sorted(made.unsampled.items(), key=lambda item: -abs(item[1].bytes))
    if sum(abs(figure.bytes) for _, figure in largest) <= _NEGLIGIBLE * abs(made.sum.bytes):
        return []
    parts = [
        f"{figure.objects:.0f} objects of {sizes.size(size)}" if size else f"{figure.objects:.0f} large blocks"
        for size, figure in largest[:3]
    ]
    if len(largest) > len(parts):
        parts.append(f"{sum(figure.objects for _, figure in largest[3:]):.0f} of other sizes")
    return [f"{UNSAMPLED} stands for what was counted and has no sample ({', '.join(parts)}); its bytes are those taken up."]


def _profile(
    snapshot: Snapshot,
    view: str,
    title: str,
    columns: tuple[Column, ...],
    rows: Iterable[Row],
    main: int,
    sums: tuple[tuple[float, float | None], ...],
    first: Snapshot | None = None,
    notes: Sequence[str] = (),
    unseen: float = 0.0,
) -> Profile:
    """A profile that covers the time from the first snapshot, or since sampling began. Leaves out rows of zeros."""
    rows = [row for row in rows if any(row.values)]
    rows.sort(key=lambda row: (-row.values[main], row.labels, row.pcs, row.name))
    begin = first.moment_ms if first else 0
    every = (*_notes(snapshot), *notes, *_unreliable(rows, main))
    return Profile(
        view,
        title,
        columns,
        rows,
        main,
        snapshot.header.rate,
        snapshot.header.start_ns + snapshot.moment_ms * 1_000_000,
        max(0, snapshot.moment_ms - begin) * 1_000_000,
        snapshot,
        sums,
        every,
        unseen,
    )


def _pair(figure: Figure) -> tuple[tuple[float, float | None], ...]:
    return (figure.objects, figure.objects_error), (figure.bytes, figure.bytes_error)


def _row(labels: tuple[str, ...], pcs: tuple[int, ...], figure: Figure, name: str = "") -> Row:
    (objects, objects_error), (size, size_error) = _pair(figure)
    return Row(labels, pcs, (objects, size), (objects_error, size_error), name)


def _pcs(at: int, *snapshots: Snapshot | None) -> tuple[int, ...]:
    return next(one.stacks[at].pcs for one in snapshots if one and at in one.stacks)


def _others(made: Estimates, labels: tuple[str, ...] = ()) -> list[Row]:
    """Rows of what has no samples."""
    rest = sum(made.unsampled.values(), Figure())
    return [_row(labels, (), figure, name) for figure, name in ((rest, UNSAMPLED), (made.before, BEFORE))]


def _stacks(made: Estimates, snapshot: Snapshot, first: Snapshot | None = None) -> list[Row]:
    """A row for each stack, which may be in several strata, and rows of what has no samples."""
    figures: defaultdict[tuple[int, ...], Figure] = defaultdict(Figure)
    for at, figure in made.stacks.items():
        figures[_pcs(at, snapshot, first)] += figure
    return [_row((), pcs, figure) for pcs, figure in figures.items()] + _others(made)


def live(snapshot: Snapshot, first: Snapshot | None = None) -> Profile:
    """Objects and bytes that are live, by stack."""
    made = estimates(snapshot, LIVE)
    return _profile(
        snapshot,
        "live",
        "live bytes",
        _LIVE,
        _stacks(made, snapshot),
        1,
        _pair(made.sum),
        notes=_unsampled(made),
        unseen=made.unseen,
    )


def allocated(snapshot: Snapshot, first: Snapshot | None = None) -> Profile:
    """Allocations and their bytes since sampling began, or since the first snapshot."""
    made = estimates(changes.since(snapshot, first) if first else snapshot, ALLOCATED)
    seconds = (snapshot.moment_ms - first.moment_ms) / 1000 if first else 0
    title = f"bytes allocated in {seconds:.1f} s" if first else "bytes allocated since sampling began"
    return _profile(
        snapshot, "allocated", title, _ALLOC, _stacks(made, snapshot), 1, _pair(made.sum), first, _unsampled(made), made.unseen
    )


def peak(snapshot: Snapshot, first: Snapshot | None = None) -> Profile:
    """Objects and bytes that were live when all live bytes were at their peak."""
    made = estimates(snapshot, PEAK)
    return _profile(
        snapshot,
        "peak",
        f"live bytes at their peak, {snapshot.header.peak_ms / 1000:.1f} s after sampling began",
        _PEAK,
        _stacks(made, snapshot),
        1,
        _pair(made.sum),
        notes=_unsampled(made),
        unseen=made.unseen,
    )


def growth(snapshot: Snapshot, first: Snapshot | None = None) -> Profile:
    """The change of live objects and bytes between two snapshots."""
    if first is None:
        raise SheafError("--view growth: needs a process that runs; name its PID, with --seconds N")
    made = changes.growth(snapshot, first)
    title = f"growth of live bytes in {(snapshot.moment_ms - first.moment_ms) / 1000:.1f} s"
    rows = _stacks(made, snapshot, first)
    return _profile(snapshot, "growth", title, _GROWTH, rows, 1, _pair(made.sum), first, _unsampled(made), made.unseen)


def age_band(age_ms: int) -> str:
    """The name of the band that an age belongs to."""
    return AGE_BANDS[bisect.bisect_right([limit for limit, _ in AGES], age_ms)]


def age(snapshot: Snapshot, first: Snapshot | None = None) -> Profile:
    """Live objects and bytes by age and stack. A leak has bytes of every age."""
    made = estimates(snapshot, LIVE)
    factors = scales(snapshot, made)
    groups: defaultdict[tuple[str, int], list[Sample]] = defaultdict(list)
    for sample in snapshot.samples:
        groups[age_band(snapshot.age_ms(sample)), sample.stack].append(sample)
    figures: defaultdict[tuple[str, tuple[int, ...]], Figure] = defaultdict(Figure)
    for (band, at), samples in groups.items():
        if at in factors:
            figures[band, snapshot.stacks[at].pcs] += sampled(samples, factors[at])
    rows = [_row((band,), pcs, figure) for (band, pcs), figure in figures.items()] + _others(made, (NO_AGE,))
    return _profile(
        snapshot, "age", "live bytes by age", _LIVE, rows, 1, _pair(made.sum), notes=_unsampled(made), unseen=made.unseen
    )


def _milliseconds(n: int) -> str:
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if n >= size:
            return f"{n / size:.3g} {unit}"
    return f"{n} ms"


def size_name(row: int) -> str:
    """The sizes in a row of the table of lifetimes."""
    return f"above {sizes.size(16 << SIZES - 2)}" if row == SIZES - 1 else f"up to {sizes.size(16 << row)}"


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
    frees = sum(row.values[0] for row in rows)
    return _profile(snapshot, "lifetimes", "frees by size and lifetime", _FREES, rows, 0, ((frees, None),), first)


def wasted(snapshot: Snapshot, first: Snapshot | None = None) -> Profile:
    """Bytes between what live allocations requested and what they take up, by stack."""
    made = estimates(snapshot, LIVE)
    figures: defaultdict[tuple[int, ...], Figure] = defaultdict(Figure)
    for at, figure in made.stacks.items():
        figures[snapshot.stacks[at].pcs] += figure
    rows = [Row((), pcs, (one.wasted,), (one.wasted_error,)) for pcs, one in figures.items()]
    sums = ((made.sum.wasted, made.sum.wasted_error),)
    return _profile(
        snapshot, "wasted", "bytes of live allocations beyond what was requested", _WASTED, rows, 0, sums, unseen=made.unseen
    )


def heap(snapshot: Snapshot, first: Snapshot | None = None) -> Profile:
    """
    Live, allocated and peak values in one profile, as heap profiles of other tools have them. With a first snapshot, growth
    takes the place of what is live, allocations count since then, and there is no peak.
    """
    parts = [growth(snapshot, first) if first else live(snapshot), allocated(snapshot, first)]
    parts += [] if first else [peak(snapshot)]
    columns = (*_LIVE, *_ALLOC, *(() if first else _PEAK))
    values: defaultdict[tuple[tuple[int, ...], str], list[float]] = defaultdict(lambda: [0.0] * len(columns))
    errors: defaultdict[tuple[tuple[int, ...], str], list[float | None]] = defaultdict(lambda: [0.0] * len(columns))
    for part, profile in enumerate(parts):
        for row in profile.rows:
            values[row.pcs, row.name][2 * part : 2 * part + 2] = row.values
            errors[row.pcs, row.name][2 * part : 2 * part + 2] = row.errors
    rows = [Row((), pcs, tuple(values[pcs, name]), tuple(errors[pcs, name]), name) for pcs, name in values]
    sums = tuple(pair for profile in parts for pair in profile.sums)
    notes = dict.fromkeys(note for profile in parts for note in profile.notes if "unreliable" not in note)
    missing = _notes(snapshot)
    return _profile(
        snapshot,
        "heap",
        parts[0].title,
        columns,
        rows,
        1,
        sums,
        first,
        [note for note in notes if note not in missing],
        parts[0].unseen,
    )


View = Callable[[Snapshot, Snapshot | None], Profile]
VIEWS: dict[str, View] = {
    "live": live,
    "allocated": allocated,
    "peak": peak,
    "growth": growth,
    "age": age,
    "lifetimes": lifetimes,
    "wasted": wasted,
}


def available(snapshot: Snapshot, first: Snapshot | None = None) -> list[Profile]:
    """All views that these snapshots give, without empty ones."""
    profiles: Sequence[Profile] = [make(snapshot, first) for name, make in VIEWS.items() if first or name != "growth"]
    return [profile for profile in profiles if profile.rows]
