"""The running processes, one line each, and their sums by program: what `sheaf stats` shows without arguments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sheaf.records.watch import Process, Watch
from sheaf.rendering import sizes, toprows
from sheaf.rendering.toprows import EMPTY, Row

_NUMBERS = ("resident", "live", "warm")
_HEADINGS = ("RES", "LIVE", "WARM")


class Running:
    """The processes that run now and keep a record, those with the most resident memory first."""

    def __init__(self) -> None:
        watch = Watch(ended=False, discover=True)
        found = [one for one in watch.refresh(caches=True, of_ended=False) if one.running]
        self.processes: list[Process] = sorted(found, key=lambda one: (-one.resident, one.pid))
        self.unreadable = len(watch.unreadable)

    @property
    def paths(self) -> list[Path]:
        """Their records."""
        return [one.path for one in self.processes]


def _line(first: str, row: Row, last: str) -> str:
    return " ".join([f"{first:>9}", *(f"{sizes.brief(row[name]):>6}" for name in _NUMBERS), last]).rstrip()


def _sum(rows: Sequence[Row]) -> Row:
    return {name: sum(row[name] or 0 for row in rows) for name in _NUMBERS}


def text(running: Running, width: int) -> str:
    """A line for each process, and the sums over the processes of each program and over all."""
    rows = [toprows.process_row(one) for one in running.processes]
    programs: dict[str, list[Row]] = {}
    for row in rows:
        programs.setdefault(row["program"], []).append(row)
    heading = " ".join(f"{head:>6}" for head in _HEADINGS)
    lines = [f"{'PID':>9} {heading} COMMAND"]
    lines += [_line(str(row["pid"]), row, row["command"]) for row in rows]
    lines += ["", f"{'PROCESSES':>9} {heading} PROGRAM"]
    sums = sorted(((name, of, _sum(of)) for name, of in programs.items()), key=lambda one: (-one[2]["resident"], one[0]))
    lines += [_line(str(len(of)), total, name) for name, of, total in sums]
    if len(programs) > 1:
        lines.append(_line(str(len(rows)), _sum(rows), "(all)"))
    if not rows:
        lines = [EMPTY]
    if running.unreadable:
        lines.append(f"Not shown: {running.unreadable} that this user may not inspect; run sheaf as root.")
    return "\n".join(line[:width] for line in lines)
