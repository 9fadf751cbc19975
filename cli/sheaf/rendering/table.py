"""Rows of counters, and their output as a table, JSON, JSON lines or CSV."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import IO, Any

from sheaf.records.cache import Cache, fast_share
from sheaf.records.record import Record
from sheaf.rendering import sizes
from sheaf.rendering.columns import Column, cells, fitting, headings

SCHEMA_VERSION = 3
Row = dict[str, Any]
Columns = Sequence[Column]
FIXED = ("object_size_bytes", "slot", "node")  # properties of a row; never added up or subtracted


def fast(share: float) -> str:
    """A share of the fast path."""
    return f"{100 * share:.1f}%"


def _used(share: float) -> str:
    return f"{100 * share:.0f}%"


# Name in the machine-readable formats; heading and width in the table, which fits 80 columns.
COLUMNS: Columns = (
    Column("name", "NAME", -13),
    Column("object_size_bytes", "SIZE", 6),
    Column("in_use", "IN USE", 7),
    Column("in_sheaves", "SHEAVES", 7),
    Column("in_barns", "BARNS", 6),
    Column("free_in_slabs", "FREE", 6),
    Column("slabs", "SLABS", 5),
    Column("memory_bytes", "MEMORY", 6, sizes.memory),
    Column("used_share", "USED", 5, _used),
    Column("fast_share", "FAST", 6, fast),
)
MOVES: Columns = (
    Column("name", "NAME", -13),
    Column("sheaf_refill", "REFILL", 7),
    Column("sheaf_flush", "FLUSH", 7),
    Column("barn_get", "GETS", 7),
    Column("barn_get_fail", "FAILS", 7),
    Column("barn_put", "PUTS", 7),
    Column("barn_put_fail", "FAILS", 7),
)
# What a narrow terminal leaves out first. Then columns are left out from the right.
_LEAST = ("in_barns", "slabs", "free_in_slabs", "in_sheaves", "fast_share", "used_share", "object_size_bytes")
_WIDEST_NAME = 31


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 6) if whole > 0 else None


def cache_row(cache: Cache) -> Row:
    """Everything that is shown of one cache: first what the table has, then all counters."""
    counters, gauges, derived = cache.counters, cache.gauges, cache.derived()
    share = fast_share(counters)
    row: Row = {
        "name": cache.name,
        "object_size_bytes": cache.object_size,
        "in_use": derived["in_use"],
        "in_sheaves": derived["in_sheaves"],
        "in_barns": gauges.get("barn_objects", 0),
        "free_in_slabs": gauges.get("free_in_slabs", 0),
        "slabs": gauges.get("slabs", 0),
        "memory_bytes": derived["memory_bytes"],
        "in_use_bytes": derived["in_use_bytes"],
        "used_share": _share(derived["in_use_bytes"], derived["memory_bytes"]),
        "fast_share": None if share is None else round(share, 6),
        **{name: counters.get(name, 0) for name in [one.name for one in MOVES[1:]]},
    }
    for name, value in counters.items():
        row.setdefault(name, value)
    return row


def cache_rows(caches: Mapping[str, Cache], everything: bool = False) -> list[Row]:
    """A row for each cache that was ever used, or with `everything` for each cache."""
    return [cache_row(cache) for cache in caches.values() if everything or cache.used or cache.memory]


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
    """The sum of all rows; shares are recomputed."""
    total: Row = {"name": "total"}
    for row in rows:
        for name, value in row.items():
            if isinstance(value, int) and name not in FIXED:
                total[name] = total.get(name, 0) + value
    fast = total.get("alloc_fastpath", 0) + total.get("free_fastpath", 0)
    total["fast_share"] = _share(fast, fast + total.get("alloc_slowpath", 0) + total.get("free_slowpath", 0))
    total["used_share"] = _share(total.get("in_use_bytes", 0), total.get("memory_bytes", 0))
    return total


def large_rows(records: Sequence[Record]) -> list[Row]:
    """
    Rows for the memory that belongs to no cache: large blocks of the region, and those that have mappings of their own,
    whose number is not counted.
    """
    value = {name: sum(r.process.get(name, 0) for r in records) for name in ("large_blocks", "large_bytes", "mapped_bytes")}
    rows = [{"name": "large blocks", "in_use": value["large_blocks"], "memory_bytes": value["large_bytes"]}]
    if value["mapped_bytes"]:
        rows.append({"name": "own mappings", "memory_bytes": value["mapped_bytes"]})
    return [{**row, "in_use_bytes": row["memory_bytes"]} for row in rows]


def natural(name: str) -> list[str | int]:
    """The key that sorts names with the numbers in them by value: malloc-128 before malloc-1024."""
    return [int(part) if i % 2 else part for i, part in enumerate(re.split(r"([0-9]{1,18})", name))]


def terminal_width(stream: IO[Any] | None) -> int:
    """The columns of the terminal that a stream writes to: COLUMNS if it is set, 80 if it is no terminal."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80 if stream else 80
    except (OSError, ValueError):  # io.UnsupportedOperation is a ValueError
        return 80


def text(rows: Sequence[Row], columns: Columns = COLUMNS, width: int = 80) -> str:
    """
    A plain table; the first column is left-aligned, all others are right-aligned. A table that is too wide loses columns,
    which a note names. Room that is left widens the column of names.
    """
    others = [one.name for one in columns[1:]]
    fit = fitting(columns, width, [*(name for name in _LEAST if name in others), *(n for n in others[::-1] if n not in _LEAST)])
    longest = min(_WIDEST_NAME, max((len(str(row.get(fit[0].name))) for row in rows), default=0))
    first = max(min(-fit[0].width, width), min(longest, width - sum(one.width + 1 for one in fit[1:])))
    fit[0] = replace(fit[0], width=-first)
    lines = [" ".join(line).rstrip() for line in (headings(fit), *(cells(row, fit) for row in rows))]
    left_out = [one.heading for one in columns if one.name not in {kept.name for kept in fit}]
    if left_out:
        note = f"Not shown in {width} columns: {', '.join(left_out)}. Use a wider terminal, or set COLUMNS."
        lines += textwrap.wrap(note, max(width, 20))
    return "\n".join(lines)


def both(rows: Sequence[Row], large: Sequence[Row], width: int, total_used: bool = True) -> str:
    """The two tables of caches: objects and memory, with large blocks; and moves between sheaves, barns and slabs."""
    total, caches = totals([*rows, *large]), totals(rows)
    if not total_used:
        total["used_share"] = None
    return text([*rows, *large, total], COLUMNS, width) + "\n\n" + text([*rows, caches], MOVES, width)


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
