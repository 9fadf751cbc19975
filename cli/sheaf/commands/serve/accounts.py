"""Counters by program that never go backwards, however many processes come and go.

Each process that runs has a tally: its counters as they were read last. What a counter has grown by since then is added to
the sums of the program, so the sums keep what ended processes counted. The number of programs and of caches of a program
is bounded: those beyond the bounds are added up under OTHER. A program or cache that has an account keeps it, because
moving its sums elsewhere would make counters jump.

Nothing here is safe for threads; machine.py holds a lock around each call.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sheaf.commands.serve.families import CACHE_COUNTERS, CACHE_USES, PROCESS_COUNTERS, PROCESS_VALUES
from sheaf.records.contents import Named
from sheaf.records.memory import Memory
from sheaf.records.watch import Process

OTHER = "(other)"
ENDS = ("ended", "replaced", "gone")  # the names of State for processes that have ended
# Counters that a forked child continues from its parent's values, unlike those of slots, which it counts from 0.
_CONTINUED = frozenset({"alloc_slab", "free_slab", "lock_wait", "alloc_fail", *PROCESS_VALUES})
_MASK = (1 << 64) - 1  # the sums over the slots of a damaged record may have more bits


def _zeros(n: int) -> array[int]:
    return array("Q", bytes(8 * n))


@dataclass
class CacheNow:
    """What a cache of a program holds in all running processes: bytes by use, objects in use, slabs."""

    bytes_by_use: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CACHE_USES, 0))
    objects: int = 0
    slabs: int = 0

    def add(self, sums: Mapping[str, int], slabs: int) -> None:
        """Add the cache of one process, of which `sums` are the sums that the record defines."""
        for use, name in CACHE_USES.items():
            self.bytes_by_use[use] += sums[name]
        self.objects += sums["in_use"]
        self.slabs += slabs


@dataclass
class Now:
    """What the running processes of a program hold, from one scan."""

    processes: int = 0
    memory: dict[str, int] = field(default_factory=dict)  # by the fields of Memory
    values: dict[str, int] = field(default_factory=dict)
    caches: dict[str, CacheNow] = field(default_factory=dict)

    def add(self, memory: Memory, resident: int) -> None:
        """Add the memory of one process."""
        self.processes += 1
        for name in Memory.__dataclass_fields__:
            if name not in ("resident", "peak_resident", "anonymous"):
                self.memory[name] = self.memory.get(name, 0) + getattr(memory, name)
        self.memory["resident"] = self.memory.get("resident", 0) + resident


@dataclass
class Account:
    """The sums of one program since the server started. Arrays are in the order of families.py."""

    process: array[int] = field(default_factory=lambda: _zeros(len(PROCESS_COUNTERS)))
    caches: dict[str, array[int]] = field(default_factory=dict)
    started: int = 0
    ends: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ENDS, 0))
    now: Now = field(default_factory=Now)


@dataclass
class Tally:
    """The counters of one process as they were read last."""

    program: str  # the name of its account
    process: array[int]
    caches: dict[tuple[int, str], array[int]]  # by number and name


class Counted(Protocol):
    """A cache of one process, from a Watch or from a whole record."""

    @property
    def name(self) -> str:
        """The name."""

    @property
    def number(self) -> int:
        """The place among the entries of the record."""

    @property
    def gauges(self) -> Named:
        """The gauges by name."""

    @property
    def counters(self) -> Named:
        """The sum of each counter over all slots, by name."""


@dataclass(frozen=True)
class Reading:
    """The counters of a process at one moment: its values, and the sums of gauges and counters over all caches."""

    program: str
    values: Named
    gauges: Named
    counters: Named
    caches: Sequence[Counted]  # empty if caches are not counted apart

    @property
    def forked(self) -> bool:
        """Whether the process was forked off a process on Sheaf: its caches held objects then."""
        return self.gauges.get("inherited", 0) > 0

    def process(self) -> array[int]:
        """The counters of the process, in the order of families.py."""
        return array("Q", self.values.picked(PROCESS_VALUES) + _of_caches(self.gauges, self.counters))


def _of_caches(gauges: Named, counters: Named) -> list[int]:
    """CACHE_COUNTERS, each of which is either a gauge or a counter of a record."""
    pairs = zip(gauges.picked(CACHE_COUNTERS), counters.picked(CACHE_COUNTERS), strict=True)
    return [(gauge or counter) & _MASK for gauge, counter in pairs]


def _of_cache(cache: Counted) -> array[int]:
    return array("Q", _of_caches(cache.gauges, cache.counters))


def _grow(sums: array[int], last: array[int], now: array[int]) -> None:
    """
    Add what counters have grown by to the sums, and to `last`. A counter that is read smaller than before adds nothing
    until it has passed its old value, so a damaged or torn record cannot make the sums jump.
    """
    for i, value in enumerate(now):
        if value > last[i]:
            sums[i] = (sums[i] + value - last[i]) & _MASK
            last[i] = value


class Accounts:
    """The accounts of all programs, at most `max_programs` and one for all others, each with at most `max_caches` caches."""

    def __init__(self, max_programs: int, max_caches: int) -> None:
        self.max_programs = max_programs
        self.max_caches = max_caches
        self.programs: dict[str, Account] = {}

    def name(self, program: str) -> str:
        """The name of the account that a program has or gets."""
        if program in self.programs or len(self.programs) < self.max_programs:
            return program
        return OTHER

    def of(self, program: str) -> Account:
        """The account of a program, which is opened if there is none."""
        return self.programs.setdefault(self.name(program), Account())

    def _cache_name(self, account: Account, cache: str) -> str:
        """The name under which a cache of the program is counted. Its sums exist afterwards."""
        name = cache if cache in account.caches or len(account.caches) < self.max_caches else OTHER
        account.caches.setdefault(name, _zeros(len(CACHE_COUNTERS)))
        return name

    def open(self, reading: Reading) -> Tally:
        """
        Begin to count a process. A forked child continues some counters of its parent; as the parent's value at the fork
        is not known, these count from the first time that the child is seen.
        """
        account = self.of(reading.program)
        account.started += 1
        tally = Tally(self.name(reading.program), _zeros(len(PROCESS_COUNTERS)), {})
        if reading.forked:
            sums = zip(PROCESS_COUNTERS, reading.process(), strict=True)
            tally.process = array("Q", [value if name in _CONTINUED else 0 for name, value in sums])
            for cache in reading.caches:
                values = zip(CACHE_COUNTERS, _of_cache(cache), strict=True)
                tally.caches[cache.number, cache.name] = array("Q", [v if name in _CONTINUED else 0 for name, v in values])
        self.update(tally, reading)
        return tally

    def update(self, tally: Tally, reading: Reading) -> None:
        """Count what a process has done since it was read last."""
        account = self.programs[tally.program]
        _grow(account.process, tally.process, reading.process())
        caches = {(cache.number, cache.name): cache for cache in reading.caches}
        for key in tally.caches.keys() - caches.keys():
            del tally.caches[key]  # destroyed: a new cache in its place counts from 0
        for key, cache in caches.items():
            values = _of_cache(cache)
            if any(values):
                sums = account.caches[self._cache_name(account, cache.name)]
                _grow(sums, tally.caches.setdefault(key, _zeros(len(CACHE_COUNTERS))), values)

    def close(self, tally: Tally, how: str) -> None:
        """Count the end of a process; `how` is one of ENDS."""
        self.programs[tally.program].ends[how] += 1

    def begin_scan(self) -> None:
        """Forget what running processes hold."""
        for account in self.programs.values():
            account.now = Now()

    def hold(self, tally: Tally, process: Process, memory: Memory) -> None:
        """Add what a running process holds."""
        account = self.programs[tally.program]
        now = account.now
        now.add(memory, process.resident)
        for name in ("huge_bytes", "rcu_bytes", "region_bytes", "large_blocks"):
            now.values[name] = now.values.get(name, 0) + process.numbers.values.get(name, 0)
        for cache in (process.numbers.caches or ()) if self.max_caches else ():
            sums = cache.sums
            if sums["memory_bytes"]:
                name = self._cache_name(account, cache.name)
                now.caches.setdefault(name, CacheNow()).add(sums, cache.gauges.get("slabs", 0))
