"""Read records: the files in which processes on Sheaf keep their counters.

sheaf/record.h describes the format. A record names its counters and has the sums over them, so this module also reads
records of a newer library that has more of them. A record may change while it is read: its values belong to slightly
different moments.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sheaf import layout, process
from sheaf.errors import SheafError

_PID = re.compile("[0-9]{1,18}")
_BATCH = 256  # rows that are added at once


class Rows:
    """
    Rows of numbers added up. Rows are collected and added in batches, because a column of many numbers is added faster than
    many short rows.
    """

    __slots__ = ("_first", "_more")

    def __init__(self, row: Sequence[int]) -> None:
        self._first, self._more = row, list[Sequence[int]]()

    def add(self, row: Sequence[int]) -> None:
        """Add a row of the same length."""
        self._more.append(row)
        if len(self._more) >= _BATCH:
            self.sums()

    def sums(self) -> Sequence[int]:
        """The sum of each column."""
        if self._more:
            self._first = tuple(map(sum, zip(self._first, *self._more, strict=True)))
            self._more = []
        return self._first


class Cache:
    """
    One cache of one process, or of several processes merged: geometry in bytes and objects, gauges, and counters by slot.
    `node` is None if the cache belongs to no memory node or is the sum over all nodes.
    """

    def __init__(self, text: layout.Description, part: layout.Part) -> None:
        self.name, self.number, self.node = part.entry.name, part.number, part.entry.node
        self._text, self._entry = text, part.entry
        self._gauge_names, self._counter_names = text.gauges[: len(part.gauges)], text.counters
        self._gauges, self._rows = Rows(part.gauges), {slot: Rows(row) for slot, row in part.rows.items()}

    def empty(self) -> Cache:
        """A cache of the same geometry and name to which others can be added."""
        return Cache(self._text, layout.Part(self.number, self._entry, (0,) * len(self._gauge_names), {}))

    def add(self, other: Cache) -> None:
        """Add the gauges and counters of another cache."""
        if self._gauge_names != other._gauge_names or self._counter_names != other._counter_names:
            other = other._with_names(self)
            self._take(self._with_names(other))
        self._gauges.add(other._gauges.sums())
        for slot, row in other._rows.items():
            mine = self._rows.get(slot)
            if mine is None:
                self._rows[slot] = Rows(row.sums())
            else:
                mine.add(row.sums())

    def _take(self, other: Cache) -> None:
        self._gauge_names, self._counter_names = other._gauge_names, other._counter_names
        self._gauges, self._rows = other._gauges, other._rows

    def _with_names(self, other: Cache) -> Cache:
        """The same numbers with the names of `other` first, as records of different releases need it."""
        new = self.empty()
        new._gauge_names = tuple(dict.fromkeys((*other._gauge_names, *self._gauge_names)))
        new._counter_names = tuple(dict.fromkeys((*other._counter_names, *self._counter_names)))
        gauges = self.gauges
        new._gauges = Rows([gauges.get(name, 0) for name in new._gauge_names])
        new._rows = {slot: Rows([row.get(name, 0) for name in new._counter_names]) for slot, row in self.slots.items()}
        return new

    @property
    def geometry(self) -> Mapping[str, int]:
        """The numbers in its entry."""
        return self._entry.geometry

    @property
    def gauges(self) -> dict[str, int]:
        """The gauges by name."""
        return dict(zip(self._gauge_names, self._gauges.sums(), strict=True))

    @property
    def used(self) -> bool:
        """Whether any counter was ever above 0."""
        return bool(self._rows)

    @property
    def slots(self) -> dict[int, dict[str, int]]:
        """The counters by name for each slot that has any."""
        return {slot: dict(zip(self._counter_names, row.sums(), strict=True)) for slot, row in self._rows.items()}

    def _sums(self) -> Sequence[int]:
        """Each counter summed over all slots."""
        rows = [row.sums() for row in self._rows.values()]
        if not rows:
            return (0,) * len(self._counter_names)
        return rows[0] if len(rows) == 1 else tuple(map(sum, zip(*rows, strict=True)))

    @property
    def counters(self) -> dict[str, int]:
        """The sum of each counter over all slots, by name; empty if no counter was ever above 0."""
        return dict(zip(self._counter_names, self._sums(), strict=True)) if self._rows else {}

    def count(self, name: str) -> int:
        """The sum of a counter over all slots."""
        return self.counters.get(name, 0)

    def derived(self) -> dict[str, int]:
        """The sums of the record: objects in use, bytes in sheaves and so on."""
        text = self._text
        if self._counter_names == text.counters and self._gauge_names == text.gauges[: len(self._gauge_names)]:
            numbers = text.cache_sum(self._gauges.sums(), self._entry.numbers, self._sums())
            return dict(zip(text.cache_sums, numbers, strict=True))
        known = {**self.counters, **self.geometry, **self.gauges}
        return layout.evaluate(text.cache_sums, lambda name: known.get(name, 0))

    @property
    def object_size(self) -> int:
        """Bytes of an object, as requested at creation."""
        return self.geometry["object_size"]

    @property
    def memory(self) -> int:
        """Bytes of the slabs that the cache has."""
        return self.derived()["memory_bytes"]


def fast_share(counters: Mapping[str, int]) -> float | None:
    """Share of allocations and frees that took the fast path, 0 to 1; None if there were none."""
    fast = counters.get("alloc_fastpath", 0) + counters.get("free_fastpath", 0)
    slow = counters.get("alloc_slowpath", 0) + counters.get("free_slowpath", 0)
    return fast / (fast + slow) if fast + slow else None


@dataclass
class Head:
    """The process of a record and its end. Times are in nanoseconds since the epoch."""

    path: Path
    pid: int
    parent_pid: int
    program: str
    mode: str
    start_time_ns: int
    fold_interval: int
    kernel: str
    version: str
    process_start: int  # in clock ticks since boot; 0 if unknown
    pid_namespace: int  # in which `pid` is a number; 0 if unknown
    boot_id: str  # empty if unknown
    end_time_ns: int  # 0 while the process runs, and if it did not close its record

    @functools.cached_property
    def alive(self) -> bool:
        """Whether the process is running and has this file mapped, at the first time that this is read."""
        try:
            return not self.end_time_ns and any(same(self.path, file) for file in mapped(self.pid, maps(self.pid)))
        except SheafError:
            return False


@dataclass
class Record(Head):
    """The record of one process."""

    process: dict[str, int]
    sums: layout.Sums
    caches: dict[str, Cache]  # by name, those of one name on several nodes added up
    parts: list[Cache]  # each as it stands in the record

    @property
    def peak_rss(self) -> int:
        """The highest resident bytes of the process; 0 before its end."""
        return self.process.get("peak_resident_bytes", 0)

    def derived(self) -> dict[str, int]:
        """The sums over values of the process."""
        return layout.evaluate(self.sums, lambda name: self.process.get(name, 0))

    @property
    def resident(self) -> int:
        """Resident bytes: the current ones of a running process, otherwise the recorded peak, which is 0 if it was killed."""
        try:
            if self.alive:
                pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
                return pages * os.sysconf("SC_PAGESIZE")
        except (OSError, ValueError, IndexError):
            pass
        return self.peak_rss


@dataclass
class Mapped:
    """A record in /proc/PID/maps: its device and inode, and the two paths under which this process may find it."""

    device: int
    inode: int
    places: tuple[Path, Path]


def maps(pid: int) -> str:
    """/proc/PID/maps; empty if the process has ended. Raises SheafError if reading is not permitted."""
    try:
        return Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape")
    except PermissionError as error:
        how = "with CAP_SYS_PTRACE" if os.geteuid() == 0 else "as the user of the process or as root"
        raise SheafError(f"/proc/{pid}/maps: {error.strerror}; run sheaf {how}, or name the record file") from error
    except OSError:
        return ""


def mapped(pid: int, text: str) -> list[Mapped]:
    """The records that a process has mapped, in the order of the text of its maps."""
    files = []
    for line in text.splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5].endswith(".sheaf"):
            major, minor = (int(part, 16) for part in fields[3].split(":"))
            places = Path(fields[5]), Path(f"/proc/{pid}/root{fields[5]}")  # the second one for a process in a container
            files.append(Mapped(os.makedev(major, minor), int(fields[4]), places))
    return files


def same(path: Path, file: Mapped) -> bool:
    """
    Whether a path leads to a mapped file. Some file systems report different devices in maps and in stat, so the paths of
    the mapping are compared as well.
    """
    try:
        status = path.stat()
    except OSError:
        return False
    if (status.st_dev, status.st_ino) == (file.device, file.inode):
        return True
    for place in file.places:
        try:
            if os.path.samestat(status, place.stat()):
                return True
        except OSError:
            continue
    return False


def _by_name(parts: list[Cache]) -> dict[str, Cache]:
    """Caches by name, siblings added up. Different caches of the same name stay separate, as NAME#NUMBER."""
    caches: dict[str, Cache] = {}
    for part in parts:
        first = caches.get(part.name)
        if first is None:
            caches[part.name] = part if part.node is None else part.empty()
            first = caches[part.name] if part.node is not None else None
        elif part.node is None or part.object_size != first.object_size:
            caches[f"{part.name}#{part.number}"] = part
            continue
        if first is not None:
            first.add(part)
    return caches


def head(reader: layout.Reader) -> Head:
    """Which process an open record belongs to."""
    return Head(**_head(reader))


def _head(reader: layout.Reader) -> dict[str, Any]:
    number, string, optional = reader.number, reader.string, reader.optional
    return {
        "path": reader.path, "pid": number("pid"), "parent_pid": number("parent_pid"), "program": string("program"),
        "mode": string("mode_name"), "start_time_ns": number("start_time_ns"), "fold_interval": number("fold_interval"),
        "kernel": string("kernel"), "version": string("sheaf_version"), "process_start": optional("process_start"),
        "pid_namespace": optional("pid_namespace"), "boot_id": string("boot_id"), "end_time_ns": reader.value("end_time_ns"),
    }


def read_head(path: Path) -> Head:
    """Read which process a record belongs to, without its caches. SheafError says what is wrong with a file that is none."""
    reader = layout.Reader(path)
    with reader.file:
        return head(reader)


def read(path: Path) -> Record:
    """Read one record. SheafError says what is wrong with a file that is none."""
    reader = layout.Reader(path)
    with reader.file:
        fields = _head(reader)
        numbers = reader.contents.values()
        parts = [Cache(reader.text, part) for part in reader.contents.parts()]
    values = dict(zip(reader.values, numbers, strict=True))
    return Record(**fields, process=values, sums=reader.process_sums, caches=_by_name(parts), parts=parts)


def find(target: str) -> Iterator[Path]:
    """
    The record files for a FILE, a DIR, or the number or the program of a running process; a file of that name takes
    precedence over a process. Raises SheafError if there are none, or if several processes have that name.
    """
    path = Path(target)
    if not target:
        raise SheafError("an empty name was given; name a running process, a record file or a directory")
    if os.path.isdir(target):  # Path.is_dir() would raise PermissionError
        try:
            files = sorted(path / name for name in os.listdir(path) if name.endswith(".sheaf"))
        except OSError as error:
            advice = "name another directory" if os.geteuid() == 0 else "run sheaf as its owner or as root"
            raise SheafError(f"{target}: {error.strerror}; {advice}") from error
        if not files:
            raise SheafError(f"{target}: the directory has no records; run a program with `sheaf run --record {target} PROGRAM`")
        yield from files
    elif _PID.fullmatch(target) and not os.path.exists(target):
        yield _of_process(int(target))
    else:
        pid = None if os.path.lexists(target) else process.resolve(target)
        yield path if pid is None else _of_process(pid)


def _of_process(pid: int) -> Path:
    """The record of a running process. Raises SheafError if it keeps none."""
    if not Path(f"/proc/{pid}").exists():
        raise SheafError(f"{pid}: no such process; name a running process, a record file or a directory")
    text = maps(pid)
    for file in mapped(pid, text):
        return next((place for place in file.places if same(place, file)), file.places[0])
    if "libsheaf-preload" in text:
        raise SheafError(f"{pid}: runs on Sheaf but keeps no record; start it with `sheaf run --record DIR`")
    if is_zombie(pid):
        raise SheafError(f"{pid}: has ended and waits for its parent (zombie); name its record file")
    child = next((child for child in _children(pid) if "libsheaf-preload" in maps(child)), None)
    if child:
        raise SheafError(f"{pid}: does not run on Sheaf, but its child {child} does; run `sheaf stats {child}`")
    raise SheafError(f"{pid}: does not run on Sheaf; start it with `sheaf run --record DIR`")


def is_zombie(pid: int) -> bool:
    """Whether the process has ended but was not waited for. Its maps are empty then."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] in "ZX"
    except (OSError, IndexError):
        return False


def _children(pid: int) -> list[int]:
    """The children of the main thread of a process; empty if the kernel does not list them."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def merge(records: list[Record]) -> dict[str, Cache]:
    """The caches of several processes, those of the same name added up. Counters stay separate by slot number."""
    merged: dict[str, Cache] = {}
    for record in records:
        for name, cache in record.caches.items():
            into = merged.get(name)
            if into is None:
                merged[name] = into = cache.empty()
            into.add(cache)
    return merged


def by_node(records: list[Record]) -> dict[int | None, dict[str, Cache]]:
    """The caches of each memory node in order; caches that belong to no node come last, under None."""
    nodes: dict[int | None, dict[str, Cache]] = {}
    for record in records:
        for part in record.parts:
            caches = nodes.setdefault(part.node, {})
            into = caches.get(part.name)
            if into is None:
                into = caches[part.name] = part.empty()
            into.add(part)
    return dict(sorted(nodes.items(), key=lambda item: (item[0] is None, item[0] or 0)))
