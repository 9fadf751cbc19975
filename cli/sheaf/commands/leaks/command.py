"""`sheaf leaks`: which blocks of a process are lost, or which stacks grow."""

from __future__ import annotations

import json
import re
import sys
import textwrap
from typing import Any

import click

from sheaf.commands.arguments import FILE, Explained, TargetArgument, timeout_option
from sheaf.commands.leaks import output as leakoutput
from sheaf.commands.profile import document, symbols, table
from sheaf.commands.profile import leaks as analysis
from sheaf.commands.profile.chains import chains, cut
from sheaf.commands.profile.leaks import GROWS, MAY_GROW, OLD, Suspect
from sheaf.commands.profile.observe import RATE, SECONDS, Observed, Observer, ended, given_rate, terminable
from sheaf.commands.profile.symbols import Symbolizer
from sheaf.commands.profile.views import reliable
from sheaf.errors import SheafError
from sheaf.records import record
from sheaf.records.state import States
from sheaf.rendering.table import terminal_width

_AGE = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)(ms|s|m|h|d)")
_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MOST = 25
EXPLAINED = [
    (GROWS, "live bytes grew by more than the error; ordered by the growth less the error"),
    (MAY_GROW, "live bytes grew by less than that, which may be chance; ordered by the growth divided by its error"),
    (OLD, "live bytes did not grow, or their growth is not known; ordered by old bytes"),
]


def _age(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    found = _AGE.fullmatch(value)
    if not found:
        raise SheafError(f"--older {value}: not an age; give a number and ms, s, m, h or d, such as 30s or 2h", 2)
    return round(float(found[1]) * _UNITS[found[2]])


def _duration(ms: float) -> str:
    """A time in its largest unit, such as 2.5h."""
    unit = next((unit for unit in ("d", "h", "m", "s") if ms >= _UNITS[unit]), "ms")
    return f"{ms / _UNITS[unit]:.3g}{unit}"


def _observe(name: str, seconds: float | None, rate: int | None, timeout: float) -> Observed:
    """
    Two snapshots; one if the process has ended. A process that was not sampled is sampled for that long before them; if that
    is interrupted, there is one snapshot.
    """
    path, wanted = record.find_one(name), SECONDS if seconds is None else seconds
    with terminable(), Observer(path, rate, timeout) as observer:
        if not observer.alive:
            return ended(path, observer.earlier, seconds)
        was_on = observer.on
        observer.start()
        if not was_on and not observer.wait(wanted):
            return Observed(observer.snapshot(), notes=observer.notes)
        first = observer.snapshot()
        observer.wait(wanted)
        return Observed(observer.snapshot(), first, observer.notes)


def _limit(observed: Observed, older: int | None) -> int:
    """The age in milliseconds: that of the user, the time between the snapshots, or half of the time that was sampled."""
    if older is not None:
        return older
    return observed.snapshot.moment_ms - observed.first.moment_ms if observed.first else observed.snapshot.moment_ms // 2


def _definition(observed: Observed, limit: int) -> str:
    """The line that says what is suspicious here."""
    old = f"stacks with live samples older than {_duration(limit)}"
    if observed.first is None:
        return f"Suspicious: {old}, ordered by their bytes; growth is not known from one snapshot."
    passed = _duration(observed.snapshot.moment_ms - observed.first.moment_ms)
    return (
        f"Suspicious: {old}. First those whose live bytes grew in {passed} by more than the error (grows), then by "
        "less (may grow), then the others (old)."
    )


def _row(one: Suspect, growth: bool) -> list[str]:
    cells = [f"{one.verdict:<8}", f"{table.amount(one.old_bytes, 'bytes'):>7}", f"{table.amount(one.old_error, 'bytes'):>6}"]
    if growth:
        sign = "+" if one.growth > 0 else ""
        cells += [f"{sign + table.amount(one.growth, 'bytes'):>7}", f"{table.amount(one.growth_error, 'bytes'):>6}"]
    return [*cells, f"{_duration(one.oldest_ms):>6}"]


def _text(observed: Observed, suspects: list[Suspect], limit: int, symbolizer: Symbolizer, width: int) -> str:
    snapshot, growth = observed.snapshot, observed.first is not None
    stacks = len({stack.pcs for stack in snapshot.stacks.values() if stack.samples})
    heading = f"{snapshot.who}: {len(suspects)} of {stacks} stacks have old live memory"
    sentences = [heading, _definition(observed, limit), *observed.notes, *symbolizer.notes]
    lines = [line for one in sentences for line in textwrap.wrap(one, max(20, width))]
    if not suspects:
        return "\n".join(lines)
    head = ["        ", "    OLD", "     ±", *([" GROWTH", "     ±"] if growth else []), "OLDEST"]
    head.append("STACK, CALLERS TO THE RIGHT (+N: N more)")
    lines += ["", cut(" ".join(head), max(20, width))]
    rows = [
        " ".join(_row(one, growth)) + ("" if reliable(one.old_bytes, one.old_error) else f" {table.UNRELIABLE}")
        for one in suspects[:_MOST]
    ]
    ends = chains([table.calls(one.row, symbolizer) for one in suspects[:_MOST]], [max(24, width - len(row) - 1) for row in rows])
    lines += [f"{row} {end}" for row, end in zip(rows, ends, strict=True)]
    if len(suspects) > _MOST:
        lines.append(f"and {len(suspects) - _MOST} less suspicious stacks; --format json has all of them")
    return "\n".join(lines)


def _json(observed: Observed, suspects: list[Suspect], limit: int, symbolizer: Symbolizer) -> str:
    snapshot, first = observed.snapshot, observed.first
    rows: list[dict[str, Any]] = [
        {
            "verdict": one.verdict,
            "old_bytes": one.old_bytes,
            "old_bytes_error": one.old_error,
            "old_objects": one.old_objects,
            "live_bytes": one.live_bytes,
            "growth_bytes": one.growth if first else None,
            "growth_bytes_error": one.growth_error if first else None,
            "oldest_ms": one.oldest_ms,
            "unreliable": not reliable(one.old_bytes, one.old_error),
            "frames": document.frames(one.row, symbolizer),
        }
        for one in suspects
    ]
    return json.dumps(
        {
            "schema_version": document.SCHEMA_VERSION,
            "program": snapshot.program,
            "pid": snapshot.pid,
            "host_pid": snapshot.here,
            "time_ns": snapshot.header.start_ns + snapshot.moment_ms * 1_000_000,
            "older_ms": limit,
            "duration_ms": snapshot.moment_ms - first.moment_ms if first else None,
            "rate_bytes": snapshot.header.rate,
            "definition": _definition(observed, limit),
            "rows": rows,
            "notes": [*observed.notes, *symbolizer.notes],
        },
        indent=1,
    )


def _has_ended(name: str) -> bool:
    """Whether this is the record of a process that has ended."""
    return record.is_path(name) and States().of(record.read_head(record.find_one(name))).ended


def _print_growth(observed: Observed, older: int | None, as_json: bool) -> None:
    limit = _limit(observed, older)
    suspects = analysis.find(observed.snapshot, limit, observed.first)
    with symbols.symbolizer(observed.snapshot) as symbolizer:
        symbolizer.prepare(pc for one in suspects for pc in one.row.pcs)
        if as_json:
            click.echo(_json(observed, suspects, limit, symbolizer))
        else:
            click.echo(_text(observed, suspects, limit, symbolizer, terminal_width(sys.stdout)))


@click.command(cls=Explained, sections=[("Verdicts of --growth", EXPLAINED)])
@click.argument("name", type=TargetArgument(), metavar="PID|NAME|RECORD")
@click.option(
    "--output", type=FILE, metavar="FILE", help="Write all groups of lost blocks to FILE, as JSON if its name ends with .json."
)
@click.option(
    "--suppress",
    "suppressions",
    multiple=True,
    type=FILE,
    metavar="FILE",
    help="Leave out groups whose stack matches a line leak:PATTERN of FILE. May be given several times.",
)
@click.option(
    "--leak-status",
    type=click.IntRange(1, 255),
    metavar="N",
    help="Exit with status N if anything is lost that is not suppressed.",
)
@click.option(
    "--growth",
    is_flag=True,
    help="Show the stacks whose sampled memory stays and grows instead. Implied by the three options below, and for "
    "the record of a process that has ended.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help=f"Time between two snapshots of the samples.  [default: {SECONDS:g}]",
)
@click.option(
    "--older",
    metavar="AGE",
    callback=_age,
    help="Age from which memory is old: a number and ms, s, m, h or d, such as 30s.  "
    "[default: the time between the snapshots; for a record, half of the time that was sampled]",
)
@click.option(
    "--rate",
    metavar="BYTES",
    callback=given_rate,
    help=f"Take one sample for each BYTES allocated, on average, if sampling is off.  [default: {RATE >> 10}K]",
)
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True, help="Output format.")
@click.option("--json", "as_json", is_flag=True, help="Same as --format json.")
@timeout_option
def leaks(
    name: str,
    output: str | None,
    suppressions: tuple[str, ...],
    leak_status: int | None,
    growth: bool,
    seconds: float | None,
    older: int | None,
    rate: int | None,
    form: str,
    as_json: bool,
    timeout: float,
) -> None:
    """Show the memory that a running process has lost: blocks that nothing in it refers to any more.

    \b
    Examples:
      sheaf leaks redis-server
      sheaf leaks 4711 --output leaks.json
      sheaf leaks 4711 --growth --seconds 60 --older 5m

    The threads of the process are stopped for a moment, twice, by ptrace. Each time the process is copied, and the copy is
    searched while the process runs. The output says for how long it was stopped. Call stacks are known of blocks that were
    sampled (`sheaf run --profile`), and of all blocks with `sheaf run --debug U`.

    With --growth nothing is stopped: two snapshots of the samples are taken N seconds apart. If the process is not sampled, it
    is sampled for N seconds before the first one. Without growth, old memory is usually what the program set up at its start.
    """
    as_json = as_json or form == "json"
    lost = leakoutput.Options(output, suppressions, leak_status, as_json)
    growth = growth or any(option is not None for option in (seconds, older, rate)) or _has_ended(name)
    if not growth:
        sys.exit(leakoutput.report(name, lost, timeout))
    lost.must_be_unused()
    _print_growth(_observe(name, seconds, rate, timeout), older, as_json)
