"""Rows of counters, and their output as a table, JSON, JSON lines or CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from sheaf.record import Cache, Record
from sheaf.state import State

SCHEMA_VERSION = 1
Row = dict[str, Any]
FIXED = ("object_size_bytes", "slot", "node")  # properties of a row; never added up or subtracted

# Name in the machine-readable formats; heading and width in the table, which fits 80 columns.
COLUMNS: Sequence[tuple[str, str, int]] = (
    ("name", "NAME", 13),
    ("in_use", "IN USE", 7),
    ("in_sheaves", "SHEAVES", 7),
    ("in_barns", "BARNS", 6),
    ("free_in_slabs", "FREE", 6),
    ("slabs", "SLABS", 5),
    ("memory_bytes", "MEMORY", 6),
    ("fast_share", "FAST", 6),
    ("refills", "REFILL", 6),
    ("flushes", "FLUSH", 6),
)


def cache_row(cache: Cache) -> Row:
    """Everything that is shown of one cache: first what the table has, then all counters."""
    share, derived = cache.fast_share, cache.derived()
    row: Row = {
        "name": cache.name,
        "object_size_bytes": cache.object_size,
        "in_use": derived["in_use"],
        "in_sheaves": derived["in_sheaves"],
        "in_barns": cache.gauges.get("barn_objects", 0),
        "free_in_slabs": cache.gauges.get("free_in_slabs", 0),
        "slabs": cache.gauges.get("slabs", 0),
        "memory_bytes": derived["memory_bytes"],
        "fast_share": None if share is None else round(share, 6),
        "refills": cache.count("sheaf_refill"),
        "flushes": cache.count("sheaf_flush"),
        "barn_gets": cache.count("barn_get"),
        "barn_get_fails": cache.count("barn_get_fail"),
        "barn_puts": cache.count("barn_put"),
        "barn_put_fails": cache.count("barn_put_fail"),
    }
    for name in dict.fromkeys(name for counters in cache.slots.values() for name in counters):
        row.setdefault(name, cache.count(name))
    return row


def cache_rows(caches: Mapping[str, Cache], everything: bool = False) -> list[Row]:
    """A row for each cache that was ever used, or with `everything` for each cache."""
    return [cache_row(cache) for cache in caches.values() if everything or cache.memory or cache.slots]


def slot_rows(caches: Mapping[str, Cache]) -> list[Row]:
    """A row for each slot, with its counters added up over all caches."""
    slots: dict[int, Row] = {}
    for cache in caches.values():
        for slot, counters in cache.slots.items():
            row = slots.setdefault(slot, {"name": f"slot {slot}", "slot": slot})
            for name, value in counters.items():
                row[name] = row.get(name, 0) + value
    return [slots[slot] for slot in sorted(slots)]


def node_rows(nodes: Mapping[int | None, Mapping[str, Cache]]) -> list[Row]:
    """A row for each memory node, with its caches added up."""
    rows = []
    for node, caches in nodes.items():
        name = f"node {node}" if node is not None else "all nodes" if len(nodes) == 1 else "no node"
        rows.append({**totals(cache_rows(caches, True)), "name": name, "node": node})
    return rows


def totals(rows: Sequence[Row]) -> Row:
    """The sum of all rows; the share of the fast path is recomputed."""
    total: Row = {"name": "total"}
    for row in rows:
        for name, value in row.items():
            if isinstance(value, int) and name not in FIXED:
                total[name] = total.get(name, 0) + value
    fast = total.get("alloc_fastpath", 0) + total.get("free_fastpath", 0)
    every = fast + total.get("alloc_slowpath", 0) + total.get("free_slowpath", 0)
    total["fast_share"] = round(fast / every, 6) if every else None
    return total


def short(n: int) -> str:
    """A number in at most six characters, with a binary unit from 100,000 on."""
    if abs(n) < 100_000:
        return str(n)
    value = float(n)
    for unit in "KMGTPE":
        value /= 1024
        if abs(value) < 1000:
            return f"{value:.0f}{unit}" if abs(value) >= 100 else f"{value:.1f}{unit}"
    return f"{value:.0f}E"


def size(n: int) -> str:
    """Bytes in a readable binary unit, such as 18.8 KiB."""
    value, unit = float(n), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if value >= 100 or value.is_integer() else f"{value:.1f} {unit}"


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name == "fast_share":
        return f"{100 * value:.1f}%"
    if name == "memory_bytes" and isinstance(value, int):
        return f"{value // 1024}K" if abs(value) < 100_000 * 1024 else short(value)
    return short(value) if isinstance(value, int) else str(value)


def text(rows: Sequence[Row], columns: Sequence[tuple[str, str, int]] = COLUMNS) -> str:
    """A plain table; the first column is left-aligned, all others are right-aligned."""
    lines = []
    heads: Row = {name: head for name, head, _ in columns}
    for row in [heads, *rows]:
        cells = []
        for i, (name, _, width) in enumerate(columns):
            cell = row.get(name) if row is heads else _cell(name, row.get(name))
            cells.append(f"{str(cell)[:width]:<{width}}" if i == 0 else f"{cell!s:>{width}}")
        lines.append(" ".join(cells).rstrip())
    return "\n".join(lines)


def process_json(record: Record, state: State) -> Row:
    """The object of a process in the machine-readable formats, without its memory, which memory.py adds."""
    return {
        "pid": record.pid,
        "parent_pid": record.parent_pid,
        "program": record.program,
        "mode": record.mode,
        "state": state.name,
        "replaced_by": state.program or None,
        "start_time_ns": record.start_time_ns,
        "end_time_ns": record.end_time_ns,
        "resident_bytes": record.resident,  # current for a running process, otherwise the peak
        "peak_resident_bytes": record.peak_rss or None,
        "fold_interval": record.fold_interval,
        "kernel": record.kernel,
        "sheaf_version": record.version,
        "values": record.process,
    }


def machine(rows: Sequence[Row], processes: Sequence[Row], form: str) -> str:
    """The rows as `form` json, jsonl or csv, each with schema_version. Only json contains the processes."""
    if form == "json":
        return json.dumps({"schema_version": SCHEMA_VERSION, "processes": list(processes), "rows": list(rows)}, indent=2)
    if form == "jsonl":
        return "\n".join(json.dumps({"schema_version": SCHEMA_VERSION, **row}) for row in rows)
    out = io.StringIO()
    names = ["schema_version", *dict.fromkeys(name for row in rows for name in row)]
    writer = csv.DictWriter(out, names, lineterminator="\n", restval="")
    writer.writeheader()
    for row in rows:
        writer.writerow({"schema_version": SCHEMA_VERSION, **row})
    return out.getvalue().rstrip("\n")
