"""Read records: the files in which processes on Sheaf keep their counters.

sheaf/record.h describes the format. A record names its counters and has the sums over them, so this module also reads
records of a newer library that has more of them. A record may change while it is read: its values belong to slightly
different moments.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sheaf import layout
from sheaf.errors import SheafError

NODE_SHIFT = 16  # bit position of the memory node, plus 1, in the flags of a cache
_PID = re.compile("[0-9]{1,18}")


@dataclass
class Cache:
    """One cache of one process (or several merged): its geometry, gauges, and counters by slot."""

    name: str
    number: int
    geometry: dict[str, int]  # the numbers in its entry
    sums: layout.Sums
    gauges: dict[str, int]
    slots: dict[int, dict[str, int]] = field(default_factory=dict)
    node: int | None = None  # None: of no node, or the sum of all

    def count(self, name: str) -> int:
        """The sum of a counter over all slots."""
        return sum(counters.get(name, 0) for counters in self.slots.values())

    def _value(self, name: str) -> int:
        if name in self.gauges:
            return self.gauges[name]
        return self.geometry[name] if name in self.geometry else self.count(name)

    def derived(self) -> dict[str, int]:
        """The sums of the record: objects in use, bytes in sheaves and so on."""
        return layout.evaluate(self.sums, self._value)

    @property
    def object_size(self) -> int:
        return self.geometry["object_size"]

    @property
    def memory(self) -> int:
        """Bytes of the slabs that the cache has."""
        return self.derived()["memory_bytes"]

    @property
    def fast_share(self) -> float | None:
        """Part of all allocations and frees that took the fast path; None when there were none."""
        fast = self.count("alloc_fastpath") + self.count("free_fastpath")
        slow = self.count("alloc_slowpath") + self.count("free_slowpath")
        return fast / (fast + slow) if fast + slow else None


@dataclass
class Record:
    """One process."""

    path: Path
    pid: int
    parent_pid: int
    program: str
    mode: str
    start_time_ns: int
    fold_interval: int
    kernel: str
    version: str
    process: dict[str, int]
    sums: layout.Sums
    caches: dict[str, Cache]  # by name, those of one name on several nodes added up
    parts: list[Cache]  # each as it stands in the record

    @property
    def end_time_ns(self) -> int:
        """The time of the end; 0 while the process runs, or if it was killed or replaced by exec."""
        return self.process.get("end_time_ns", 0)

    @property
    def peak_rss(self) -> int:
        """The highest resident bytes of the process; 0 before its end."""
        return self.process.get("peak_resident_bytes", 0)

    def derived(self) -> dict[str, int]:
        """The sums over values of the process."""
        return layout.evaluate(self.sums, lambda name: self.process.get(name, 0))

    @property
    def alive(self) -> bool:
        """Whether the process still runs and has this file mapped."""
        try:
            return not self.end_time_ns and any(_same(self.path, file) for file in _mapped(self.pid, _maps(self.pid)))
        except SheafError:
            return False

    @property
    def resident(self) -> int:
        """Resident bytes: now when it runs, else the peak that it wrote at its end (0 when it was killed)."""
        try:
            if self.alive:
                pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
                return pages * os.sysconf("SC_PAGESIZE")
        except (OSError, ValueError, IndexError):
            pass
        return self.peak_rss


@dataclass
class _Mapped:
    """A record in the maps of a process: what the kernel says of it, and where we may find it."""

    device: int
    inode: int
    places: tuple[Path, Path]


def _maps(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape")
    except PermissionError as error:
        raise SheafError(f"{pid}: its maps may not be read; ask as its user or as root") from error
    except OSError:
        return ""


def _mapped(pid: int, maps: str) -> list[_Mapped]:
    files = []
    for line in maps.splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5].endswith(".sheaf"):
            major, minor = (int(part, 16) for part in fields[3].split(":"))
            places = Path(fields[5]), Path(f"/proc/{pid}/root{fields[5]}")  # the second in a container
            files.append(_Mapped(os.makedev(major, minor), int(fields[4]), places))
    return files


def _same(path: Path, file: _Mapped) -> bool:
    """By device and inode; through the name as well, since on some file systems the maps tell another device than stat."""
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


def _read_caches(reader: layout.Reader) -> list[Cache]:
    caches: list[Cache] = []
    counter_stride, blocks = reader.number("counter_stride"), reader.slots()
    for number, fields in reader.caches().items():
        name, gauges = fields["name"], fields["gauges"]
        assert isinstance(name, str)
        assert isinstance(gauges, tuple)
        geometry = {key: value for key, value in fields.items() if isinstance(value, int)}
        cache = Cache(name, number, geometry, reader.cache_sums, dict(zip(reader.gauges, gauges, strict=False)))
        for slot, block in blocks.items():
            values = struct.unpack_from(f"<{len(reader.counters)}Q", block, number * counter_stride)
            if any(values):
                cache.slots[slot] = dict(zip(reader.counters, values, strict=True))
        node = geometry["flags"] >> NODE_SHIFT
        cache.node = node - 1 if node else None
        caches.append(cache)
    return caches


def _add(into: Cache, cache: Cache) -> None:
    for gauge, value in cache.gauges.items():
        into.gauges[gauge] = into.gauges.get(gauge, 0) + value
    for slot, counters in cache.slots.items():
        row = into.slots.setdefault(slot, {})
        for counter, value in counters.items():
            row[counter] = row.get(counter, 0) + value


def _empty_like(cache: Cache) -> Cache:
    return Cache(cache.name, cache.number, cache.geometry, cache.sums, {})


def _by_name(parts: list[Cache]) -> dict[str, Cache]:
    """Parts of one cache on several nodes as one; different caches of one name stay apart."""
    caches: dict[str, Cache] = {}
    for part in parts:
        first = caches.get(part.name)
        if first is None:
            caches[part.name] = part if part.node is None else _empty_like(part)
            first = caches[part.name] if part.node is not None else None
        elif part.node is None or part.object_size != first.object_size:
            caches[f"{part.name}#{part.number}"] = part
            continue
        if first is not None:
            _add(first, part)
    return caches


def read(path: Path) -> Record:
    """Read one record. SheafError says what is wrong with a file that is none."""
    reader = layout.Reader(path)
    with reader.file:
        values = reader.numbers(reader.number("values_offset"), len(reader.values))
        parts = _read_caches(reader)
    number, string = reader.number, reader.string
    return Record(path, number("pid"), number("parent_pid"), string("program"), string("mode_name"), number("start_time_ns"),
                  number("fold_interval"), string("kernel"), string("sheaf_version"),
                  dict(zip(reader.values, values, strict=True)), reader.process_sums, _by_name(parts), parts)


def find(target: str) -> Iterator[Path]:
    """The record files that a FILE, a DIR or the number of a running process stands for."""
    path = Path(target)
    if not target:
        raise SheafError("an empty name; name a running process, a record file or a directory")
    if os.path.isdir(target):  # Path's own raises where one may not look
        try:
            files = sorted(path / name for name in os.listdir(path) if name.endswith(".sheaf"))
        except OSError as error:
            raise SheafError(f"{target}: {error.strerror}; ask as its owner or as root") from error
        if not files:
            raise SheafError(f"{target}: no records here; run a program with `sheaf run --record {target} PROGRAM`")
        yield from files
    elif _PID.fullmatch(target) and not os.path.exists(target):
        yield _of_process(int(target))
    else:
        yield path


def _of_process(pid: int) -> Path:
    if not Path(f"/proc/{pid}").exists():
        raise SheafError(f"{pid}: no such process; name a running process, a record file or a directory")
    maps = _maps(pid)
    for file in _mapped(pid, maps):
        return next((place for place in file.places if _same(place, file)), file.places[0])
    if "libsheaf-preload" in maps:
        raise SheafError(f"{pid}: runs on Sheaf but keeps no record; start it with `sheaf run --record DIR`")
    child = next((child for child in _children(pid) if "libsheaf-preload" in _maps(child)), None)
    if child:
        raise SheafError(f"{pid}: does not run on Sheaf, but its child {child} does; ask for that")
    raise SheafError(f"{pid}: does not run on Sheaf; start it with `sheaf run --record DIR`")


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def merge(records: list[Record]) -> dict[str, Cache]:
    """All caches of several processes, the alike ones added up; slots are kept apart by number."""
    merged: dict[str, Cache] = {}
    for record in records:
        for name, cache in record.caches.items():
            into = merged.get(name)
            if into is None:
                merged[name] = into = _empty_like(cache)
            _add(into, cache)
    return merged


def by_node(records: list[Record]) -> dict[int | None, dict[str, Cache]]:
    """The caches on each memory node; those of no node under None."""
    nodes: dict[int | None, dict[str, Cache]] = {}
    for record in records:
        for part in record.parts:
            caches = nodes.setdefault(part.node, {})
            into = caches.get(part.name)
            if into is None:
                into = caches[part.name] = _empty_like(part)
            _add(into, part)
    return dict(sorted(nodes.items(), key=lambda item: (item[0] is None, item[0] or 0)))
