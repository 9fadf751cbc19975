"""`sheaf stats`: show the counters of records, of running processes, and of directories of records."""

from __future__ import annotations

import difflib
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from sheaf.commands.arguments import Explained, TargetArgument
from sheaf.errors import SheafError, by_reason
from sheaf.records import memory, record
from sheaf.records.cache import Merger
from sheaf.records.record import Record
from sheaf.records.state import States
from sheaf.rendering import listing, memorytext, sizes, table
from sheaf.rendering.columns import Column
from sheaf.rendering.table import Row
from sheaf.system import progress

_SLOT_COLUMNS = (
    Column("name", "SLOT", -10),
    Column("alloc_fastpath", "ALLOC", 8),
    Column("alloc_slowpath", "SLOW", 7),
    Column("free_fastpath", "FREE", 8),
    Column("free_slowpath", "SLOW", 7),
    Column("sheaf_refill", "REFILL", 7),
    Column("sheaf_flush", "FLUSH", 7),
    Column("barn_get", "GETS", 6),
    Column("barn_put", "PUTS", 6),
)
_NODE_COLUMNS = (
    Column("name", "NODE", -13),
    Column("in_use", "IN USE", 7),
    Column("in_sheaves", "SHEAVES", 7),
    Column("in_barns", "BARNS", 6),
    Column("free_in_slabs", "FREE", 6),
    Column("slabs", "SLABS", 5),
    Column("memory_bytes", "MEMORY", 6, sizes.memory),
    Column("fast_share", "FAST", 6, table.fast),
    Column("remote_free", "REMOTE", 7),
    Column("outbound_barn", "HOME", 6),
)

MEMORY_EXPLAINED = [
    ("live", "memory that the program has allocated, touched or not: objects by class size, large blocks in slices of 64 KiB"),
    (
        "warm",
        "free memory that may be resident: at most this much. Where it is more than the process has of resident memory, "
        "that is named first",
    ),
    ("sheaves, barns", "free objects in sheaves: of slots, for the fast path; of barns, for any slot"),
    ("slabs", "free objects in slabs, including empty slabs; some may never have been touched"),
    ("span_cache", "free spans of 64 to 256 KiB that belong to a slot"),
    ("region", "other free memory that may be resident"),
    ("returned", "memory returned to the system since the start"),
    ("resident", "resident memory of the whole process as the system reports it, now or when the process ended"),
]
EXPLAINED = [
    ("SIZE", "bytes of an object, as requested at the cache's creation"),
    ("IN USE", "objects that the program has allocated and not freed"),
    ("SHEAVES", "free objects in the sheaves of slots, for the fast path"),
    ("BARNS", "free objects in the full sheaves of barns, for any slot"),
    ("FREE", "free objects in slabs"),
    ("SLABS, MEMORY", "number of slabs, and their size in bytes; for large blocks their size"),
    ("USED", "percentage of MEMORY in objects in use"),
    ("FAST", "percentage of allocations and frees that took the fast path"),
    ("REFILL, FLUSH", "objects moved from slabs to sheaves, and back to slabs"),
    ("REMOTE, HOME", "objects of the node freed on other nodes, and sheaves of them returned to its barns"),
    ("GETS, PUTS", "sheaves taken from and put into barns; FAILS counts attempts that found the barn empty or full"),
]


class _Loaded:
    """
    Records, without their caches, and the sums of their caches: one merger for all, so that the memory that is needed does
    not grow with the caches of thousands of records.
    """

    def __init__(self, targets: Sequence[str], by: str, only: str | None = None) -> None:
        """
        Read the records of all targets. In a directory, an unreadable record is reported and skipped; if nothing can be read,
        or for a target that is a single record, SheafError is raised.
        """
        self.records: list[Record] = []
        self.states = States()
        self._by, self._only, self._merger = by, only, Merger(by == "slot")
        for target in targets:
            paths = list(record.find(target))
            read, reasons = self._read(paths, target)
            if not read and len(reasons) == 1:
                raise SheafError(reasons[0])
            for reason in reasons:
                SheafError(reason).show()
            if not read:
                raise SheafError(f"{target}: none of its {len(paths)} records can be read; run the programs again")
        if only and not self.records:
            which = "runs" if only == "running" else "ended"
            raise SheafError(f"--only {only}: no record is of a process that {which}; leave the option out")

    def _read(self, paths: Sequence[Path], target: str) -> tuple[int, list[str]]:
        """Read the records and keep the wanted ones; returns how many could be read, and why the others could not."""
        read, failures = 0, []
        for path in progress.shown(paths, "Reading records"):
            try:
                one = record.read(path)
            except SheafError as error:
                if len(paths) == 1:
                    raise
                failures.append((path, error.message))
                continue
            read += 1
            if self._wanted(one):
                self._merger.add(one.contents)
                one.forget_caches()
                self.records.append(one)
        return read, by_reason(failures, target)

    def _wanted(self, one: Record) -> bool:
        if not self._only:
            return True
        state = self.states.of(one)
        return state.name == "running" if self._only == "running" else state.ended

    def rows(self, everything: bool) -> list[Row]:
        """The rows of the table."""
        if self._by == "slot":
            return table.slot_rows(self._merger.by_name())
        if self._by == "node":
            return table.node_rows(self._merger.by_node())
        return table.cache_rows(self._merger.by_name(), everything)


def _column(key: str, rows: list[Row]) -> str:
    """The column for a --sort key, which is the name or the heading of a column. Raises SheafError if there is none."""
    known = list(dict.fromkeys(name for row in rows for name in row))
    headings = {
        head.lower(): name for name, head in ((one.name, one.heading) for one in (*table.MOVES, *table.COLUMNS)) if name in known
    }
    wanted = headings.get(key.lower(), key.lower())
    if rows and wanted not in known:
        near = difflib.get_close_matches(wanted, known, 1)
        hint = f"did you mean {near[0]}?" if near else "`--format csv` shows all columns"
        raise SheafError(f"--sort {key}: no such column; {hint}", 2)
    return wanted


def _sorted(rows: list[Row], key: str | None, by: str) -> list[Row]:
    column = _column(key, rows) if key else "memory_bytes" if by == "cache" else "name"
    if column == "name":
        return sorted(rows, key=lambda row: (row.get("slot", row.get("node") or 0), table.natural(str(row["name"]))))
    return sorted(rows, key=lambda row: row.get(column) or 0, reverse=True)


def _difference(before: list[Row], after: list[Row]) -> list[Row]:
    """
    The change of every counter and gauge between two lists of rows, without rows in which nothing changed. Shares, sizes
    and numbers of slots and nodes are those of `after`.
    """
    old = {row["name"]: row for row in before}
    rows = []
    for row in after:
        base = old.pop(row["name"], {})
        rows.append({name: value - base.get(name, 0) if _counts(name, value) else value for name, value in row.items()})
    for row in old.values():
        rows.append({name: -value if _counts(name, value) else value for name, value in row.items()})
    return [row for row in rows if any(value for name, value in row.items() if _counts(name, value))]


def _counts(name: str, value: object) -> bool:
    """Whether a cell can be subtracted."""
    return isinstance(value, int) and name not in table.FIXED


@dataclass
class _Groups:
    """Records by the state of their processes; `others` may be running or ended."""

    states: States
    running: list[Record]
    ended: list[Record]
    others: list[Record]


def _grouped(loaded: _Loaded) -> _Groups:
    groups = _Groups(loaded.states, [], [], [])
    for one in loaded.records:
        state = groups.states.of(one)
        (groups.running if state.name == "running" else groups.ended if state.ended else groups.others).append(one)
    return groups


def _heading(records: list[Record], groups: _Groups, width: int) -> str:
    """
    State and memory of each process. With more than four, the sums over running processes, and apart from them the sums
    over ended ones, whose memory is no longer in use.
    """
    states, lines = groups.states, []
    if len(records) <= 4:
        for r in records:
            who = record.label(r.program[:24], r.pid, r.here)
            lines += [f"{who}, {states.of(r)}, {r.mode}", *memorytext.lines(memory.of_process(r), width=width)]
        return "\n".join(lines)
    kinds = [states.of(r).kind for r in [*groups.running, *groups.ended, *groups.others]]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
    lines += textwrap.wrap(f"{len(records)} processes: {counts}", width, subsequent_indent="  ")
    titles = (
        (groups.running, "running"),
        (groups.ended, "ended, as their records were left"),
        (groups.others, "copied, or not visible from here"),
    )
    for group, title in titles:
        if group:
            lines += [f"{len(group)} {title}:", *memorytext.lines(memory.of_all(group), len(group), width)]
    return "\n".join(lines)


def _mixture(groups: _Groups) -> str:
    """A remark if the rows add up running and ended processes; empty otherwise."""
    rest = len(groups.ended) + len(groups.others)
    if not groups.running or not rest:
        return ""
    total = len(groups.running) + rest
    return f"\nRows add up all {total} processes. Use --only running to leave out {rest} that may have ended."


def _tables(rows: list[Row], by: str, large: list[Row], diff: bool, width: int) -> str:
    if by == "slot":
        return table.text([*rows, table.totals(rows)], _SLOT_COLUMNS, width)
    if by == "cache":
        return table.both(rows, large, width, total_used=not diff)
    text = table.text([*rows, table.totals(rows)] if len(rows) > 1 else rows, _NODE_COLUMNS, width)
    if all(row.get("node") is None for row in rows):
        return f"These caches are not divided by memory node (one node, SHEAF_NUMA=off, numactl).\n{text}"
    return text


def _complete_key(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The columns of the tables. Other counters can be given as well, but only a record tells which there are."""
    names = dict.fromkeys(one.name for one in (*table.COLUMNS, *table.MOVES, *_SLOT_COLUMNS, *_NODE_COLUMNS))
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _list(running: listing.Running, form: str) -> None:
    """Print the running processes, or that there are none."""
    width = max(40, table.terminal_width(sys.stdout))
    click.echo(listing.text(running, width) if form == "table" else table.machine([], [], form))


@click.command(cls=Explained, sections=[("Memory of a process", MEMORY_EXPLAINED), ("Columns", EXPLAINED)])
@click.argument("targets", nargs=-1, type=TargetArgument(), metavar="[FILE|PID|NAME|DIR]...")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "jsonl", "csv"]),
    default="table",
    show_default=True,
    help="Output format; all but table contain every counter, sizes in bytes, and a schema_version.",
)
@click.option(
    "--by",
    type=click.Choice(["cache", "slot", "node"]),
    default="cache",
    show_default=True,
    help="Show one row for each cache, for each slot (the per-CPU part of all caches), or for each memory node.",
)
@click.option(
    "--sort",
    "key",
    shell_complete=_complete_key,
    metavar="COLUMN",
    help="Sort by a column of the table or of --format csv, largest first, or by name.  "
    "[default: memory_bytes; name with --by slot and node]",
)
@click.option("--diff", is_flag=True, help="Show the difference between two records, of which the earlier comes first.")
@click.option("--only", type=click.Choice(["running", "ended"]), help="Leave out the records of ended or of running processes.")
@click.option("--all", "everything", is_flag=True, help="Include caches that were never used.")
def stats(targets: tuple[str, ...], form: str, by: str, key: str | None, diff: bool, only: str | None, everything: bool) -> None:
    """Show all running processes, or the caches of a record FILE, of a running process, or of all records in DIR.

    A process is named by its PID, or by the NAME of its program if no other process on Sheaf has that name. A word means a
    file or a directory if it has a slash or ends with .sheaf, or if it is the name of a record or of a directory of records.

    Without arguments there is a line for each running process and for each program. With an option that shapes the rows of
    caches, such as --by or --format, these are the caches of all running processes.

    \b
    Examples:
      sheaf stats
      sheaf stats /tmp/records
      sheaf stats redis-server
      sheaf stats --format json 4711
      sheaf stats --diff before.sheaf after.sheaf
    """
    before = None
    if not targets and not diff:
        running = listing.Running()
        if not running.processes or (form, by, key, only, everything) == ("table", "cache", None, None, False):
            _list(running, form)
            return
        targets = tuple(map(str, running.paths))
    if diff:
        if only:
            raise SheafError("--only: does not go with --diff; name the two records", 2)
        if len(targets) != 2:
            raise SheafError("--diff: needs exactly two records; name the earlier one first", 2)
        before, loaded = _Loaded(targets[:1], by), _Loaded(targets[1:], by)
        rows = _difference(before.rows(everything), loaded.rows(everything))
    else:
        loaded = _Loaded(targets, by, only)
        rows = loaded.rows(everything)
    rows = _sorted(rows, key, by)
    if form != "table":
        click.echo(table.machine(rows, memorytext.processes_json(loaded.records, loaded.states), form))
        return
    width = table.terminal_width(sys.stdout)
    text_width = max(20, min(80, width))
    large = table.large_rows(loaded.records)
    groups = _grouped(loaded)
    heading = _heading(loaded.records, groups, text_width)
    if before:
        large = _difference(table.large_rows(before.records), large)
        first = _heading(before.records, _grouped(before), text_width)
        click.echo(f"before: {first}\nafter: {heading}\n\nDifference (after minus before)")
    else:
        click.echo(heading + _mixture(groups))
    click.echo(_tables(rows, by, large, diff, width))
