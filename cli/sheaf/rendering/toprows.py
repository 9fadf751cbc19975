"""The rows of `sheaf top`: processes and their caches with rates, sorted and filtered, and their text."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sheaf.errors import SheafError, by_reason, printable
from sheaf.records import record
from sheaf.records.watch import CacheNumbers, Process, Watch
from sheaf.rendering import columns, sizes, table
from sheaf.rendering.columns import Column
from sheaf.system.process import command

Row = dict[str, Any]
SCHEMA_VERSION = 1
HISTORY = 60  # refreshes that a sparkline can show
ALLOCATIONS = ("alloc_fastpath", "alloc_slowpath")
EMPTY = "No process on Sheaf keeps a record. Start one with `sheaf run --record DIR PROGRAM`."
_SLOW, _ALL = ("alloc_slowpath", "free_slowpath"), ("alloc_fastpath", "alloc_slowpath", "free_fastpath", "free_slowpath")
_LETTERS = {"running": "R", "ended": "E", "gone": "K", "replaced": "X", "copy": "C", "unknown": "?"}
STATES_EXPLAINED = "R running, E ended, K killed or ended without closing its record, X replaced by exec, C copy, ? not visible"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


_WORK = (  # columns of processes and of caches
    Column("alloc", "ALLOC/S", 8, sizes.rate, "a", "allocations per second"),
    Column("slow", "SLOW%", 5, _share, "s", "percentage of allocations and frees that took the slow path"),
    Column("refill", "REFILL/S", 8, sizes.rate, "r", "objects per second that moved from slabs to sheaves"),
)
PROCESSES: Sequence[Column] = (
    Column("pid", "PID", 7, str, "p", "number of the process"),
    Column("state", "S", 1, lambda state: _LETTERS[state], "t", f"state: {STATES_EXPLAINED}"),
    Column("program", "PROGRAM", -14, str, "n", "name of the program"),
    Column("resident", "RES", 6, sizes.brief, "m", "resident memory of the whole process"),
    Column("live", "LIVE", 6, sizes.brief, "l", "memory that the program has allocated"),
    Column("warm", "WARM", 6, sizes.brief, "w", "free memory that Sheaf keeps for quick reuse and that may be resident, at most"),
    *_WORK,
    Column("command", "COMMAND", -32, str, "c", "command line of the process, or the title that it gave itself"),
)
CACHES: Sequence[Column] = (
    Column("name", "CACHE", -17, str, "n", "name of the cache"),
    Column("object_size", "SIZE", 6, str, "z", "bytes of an object"),
    Column("in_use", "IN USE", 7, sizes.short, "u", "objects that the program has"),
    Column("memory", "MEMORY", 6, sizes.brief, "m", "bytes of the slabs"),
    Column("used", "USED%", 5, _share, "d", "percentage of the memory in objects in use"),
    *_WORK,
    Column("flush", "FLUSH/S", 7, sizes.rate, "f", "objects per second that moved back to slabs"),
)
KEYS = [
    ("Up, Down, PgUp, PgDn, Home, End", "Select a row. In a list that is longer than the screen, the rows scroll."),
    ("Enter", "Show the caches of the selected process."),
    ("Esc, Backspace", "Go back to the processes; clear the filter."),
    ("/", "Filter: show only rows whose name or number contains the text. Enter keeps the filter, Esc clears it."),
    (
        "<, >",
        "Sort by the column to the left or to the right. The heading of each column has a key of its own, which the help "
        "screen lists.",
    ),
    ("i", "Reverse the order."),
    ("e", "Show or hide the records of ended processes."),
    ("T", "Trim: make the selected process return its free memory to the system, as sheaf trim does."),
    ("P", "Profile: show where the memory of the selected process was allocated, as sheaf profile does. Esc ends the wait."),
    ("Space", "Stop and continue the refreshes."),
    ("+, -", "Refresh less or more often."),
    ("?", "Show the keys and the columns."),
    ("q, Ctrl-C", "Quit."),
]
_LEAST = (  # left out first
    "command",
    "refill",
    "flush",
    "slow",
    "alloc",
    "used",
    "warm",
    "object_size",
    "live",
    "state",
    "in_use",
)
DEFAULT_KEYS = ("resident", "memory")  # by which processes and caches are sorted at first


def column(of: Sequence[Column], name: str) -> Column:
    """The column of this name or heading. Raises SheafError if there is none."""
    found = next((one for one in of if name.lower() in (one.name, one.heading.lower())), None)
    if found is None:
        raise SheafError(f"--sort {name}: no such column; the columns are {', '.join(one.name for one in of)}", 2)
    return found


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def process_row(process: Process) -> Row:
    """The cells of a process. Rates are None at its first refresh."""
    memory = process.memory_now
    return {
        "pid": process.pid,
        "program": printable(process.program),
        "command": printable(command(process.pid)) if process.running else "",
        "state": process.state.name,
        "replaced_by": process.state.program or None,
        "path": process.path,
        "resident": memory.resident if memory else process.resident or None,
        "live": memory.live if memory else None,
        "warm": memory.warm_most if memory else None,
        "alloc": process.rate(*ALLOCATIONS),
        "slow": _ratio(process.rate(*_SLOW), process.rate(*_ALL)),
        "refill": process.rate("sheaf_refill"),
    }


def _cache_row(name: str, parts: Sequence[CacheNumbers], before: Mapping[tuple[int, str], CacheNumbers], seconds: float) -> Row:
    """The cells of a cache, the siblings of several memory nodes added up."""

    def total(key: str) -> int:
        return sum(part.sums[key] for part in parts)

    old = [before.get((part.number, part.name)) for part in parts]

    def per_second(*names: str) -> float | None:
        if seconds <= 0 or not before:
            return None
        now = sum(part.counters.get(counter, 0) for part in parts for counter in names)
        then = sum(part.counters.get(counter, 0) for part in old if part for counter in names)
        return max(0, now - then) / seconds

    return {
        "name": name,
        "object_size": parts[0].geometry["object_size"],
        "in_use": total("in_use"),
        "memory": total("memory_bytes"),
        "used": _ratio(total("in_use_bytes"), total("memory_bytes")),
        "alloc": per_second(*ALLOCATIONS),
        "slow": _ratio(per_second(*_SLOW), per_second(*_ALL)),
        "refill": per_second("sheaf_refill"),
        "flush": per_second("sheaf_flush"),
    }


def cache_rows(process: Process) -> list[Row]:
    """The cells of the caches that the process has used. Of an ended process the record is read; empty if it has vanished."""
    if process.numbers.caches is None:
        return _of_record(process)
    named: dict[str, list[CacheNumbers]] = {}
    for cache in process.numbers.caches:
        named.setdefault(cache.name, []).append(cache)
    before = {(cache.number, cache.name): cache for cache in (process.before.caches if process.before else None) or ()}
    seconds = process.numbers.at - process.before.at if process.before else 0.0
    rows = [_cache_row(printable(name), parts, before, seconds) for name, parts in named.items()]
    return [row for row in rows if row["memory"] or row["in_use"] or row["alloc"]]


def _of_record(process: Process) -> list[Row]:
    try:
        caches = record.read(process.path).caches
    except SheafError:
        return []
    rows = []
    for name, cache in caches.items():
        sums = cache.derived()
        if cache.used or sums["memory_bytes"]:
            rows.append(
                {
                    "name": printable(name),
                    "object_size": cache.object_size,
                    "in_use": sums["in_use"],
                    "memory": sums["memory_bytes"],
                    "used": _ratio(sums["in_use_bytes"], sums["memory_bytes"]),
                    "alloc": None,
                    "slow": None,
                    "refill": None,
                    "flush": None,
                }
            )
    return rows


def arranged(rows: Sequence[Row], key: str, reverse: bool, wanted: str = "") -> list[Row]:
    """
    The rows whose name, program or number contains `wanted`, sorted. Numbers begin with the largest and texts with the first,
    with `reverse` the other way; cells without a value come last.
    """
    text = wanted.lower()
    kept = [row for row in rows if not text or any(text in str(row.get(name, "")).lower() for name in ("name", "program", "pid"))]
    known = [row for row in kept if row[key] is not None]
    known.sort(key=lambda row: table.natural(str(row.get("name", row.get("pid")))))
    texts = bool(known) and isinstance(known[0][key], str)
    ascending = key == "pid" or texts
    known.sort(key=lambda row: table.natural(row[key]) if texts else row[key], reverse=reverse == ascending)
    return known + [row for row in kept if row[key] is None]


def fitting(of: Sequence[Column], width: int) -> Sequence[Column]:
    """The columns without the least important ones, so that they fit; what a row is about and its memory always stay."""
    return columns.fitting(of, width, _LEAST)


BLOCKS, ASCII = " ▁▂▃▄▅▆▇█", " .:-=+*#%@"


def sparkline(values: Sequence[int], width: int, blocks: str = BLOCKS) -> str:
    """The last values as a line of `width` characters. Its scale begins at 0 and ends at the largest value that it shows."""
    shown = list(values)[-width:]
    most = max(shown, default=0)
    steps = len(blocks) - 1
    line = "".join(blocks[min(steps, -(-value * steps // most))] if most and value > 0 else blocks[0] for value in shown)
    return line.rjust(width)


@dataclass(frozen=True)
class Moment:
    """What a refresh found: the processes, and when it ended in seconds since 1970."""

    at: float
    processes: list[Process]


class History:
    """Live and resident bytes of each process, and of all running ones together, at the last refreshes."""

    def __init__(self) -> None:
        self._of: dict[Path, deque[tuple[int, int]]] = {}
        self.total: deque[tuple[int, int]] = deque(maxlen=HISTORY)

    def add(self, moment: Moment) -> None:
        """Add what a refresh found, and drop what belongs to processes that are no longer there."""
        kept: dict[Path, deque[tuple[int, int]]] = {}
        for process in moment.processes:
            memory = process.memory
            points = self._of.get(process.path, deque(maxlen=HISTORY))
            if process.running and memory:
                points.append((memory.live, memory.resident or 0))
            if points:
                kept[process.path] = points
        self._of = kept
        running = [points[-1] for points in (kept.get(one.path) for one in moment.processes if one.running) if points]
        self.total.append((sum(live for live, _ in running), sum(resident for _, resident in running)))

    def of(self, path: Path) -> Sequence[tuple[int, int]]:
        """Live and resident bytes of a process, the oldest first."""
        return self._of.get(path, ())


class Source:
    """The processes that `sheaf top` shows: those of a watch, or only the one with the record `only`."""

    def __init__(self, watch: Watch, only: Path | None = None) -> None:
        self.watch, self.only = watch, only
        self.ended = False  # whether the memory of ended processes is shown, so that their caches have to be read

    def why_empty(self) -> list[str]:
        """Why there is nothing to show, a line for each reason."""
        if self.only:
            return ["The record has vanished."]
        lines: list[str] = []
        for place in self.watch.places:
            lines += by_reason([(path, why) for path, why in self.watch.others.items() if path.parent == place], place)
        hidden = len(self.watch.unreadable)
        which = "1 process" if hidden == 1 else f"{hidden} processes"
        note = [f"{which} of other users cannot be examined; run sheaf as root to see them."] if hidden else []
        return lines or [EMPTY, *note]

    def refresh(self) -> Moment:
        """Read what has changed."""
        found = self.watch.refresh(caches=True, of_ended=self.ended or self.only is not None)
        return Moment(time.time(), [one for one in found if self.only is None or one.path == self.only])


def totals(processes: Sequence[Process]) -> Row:
    """The sums over all running processes; None if the value of none is known, such as a rate at the first refresh."""
    rows = [process_row(process) for process in processes if process.running]
    names = ("resident", "live", "warm", "alloc", "refill")
    values = {name: [row[name] for row in rows if row[name] is not None] for name in names}
    return {name: sum(found) if found or not rows else None for name, found in values.items()} | {"running": len(rows)}
