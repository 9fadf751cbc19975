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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sheaf.errors import SheafError

MAGIC = b"SHEAFREC"
VERSION = 2
_START = struct.Struct("<8sIIII")  # magic, version, checksum, checked_size, text_offset
_CHECKED_FROM = 16
_CHECKSUM_SIZE = 4
_LARGEST = 65536  # of sizes and counts in the header; larger ones would exhaust memory
_CODES = {"char": "s", "uint32_t": "I", "uint64_t": "Q"}
_FIELD = re.compile(r"(char|uint32_t|uint64_t) (\w+)(?:\[(\d+)\])?")
_TERM = re.compile(r"([+-]) (\w+(?: \* \w+)*) ?")
# The names that this command needs. Other names that are missing count as 0.
_NUMBERS = {
    "values_offset", "caches_offset", "slots_offset", "cache_max", "cache_stride", "slot_max", "slot_stride", "counter_stride",
    "fold_interval", "pid", "parent_pid", "start_time_ns",
}  # fmt: skip
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


@dataclass(frozen=True)
class _Description:
    """What the text of a record says."""

    header: Fields
    entry: Fields
    counters: list[str]
    gauges: list[str]
    values: list[str]
    cache_sums: Sums
    process_sums: Sums


@functools.lru_cache(maxsize=16)
def _described(raw: bytes) -> _Description:
    """Parse the text of a record. All records of one release have the same text."""
    lines: dict[str, list[str]] = {}
    for line in raw.decode("ascii").splitlines():
        kind, _, rest = line.partition(" ")
        lines.setdefault(kind, []).append(rest)
    header, entry = Fields(lines.get("header", [])), Fields(lines.get("entry", []))
    counters, gauges, values = (lines.get(kind, []) for kind in ("counter", "gauge", "value"))
    cache_sums, process_sums = _sums(lines.get("cache", [])), _sums(lines.get("process", []))
    if not (header.has(_NUMBERS, _TEXTS, set()) and entry.has(_ENTRY_NUMBERS, {"name"}, {"gauges"})
            and cache_sums.keys() >= _CACHE_SUMS and process_sums.keys() >= _PROCESS_SUMS):
        raise Malformed
    return _Description(header, entry, counters, gauges, values, cache_sums, process_sums)


class Reader:
    """An open record and its layout. Raises SheafError for a file that is not a complete record."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.file = open(path, "rb", opener=_open_at_once)  # noqa: SIM115 (record.read() closes it)
            status = os.fstat(self.file.fileno())
        except OSError as error:
            raise SheafError(f"{path}: {error.strerror}; {_NAME_A_RECORD}") from error
        if not stat.S_ISREG(status.st_mode):
            raise SheafError(f"{path}: not a regular file; {_NAME_A_RECORD}")
        self.length = status.st_size
        try:
            self._read_text(self._checked())
        except (Malformed, struct.error, ValueError) as error:
            raise self._damaged() from error

    def _damaged(self, what: str = "header") -> SheafError:
        return SheafError(f"{self.path}: the {what} is damaged; {_AGAIN}")

    def _checked(self) -> bytes:
        """The bytes of the header and the text, whose checksum is right."""
        start = self.file.read(_START.size)
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
            raise self._damaged()
        checked = self.at(0, size)
        if zlib.crc32(checked[_CHECKED_FROM:]) != checksum:
            raise self._damaged()
        return checked

    def _read_text(self, checked: bytes) -> None:
        described = _described(checked[self.text_offset :])
        self.entry, self.counters, self.gauges, self.values = (
            described.entry, described.counters, described.gauges, described.values)
        self.cache_sums, self.process_sums = described.cache_sums, described.process_sums
        self.header = described.header.unpack(checked)
        number = self.number
        sane = (max(number("cache_max"), number("slot_max"), number("counter_stride"), number("cache_stride")) <= _LARGEST
                and 8 * len(self.counters) <= number("counter_stride")
                and self.entry.struct.size <= number("cache_stride")
                and 0 < number("counter_stride") * number("cache_max") <= number("slot_stride"))
        if not sane:
            raise Malformed
        if self.length < number("slots_offset"):
            raise self._short(self.length)

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

    def _short(self, length: int) -> SheafError:
        return SheafError(f"{self.path}: cut short at {length} bytes; {_AGAIN}")

    def at(self, offset: int, size: int) -> bytes:
        """`size` bytes at `offset`. Raises SheafError if the file is shorter."""
        if offset + size > self.length:
            raise self._short(self.length)
        self.file.seek(offset)
        raw = self.file.read(size)
        if len(raw) < size:
            raise self._short(offset + len(raw))
        return raw

    def numbers(self, offset: int, count: int) -> tuple[int, ...]:
        """`count` 64-bit numbers at `offset`."""
        return struct.unpack(f"<{count}Q", self.at(offset, 8 * count))

    def caches(self) -> dict[int, dict[str, Value]]:
        """The entries of caches in use, by number. Reads them again if one changed meanwhile."""
        most, stride, size = self.number("cache_max"), self.number("cache_stride"), self.entry.offsets["checksum"]
        for _ in range(10):
            table = self.at(self.number("caches_offset"), most * stride)
            used = [at for at in range(0, most * stride, stride) if any(table[at : at + size + _CHECKSUM_SIZE])]
            entries = {at // stride: self.entry.unpack(table, at) for at in used}
            if all(zlib.crc32(table[at : at + size]) == entries[at // stride]["checksum"] for at in used):
                return entries
        raise self._damaged("entry of a cache")

    def slots(self) -> dict[int, bytes]:
        """The blocks of counters that were written, by slot. All other blocks are holes in the file and are not read."""
        first, stride, most = self.number("slots_offset"), self.number("slot_stride"), self.number("slot_max")
        used: dict[int, bytes] = {}
        position, end = first, min(self.length, first + most * stride)
        while position < end:
            try:
                data = os.lseek(self.file.fileno(), position, os.SEEK_DATA)
            except OSError:
                break
            slot = (data - first) // stride
            if slot >= most:
                break
            used[slot] = self.at(first + slot * stride, stride)
            position = first + (slot + 1) * stride
        return used
