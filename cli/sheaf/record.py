"""Read records: the files in which processes on Sheaf keep their counters.

sheaf/record.h describes the format. A record names its counters and has the sums over them, so this module also reads
records of a newer library that has more of them. A record may change while it is read: its values belong to slightly
different moments.
"""

from __future__ import annotations

import functools
import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sheaf import layout
from sheaf.errors import SheafError

NODE_SHIFT = 16  # bit position of the memory node, plus 1, in the flags of a cache
_PID = re.compile("[0-9]{1,18}")


@dataclass
class Cache:
    """One cache of one process, or of several processes merged: geometry in bytes and objects, gauges, counters by slot."""

    name: str
    number: int
    geometry: dict[str, int]  # the numbers in its entry
    sums: layout.Sums
    gauges: dict[str, int]
    slots: dict[int, dict[str, int]] = field(default_factory=dict)
    node: int | None = None  # None if the cache belongs to no node or is the sum over all nodes

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
        """Share of allocations and frees that took the fast path, 0 to 1; None if there were none."""
        fast = self.count("alloc_fastpath") + self.count("free_fastpath")
        slow = self.count("alloc_slowpath") + self.count("free_slowpath")
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
    """Add the gauges and counters of one cache to another."""
    for gauge, value in cache.gauges.items():
        into.gauges[gauge] = into.gauges.get(gauge, 0) + value
    for slot, counters in cache.slots.items():
        row = into.slots.setdefault(slot, {})
        for counter, value in counters.items():
            row[counter] = row.get(counter, 0) + value


def _empty_like(cache: Cache) -> Cache:
    return Cache(cache.name, cache.number, cache.geometry, cache.sums, {})


def _by_name(parts: list[Cache]) -> dict[str, Cache]:
    """Caches by name, siblings added up. Different caches of the same name stay separate, as NAME#NUMBER."""
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
        return Head(**_head(reader))


def read(path: Path) -> Record:
    """Read one record. SheafError says what is wrong with a file that is none."""
    reader = layout.Reader(path)
    with reader.file:
        head = _head(reader)
        values = reader.numbers(reader.number("values_offset"), len(reader.values))
        parts = _read_caches(reader)
    process = dict(zip(reader.values, values, strict=True))
    return Record(**head, process=process, sums=reader.process_sums, caches=_by_name(parts), parts=parts)


def find(target: str) -> Iterator[Path]:
    """
    The record files for a FILE, a DIR or the number of a running process; a file of that name takes precedence over a
    process. Raises SheafError if there are none.
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
        yield path


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
                merged[name] = into = _empty_like(cache)
            _add(into, cache)
    return merged


def by_node(records: list[Record]) -> dict[int | None, dict[str, Cache]]:
    """The caches of each memory node in order; caches that belong to no node come last, under None."""
    nodes: dict[int | None, dict[str, Cache]] = {}
    for record in records:
        for part in record.parts:
            caches = nodes.setdefault(part.node, {})
            into = caches.get(part.name)
            if into is None:
                into = caches[part.name] = _empty_like(part)
            _add(into, part)
    return dict(sorted(nodes.items(), key=lambda item: (item[0] is None, item[0] or 0)))
