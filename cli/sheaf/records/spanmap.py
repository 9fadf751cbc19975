"""What lies in the slices of a process's region: the words that SHEAF_MAP writes (sheaf/control.h)."""

from __future__ import annotations

import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from sheaf.errors import SheafError
from sheaf.records import control
from sheaf.records.cache import Cache
from sheaf.records.control import Control
from sheaf.records.record import Record

SLICE_BYTES = 64 << 10
KINDS = ("unmapped", "returned", "free", "slab", "large", "other")  # enum sheaf_slice_kind
UNMAPPED, RETURNED, FREE, SLAB, LARGE, OTHER = range(len(KINDS))
FILLS = ("empty", "to_25", "to_50", "to_75", "below_100", "full")  # bins of slabs by the share of objects that are out
_CACHE_SHIFT, _OUT_SHIFT = 4, 15
_FIRST = 1 << 31
_MOST = 1 << 25  # slices that are described, of 2 TiB


@dataclass
class Span:
    """
    Consecutive slices of one kind; for slabs one slab, otherwise one span of the allocator or a part of it. `objects` are those
    of a slab, and `out` those of them that are in use or in sheaves and barns; 0 for caches that the record does not have.
    """

    first: int
    slices: int
    kind: int
    cache: str = ""
    out: int = 0
    objects: int = 0

    @property
    def fill(self) -> float | None:
        """The share of a slab's objects that are out, 0 to 1; None for other spans and where it is not known."""
        return min(1.0, self.out / self.objects) if self.objects else None


@dataclass
class Slabs:
    """The slabs of one cache, of one memory node. `fills` counts slabs by bin of FILLS."""

    cache: Cache
    slabs: int = 0
    slices: int = 0
    out: int = 0
    fills: list[int] = field(default_factory=lambda: [0] * len(FILLS))

    @property
    def objects(self) -> int:
        """The objects that the slabs have room for."""
        return self.slabs * self.cache.geometry.get("slab_objects", 0)


def _bin(fill: float) -> int:
    return 0 if fill == 0 else len(FILLS) - 1 if fill >= 1 else 1 + int(4 * fill)


def read(process: Control) -> array.array[int]:
    """One word for each slice of the region. Raises SheafError if the process cannot describe them."""
    words = array.array("I")
    total = 1
    while len(words) < total:
        answer = process.ask(control.MAP, value=len(words))
        if answer.status == control.NO_ROOM:
            raise SheafError(f"{process.head.path}: no room for the map: the file system is full; free 64 KiB in it")
        first, count, total = answer.results[:3]
        if answer.status == control.RANGE or (not count and total):  # fewer slices than before
            break
        damaged = first != len(words) or not 4 * count <= control.WINDOW_BYTES or total > _MOST
        if answer.status != control.DONE or damaged:
            raise SheafError(
                f"{process.who}: its Sheaf {process.head.version} cannot describe its memory; "
                "start it again with the Sheaf of this command"
            )
        words.frombytes(process.window()[: 4 * count])
        if not total:
            break
    return words


def spans(words: Sequence[int], record: Record) -> list[Span]:
    """The spans that the words describe, in order of address. Slices of one free span that were returned or not are apart."""
    caches = {cache.number: cache for cache in record.parts}
    found: list[Span] = []
    before = -1
    for first, word in enumerate(words):
        kind, begins = word & 15, word & _FIRST
        if found and not begins and word == before & ~_FIRST:
            found[-1].slices += 1
            continue
        before = word
        span = Span(first, 1, kind if kind < len(KINDS) else OTHER)
        if kind == SLAB:
            number = word >> _CACHE_SHIFT & 2047
            cache = caches.get(number)
            span.cache = cache.name if cache else ""
            span.objects = cache.geometry.get("slab_objects", 0) if cache else 0
            span.out = word >> _OUT_SHIFT & 8191
        found.append(span)
    return found


def by_cache(found: Sequence[Span], record: Record) -> list[Slabs]:
    """The slabs of each cache that has any, those with the most memory first. Siblings on several nodes are added up."""
    caches = {cache.name: cache for cache in reversed(record.parts)}
    slabs: dict[str, Slabs] = {}
    for span in found:
        if span.kind == SLAB and span.cache:
            into = slabs.setdefault(span.cache, Slabs(caches[span.cache]))
            into.slabs += 1
            into.slices += span.slices
            into.out += span.out
            into.fills[_bin(span.fill or 0.0)] += 1
    return sorted(slabs.values(), key=lambda one: (-one.slices, one.cache.name))


def slices_by_kind(found: Sequence[Span]) -> dict[str, int]:
    """The number of slices of each kind."""
    counts = dict.fromkeys(KINDS, 0)
    for span in found:
        counts[KINDS[span.kind]] += span.slices
    return counts
