"""Memory over time, in rings of fixed size: one hour in fine steps and one day in coarse steps, per program and in all."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass

from sheaf.commands.serve.accounts import Accounts
from sheaf.commands.serve.machine import Process

VALUES = ("live", "warm", "resident")  # bytes
POINTS = 720  # of a ring
FINE_SECONDS, COARSE_SECONDS = 5, 120


class _Ring:
    """The last POINTS points of one series, at most one for each `step` seconds. A later point in a step replaces it."""

    def __init__(self, step: float) -> None:
        self._step = step
        self._times = array("d")
        self._values = tuple(array("d") for _ in VALUES)
        self._next = 0

    def add(self, seconds: float, values: Iterable[float]) -> None:
        """Add a point."""
        last = (self._next - 1) % POINTS
        same = bool(self._times) and seconds // self._step == self._times[last] // self._step
        at = last if same else self._next
        for ring, value in zip((self._times, *self._values), (seconds, *values), strict=True):
            if at == len(ring):
                ring.append(value)
            else:
                ring[at] = value
        if not same:
            self._next = (self._next + 1) % POINTS

    @property
    def last(self) -> float:
        """The time of the newest point; 0 if there is none."""
        return self._times[(self._next - 1) % POINTS] if self._times else 0.0

    def points(self) -> list[list[float]]:
        """Times and values, each in order of time."""
        cut = self._next if len(self._times) == POINTS else 0
        return [[*ring[cut:], *ring[:cut]] for ring in (self._times, *self._values)]


@dataclass(frozen=True)
class _Series:
    fine: _Ring
    coarse: _Ring


class History:
    """
    The rings of all memory, of each program that has an account, and of the processes that are shown apart. The number of
    series is therefore bounded.
    """

    def __init__(self) -> None:
        self._series: dict[tuple[str, str], _Series] = {}

    def add(self, seconds: float, accounts: Accounts, processes: Iterable[Process]) -> None:
        """Add one point to each series; `seconds` since the epoch. Series of processes that are no longer shown are dropped."""
        total = dict.fromkeys(VALUES, 0)
        for name, account in accounts.programs.items():
            memory = account.now.memory
            warm = sum(memory.get(part, 0) for part in ("sheaves", "barns", "slabs", "span_cache", "region"))
            live = memory.get("live_objects", 0) + memory.get("live_large", 0)
            values = {"live": live, "warm": warm, "resident": memory.get("resident", 0)}
            for one in VALUES:
                total[one] += values[one]
            self._add(("program", name), seconds, values.values())
        self._add(("all", ""), seconds, total.values())
        shown = {("process", series_name(p)): p for p in processes if p.shown}
        for key in [key for key in self._series if key[0] == "process" and key not in shown]:
            del self._series[key]
        for key, process in shown.items():
            self._add(key, seconds, (process.memory.live, process.memory.warm, process.resident))

    def _add(self, key: tuple[str, str], seconds: float, values: Iterable[float]) -> None:
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = _Series(_Ring(FINE_SECONDS), _Ring(COARSE_SECONDS))
        values = list(values)
        series.fine.add(seconds, values)
        series.coarse.add(seconds, values)

    def of(self, kind: str, name: str, coarse: bool) -> dict[str, list[float]] | None:
        """Times in seconds since the epoch and bytes, by name; None if there is no such series."""
        series = self._series.get((kind, name))
        if series is None:
            return None
        points = (series.coarse if coarse else series.fine).points()
        return dict(zip(("times", *VALUES), points, strict=True))


def series_name(process: Process) -> str:
    """The name of the series of a process, which a later process with the same number does not have."""
    return f"{process.pid}.{process.head.start_time_ns}"
