"""Read the profile area of a record into a snapshot.

sheaf/profile.h describes the area. Its process may write it while it is read, and the file may be damaged or hostile, so
everything is checked against the bounds of the area before it is used.
"""

from __future__ import annotations

import itertools
import math
import os
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sheaf.errors import SheafError
from sheaf.records import layout, record

MAGIC = b"SHEAFPRO"
VERSION = 2
SIZES, TIMES = 16, 24  # rows and columns of the table of lifetimes
_HEADER = struct.Struct("<8s2I14Q18I")
_HEADER_NAMES = (
    "magic",
    "version",
    "on",
    "sequence",
    "rate",
    "start_ns",
    "now_ms",
    "taken",
    "freed",
    "lost_stacks",
    "lost_samples",
    "slowed",
    "strata_ms",
    "peak_bytes",
    "peak_ms",
    "peak_epoch",
    "pid_of_parent",
    "stacks_at",
    "stacks_bytes",
    "stacks_used",
    "stacks_count",
    "samples_at",
    "samples_max",
    "samples_used",
    "modules_at",
    "modules_max",
    "modules_used",
    "lifetimes_at",
    "strata_at",
    "strata",
    "names_at",
    "names_bytes",
    "names_used",
    "names_lost",
    "strata_old",
)
_STACK = struct.Struct("<I2HQ10d3Q")
_SAMPLE = struct.Struct("<3Qd4I")
_MODULE = struct.Struct("<3Q32sI300s")
_NAME = struct.Struct("<2I2H")
NAMED = 1 << 63  # of addresses that stand for functions of interpreted programs
_LINE_BITS = 24
_STRATUM = struct.Struct("<9Q")
_STRATA = 4096  # at most; more count as damage
_LIFETIMES = struct.Struct(f"<{SIZES * TIMES}d")
_SEQUENCE = struct.Struct("<Q")
_SEQUENCE_AT = 16
_LARGEST = 64 << 20  # bytes of an area; a larger one counts as damage
_TRIES = 40
_CHANCE = 4  # standard deviations up to which samples that differ from counts do not show that the counts are old
_FRESH_MS = 200  # the process counts at least every 64 ms while samples come and go
_MOST = 2.0**100  # of counts, bytes and sums of squares; larger ones count as damage


class NoProfile(SheafError):
    """Nothing was ever sampled in this process. `room` says whether sampling can be switched on."""

    def __init__(self, message: str, room: bool) -> None:
        super().__init__(message)
        self.room = room


class _Damaged(Exception):
    """The area contradicts itself; the argument names the part."""


@dataclass(frozen=True)
class Stratum:
    """
    What a part of the process's memory holds in all, as it was counted: a size class, or large blocks. Bytes are those that
    objects and blocks take up. `size` is that of each object, and 0 for large blocks.
    """

    size: int
    live_count: int
    live_bytes: int
    peak_count: int
    peak_bytes: int
    before_count: int
    before_bytes: int
    alloc_count: int
    alloc_bytes: int


@dataclass(frozen=True)
class Stack:
    """
    A call stack in one stratum, with the sums of its samples since sampling began. `pcs` are return addresses, the innermost
    first; an entry without any stands for all that are not known. Counts, bytes and squares are sums of w, w*y and w*w, and
    `samples` and `live_samples` the numbers of samples behind them.
    """

    pcs: tuple[int, ...]
    stratum: int
    alloc_count: float
    alloc_bytes: float
    alloc_square: float
    live_count: float
    live_bytes: float
    live_square: float
    live_wasted: float
    peak_count: float
    peak_bytes: float
    peak_square: float
    samples: int
    live_samples: int


@dataclass(frozen=True)
class Sample:
    """A sampled allocation that is live and stands for `weight` allocations. `stack` is a key of Snapshot.stacks."""

    address: int
    size: int  # bytes requested
    room: int  # bytes that the object or block takes up
    weight: float
    time_ms: int
    stack: int
    thread: int


@dataclass(frozen=True)
class Module:
    """A program, library or vdso at addresses from `start` to `end`. An address in its file is that in memory less `bias`."""

    start: int
    end: int
    bias: int
    build_id: bytes
    path: str  # empty for the vdso


@dataclass(frozen=True)
class Name:
    """A function of an interpreted program, and its file."""

    function: str
    file: str


@dataclass(frozen=True)
class Header:
    """The numbers at the start of the area; sheaf/profile.h says what they are. Times are in milliseconds since start_ns."""

    on: bool
    rate: int
    start_ns: int
    now_ms: int
    taken: int
    freed: int
    lost_stacks: int
    lost_samples: int
    slowed: int
    strata_ms: int
    peak_bytes: int
    peak_ms: int
    pid_of_parent: int
    names_lost: int = 0


@dataclass(frozen=True)
class Snapshot:
    """
    The profile of a process at one moment. `stacks` has the stacks by their offset in the table, which stays the same in
    all snapshots of a process. The last two strata are large blocks: those that are sampled, and those that are always in
    the profile, so that their sums are exact. `moment_ms` is the time of the snapshot if the process was running, otherwise
    that of the last change. `complete` is false if the area changed under the reader, or if the process was killed while it
    wrote it.
    """

    path: Path
    program: str
    pid: int
    pid_namespace: int
    began_ns: int  # when the process began its record
    alive: bool
    header: Header
    strata: list[Stratum]
    stacks: dict[int, Stack]
    samples: list[Sample]
    modules: list[Module]
    lifetimes: list[list[float]] = field(repr=False)  # frees by size (row) and lifetime (column)
    moment_ms: int
    complete: bool
    here: int | None = None  # the number of the process as this command sees it; None if it has ended
    names: Mapping[int, Name] = field(default_factory=dict)  # by their offset; see named()

    @property
    def who(self) -> str:
        """The process, for headings."""
        return record.label(self.program, self.pid, self.here)

    def age_ms(self, sample: Sample) -> int:
        """Milliseconds from the allocation of a sample to the snapshot. Times wrap around after 49 days, and so do ages."""
        age = self.moment_ms - sample.time_ms & 0xFFFFFFFF
        return age if age < 0xFFFFFFFF - 3_600_000 else 0  # slightly negative where clocks are read by different threads


def named(pc: int) -> tuple[int, int] | None:
    """The key in Snapshot.names and the line that an address stands for; None for an address of code. Line 0 is unknown."""
    return ((pc & ~NAMED) >> _LINE_BITS << 3, pc & (1 << _LINE_BITS) - 1) if pc & NAMED else None


def _finite(*values: float) -> bool:
    return all(math.isfinite(value) and -_MOST < value < _MOST for value in values)


class _Area:
    """A consistent copy of what is in use of the area."""

    def __init__(self, at: Callable[[int, int], bytes], size: int) -> None:
        self._at, self._size = at, size
        for self.tries in range(1, _TRIES + 1):
            if self._copy():
                self.complete = True
                return
            time.sleep(0.0002 * self.tries)
        self.complete = False

    def _part(self, offset: int, entry: int, count: int, what: str) -> bytes:
        """`count` entries from `offset` on; raises _Damaged if they are not inside of the area."""
        if offset % 8 or offset < _HEADER.size or offset + entry * count > self._size:
            raise _Damaged(what)
        return self._at(offset, entry * count) if count else b""

    def _copy(self) -> bool:
        """Copy the area; returns whether nothing but counters changed meanwhile."""
        self.values = dict(zip(_HEADER_NAMES, _HEADER.unpack(self._at(0, _HEADER.size)), strict=True))
        value = self.values
        if value["stacks_used"] > value["stacks_bytes"]:
            raise _Damaged("table of stacks")
        if value["samples_used"] > value["samples_max"]:
            raise _Damaged("table of samples")
        if value["modules_used"] > value["modules_max"]:
            raise _Damaged("table of modules")
        self.stacks = self._part(value["stacks_at"], 1, value["stacks_used"], "table of stacks")
        self.samples = self._part(value["samples_at"], _SAMPLE.size, value["samples_used"], "table of samples")
        self.modules = self._part(value["modules_at"], _MODULE.size, value["modules_used"], "table of modules")
        if value["names_used"] > value["names_bytes"]:
            raise _Damaged("table of names")
        self.names = self._part(value["names_at"], 1, value["names_used"], "table of names") if value["names_used"] else b""
        if not 2 <= value["strata"] <= _STRATA:
            raise _Damaged("table of strata")
        self.strata = self._part(value["strata_at"], _STRATUM.size, value["strata"], "table of strata")
        self.lifetimes = self._part(value["lifetimes_at"], _LIFETIMES.size, 1, "table of lifetimes")
        (after,) = _SEQUENCE.unpack(self._at(_SEQUENCE_AT, _SEQUENCE.size))
        return value["sequence"] % 2 == 0 and bool(value["sequence"] == after)

    def header(self) -> Header:
        numbers = {name: self.values[name] for name in Header.__dataclass_fields__}
        return Header(**{**numbers, "on": bool(numbers["on"])})

    def stratum_entries(self) -> Iterator[Stratum]:
        """All strata in order. Any numbers are possible, and so there is nothing to check."""
        return itertools.starmap(Stratum, _STRATUM.iter_unpack(self.strata))

    def stack_entries(self) -> Iterator[tuple[int, Stack]]:
        """All stacks by offset. A torn entry ends the table, if the process may have left one."""
        at, raw = 0, self.stacks
        while at < len(raw):
            if at + _STACK.size > len(raw):
                break
            size, depth, stratum, _, *sums, epoch, samples, live_samples = _STACK.unpack_from(raw, at)
            if size % 8 or size < _STACK.size + 8 * depth or at + size > len(raw) or not _finite(*sums):
                break
            if stratum >= self.values["strata"]:
                break
            if epoch != self.values["peak_epoch"]:  # unchanged since the peak
                sums[7:] = sums[3:6]
            # Sums of what was added and subtracted again need not be exactly 0. Each weight is at least 1.
            for i, length in ((0, 3), (3, 4), (7, 3)):
                part = [max(0.0, value) for value in sums[i : i + length]] if sums[i] >= 0.5 else [0.0] * length
                sums[i : i + length] = part
            numbers: list[Any] = [*sums, samples, live_samples]
            yield at, Stack(struct.unpack_from(f"<{depth}Q", raw, at + _STACK.size), stratum, *numbers)
            at += size
        if at < len(raw) and self.complete:
            raise _Damaged("table of stacks")

    def sample_entries(self, stacks: dict[int, Stack]) -> Iterator[Sample]:
        for address, size, room, weight, time_ms, stack, thread, _ in _SAMPLE.iter_unpack(self.samples):
            if not address:
                continue
            if stack in stacks and _finite(weight) and weight >= 1 and max(size, room) < _MOST:
                yield Sample(address, size, room, weight, time_ms, stack, thread)
            elif self.complete:
                raise _Damaged("table of samples")

    def module_entries(self) -> Iterator[Module]:
        for start, end, bias, build_id, length, path in _MODULE.iter_unpack(self.modules):
            if start < end and length <= len(build_id):
                name = path.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")
                yield Module(start, end, bias, build_id[:length], name)
            elif self.complete:
                raise _Damaged("table of modules")

    def name_entries(self) -> Iterator[tuple[int, Name]]:
        """All names by offset. A torn entry ends the table, if the process may have left one."""
        at, raw = 0, self.names
        while at + _NAME.size <= len(raw):
            size, _, *lengths = _NAME.unpack_from(raw, at)
            begin = at + _NAME.size
            middle, end = begin + lengths[0], begin + sum(lengths)
            if size % 8 or end > at + size or at + size > len(raw) or not size:
                break
            yield at, Name(*(part.decode("utf-8", "replace") for part in (raw[begin:middle], raw[middle:end])))
            at += size
        if at < len(raw) and self.complete:
            raise _Damaged("table of names")

    def lifetime_rows(self) -> list[list[float]]:
        numbers = _LIFETIMES.unpack(self.lifetimes)
        if not _finite(*numbers):
            raise _Damaged("table of lifetimes")
        return [[max(0.0, one) for one in numbers[row * TIMES : (row + 1) * TIMES]] for row in range(SIZES)]


def _open(reader: layout.Reader) -> _Area:
    """The area of an open record. Raises NoProfile if the process never sampled anything."""
    offset, size = reader.optional("profile_offset"), reader.optional("profile_size")
    if not offset:
        raise NoProfile(
            f"{reader.path}: the record has no room for a profile; run the program with a Sheaf that has profiles, "
            "on a file system with free space",
            False,
        )
    never = NoProfile(
        f"{reader.path}: nothing was sampled in this process; run the program with `sheaf run --profile`, "
        "or name it while it runs",
        True,
    )
    file = reader.file.fileno()
    if os.fstat(file).st_size <= offset:
        raise never
    if not _HEADER.size <= size <= _LARGEST:
        raise _Damaged("size")

    def at(start: int, count: int) -> bytes:
        """What the file has there now. It may be shorter than the area, and then the rest is zero."""
        try:
            return os.pread(file, count, offset + start).ljust(count, b"\0")
        except OSError as error:
            raise SheafError(f"{reader.path}: {error.strerror}; copy the record to another file system") from error

    magic = at(0, len(MAGIC))
    if not any(magic):
        raise never
    if magic != MAGIC:
        raise _Damaged("magic")
    version = int.from_bytes(at(8, 4), "little")
    if version != VERSION:
        raise SheafError(
            f"{reader.path}: unknown profile version {version} (this command reads version {VERSION}); "
            "use the `sheaf` of the same release"
        )
    return _Area(at, size)


def _moment(alive: bool, header: Header) -> int:
    now = (time.time_ns() - header.start_ns) // 1_000_000 if alive else 0
    return max(header.now_ms, now)


def _beyond_chance(header: Header, strata: Sequence[Stratum], stacks: Iterable[Stack]) -> bool:
    """
    Whether samples and counts differ by more than chance explains. One sample of a stack that was thinned out stands for many
    bytes, and where it comes or goes, the program seems to have changed much since it counted, though it has not. Where such
    samples are missing, those that are there do not even show how large the chance is; so counts that were made lately are
    trusted if they exceed the samples.
    """
    amount = variance = 0.0
    for stack in stacks:
        if stack.live_count > 0:
            room = (stack.live_bytes + stack.live_wasted) / stack.live_count
            amount += stack.live_count * room
            variance += max(0.0, stack.live_square - stack.live_count) * room * room
    counted = sum(one.live_bytes for one in strata)
    early = sum(min(one.before_bytes, one.live_bytes) for one in strata)
    less = counted - early - amount if header.now_ms - header.strata_ms > _FRESH_MS else 0.0
    return max(amount - counted, less) > _CHANCE * math.sqrt(variance)


def _by_samples(strata: list[Stratum], stacks: Iterable[Stack]) -> list[Stratum]:
    """The strata where their counts are older than the samples: what is live follows from the samples alone."""
    counts, sizes = [0.0] * len(strata), [0.0] * len(strata)
    for stack in stacks:
        counts[stack.stratum] += stack.live_count
        sizes[stack.stratum] += stack.live_bytes + stack.live_wasted
    return [
        replace(one, live_count=round(count), live_bytes=round(size))
        for one, count, size in zip(strata, counts, sizes, strict=True)
    ]


def read_area(path: Path) -> Snapshot:
    """
    The profile in a record. Raises NoProfile if nothing was ever sampled, and SheafError if the file is no record or its
    profile is damaged.
    """
    reader = layout.Reader(path)
    with reader.file:
        try:
            area = _open(reader)
            header = area.header()
            strata = list(area.stratum_entries())
            stacks = dict(area.stack_entries())
            if area.values["strata_old"] and _beyond_chance(header, strata, stacks.values()):
                strata = _by_samples(strata, stacks.values())
            samples = list(area.sample_entries(stacks))
            modules = sorted(area.module_entries(), key=lambda module: module.start)
            lifetimes = area.lifetime_rows()
            names = dict(area.name_entries())
        except _Damaged as error:
            advice = "copy the record again, or run the program again"
            raise SheafError(f"{path}: the profile is damaged ({error}); {advice}") from error
    head = record.read_head(path)
    return Snapshot(
        path,
        head.program,
        head.pid,
        head.pid_namespace,
        head.start_time_ns,
        head.alive,
        header,
        strata,
        stacks,
        samples,
        modules,
        lifetimes,
        _moment(head.alive, header),
        area.complete,
        head.here,
        names,
    )
