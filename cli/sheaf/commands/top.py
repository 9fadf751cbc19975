"""`sheaf top`: show what processes on Sheaf do, live."""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from sheaf.commands.arguments import Explained, TargetArgument
from sheaf.errors import SheafError, printable
from sheaf.records import record
from sheaf.records.watch import Process, Watch
from sheaf.rendering import memorytext, sizes, table, toprows
from sheaf.rendering.columns import cells, headings
from sheaf.rendering.toprows import CACHES, KEYS, PROCESSES, Moment, Source
from sheaf.system import extras

EXPLAINED = [(one.heading, one.meaning) for one in dict.fromkeys([*PROCESSES, *CACHES])]


class _SortKey(click.ParamType):  # type: ignore[type-arg]  # not generic in older click
    name = "column"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        columns = {one.name: one.meaning for one in (*CACHES, *PROCESSES)}
        return [CompletionItem(name, help=text) for name, text in columns.items() if name.startswith(incomplete)]


def _source(target: str | None) -> Source:
    """The processes that a target means. Raises SheafError if there is no such thing."""
    if target is None:
        return Source(Watch())
    if record.is_path(target) and os.path.isdir(target):
        try:
            os.listdir(target)
        except OSError as error:
            raise SheafError(f"{target}: {error.strerror}; run sheaf as its owner or as root") from error
        return Source(Watch([target]))
    path = next(iter(record.find(target)))
    record.read_head(path)  # says what is wrong with a file that is no record
    path = Path(os.path.realpath(path.parent)) / path.name
    return Source(Watch([path.parent]), path)


def _shown(source: Source, moment: Moment, ended: bool) -> list[Process]:
    return [one for one in moment.processes if ended or source.only or not one.state.ended]


def _json(source: Source, moment: Moment, ended: bool) -> str:
    processes = []
    for one in _shown(source, moment, ended):
        row = toprows.process_row(one)
        used = one.memory_now
        row = {
            "pid": row["pid"],
            "namespace_pid": one.head.pid,
            "program": row["program"],
            "command": row["command"] or None,
            "state": row["state"],
            "replaced_by": row["replaced_by"],
            "path": printable(str(one.path)),
            "start_time_ns": one.start_time_ns,
            "memory": memorytext.to_json(used) if used else None,
            "alloc_per_second": row["alloc"],
            "refill_per_second": row["refill"],
            "slow_share": row["slow"],
        }
        if source.only:
            row["caches"] = [
                {
                    "name": cache["name"],
                    "object_size_bytes": cache["object_size"],
                    "in_use": cache["in_use"],
                    "memory_bytes": cache["memory"],
                    "used_share": cache["used"],
                    "alloc_per_second": cache["alloc"],
                    "slow_share": cache["slow"],
                    "refill_per_second": cache["refill"],
                    "flush_per_second": cache["flush"],
                }
                for cache in toprows.cache_rows(one)
            ]
        processes.append(row)
    return json.dumps({"schema_version": toprows.SCHEMA_VERSION, "time_ns": int(moment.at * 1e9), "processes": processes})


def _text(source: Source, moment: Moment, ended: bool, key: str, width: int) -> str:
    processes = _shown(source, moment, ended)
    sums = toprows.totals(moment.processes)
    clock = time.strftime("%H:%M:%S", time.localtime(moment.at))
    lines = [
        f"sheaf top - {clock}, {sums['running']} running, resident {sizes.brief(sums['resident'])}, "
        f"live {sizes.brief(sums['live'])}, warm {sizes.brief(sums['warm'])}, {sizes.rate(sums['alloc'])} allocations/s"
    ]
    if source.only and processes:
        (one,) = processes
        used = one.memory_now
        lines = [
            f"sheaf top - {clock}, {one.who}, {one.state}, {one.head.mode}",
            *(memorytext.lines(used, width=width) if used else []),
        ]
    columns = toprows.fitting(CACHES if source.only else PROCESSES, width)
    rows = toprows.cache_rows(processes[0]) if source.only and processes else [toprows.process_row(one) for one in processes]
    if not processes:
        return "\n".join([*lines, *source.why_empty()])
    lines.append(" ".join(headings(columns)).rstrip())
    lines += [" ".join(cells(row, columns)).rstrip() for row in toprows.arranged(rows, key, False)]
    return "\n".join(lines)


def _batch(source: Source, count: int | None, interval: float, ended: bool, key: str, as_json: bool) -> None:
    """Print each refresh. Ends early if the one process that is shown has ended."""
    for number in itertools.count(1):
        moment = source.refresh()
        width = max(40, table.terminal_width(sys.stdout))
        click.echo(
            _json(source, moment, ended) if as_json else ("\n" if number > 1 else "") + _text(source, moment, ended, key, width)
        )
        over = source.only and not any(one.running for one in moment.processes)
        if number == count or over:
            return
        time.sleep(interval)


def _interactive(source: Source, interval: float, ended: bool, key: str | None) -> None:
    if not sys.stdin.isatty() or not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        raise SheafError("top: standard input or output is no terminal that can be drawn on; use --batch")
    try:
        from sheaf.rendering.topscreen import Top  # imports textual, which is slow
    except ImportError as error:  # also an older version, which lacks what is imported
        command = extras.install_module("textual")
        raise SheafError(f"top: the Python module {error.name} is missing or too old; run {command}, or use --batch") from error
    if os.environ.get("NO_COLOR") == "":  # set but empty means nothing; textual takes it as set
        del os.environ["NO_COLOR"]
    Top(source, interval, ended, key).run_until_quit()


@click.command(cls=Explained, sections=[("Keys", KEYS)])
@click.argument("target", required=False, type=TargetArgument(), metavar="[PID|NAME|DIR]")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1, max=3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Refresh every SECONDS.",
)
@click.option(
    "--sort",
    "key",
    type=_SortKey(),
    metavar="COLUMN",
    help="Sort by a column: its heading, or its name as in the man page.  [default: resident; memory for caches]",
)
@click.option("--ended", is_flag=True, help="Show the records of ended processes as well.")
@click.option("--batch", is_flag=True, help="Print each refresh as plain text, for scripts and logs.")
@click.option("-n", "count", type=click.IntRange(min=1), metavar="COUNT", help="End after COUNT refreshes; needs --batch.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object in a line for each refresh; implies --batch.")
def top(target: str | None, interval: float, key: str | None, ended: bool, batch: bool, count: int | None, as_json: bool) -> None:
    """Show the processes on Sheaf, live: their memory, and what their caches do.

    Without an argument it shows all processes that keep a record and that you may inspect; with DIR those whose records are
    there; and with the PID of a process, or the NAME of its program, the caches of that process.

    \b
    Examples:
      sheaf top
      sheaf top redis-server
      sheaf top --batch -n 3 --interval 10 /var/lib/sheaf
      sheaf top --json -n 1 | jq '.processes[].memory.live_bytes'

    Rates are those since the last refresh, so the first one has none.
    """
    source = _source(target)
    source.ended = ended
    if key:
        key = toprows.column(CACHES if source.only else PROCESSES, key).name
    if count and not (batch or as_json):
        raise SheafError("-n: goes with --batch or --json only; add one of them, or leave -n out", 2)
    if batch or as_json:
        _batch(source, count, interval, ended, key or toprows.DEFAULT_KEYS[bool(source.only)], as_json)
    else:
        _interactive(source, interval, ended, key)
