"""Read records: the files in which processes on Sheaf keep their counters.

sheaf/record.h describes the format. A record names its counters, so this module also reads records of a newer library
that has more of them. A record may change while it is read: its values belong to slightly different moments, and a
difference of several values is therefore clamped at zero.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sheaf.errors import SheafError

MAGIC = b"SHEAFREC"
VERSION = 1
_HEADER = struct.Struct("<8sIIQ8I4QIIQQ4IQ16s32s128s128s")
_CACHE = struct.Struct("<32sIIIIIIII24Q")
RUNNING, ENDED = 1, 2
NODE_SHIFT = 16  # bit position of the memory node, plus 1, in the flags of a cache
_PID = re.compile("[0-9]{1,18}")
_NAME_A_RECORD = "name a .sheaf file made with `sheaf run --record DIR` or SHEAF_RECORD"
_AGAIN = "copy the record again, or run the program again"


@dataclass
class Cache:
    """One cache of one process, or of several processes merged: geometry in bytes and objects, gauges, counters by slot."""

    name: str
    number: int
    object_size: int
    size: int
    slab_size: int
    capacity: int
    is_malloc: bool
    gauges: dict[str, int]
    slots: dict[int, dict[str, int]] = field(default_factory=dict)
    node: int | None = None  # None if the cache belongs to no node or is the sum over all nodes

    def count(self, name: str) -> int:
        """The sum of a counter over all slots."""
        return sum(counters.get(name, 0) for counters in self.slots.values())

    @property
    def in_use(self) -> int:
        """Objects that the program has allocated and not freed."""
        allocs = self.count("alloc_fastpath") + self.count("alloc_slowpath") + self.count("alloc_prefilled")
        frees = self.count("free_fastpath") + self.count("free_slowpath") + self.count("free_rcu_done")
        return max(0, self.gauges.get("inherited", 0) + allocs - frees)

    @property
    def in_sheaves(self) -> int:
        """Free objects in the sheaves of slots."""
        out = self.gauges.get("objects", 0) - self.gauges.get("free_in_slabs", 0)
        return max(0, out - self.gauges.get("barn_objects", 0) - self.in_use)

    @property
    def memory(self) -> int:
        """Total size of the slabs in bytes."""
        return self.gauges.get("slabs", 0) * self.slab_size

    @property
    def fast_share(self) -> float | None:
        """Share of allocations and frees that took the fast path, 0 to 1; None if there were none."""
        fast = self.count("alloc_fastpath") + self.count("free_fastpath")
        slow = self.count("alloc_slowpath") + self.count("free_slowpath")
        return fast / (fast + slow) if fast + slow else None


@dataclass
class Record:
    """The record of one process. Times are in nanoseconds since the epoch, `peak_rss` is in bytes."""

    path: Path
    pid: int
    parent_pid: int
    program: str
    mode: str
    state: int
    start_time_ns: int
    end_time_ns: int
    fold_interval: int
    peak_rss: int
    kernel: str
    version: str
    process: dict[str, int]
    caches: dict[str, Cache]  # by name; siblings on several nodes are added up
    parts: list[Cache]  # as in the record, with one entry for each sibling

    @property
    def alive(self) -> bool:
        """Whether the process is running and has this file mapped."""
        try:
            return self.state == RUNNING and any(_same(self.path, file) for file in _mapped(self.pid, _maps(self.pid)))
        except SheafError:
            return False

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
class _Mapped:
    """A record in /proc/PID/maps: its device and inode, and the two paths under which this process may find it."""

    device: int
    inode: int
    places: tuple[Path, Path]


def _maps(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape")
    except PermissionError as error:
        how = "with CAP_SYS_PTRACE" if os.geteuid() == 0 else "as the user of the process or as root"
        raise SheafError(f"/proc/{pid}/maps: {error.strerror}; run sheaf {how}, or name the record file") from error
    except OSError:
        return ""


def _mapped(pid: int, maps: str) -> list[_Mapped]:
    """The records that a process has mapped, in the order of its maps."""
    files = []
    for line in maps.splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5].endswith(".sheaf"):
            major, minor = (int(part, 16) for part in fields[3].split(":"))
            places = Path(fields[5]), Path(f"/proc/{pid}/root{fields[5]}")  # the second one for a process in a container
            files.append(_Mapped(os.makedev(major, minor), int(fields[4]), places))
    return files


def _same(path: Path, file: _Mapped) -> bool:
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


def _text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode("utf-8", "replace")


def _open_at_once(path: str, flags: int) -> int:
    """For open(): do not wait for the writer of a FIFO."""
    return os.open(path, flags | os.O_NONBLOCK)


class _Reader:
    """The layout of one record, from its header. Raises SheafError for a file that is not a complete record."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.file = open(path, "rb", opener=_open_at_once)  # noqa: SIM115 (read() closes it)
            status = os.fstat(self.file.fileno())
        except OSError as error:
            raise SheafError(f"{path}: {error.strerror}; {_NAME_A_RECORD}") from error
        if not stat.S_ISREG(status.st_mode):
            raise SheafError(f"{path}: not a regular file; {_NAME_A_RECORD}")
        self.length = status.st_size
        magic = self.file.read(len(MAGIC))
        if not any(magic) and path.suffix == ".sheaf":
            reason = "the process has just started, or was killed at its start"
            raise SheafError(f"{path}: the header is missing: {reason}; try again later")
        if magic != MAGIC:
            raise SheafError(f"{path}: not a Sheaf record; {_NAME_A_RECORD}")
        fields = _HEADER.unpack(self.at(0, _HEADER.size))
        if fields[1] != VERSION:
            advice = "use the `sheaf` of the same release"
            raise SheafError(f"{path}: unknown record version {fields[1]} (this command reads version {VERSION}); {advice}")
        (_, _, _, self.file_size, self.counters, self.counter_stride, self.gauges, self.processes, self.cache_max,
         self.cache_stride, self.slot_max, self.slot_stride, self.names_at, self.process_at, self.caches_at,
         self.slots_at, *self.rest) = fields
        sane = (8 * self.counters <= self.counter_stride <= 65536 and _CACHE.size <= self.cache_stride <= 65536
                and self.gauges <= 24 and self.processes <= 4096 and self.cache_max <= 65536 and self.slot_max <= 65536
                and self.counter_stride * self.cache_max <= self.slot_stride
                and max(self.names_at, self.process_at, self.caches_at, self.slots_at) < 1 << 40
                and self.names_at < self.process_at and self.slot_stride > 0)
        if not sane:
            raise SheafError(f"{path}: the header is damaged; {_AGAIN}")

    def at(self, offset: int, size: int) -> bytes:
        """`size` bytes at `offset`. Raises SheafError if the file is shorter."""
        self.file.seek(offset)
        raw = self.file.read(size)
        if len(raw) < size:
            raise SheafError(f"{self.path}: cut short at {min(self.length, offset + len(raw))} bytes; {_AGAIN}")
        return raw

    def names(self) -> list[str]:
        """The names of counters, gauges and process values, in this order."""
        total = self.counters + self.gauges + self.processes
        raw = self.at(self.names_at, min(65536, self.process_at - self.names_at)).split(b"\0")
        if len(raw) < total:
            raise SheafError(f"{self.path}: names of counters are missing; {_AGAIN}")
        return [name.decode("ascii", "replace") for name in raw[:total]]

    def numbers(self, offset: int, count: int) -> tuple[int, ...]:
        """`count` 64-bit numbers at `offset`."""
        return struct.unpack(f"<{count}Q", self.at(offset, 8 * count))

    def used_slots(self) -> list[int]:
        """Numbers of the slots whose blocks were written. All other blocks are holes in the file and are not read."""
        used: list[int] = []
        position = self.slots_at
        end = min(self.length, self.slots_at + self.slot_max * self.slot_stride)
        while position < end:
            try:
                data = os.lseek(self.file.fileno(), position, os.SEEK_DATA)
            except OSError:
                break
            slot = (data - self.slots_at) // self.slot_stride
            if slot >= self.slot_max:
                break
            used.append(slot)
            position = self.slots_at + (slot + 1) * self.slot_stride
        return used


def _read_caches(reader: _Reader, counter_names: list[str], gauge_names: list[str]) -> list[Cache]:
    """All caches in the record, with the counters of the slots that used them."""
    caches: list[Cache] = []
    slots = reader.used_slots()
    table = reader.at(reader.caches_at, reader.cache_max * reader.cache_stride)
    blocks = {slot: reader.at(reader.slots_at + slot * reader.slot_stride, reader.slot_stride) for slot in slots}
    for number in range(reader.cache_max):
        fields = _CACHE.unpack_from(table, number * reader.cache_stride)
        name = _text(fields[0])
        if not name:
            continue
        cache = Cache(name, number, fields[2], fields[3], fields[5], fields[7], bool(fields[8] & 1),
                      dict(zip(gauge_names, fields[9:], strict=False)))
        for slot, block in blocks.items():
            values = struct.unpack_from(f"<{reader.counters}Q", block, number * reader.counter_stride)
            if any(values):
                cache.slots[slot] = dict(zip(counter_names, values, strict=True))
        cache.node = (fields[8] >> NODE_SHIFT) - 1 if fields[8] >> NODE_SHIFT else None
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
    return Cache(cache.name, cache.number, cache.object_size, cache.size, cache.slab_size, cache.capacity,
                 cache.is_malloc, {})


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


def read(path: Path) -> Record:
    """Read one record. Raises SheafError if the file cannot be read or is not a record."""
    reader = _Reader(path)
    with reader.file:
        names = reader.names()
        counter_names = names[: reader.counters]
        gauge_names = names[reader.counters : reader.counters + reader.gauges]
        process_names = names[reader.counters + reader.gauges :]
        process = dict(zip(process_names, reader.numbers(reader.process_at, reader.processes), strict=True))
        parts = _read_caches(reader, counter_names, gauge_names)
    pid, parent, start, end, _, state, fold, _, peak, mode, version, program, kernel = reader.rest
    return Record(path, pid, parent, _text(program), _text(mode), state, start, end, fold, peak, _text(kernel),
                  _text(version), process, _by_name(parts), parts)


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
    maps = _maps(pid)
    for file in _mapped(pid, maps):
        return next((place for place in file.places if _same(place, file)), file.places[0])
    if "libsheaf-preload" in maps:
        raise SheafError(f"{pid}: runs on Sheaf but keeps no record; start it with `sheaf run --record DIR`")
    if _is_zombie(pid):
        raise SheafError(f"{pid}: has ended and waits for its parent (zombie); name its record file")
    child = next((child for child in _children(pid) if "libsheaf-preload" in _maps(child)), None)
    if child:
        raise SheafError(f"{pid}: does not run on Sheaf, but its child {child} does; run `sheaf stats {child}`")
    raise SheafError(f"{pid}: does not run on Sheaf; start it with `sheaf run --record DIR`")


def _is_zombie(pid: int) -> bool:
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
