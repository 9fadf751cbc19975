"""Profiles as JSON for other tools; docs/schema.md defines it."""

from __future__ import annotations

import json
from typing import Any

from sheaf.commands.profile.symbols import Symbolizer
from sheaf.commands.profile.views import Profile, Row, reliable

SCHEMA_VERSION = 2


def frames(row: Row, symbolizer: Symbolizer) -> list[dict[str, Any]]:
    """The frames of a row, the innermost first."""
    return [
        {
            "address": pc,
            "function": frame.function,
            "file": frame.file or None,
            "line": frame.line or None,
            "module": frame.module or None,
            "inlined": frame.inlined,
        }
        for pc in symbolizer.shown(row.pcs)
        for frame in symbolizer.frames(pc)
    ]


def _row(row: Row, symbolizer: Symbolizer) -> dict[str, Any]:
    return {
        "labels": list(row.labels),
        "frames": frames(row, symbolizer),
        "values": list(row.values),
        "errors": list(row.errors),
        "name": row.name or None,
        "unreliable": [not reliable(*pair) for pair in zip(row.values, row.errors, strict=True)],
    }


def to_json(profile: Profile, symbolizer: Symbolizer) -> dict[str, Any]:
    """The profile as an object of simple types."""
    symbolizer.prepare(profile.pcs)
    snapshot, header = profile.snapshot, profile.snapshot.header
    rows = [_row(row, symbolizer) for row in profile.rows]
    return {
        "schema_version": SCHEMA_VERSION,
        "view": profile.view,
        "title": profile.title,
        "program": snapshot.program,
        "pid": snapshot.pid,
        "host_pid": snapshot.here,
        "time_ns": profile.time_ns,
        "duration_ns": profile.duration_ns,
        "rate_bytes": profile.period,
        "sampling": header.on,
        "start_time_ns": header.start_ns,
        "samples_taken": header.taken,
        "samples_freed": header.freed,
        "samples_lost": header.lost_samples,
        "samples_slowed": header.slowed,
        "stacks_lost": header.lost_stacks,
        "columns": [{"name": column.name, "unit": column.unit} for column in profile.columns],
        "main": profile.columns[profile.main].name,
        "rows": rows,
        "totals": [value for value, _ in profile.sums],
        "total_errors": [error for _, error in profile.sums],
        "notes": [*profile.notes, *symbolizer.notes],
    }


def dump(profile: Profile, symbolizer: Symbolizer) -> bytes:
    """The object as text."""
    return (json.dumps(to_json(profile, symbolizer), indent=1) + "\n").encode("utf-8", "replace")
