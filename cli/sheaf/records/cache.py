"""The caches of one process, or of several processes added up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sheaf.records import sums
from sheaf.records.contents import Caches, Shape, pieces, total
from sheaf.records.layout import Description, Entry

_BATCH = 256  # rows that are added at once
ALL_SLOTS = -1  # the number under which a merger that does not keep slots apart has the counters


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
            self._first = total([self._first, *self._more], 0)
            self._more = []
        return self._first


class Cache:
    """
    One cache of one process, or of several processes merged: geometry in bytes and objects, gauges, and counters by slot.
    `node` is None if the cache belongs to no memory node or is the sum over all nodes.
    """

    def __init__(
        self, text: Description, number: int, entry: Entry, gauges: Sequence[int], rows: Mapping[int, Sequence[int]]
    ) -> None:
        self.name, self.number, self.node = entry.name, number, entry.node
        self._text, self._entry = text, entry
        self._gauge_names, self._counter_names = text.gauges, text.counters
        self._gauges, self._rows = Rows(gauges), {slot: Rows(row) for slot, row in rows.items()}

    def empty(self) -> Cache:
        """A cache of the same geometry and name to which others can be added."""
        return Cache(self._text, self.number, self._entry, (0,) * len(self._text.gauges), {})

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
        return total([row.sums() for row in self._rows.values()], len(self._counter_names))

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
        if self._counter_names == text.counters and self._gauge_names == text.gauges:
            numbers = text.cache_sum(self._gauges.sums(), self._entry.numbers, self._sums())[0]
            return dict(zip(text.cache_sums, numbers, strict=True))
        known = {**self.counters, **self.geometry, **self.gauges}
        return sums.evaluate(text.cache_sums, lambda name: known.get(name, 0))

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


def parts(caches: Caches) -> list[Cache]:
    """Each cache of a record as it stands there."""
    return _caches(caches.shape, caches.gauges, caches.by_slot())


def _caches(shape: Shape, gauges: Sequence[int], slots: Mapping[int, Sequence[int]]) -> list[Cache]:
    """The caches of flat rows of gauges and counters, without the slots in which a cache has no counts."""
    text = shape.text
    rows = {slot: pieces(row, len(text.counters)) for slot, row in slots.items()}
    of_gauges = pieces(gauges, len(text.gauges)) if text.gauges else [()] * len(shape.entries)
    return [
        Cache(text, number, entry, of_gauges[i], {slot: row[i] for slot, row in rows.items() if row and any(row[i])})
        for i, (number, entry) in enumerate(shape.entries)
    ]


def by_name(parts: list[Cache]) -> dict[str, Cache]:
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


class Merger:
    """Caches of many records added up, by slot if `slots` is true."""

    def __init__(self, slots: bool = False) -> None:
        self._slots = slots
        self._gauges: dict[Shape, Rows] = {}
        self._counters: dict[Shape, dict[int, Rows]] = {}

    def add(self, caches: Caches) -> None:
        """Add the caches of a record."""
        shape = caches.shape
        if shape not in self._gauges:
            self._gauges[shape], self._counters[shape] = Rows(caches.gauges), {}
        else:
            self._gauges[shape].add(caches.gauges)
        into = self._counters[shape]
        for slot, row in (caches.by_slot() if self._slots else {ALL_SLOTS: caches.counters()}).items():
            if slot in into:
                into[slot].add(row)
            else:
                into[slot] = Rows(row)

    def _parts(self) -> Iterable[list[Cache]]:
        """For each shape the sums of its caches."""
        for shape, gauges in self._gauges.items():
            yield _caches(shape, gauges.sums(), {slot: row.sums() for slot, row in self._counters[shape].items()})

    def by_name(self) -> dict[str, Cache]:
        """The sums of all caches of the same name."""
        merged: dict[str, Cache] = {}
        for found in self._parts():
            for name, cache in by_name(found).items():
                if name not in merged:
                    merged[name] = cache.empty()
                merged[name].add(cache)
        return merged

    def by_node(self) -> dict[int | None, dict[str, Cache]]:
        """The caches of each memory node in order; caches that belong to no node come last, under None."""
        nodes: dict[int | None, dict[str, Cache]] = {}
        for found in self._parts():
            for part in found:
                caches = nodes.setdefault(part.node, {})
                if part.name not in caches:
                    caches[part.name] = part.empty()
                caches[part.name].add(part)
        return dict(sorted(nodes.items(), key=lambda item: (item[0] is None, item[0] or 0)))
