"""The layout of a record and the sums over its values, both read from the text in the record.

sheaf/record.h describes the text. Only the start of the header has a fixed layout.
"""

from __future__ import annotations

import functools
import os
import re
import stat
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from types import TracebackType

from sheaf.errors import SheafError
from sheaf.records import sums

MAGIC = b"SHEAFREC"
VERSION = 2
_START = struct.Struct("<8sIIII")  # magic, version, checksum, checked_size, text_offset
_CHECKED_FROM = 16
CHECKSUM_SIZE = 4
_FIRST_READ = 12288  # bytes: header, text and values of a record by the present library
_MOST_ENTRIES = 4096  # constant parts of entries that a description keeps
NODE_SHIFT = 16  # bit position of the memory node, plus 1, in the flags of a cache
_LARGEST = 65536  # of sizes and counts in the header; larger ones would exhaust memory
_LARGEST_TABLE = 16 << 20  # bytes of all entries, and of the counters of one slot
_END = 1 << 62  # no file is longer, and Python's calls on files take no larger offset
_CODES = {"char": "s", "uint32_t": "I", "uint64_t": "Q"}
_SIZES = {"char": 1, "uint32_t": 4, "uint64_t": 8}
_FIELD = re.compile(r"(char|uint32_t|uint64_t) (\w+)(?:\[(\d{1,5})\])?", re.ASCII)
_NAME = re.compile(r"\w+", re.ASCII)
# The names that this command needs. Other names that are missing count as 0.
_NUMBERS = {
    "values_offset",
    "caches_offset",
    "slots_offset",
    "cache_max",
    "cache_stride",
    "slot_max",
    "slot_stride",
    "counter_stride",
    "fold_interval",
    "pid",
    "parent_pid",
    "start_time_ns",
}
_PLACES = itemgetter(
    "values_offset", "caches_offset", "slots_offset", "cache_max", "cache_stride", "slot_max", "slot_stride", "counter_stride"
)  # the arguments of Layout
_TEXTS = {"mode_name", "sheaf_version", "program", "kernel"}
_ENTRY_NUMBERS = {"object_size", "size", "slab_size", "capacity", "flags", "checksum"}
_CACHE_SUMS = {"in_use", "in_sheaves", "memory_bytes", "in_use_bytes", "in_sheaves_bytes", "in_barns_bytes", "in_slabs_bytes"}
_PROCESS_SUMS = {"large_in_use_bytes", "region_free_bytes"}
_NAME_A_RECORD = "name a .sheaf file made with `sheaf run --record DIR` or SHEAF_RECORD"
_AGAIN = "copy the record again, or run the program again"
Value = int | bytes | tuple[int, ...]


class Malformed(Exception):
    """The header or the text violates sheaf/record.h."""


class Fields:
    """The fields of a structure in the record."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.places: dict[str, tuple[int, int]] = {}  # index and length of each name among the values; length 0: no array
        self.offsets: dict[str, int] = {}  # in bytes
        codes, count, size = ["<"], 0, 0
        for line in lines:
            found = _FIELD.fullmatch(line)
            if not found:
                raise Malformed
            length = int(found[3] or 0) if found[1] != "char" else 0
            self.places[found[2]] = count, length
            self.offsets[found[2]] = size
            codes.append(f"{found[3] or 1}{_CODES[found[1]]}")
            count += length or 1
            size += int(found[3] or 1) * _SIZES[found[1]]
            if size > _LARGEST or (found[3] and not int(found[3])):
                raise Malformed
        self.struct = struct.Struct("".join(codes))
        self._plain = not any(length for _, length in self.places.values())

    def has(self, numbers: set[str], texts: set[str], arrays: set[str]) -> bool:
        """Whether the structure has these fields."""
        fields = self.unpack(bytes(self.struct.size))
        kinds = ((numbers, int), (texts, bytes), (arrays, tuple))
        return all(isinstance(fields.get(name), kind) for names, kind in kinds for name in names)

    def unpack(self, raw: bytes, offset: int = 0) -> dict[str, Value]:
        """All fields by name. An array of numbers becomes a tuple, and characters stay bytes."""
        values = self.struct.unpack_from(raw, offset)
        if self._plain:
            return dict(zip(self.places, values, strict=True))
        return {
            name: values[place : place + length] if length else values[place] for name, (place, length) in self.places.items()
        }


@functools.lru_cache(maxsize=4096)
def text(raw: bytes) -> str:
    """The text up to the first NUL, without control characters."""
    decoded = raw.split(b"\0", 1)[0].decode("utf-8", "replace")
    return "".join(one if one.isprintable() else "\ufffd" for one in decoded)


@dataclass(frozen=True)
class Entry:
    """The constant part of an entry of a cache."""

    name: str
    geometry: Mapping[str, int]  # its numbers by name
    numbers: tuple[int, ...]  # the same in the order of the text
    node: int | None  # None if the cache belongs to no memory node


@dataclass(frozen=True)
class Places:
    """The index of each name among numbers of its kind."""

    counters: dict[str, int]
    gauges: dict[str, int]
    values: dict[str, int]
    cache_sums: dict[str, int]
    process_sums: dict[str, int]


class Description:
    """The text of a record, parsed. It is shared by all records with the same text and never changes."""

    def __init__(self, lines: Mapping[str, Sequence[str]]) -> None:
        self.header, self.entry = Fields(lines.get("header", [])), Fields(lines.get("entry", []))
        self.counters, self.gauges, self.values = (tuple(lines.get(kind, [])) for kind in ("counter", "gauge", "value"))
        if not all(map(_NAME.fullmatch, (*self.counters, *self.gauges, *self.values))) or not self.values:
            raise Malformed
        self.cache_sums, self.process_sums = sums.parse(lines.get("cache", [])), sums.parse(lines.get("process", []))
        if not (
            self.header.has(_NUMBERS, _TEXTS, set())
            and self.entry.has(_ENTRY_NUMBERS, {"name"}, {"gauges"})
            and self.cache_sums.keys() >= _CACHE_SUMS
            and self.process_sums.keys() >= _PROCESS_SUMS
        ):
            raise Malformed
        self.geometry = tuple(
            name for name, number in self.entry.unpack(bytes(self.entry.struct.size)).items() if isinstance(number, int)
        )
        self.constant = self.entry.offsets["checksum"]  # bytes of an entry that its checksum covers
        self.gauges = self.gauges[: self.entry.places["gauges"][1]]
        if self.entry.offsets["gauges"] < self.constant + CHECKSUM_SIZE:
            raise Malformed
        self.value_numbers = struct.Struct(f"<{len(self.values)}Q")
        self.places = Places(
            *(
                {name: i for i, name in enumerate(names)}
                for names in (self.counters, self.gauges, self.values, self.cache_sums, self.process_sums)
            )
        )
        self.cache_sum = sums.Adder(self.cache_sums, self.gauges, self.geometry, self.counters)
        self.process_sum = sums.Adder(self.process_sums, self.values)
        self._entries: dict[bytes, Entry | None] = {}

    def entry_of(self, raw: bytes) -> Entry | None:
        """The constant part of an entry from its bytes, which end with its checksum; None if the checksum is wrong."""
        if raw not in self._entries:
            if len(self._entries) >= _MOST_ENTRIES:
                self._entries.clear()
            self._entries[raw] = self._parse(raw)
        return self._entries[raw]

    def _parse(self, raw: bytes) -> Entry | None:
        fields = self.entry.unpack(raw.ljust(self.entry.struct.size, b"\0"))
        if zlib.crc32(raw[: self.constant]) != fields["checksum"]:
            return None
        geometry = {name: number for name, number in fields.items() if isinstance(number, int)}
        node = geometry["flags"] >> NODE_SHIFT
        name = fields["name"]
        assert isinstance(name, bytes)
        return Entry(text(name), geometry, tuple(geometry.values()), node - 1 if node else None)


@functools.lru_cache(maxsize=16)
def _described(raw: bytes) -> Description:
    """Parse the text of a record. All records of one release have the same text."""
    lines: dict[str, list[str]] = {}
    for line in raw.decode("ascii").splitlines():
        kind, _, rest = line.partition(" ")
        lines.setdefault(kind, []).append(rest)
    return Description(lines)


class Layout:
    """Where the numbers of a record are. The layout of a record never changes, so one object serves all readings of it."""

    def __init__(
        self,
        text: Description,
        values: int,
        caches: int,
        slots: int,
        cache_max: int,
        cache_stride: int,
        slot_max: int,
        slot_stride: int,
        counter_stride: int,
    ) -> None:
        self.text, self.values_offset, self.caches_offset, self.slots_offset = text, values, caches, slots
        self.cache_max, self.cache_stride, self.slot_max = cache_max, cache_stride, slot_max
        self.slot_stride, self.counter_stride = slot_stride, counter_stride
        self.used = 0  # entries in use of the record that was read last; a guess for the next one
        self.values_end = values + text.value_numbers.size
        self.caches_end = caches + cache_max * cache_stride
        sane = (
            max(cache_max, slot_max, counter_stride, cache_stride) <= _LARGEST
            and max(cache_max * cache_stride, cache_max * counter_stride) <= _LARGEST_TABLE
            and max(self.values_end, self.caches_end, slots + slot_max * slot_stride) <= _END
            and 8 * len(text.counters) <= counter_stride
            and text.entry.struct.size <= cache_stride
            and 0 < counter_stride * cache_max <= slot_stride
        )
        if not sane:
            raise Malformed


@functools.lru_cache(maxsize=64)
def _layout(text: Description, *numbers: int) -> Layout:
    return Layout(text, *numbers)


def damaged(path: Path, what: str = "header") -> SheafError:
    """The error for a record that contradicts itself."""
    return SheafError(f"{path}: the {what} is damaged; {_AGAIN}")


def read_at(file: File, path: Path, size: int, offset: int) -> bytes:
    """Bytes of a record. Raises SheafError if the file is shorter."""
    try:
        raw = os.pread(file.fileno(), size, offset)
    except OSError as error:
        raise SheafError(f"{path}: {error.strerror}; {_AGAIN}") from error
    if len(raw) < size:
        raise SheafError(f"{path}: cut short at {os.fstat(file.fileno()).st_size} bytes; {_AGAIN}")
    return raw


class File:
    """A file descriptor that closes itself at the end of a `with` statement. open() makes more system calls."""

    __slots__ = ("_fd",)

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # does not wait for the writer of a FIFO

    def fileno(self) -> int:
        """The number of the descriptor."""
        return self._fd

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._fd)

    def __enter__(self) -> File:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class Reader:
    """An open record and its layout. Raises SheafError for a file that is not a complete record."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.file = File(path)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            denied = isinstance(error, PermissionError) and os.geteuid() != 0
            raise SheafError(f"{path}: {why}; {'run sheaf as the owner or as root' if denied else _NAME_A_RECORD}") from error
        try:
            self._begin()
        except (Malformed, struct.error, ValueError) as error:
            self.file.close()
            raise damaged(path) from error
        except BaseException:
            self.file.close()
            raise

    def _begin(self) -> None:
        self.status = os.fstat(self.file.fileno())
        if not stat.S_ISREG(self.status.st_mode):
            raise SheafError(f"{self.path}: not a regular file; {_NAME_A_RECORD}")
        try:
            self._start = os.pread(self.file.fileno(), _FIRST_READ, 0)
        except OSError as error:
            raise SheafError(f"{self.path}: {error.strerror}; {_NAME_A_RECORD}") from error
        self._read_text(self._checked())

    def _checked(self) -> bytes:
        """The bytes of the header and the text, whose checksum is right."""
        start = self._start[: _START.size]
        if not any(start) and self.path.suffix == ".sheaf":
            reason = "the process has just started, or was killed at its start"
            raise SheafError(f"{self.path}: the header is missing: {reason}; try again later")
        if start[: len(MAGIC)] != MAGIC:
            raise SheafError(f"{self.path}: not a Sheaf record; {_NAME_A_RECORD}")
        _, version, checksum, size, self.text_offset = _START.unpack(self.at(0, _START.size))
        if version != VERSION:
            advice = "use the `sheaf` of the same release"
            known = f"this command reads version {VERSION}"
            raise SheafError(f"{self.path}: unknown record version {version} ({known}); {advice}")
        if not _START.size <= self.text_offset <= size <= _LARGEST:
            raise damaged(self.path)
        checked = self.at(0, size)
        if zlib.crc32(checked[_CHECKED_FROM:]) != checksum:
            raise damaged(self.path)
        return checked

    def _read_text(self, checked: bytes) -> None:
        self.text = text = _described(checked[self.text_offset :])
        self.entry, self.counters, self.gauges, self.values = text.entry, text.counters, text.gauges, text.values
        self.cache_sums, self.process_sums = text.cache_sums, text.process_sums
        self.header = text.header.unpack(checked)
        self.layout = _layout(text, *_PLACES(self.header))
        if self.status.st_size < max(self.layout.values_end, self.layout.caches_end, self.layout.slots_offset):
            raise SheafError(f"{self.path}: cut short at {self.status.st_size} bytes; {_AGAIN}")

    def optional(self, name: str) -> int:
        """A number in the header, or 0 if it has none of this name."""
        return self.number(name) if isinstance(self.header.get(name), int) else 0

    def value(self, name: str) -> int:
        """A value of the process, or 0 if it has none of this name."""
        if name not in self.text.places.values:
            return 0
        return self.numbers(self.layout.values_offset + 8 * self.text.places.values[name], 1)[0]

    def number(self, name: str) -> int:
        """A number in the header."""
        value = self.header[name]
        assert isinstance(value, int)
        return value

    def string(self, name: str) -> str:
        """A text in the header; empty if it has none of this name."""
        value = self.header.get(name, b"")
        return text(value) if isinstance(value, bytes) else ""

    def at(self, offset: int, size: int) -> bytes:
        """`size` bytes at `offset`. Raises SheafError if the file is shorter."""
        if offset + size <= len(self._start):
            return self._start[offset : offset + size]
        return read_at(self.file, self.path, size, offset)

    def numbers(self, offset: int, count: int) -> tuple[int, ...]:
        """`count` 64-bit numbers at `offset`."""
        return struct.unpack(f"<{count}Q", self.at(offset, 8 * count))
