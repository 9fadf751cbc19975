"""Where things are in a record, and the sums that follow from them, as the text in the record says.

sheaf/record.h describes the text. Only the start of the header has a fixed layout.
"""

from __future__ import annotations

import math
import os
import re
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from sheaf.errors import SheafError

MAGIC = b"SHEAFREC"
VERSION = 2
_START = struct.Struct("<8sIIII")  # magic, version, checksum, checked_size, text_offset
_CHECKED_FROM = 16
_CHECKSUM_SIZE = 4
_LARGEST = 65536  # of the checked part, a cache's entry, and the counts of things
_CODES = {"char": "s", "uint32_t": "I", "uint64_t": "Q"}
_FIELD = re.compile(r"(char|uint32_t|uint64_t) (\w+)(?:\[(\d+)\])?")
_TERM = re.compile(r"([+-]) (\w+(?: \* \w+)*) ?")
# What this command takes from the text; it would be wrong to show 0 for a sum that is not there.
_NUMBERS = {
    "values_offset", "caches_offset", "slots_offset", "cache_max", "cache_stride", "slot_max", "slot_stride", "counter_stride",
    "fold_interval", "pid", "parent_pid", "start_time_ns",
}  # fmt: skip
_TEXTS = {"mode_name", "sheaf_version", "program", "kernel"}
_ENTRY_NUMBERS = {"object_size", "size", "slab_size", "capacity", "flags", "checksum"}
_CACHE_SUMS = {"in_use", "in_sheaves", "memory_bytes", "in_use_bytes", "in_sheaves_bytes", "in_barns_bytes", "in_slabs_bytes"}
_PROCESS_SUMS = {"large_in_use_bytes", "region_free_bytes"}
Value = int | str | tuple[int, ...]
Sums = Mapping[str, list[tuple[int, list[str]]]]


class Malformed(Exception):
    """The text is not what sheaf/record.h says."""


class Fields:
    """A structure of the record."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.places: dict[str, tuple[int, int]] = {}  # of each name among all values; a length of 0 is no array
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
        """Whether these names are there, of these kinds."""
        fields = self.unpack(bytes(self.struct.size))
        kinds = ((numbers, int), (texts, str), (arrays, tuple))
        return all(isinstance(fields.get(name), kind) for names, kind in kinds for name in names)

    def unpack(self, raw: bytes, offset: int = 0) -> dict[str, Value]:
        """All fields by name; an array of numbers is a tuple."""
        values = self.struct.unpack_from(raw, offset)
        fields: dict[str, Value] = {}
        for name, (place, length) in self.places.items():
            one = values[place]
            fields[name] = values[place : place + length] if length else text(one) if isinstance(one, bytes) else one
        return fields


def text(raw: bytes) -> str:
    """Up to the first NUL, fit for a terminal."""
    decoded = raw.split(b"\0", 1)[0].decode("utf-8", "replace")
    return "".join(one if one.isprintable() else "\ufffd" for one in decoded)


def _sums(lines: Iterable[str]) -> Sums:
    sums = {}
    for line in lines:
        name, _, formula = line.partition(" = ")
        if _TERM.sub("", f"+ {formula}"):
            raise Malformed
        sums[name] = [(-1 if sign == "-" else 1, factors.split(" * ")) for sign, factors in _TERM.findall(f"+ {formula}")]
    return sums


def evaluate(sums: Sums, lookup: Callable[[str], int]) -> dict[str, int]:
    """All sums; each may use those before it, and all names that `lookup` knows. None is negative."""
    values: dict[str, int] = {}
    for name, terms in sums.items():
        products = (sign * math.prod(values[f] if f in values else lookup(f) for f in factors) for sign, factors in terms)
        values[name] = max(0, sum(products))
    return values


class Reader:
    """A record whose text was read; every access is checked against the length of the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.file = path.open("rb")
            self.length = os.fstat(self.file.fileno()).st_size
        except OSError as error:
            advice = "name a record made with SHEAF_RECORD or `sheaf run --record`"
            raise SheafError(f"{path}: {error.strerror}; {advice}") from error
        try:
            self._read_text(self._checked())
        except (Malformed, struct.error, ValueError) as error:
            raise self.damaged() from error

    def damaged(self, what: str = "header") -> SheafError:
        """An error about a part whose checksum is wrong, or that says what cannot be."""
        return SheafError(f"{self.path}: damaged {what}; the record cannot be read")

    def _checked(self) -> bytes:
        """The header and the text, once their checksum is found to be right."""
        start = self.file.read(_START.size)
        if not any(start) and self.path.suffix == ".sheaf":
            raise SheafError(f"{self.path}: has no header; its process has only just started, or was killed then")
        if start[: len(MAGIC)] != MAGIC:
            raise SheafError(f"{self.path}: not a Sheaf record; name a .sheaf file made with `sheaf run --record DIR`")
        _, version, checksum, size, self.text_offset = _START.unpack(self.at(0, _START.size))
        if version != VERSION:
            advice = "use the `sheaf` of the same release"
            raise SheafError(f"{self.path}: record version {version}, this command reads {VERSION}; {advice}")
        if not _START.size <= self.text_offset <= size <= _LARGEST:
            raise self.damaged()
        checked = self.at(0, size)
        if zlib.crc32(checked[_CHECKED_FROM:]) != checksum:
            raise self.damaged()
        return checked

    def _read_text(self, checked: bytes) -> None:
        lines: dict[str, list[str]] = {}
        for line in checked[self.text_offset :].decode("ascii").splitlines():
            kind, _, rest = line.partition(" ")
            lines.setdefault(kind, []).append(rest)
        header, self.entry = Fields(lines.get("header", [])), Fields(lines.get("entry", []))
        self.counters, self.gauges, self.values = (lines.get(kind, []) for kind in ("counter", "gauge", "value"))
        self.cache_sums, self.process_sums = _sums(lines.get("cache", [])), _sums(lines.get("process", []))
        if not (header.has(_NUMBERS, _TEXTS, set()) and self.entry.has(_ENTRY_NUMBERS, {"name"}, {"gauges"})
                and self.cache_sums.keys() >= _CACHE_SUMS and self.process_sums.keys() >= _PROCESS_SUMS):
            raise Malformed
        self.header = header.unpack(checked)
        number = self.number
        sane = (max(number("cache_max"), number("slot_max"), number("counter_stride"), number("cache_stride")) <= _LARGEST
                and 8 * len(self.counters) <= number("counter_stride")
                and self.entry.struct.size <= number("cache_stride")
                and 0 < number("counter_stride") * number("cache_max") <= number("slot_stride"))
        if not sane:
            raise Malformed
        if self.length < number("slots_offset"):
            raise self._short(self.length)

    def number(self, name: str) -> int:
        """A number of the header."""
        value = self.header[name]
        assert isinstance(value, int)
        return value

    def string(self, name: str) -> str:
        """A text of the header."""
        return str(self.header[name])

    def _short(self, length: int) -> SheafError:
        return SheafError(f"{self.path}: cut short at {length} bytes; the record cannot be read")

    def at(self, offset: int, size: int) -> bytes:
        """Bytes of the file; a short file is an error, not a crash."""
        if offset + size > self.length:
            raise self._short(self.length)
        self.file.seek(offset)
        raw = self.file.read(size)
        if len(raw) < size:
            raise self._short(offset + len(raw))
        return raw

    def numbers(self, offset: int, count: int) -> tuple[int, ...]:
        """Numbers of eight bytes each."""
        return struct.unpack(f"<{count}Q", self.at(offset, 8 * count))

    def caches(self) -> dict[int, dict[str, Value]]:
        """The entries of caches that are in use, by number. One that is read while it is written is read again."""
        most, stride, size = self.number("cache_max"), self.number("cache_stride"), self.entry.offsets["checksum"]
        for _ in range(10):
            table = self.at(self.number("caches_offset"), most * stride)
            used = [at for at in range(0, most * stride, stride) if any(table[at : at + size + _CHECKSUM_SIZE])]
            entries = {at // stride: self.entry.unpack(table, at) for at in used}
            if all(zlib.crc32(table[at : at + size]) == entries[at // stride]["checksum"] for at in used):
                return entries
        raise self.damaged("entry of a cache")

    def slots(self) -> dict[int, bytes]:
        """The counters of slots that were ever written: the rest of the file is holes, which need not be read."""
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
