"""The memory of processes as text and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict

from sheaf.records import memory
from sheaf.records.memory import Memory
from sheaf.records.record import Record
from sheaf.records.state import State, States
from sheaf.rendering.sizes import size
from sheaf.rendering.table import Row

# Values of the process that its object has elsewhere: end_time_ns itself, the others under `memory`, where warm_bytes has a
# wider meaning and the value is region_bytes + span_cache_bytes.
_ELSEWHERE = {"end_time_ns", "resident_bytes", "peak_resident_bytes", "span_cache_bytes", "purged_bytes", "warm_bytes"}


def to_json(of: Memory) -> dict[str, int | None]:
    """All fields and the sums that the table shows, each name with the suffix _bytes."""
    most = None if of.anonymous is None else of.warm_most
    values = {"live": of.live, "warm": of.warm, "warm_most": most, **asdict(of)}
    return {f"{name}_bytes": value for name, value in values.items()}


def _process(record: Record, state: State) -> Row:
    """The object of a process in the machine-readable formats."""
    return {
        "pid": record.pid,
        "host_pid": record.here,
        "parent_pid": record.parent_pid,
        "program": record.program,
        "mode": record.mode,
        "state": state.name,
        "replaced_by": state.program or None,
        "start_time_ns": record.start_time_ns,
        "end_time_ns": record.end_time_ns,
        "fold_interval": record.fold_interval,
        "kernel": record.kernel,
        "sheaf_version": record.version,
        "values": {name: value for name, value in record.process.items() if name not in _ELSEWHERE},
        "memory": to_json(memory.of_process(record)),
    }


def processes_json(records: Sequence[Record], states: States | None = None) -> list[Row]:
    """One object for each process in the machine-readable formats."""
    states = states or States(records)
    return [_process(record, states.of(record)) for record in records]


def _size(n: int) -> str:
    """A size with a no-break space, so that wrapping keeps number and unit together."""
    return size(n).replace(" ", "\u00a0")


def lines(of: Memory, processes: int = 1, width: int = 80) -> list[str]:
    """The memory as indented text of at most `width` columns, for `processes` processes."""
    holders = ("sheaves", "barns", "slabs", "span_cache", "region")
    kept = ", ".join(f"{name.replace('_', chr(0xA0))}\u00a0{_size(getattr(of, name))}" for name in holders)
    most = _size(of.warm_most) + (f" of {_size(of.warm)}" if of.warm_most < of.warm else "")
    said = [
        f"live {_size(of.live)}: objects {_size(of.live_objects)}, large blocks {_size(of.live_large)}",
        f"warm at most {most}: {kept}",
    ]
    parts = [f"returned {_size(of.returned)} in total"]
    if of.resident is not None:
        parts.append(f"resident {_size(of.resident)}")
    if of.peak_resident is not None:
        parts.append(f"{'peak' if processes == 1 else 'highest peak'} {_size(of.peak_resident)}")
    said.append("; ".join([parts[0], ", ".join(parts[1:])] if parts[1:] else parts))
    wrapped = [textwrap.wrap(one, max(width, 20), initial_indent="  ", subsequent_indent="    ") for one in said]
    return [line.replace("\u00a0", " ") for one in wrapped for line in one]
