"""The layout of a record and the sums over its values, both read from the text in the record.

sheaf/record.h describes the text. Only the start of the header has a fixed layout.
"""

from __future__ import annotations

import functools
import math
import os
import re
import stat
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sheaf.errors import SheafError

MAGIC = b"SHEAFREC"
VERSION = 2
_START = struct.Struct("<8sIIII")  # magic, version, checksum, checked_size, text_offset
_CHECKED_FROM = 16
_CHECKSUM_SIZE = 4
_FIRST_READ = 12288  # bytes: header, text and values of a record by the present library
_MOST_ENTRIES = 4096  # constant parts of entries that a description keeps
NODE_SHIFT = 16  # bit position of the memory node, plus 1, in the flags of a cache
_LARGEST = 65536  # of sizes and counts in the header; larger ones would exhaust memory
_CODES = {"char": "s", "uint32_t": "I", "uint64_t": "Q"}
_FIELD = re.compile(r"(char|uint32_t|uint64_t) (\w+)(?:\[(\d+)\])?")
_TERM = re.compile(r"([+-]) (\w+(?: \* \w+)*) ?")
# The names that this command needs. Other names that are missing count as 0.
_NUMBERS = {
    "values_offset", "caches_offset", "slots_offset", "cache_max", "cache_stride", "slot_max", "slot_stride", "counter_stride",
    "fold_interval", "pid", "parent_pid", "start_time_ns",
}  # fmt: skip
_PLACES = ("values_offset", "caches_offset", "slots_offset", "cache_max", "cache_stride", "slot_max", "slot_stride",
           "counter_stride")
_TEXTS = {"mode_name", "sheaf_version", "program", "kernel"}
_ENTRY_NUMBERS = {"object_size", "size", "slab_size", "capacity", "flags", "checksum"}
_CACHE_SUMS = {"in_use", "in_sheaves", "memory_bytes", "in_use_bytes", "in_sheaves_bytes", "in_barns_bytes", "in_slabs_bytes"}
_PROCESS_SUMS = {"large_in_use_bytes", "region_free_bytes"}
_NAME_A_RECORD = "name a .sheaf file made with `sheaf run --record DIR` or SHEAF_RECORD"
_AGAIN = "copy the record again, or run the program again"
Value = int | str | tuple[int, ...]
Sums = Mapping[str, list[tuple[int, list[str]]]]


class Malformed(Exception):
    """The header or the text violates sheaf/record.h."""


class Fields:
    """The fields of a structure in the record."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.places: dict[str, tuple[int, int]] = {}  # index and length of each name among the values; length 0: no array
        self.offsets: dict[str, int] = {}  # in bytes
        codes, count = "<", 0
        for line in lines:
            found = _FIELD.fullmatch(line)
            if not found or int(found[3] or 1) > _LARGEST:
                raise Malformed
            length = int(found[3] or 0) if found[1] != "char" else 0
            self.places[found[2]] = count, length
            self.offsets[found[2]] = struct.calcsize(codes)
            codes += f"{found[3] or 1}{_CODES[found[1]]}"
            count += length or 1
        self.struct = struct.Struct(codes)

    def has(self, numbers: set[str], texts: set[str], arrays: set[str]) -> bool:
        """Whether the structure has these fields."""
        fields = self.unpack(bytes(self.struct.size))
        kinds = ((numbers, int), (texts, str), (arrays, tuple))
        return all(isinstance(fields.get(name), kind) for names, kind in kinds for name in names)

    def unpack(self, raw: bytes, offset: int = 0) -> dict[str, Value]:
        """All fields by name. An array of numbers becomes a tuple."""
        values = self.struct.unpack_from(raw, offset)
        fields: dict[str, Value] = {}
        for name, (place, length) in self.places.items():
            one = values[place]
            fields[name] = values[place : place + length] if length else text(one) if isinstance(one, bytes) else one
        return fields


@functools.lru_cache(maxsize=4096)
def text(raw: bytes) -> str:
    """The text up to the first NUL, without control characters."""
    decoded = raw.split(b"\0", 1)[0].decode("utf-8", "replace")
    return "".join(one if one.isprintable() else "\ufffd" for one in decoded)


def _open_at_once(path: str, flags: int) -> int:
    """For open(): do not wait for the writer of a FIFO."""
    return os.open(path, flags | os.O_NONBLOCK)


def _sums(lines: Iterable[str]) -> Sums:
    sums = {}
    for line in lines:
        name, _, formula = line.partition(" = ")
        if _TERM.sub("", f"+ {formula}"):
            raise Malformed
        sums[name] = [(-1 if sign == "-" else 1, factors.split(" * ")) for sign, factors in _TERM.findall(f"+ {formula}")]
    return sums


def evaluate(sums: Sums, lookup: Callable[[str], int]) -> dict[str, int]:
    """All sums by name. A sum may use earlier sums and the names of `lookup`. A negative sum counts as 0."""
    values: dict[str, int] = {}
    for name, terms in sums.items():
        products = (sign * math.prod(values[f] if f in values else lookup(f) for f in factors) for sign, factors in terms)
        values[name] = max(0, sum(products))
    return values


def compiled(sums: Sums, *names: Sequence[str]) -> Callable[..., tuple[int, ...]]:
    """
    A function that returns all sums, in order, as evaluate() does. Its arguments are sequences of numbers, one for each
    sequence of `names`. The text of a record contributes no more than indices to the source of the function.
    """
    known = {name: f"a{i}[{j}]" for i, group in reversed(list(enumerate(names))) for j, name in enumerate(group)}
    lines = [f"def add({', '.join(f'a{i}' for i in range(len(names)))}):"]
    for number, (name, terms) in enumerate(sums.items()):
        lines.append(f"    s{number} = 0")
        for sign, factors in terms:  # a statement for each factor, so that the parser needs no stack
            lines.append(f"    p = {known.get(factors[0], '0')}")
            lines += [f"    p *= {known.get(factor, '0')}" for factor in factors[1:]]
            lines.append(f"    s{number} {'-' if sign < 0 else '+'}= p")
        lines.append(f"    if s{number} < 0: s{number} = 0")
        known[name] = f"s{number}"
    lines.append(f"    return ({''.join(f's{number}, ' for number in range(len(sums)))})")
    scope: dict[str, Callable[..., tuple[int, ...]]] = {}
    exec("\n".join(lines), {"__builtins__": {}}, scope)
    return scope["add"]


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
    values: dict[str, int]
    cache_sums: dict[str, int]
    process_sums: dict[str, int]


class Description:
    """The text of a record, parsed. It is shared by all records with the same text and never changes."""

    def __init__(self, lines: Mapping[str, Sequence[str]]) -> None:
        self.header, self.entry = Fields(lines.get("header", [])), Fields(lines.get("entry", []))
        self.counters, self.gauges, self.values = (tuple(lines.get(kind, [])) for kind in ("counter", "gauge", "value"))
        self.cache_sums, self.process_sums = _sums(lines.get("cache", [])), _sums(lines.get("process", []))
        if not (self.header.has(_NUMBERS, _TEXTS, set()) and self.entry.has(_ENTRY_NUMBERS, {"name"}, {"gauges"})
                and self.cache_sums.keys() >= _CACHE_SUMS and self.process_sums.keys() >= _PROCESS_SUMS):
            raise Malformed
        self.geometry = tuple(name for name, number in self.entry.unpack(bytes(self.entry.struct.size)).items()
                              if isinstance(number, int))
        self.constant = self.entry.offsets["checksum"]  # bytes of an entry that its checksum covers
        length = self.entry.places["gauges"][1]
        self.gauge_numbers = struct.Struct(f"<{min(length, len(self.gauges))}Q")
        self.slot_counters = struct.Struct(f"<{len(self.counters)}Q")
        self.value_numbers = struct.Struct(f"<{len(self.values)}Q")
        self.no_counters = bytes(self.slot_counters.size)
        self.places = Places(*({name: i for i, name in enumerate(names)} for names in (
            self.counters, self.values, self.cache_sums, self.process_sums)))
        known = self.gauges[:length], self.geometry, self.counters
        self.cache_sum = compiled(self.cache_sums, *known)  # of gauges, geometry and counters
        self.process_sum = compiled(self.process_sums, self.values)
        self._entries: dict[bytes, Entry | None] = {}

    def entry_of(self, raw: bytes) -> Entry | None:
        """The constant part of an entry from its bytes; None if they do not match their checksum."""
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
        return Entry(str(fields["name"]), geometry, tuple(geometry.values()), node - 1 if node else None)


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

    def __init__(self, text: Description, header: Mapping[str, Value]) -> None:
        self.text = text

        def number(name: str) -> int:
            value = header[name]
            assert isinstance(value, int)
            return value

        self.values_offset, self.caches_offset, self.slots_offset = (
            number("values_offset"), number("caches_offset"), number("slots_offset"))
        self.cache_max, self.cache_stride = number("cache_max"), number("cache_stride")
        self.slot_max, self.slot_stride, self.counter_stride = number("slot_max"), number("slot_stride"), number("counter_stride")
        sane = (max(self.cache_max, self.slot_max, self.counter_stride, self.cache_stride) <= _LARGEST
                and 8 * len(text.counters) <= self.counter_stride
                and text.entry.struct.size <= self.cache_stride
                and 0 < self.counter_stride * self.cache_max <= self.slot_stride)
        if not sane:
            raise Malformed


@functools.lru_cache(maxsize=64)
def _layout(text: Description, *header: tuple[str, int]) -> Layout:
    return Layout(text, dict(header))


@dataclass(frozen=True)
class Part:
    """A cache as it stands in a record: one of the entries, and its counters in each slot that has any."""

    number: int
    entry: Entry
    gauges: tuple[int, ...]
    rows: dict[int, tuple[int, ...]]


class Contents:
    """
    The numbers of a record through a file descriptor, which remains the caller's. Raises SheafError if the file is too short
    or an entry of a cache stays damaged. `start` are bytes from the start of the file that were read before.
    """

    def __init__(self, fd: int, path: Path, layout: Layout, length: int, start: bytes = b"") -> None:
        self._fd, self._path, self._layout, self._length, self._start = fd, path, layout, length, start

    def at(self, offset: int, size: int) -> bytes:
        """`size` bytes at `offset`."""
        return _at(self._fd, self._path, self._length, self._start, offset, size)

    def values(self) -> tuple[int, ...]:
        """The values of the process."""
        numbers = self._layout.text.value_numbers
        return numbers.unpack(self.at(self._layout.values_offset, numbers.size))

    def entries(self) -> list[tuple[int, Entry, tuple[int, ...]]]:
        """Number, constant part and gauges of each cache in use. Reads the entries again if one changed meanwhile."""
        layout, text = self._layout, self._layout.text
        stride, checked, gauges_at = layout.cache_stride, text.constant + _CHECKSUM_SIZE, text.entry.offsets["gauges"]
        unused = bytes(checked)
        for _ in range(10):
            table = self.at(layout.caches_offset, layout.cache_max * stride)
            found: list[tuple[int, Entry, tuple[int, ...]]] = []
            for at in range(0, len(table.rstrip(b"\0")), stride):
                raw = table[at : at + checked]
                if raw == unused:
                    continue
                entry = text.entry_of(raw)
                if entry is None:
                    break
                found.append((at // stride, entry, text.gauge_numbers.unpack_from(table, at + gauges_at)))
            else:
                return found
        raise _damaged(self._path, "entry of a cache")

    def slots(self, size: int) -> dict[int, bytes]:
        """
        The first `size` bytes of the blocks of counters that were written, by slot. All other blocks are holes in the file
        and are not read.
        """
        layout = self._layout
        first, stride, most = layout.slots_offset, layout.slot_stride, layout.slot_max
        used: dict[int, bytes] = {}
        position, end = first, min(self._length, first + most * stride)
        while position < end:
            try:
                data = os.lseek(self._fd, position, os.SEEK_DATA)
            except OSError:
                break
            slot = (data - first) // stride
            if slot >= most:
                break
            used[slot] = self.at(first + slot * stride, size)
            position = first + (slot + 1) * stride
        return used

    def parts(self) -> list[Part]:
        """All caches in use."""
        entries, stride = self.entries(), self._layout.counter_stride
        counters, zero = self._layout.text.slot_counters, self._layout.text.no_counters
        blocks = self.slots((entries[-1][0] + 1) * stride).items() if entries else ()
        parts = []
        for number, entry, gauges in entries:
            at = number * stride
            end = at + counters.size
            rows = {slot: counters.unpack_from(block, at) for slot, block in blocks if block[at:end] != zero}
            parts.append(Part(number, entry, gauges, rows))
        return parts


def _damaged(path: Path, what: str = "header") -> SheafError:
    return SheafError(f"{path}: the {what} is damaged; {_AGAIN}")


def _short(path: Path, length: int) -> SheafError:
    return SheafError(f"{path}: cut short at {length} bytes; {_AGAIN}")


def _at(fd: int, path: Path, length: int, start: bytes, offset: int, size: int) -> bytes:
    if offset + size <= len(start):
        return start[offset : offset + size]
    if offset + size > length:
        raise _short(path, length)
    raw = os.pread(fd, size, offset)
    if len(raw) < size:
        raise _short(path, offset + len(raw))
    return raw


class Reader:
    """An open record and its layout. Raises SheafError for a file that is not a complete record."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.file = open(path, "rb", 0, opener=_open_at_once)  # noqa: SIM115 (record.read() closes it)
        except OSError as error:
            raise SheafError(f"{path}: {error.strerror}; {_NAME_A_RECORD}") from error
        try:
            self._begin()
        except (Malformed, struct.error, ValueError) as error:
            self.file.close()
            raise _damaged(path) from error
        except BaseException:
            self.file.close()
            raise

    def _begin(self) -> None:
        self.status = os.fstat(self.file.fileno())
        if not stat.S_ISREG(self.status.st_mode):
            raise SheafError(f"{self.path}: not a regular file; {_NAME_A_RECORD}")
        self.length = self.status.st_size
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
            raise _damaged(self.path)
        checked = self.at(0, size)
        if zlib.crc32(checked[_CHECKED_FROM:]) != checksum:
            raise _damaged(self.path)
        return checked

    def _read_text(self, checked: bytes) -> None:
        self.text = text = _described(checked[self.text_offset :])
        self.entry, self.counters, self.gauges, self.values = text.entry, text.counters, text.gauges, text.values
        self.cache_sums, self.process_sums = text.cache_sums, text.process_sums
        self.header = text.header.unpack(checked)
        self.layout = _layout(text, *((name, self.number(name)) for name in _PLACES))
        self.contents = Contents(self.file.fileno(), self.path, self.layout, self.length, self._start)
        if self.length < self.layout.slots_offset:
            raise _short(self.path, self.length)

    def optional(self, name: str) -> int:
        """A number in the header, or 0 if it has none of this name."""
        return self.number(name) if isinstance(self.header.get(name), int) else 0

    def value(self, name: str) -> int:
        """A value of the process, or 0 if it has none of this name."""
        if name not in self.values:
            return 0
        return self.numbers(self.number("values_offset") + 8 * self.values.index(name), 1)[0]

    def number(self, name: str) -> int:
        """A number in the header."""
        value = self.header[name]
        assert isinstance(value, int)
        return value

    def string(self, name: str) -> str:
        """A text in the header; empty if it has none of this name."""
        return str(self.header.get(name, ""))

    def at(self, offset: int, size: int) -> bytes:
        """`size` bytes at `offset`. Raises SheafError if the file is shorter."""
        return _at(self.file.fileno(), self.path, self.length, self._start, offset, size)

    def numbers(self, offset: int, count: int) -> tuple[int, ...]:
        """`count` 64-bit numbers at `offset`."""
        return struct.unpack(f"<{count}Q", self.at(offset, 8 * count))
