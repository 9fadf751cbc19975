"""`sheaf records`: list the records in a directory, and remove those of ended processes."""

from __future__ import annotations

import json
import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path

import click

from sheaf.commands.arguments import DIRECTORY, SECONDS, age_seconds
from sheaf.errors import SheafError, by_reason, printable
from sheaf.records import layout, record
from sheaf.records.record import Head
from sheaf.records.state import State, States
from sheaf.rendering import sizes, table
from sheaf.system import progress


@dataclass
class _Entry:
    """
    A record in the directory. `moment` is the start of a running process, otherwise the time by which it had surely ended, in
    nanoseconds. If that is not known, `vague` is true and `moment` is when it was last known to be alive.
    """

    head: Head
    state: State
    status: os.stat_result
    moment: int
    vague: bool
    matches: bool = False  # --older-than and --keep select it for removal
    removed: bool = False

    @property
    def age(self) -> int:
        """Seconds since `moment`."""
        return max(0, time.time_ns() - self.moment) // 1_000_000_000

    @property
    def elsewhere(self) -> str:
        """The number of a process in another PID namespace, whose file has that namespace's."""
        return f" as {self.state.pid}" if self.state.pid not in (0, self.head.pid) else ""

    @property
    def allocated(self) -> int:
        """Bytes on disk, without holes."""
        return self.status.st_blocks * 512


@dataclass(frozen=True)
class _Other:
    """A file that is no record, or that cannot be read, and why: "PATH: REASON"."""

    path: Path
    why: str
    unreadable: bool


def _suspended() -> int:
    """The nanoseconds that this machine has slept since its start, in which no process could say that it is alive."""
    return max(0, time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.clock_gettime_ns(time.CLOCK_MONOTONIC))


def _moment(head: Head, state: State, status: os.stat_result, states: States) -> tuple[int, bool]:
    """
    The start of a running process, or the time by which an ended one had surely ended; and whether that is not known. The
    time of the file's last change tells little: what a process writes to a mapped file does not change it.
    """
    if head.end_time_ns:
        return head.end_time_ns, False
    if not state.ended:
        return head.start_time_ns, False
    later = states.successor(head)
    if later:
        return later.start_time_ns, False
    now = time.time_ns()
    alive = min(now, max(head.start_time_ns, head.alive_time_ns, status.st_mtime_ns))
    if head.alive_interval_ns and head.alive_time_ns:
        return min(now, max(alive, head.alive_time_ns + head.alive_interval_ns + _suspended())), False
    if head.found_ended_ns:
        return min(now, head.found_ended_ns), False
    return alive, True


def _note(entry: _Entry, directory: int) -> None:
    """
    Write to a record that its process has ended, so that its age is known from now on. Where this user may not do that, the
    record stays.
    """
    reader = layout.Reader(entry.head.path)
    with reader.file:
        place = reader.optional("control_offset")
    if not place or place % 8:
        return
    try:
        file = os.open(entry.head.path.name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    except OSError:
        return
    try:
        if os.path.samestat(entry.status, os.fstat(file)) and entry.status.st_size >= place + record.FOUND_ENDED + 8:
            os.pwrite(file, time.time_ns().to_bytes(8, "little"), place + record.FOUND_ENDED)
    except OSError:
        return
    finally:
        os.close(file)


def _seconds(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    return None if value is None else age_seconds("--older-than", value)


def _read(directory: Path) -> tuple[list[_Entry], list[_Other]]:
    """The records in a directory by age, the oldest first, and why other files with the suffix .sheaf are none."""
    try:
        names = sorted(name for name in os.listdir(directory) if name.endswith(".sheaf"))
    except OSError as error:
        raise SheafError(f"{directory}: {error.strerror}; name a directory of records that you may read") from error
    found: list[tuple[Head, os.stat_result]] = []
    others: list[_Other] = []
    for name in progress.shown(names, "Reading records"):
        path = directory / name
        try:
            status = path.lstat()
            if not stat.S_ISREG(status.st_mode):
                raise SheafError(f"{path}: not a regular file")
            found.append((record.read_head(path), status))
        except FileNotFoundError:
            continue
        except SheafError as error:
            others.append(_Other(path, error.message.partition(";")[0], isinstance(error.__cause__, OSError)))
    states = States(head for head, _ in found)
    entries = []
    for head, status in found:
        state = states.of(head)
        entries.append(_Entry(head, state, status, *_moment(head, state, status, states)))
    return sorted(entries, key=lambda entry: (entry.moment, entry.head.path)), others


def _select(entries: list[_Entry], seconds: int | None, keep: int | None) -> None:
    """
    Mark the records of ended processes that are surely older than `seconds` and not among the newest `keep` of their program.
    """
    programs: dict[str, list[_Entry]] = {}
    for entry in entries:
        if entry.state.ended:
            programs.setdefault(entry.head.program, []).append(entry)
    for ended in programs.values():
        for entry in ended[: max(0, len(ended) - (keep or 0))]:
            entry.matches = not seconds or (entry.age > seconds and not entry.vague)


def _remove(entries: list[_Entry], directory: Path) -> bool:
    """
    Remove the selected records; returns whether all could be removed. A file that was replaced meanwhile stays. The others
    whose end is not known count as ended from now on.
    """
    failures = []
    where = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for entry in entries:
            if entry.vague and not entry.matches:
                _note(entry, where)
        for entry in progress.shown([entry for entry in entries if entry.matches], "Removing records"):
            name = entry.head.path.name
            try:
                if os.path.samestat(entry.status, os.stat(name, dir_fd=where, follow_symlinks=False)):
                    os.unlink(name, dir_fd=where)
                    entry.removed = True
            except FileNotFoundError:
                continue
            except OSError as error:
                why = f"{entry.head.path}: not removed: {error.strerror}; run sheaf as the owner of {directory}"
                failures.append((entry.head.path, printable(why)))
    finally:
        os.close(where)
    for reason in by_reason(failures, directory):
        SheafError(reason).show()
    return not failures


def _age(seconds: int) -> str:
    """An age in its largest unit, such as 12h."""
    unit = next((unit for unit in "wdhm" if seconds >= 2 * SECONDS[unit]), "s")
    return f"{seconds // SECONDS[unit]}{unit}"


def _unread(others: list[_Other], directory: Path) -> list[str]:
    """A line for each reason why files are no records or cannot be read."""
    kinds = {
        "not a record": [one for one in others if not one.unreadable],
        "not readable": [one for one in others if one.unreadable],
    }
    return [
        f"{kind}: {why}" for kind, found in kinds.items() for why in by_reason([(one.path, one.why) for one in found], directory)
    ]


def _text(entries: list[_Entry], others: list[_Other], prune: bool, directory: Path) -> str:
    shown = [entry for entry in entries if entry.removed or not prune]
    names = [printable(entry.head.path.name) for entry in shown]
    width = max(map(len, ["FILE", *names]))
    lines = [f"{'FILE':<{width}} {'AGE':>5} {'SIZE':>9} STATE"] if shown else []
    for name, entry in zip(names, shown, strict=True):
        lines.append(f"{name:<{width}} {_age(entry.age):>5} {sizes.size(entry.allocated):>9} {entry.state}{entry.elsewhere}")
    running = sum(entry.state.name == "running" for entry in entries)
    removed = [entry for entry in entries if entry.removed]
    left = [entry for entry in entries if not entry.removed]
    total = f"{_count(len(left), 'record')}, {sizes.size(sum(entry.allocated for entry in left))} on disk; {running} running"
    if prune:
        total = f"removed {_count(len(removed), 'record')}, {sizes.size(sum(e.allocated for e in removed))}; left {total}"
    unknown = sum(entry.state.name == "unknown" for entry in entries)
    vague = sum(entry.vague for entry in left)
    total += f"; {unknown} whose process is not visible here" if unknown else ""
    lines.append(total + (f"; {vague} whose end is not known, of age 0 from now on" if vague and prune else ""))
    return "\n".join([*lines, *_unread(others, directory)])


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _json(entries: list[_Entry], others: list[_Other]) -> str:
    rows = [
        {
            "path": printable(str(entry.head.path)),
            "program": entry.head.program,
            "pid": entry.head.pid,
            "host_pid": entry.state.pid or None,
            "state": entry.state.name,
            "replaced_by": entry.state.program or None,
            "start_time_ns": entry.head.start_time_ns,
            "end_time_ns": entry.head.end_time_ns,
            "age_seconds": entry.age,
            "age_is_known": not entry.vague,
            "size_bytes": entry.status.st_size,
            "allocated_bytes": entry.allocated,
            "removed": entry.removed,
        }
        for entry in entries
    ]
    reasons = [one.why for one in others]
    return json.dumps({"schema_version": table.SCHEMA_VERSION, "records": rows, "not_records": reasons}, indent=2)


@click.command()
@click.argument("directory", required=False, type=DIRECTORY, metavar="[DIR]")
@click.option(
    "--older-than",
    "seconds",
    metavar="AGE",
    callback=_seconds,
    help="Select records of processes that ended longer ago than AGE: a number and s, m, h, d or w, such as 7d.",
)
@click.option(
    "--keep",
    type=click.IntRange(min=0),
    metavar="N",
    help="Select records of ended processes except, of each program, the N that ended last.",
)
@click.option("--prune", is_flag=True, help="Remove the selected records; needs --older-than or --keep.")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True, help="Output format.")
def records(directory: str | None, seconds: int | None, keep: int | None, prune: bool, form: str) -> int:
    """List the records in DIR with the state of their processes, the oldest first.

    DIR is by default the one that SHEAF_RECORD names, or the current directory. AGE is the time since the process ended, or
    since it started if it still runs. A process that was killed has ended five minutes after its record last said that it is
    alive; without a helper thread it does not say so, and has ended when --prune first finds that it is gone.

    --older-than and --keep select records; without --prune the selected ones are listed, with it they are removed. With both
    options a record must match both. Only records of ended processes are selected, and files that are not records are never
    removed.

    \b
    Examples:
      sheaf records /tmp/records
      sheaf records --prune --older-than 7d /var/lib/sheaf
      sheaf records --prune --keep 100 /var/lib/sheaf
    """
    if directory == "":
        raise SheafError("an empty name was given; name a directory of records", 2)
    if prune and seconds is None and keep is None:
        raise SheafError("--prune: needs --older-than AGE or --keep N, such as --older-than 7d", 2)
    where = Path(directory or os.environ.get("SHEAF_RECORD") or ".")
    entries, others = _read(where)
    done = True
    if seconds is not None or keep is not None:
        _select(entries, seconds, keep)
        if prune:
            done = _remove(entries, where)
        else:
            entries = [entry for entry in entries if entry.matches]
    click.echo(_json(entries, others) if form == "json" else _text(entries, others, prune, where))
    return 0 if done else 1
