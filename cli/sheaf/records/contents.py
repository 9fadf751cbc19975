"""The numbers in a record: the values of the process, and gauges and counters of its caches.

Thousands of records are read at once, so the numbers stay in flat tuples: first those of the first cache in the order of the
text, then those of the second, and so on. What records of one program share is kept in a `Shape`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from sheaf.errors import SheafError
from sheaf.records import layout
from sheaf.records.layout import CHECKSUM_SIZE, Entry, File, Layout

_ATTEMPTS = 10  # to read entries that do not change meanwhile
_MOST_SHAPES = 1024
_LARGEST_BLOCKS = 256 << 20  # bytes of counters in all slots; as many as 8192 CPUs have


class Named(Mapping[str, int]):
    """Numbers by name, in the order of the record. Takes little memory, because all records share the names."""

    __slots__ = ("_numbers", "_places")

    def __init__(self, places: Mapping[str, int], numbers: Sequence[int]) -> None:
        self._places, self._numbers = places, numbers

    @property
    def numbers(self) -> Sequence[int]:
        """The numbers alone."""
        return self._numbers

    def picked(self, names: Sequence[str]) -> list[int]:
        """The numbers of these names, 0 for those that there are not; much faster than one by one."""
        places, numbers = self._places, self._numbers
        return [numbers[places[name]] if name in places else 0 for name in names]

    def __getitem__(self, name: str) -> int:
        return self._numbers[self._places[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def total(rows: Sequence[Sequence[int]], width: int) -> tuple[int, ...]:
    """The sum of each column of rows of `width` numbers."""
    return tuple(map(sum, zip(*rows, strict=True))) if rows else (0,) * width


def pieces(numbers: Sequence[int], width: int) -> list[Sequence[int]]:
    """A flat sequence divided into rows of `width` numbers."""
    return [numbers[at : at + width] for at in range(0, len(numbers), width)] if width else []


class Shape:
    """Which caches a record has: their entries and numbers. Equal for all records of a program that uses the same caches."""

    def __init__(self, place: Layout, entries: Sequence[Entry | None]) -> None:
        self.text = place.text
        self.entries = tuple((i, entry) for i, entry in enumerate(entries) if entry)
        self.geometry = tuple(chain.from_iterable(entry.numbers for _, entry in self.entries))
        self.nothing = bytes(len(entries) * place.counter_stride)  # of a slot, up to the last of these caches
        before = self.text.entry.offsets["gauges"]
        self._counters = _struct(entries, len(self.text.counters), 0, place.counter_stride)
        self._gauges = _struct(entries, len(self.text.gauges), before, place.cache_stride)

    def counters(self, block: bytes) -> tuple[int, ...]:
        """The counters of all caches from the bytes of a slot."""
        return self._counters.unpack_from(block)

    def gauges(self, table: bytes) -> tuple[int, ...]:
        """The gauges of all caches from the bytes of their entries."""
        return self._gauges.unpack_from(table)


def _struct(entries: Sequence[Entry | None], count: int, before: int, stride: int) -> struct.Struct:
    """`count` numbers of each entry in use, `before` bytes from its start; the entries are `stride` bytes apart."""
    used = f"{before}x{count}Q{stride - before - 8 * count}x"
    return struct.Struct("<" + "".join(used if entry else f"{stride}x" for entry in entries))


@dataclass(slots=True)
class Caches:
    """All caches of a record at one moment. `blocks` are the bytes of each slot that was used."""

    shape: Shape
    gauges: tuple[int, ...]
    blocks: dict[int, bytes]
    _counters: tuple[int, ...] | None = None

    def counters(self) -> tuple[int, ...]:
        """The counters, each summed over all slots."""
        if self._counters is None:
            self._counters = self._summed()
        return self._counters

    def _summed(self) -> tuple[int, ...]:
        blocks = list(self.blocks.values())
        if not blocks:
            return (0,) * (len(self.shape.entries) * len(self.shape.text.counters))
        if len(blocks) == 1:
            return self.shape.counters(blocks[0])
        # Adds all counters of a slot as one number. Counters stay far below 2^63, so none carries into its neighbour; in a
        # damaged record the sums are as wrong as the counters.
        size = len(blocks[0])
        whole = sum(int.from_bytes(block, "little") for block in blocks) & ((1 << 8 * size) - 1)
        return self.shape.counters(whole.to_bytes(size, "little"))

    def by_slot(self) -> dict[int, tuple[int, ...]]:
        """The counters of each slot that was used."""
        return {slot: self.shape.counters(block) for slot, block in self.blocks.items()}

    def sums(self) -> list[tuple[int, ...]]:
        """The sums that the record defines, for each cache."""
        return self.shape.text.cache_sum(self.gauges, self.shape.geometry, self.counters())


_shapes: dict[tuple[Layout, tuple[bytes, ...]], Shape] = {}


def _shape(place: Layout, raws: tuple[bytes, ...]) -> Shape | None:
    """The shape of a record from the constant parts of its entries; None if one has a wrong checksum."""
    found = _shapes.get((place, raws))
    if found is None:
        entries = []
        for raw in raws:
            entry = place.text.entry_of(raw) if any(raw) else None
            if entry is None and any(raw):
                return None
            entries.append(entry)
        if len(_shapes) >= _MOST_SHAPES:
            _shapes.clear()
        found = _shapes[place, raws] = Shape(place, entries)
    return found


class Contents:
    """
    The numbers of an open record, whose file remains the caller's. Methods raise SheafError if the file is too short or an
    entry stays damaged.
    """

    def __init__(self, file: File, path: Path, place: Layout, reader: layout.Reader | None = None) -> None:
        self._file, self._path, self._layout, self._reader = file, path, place, reader

    def _at(self, offset: int, size: int) -> bytes:
        return self._reader.at(offset, size) if self._reader else layout.read_at(self._file, self._path, size, offset)

    def values(self) -> tuple[int, ...]:
        """The values of the process."""
        numbers = self._layout.text.value_numbers
        return numbers.unpack(self._at(self._layout.values_offset, numbers.size))

    def caches(self) -> Caches:
        """All caches in use. Reads the entries again if one changed meanwhile."""
        place = self._layout
        stride = place.cache_stride
        checked = place.text.constant + CHECKSUM_SIZE
        for _ in range(_ATTEMPTS):
            table = self._at(place.caches_offset, place.cache_max * stride)
            used = _used(table, stride, place.used)
            place.used = used
            raws = struct.unpack_from(_raws(used, checked, stride), table)
            shape = _shape(place, raws)
            if shape:
                return Caches(shape, shape.gauges(table), self._blocks(shape))
        raise layout.damaged(self._path, "entry of a cache")

    def _blocks(self, shape: Shape) -> dict[int, bytes]:
        """The counters of these caches in each slot that was used. Holes in the file are not read."""
        place, fd, size = self._layout, self._file.fileno(), len(shape.nothing)
        first, stride, most = place.slots_offset, place.slot_stride, place.slot_max
        used: dict[int, bytes] = {}
        slot = 0
        while size and slot < most:
            try:
                slot = (os.lseek(fd, first + slot * stride, os.SEEK_DATA) - first) // stride
            except OSError:  # only a hole follows
                break
            if slot < most:
                block = layout.read_at(self._file, self._path, size, first + slot * stride)
                if block != shape.nothing:
                    used[slot] = block
                if len(used) * size > _LARGEST_BLOCKS:
                    raise layout.damaged(self._path, "table of slots")
            slot += 1
        return used


_formats: dict[tuple[int, int, int], str] = {}


def _raws(count: int, checked: int, stride: int) -> str:
    """The format of the constant parts of the first `count` entries."""
    key = count, checked, stride
    if key not in _formats:
        _formats[key] = "<" + f"{checked}s{stride - checked}x" * count
    return _formats[key]


def _used(table: bytes, stride: int, guess: int) -> int:
    """The number of the last entry that is in use, plus 1. All bytes from there on are 0. Tries `guess` first."""
    low, high = 0, len(table) // stride
    zero = bytes(len(table))
    middle = min(guess, high - 1)
    while low < high:
        if zero.startswith(table[middle * stride : high * stride]):
            high = middle
            middle = high - 1 if high == guess else (low + high) // 2
        else:
            low = middle + 1
            middle = (low + high) // 2
    return high


def open_again(path: Path, identity: tuple[int, int]) -> tuple[File, os.stat_result]:
    """Open a record whose layout is known. Raises SheafError if the path leads to another file than `identity` now."""
    try:
        file = File(path)
    except OSError as error:
        raise SheafError(f"{path}: {error.strerror}; it was removed") from error
    status = os.fstat(file.fileno())
    if (status.st_dev, status.st_ino) != identity:
        file.close()
        raise SheafError(f"{path}: replaced by another file; read it again")
    return file, status
