"""The leak reports of `sheaf run --leaks` as JSON; docs/schema.md defines it."""

from __future__ import annotations

import json
import re
from typing import Any

from sheaf.errors import printable
from sheaf.rendering import frames, leakreport
from sheaf.rendering.frames import Found
from sheaf.rendering.leakreport import Amount, Group, Process
from sheaf.system.places import Places

SCHEMA_VERSION = 1
_WHO = re.compile(r".*\(process (\d{1,20}), (.*)\)")


def _frame(line: str, places: Found) -> dict[str, Any] | None:
    frame = frames.frame_of(line)
    if frame is None:
        return None
    place = next(iter(places.get((frame.module, frame.offset), ())), None)
    function = frame.symbol.rpartition("+")[0] or frame.symbol or (place.function if place else "")
    return {
        "function": printable(function) or None,
        "module": printable(frame.module),
        "offset": frame.offset,
        "file": printable(place.file) if place and place.file else None,
        "line": place.line or None if place else None,
    }


def _group(group: Group, places: Found, suppressed: bool) -> dict[str, Any]:
    own = group.own
    return {
        "cache": printable(group.cache),
        "lost_bytes": own.bytes,
        "lost_blocks": own.blocks,
        "through_bytes": group.bytes - own.bytes,
        "through_blocks": group.blocks - own.blocks,
        "suppressed": suppressed,
        "frames": [frame for line in group.frames if (frame := _frame(line, places))],
    }


def _process(process: Process, places: Found, globs: list[str], lost: Amount) -> dict[str, Any]:
    """The object of a process; adds what it lost and is not suppressed to `lost`."""
    rows = []
    for group in process.groups:
        suppressed = leakreport.matches(group, globs, places)
        if not suppressed:
            lost.add(group)
        rows.append(_group(group, places, suppressed))
    who = _WHO.fullmatch(process.sum)
    return {
        "pid": int(who[1]) if who else None,
        "program": printable(who[2]) if who else None,
        "groups": rows,
        "notes": [printable(note.removeprefix("sheaf: leaks: ")) for note in process.notes],
    }


def text(lines: list[str], patterns: list[str], more: dict[str, Any] | None = None) -> tuple[str, Amount]:
    """
    All reports in a log as JSON, with `more` members, and what was lost and is not suppressed, given the patterns of
    suppressions.
    """
    reports = leakreport.parse(lines)
    with Places() as known:
        places = frames.places_of(lines, known)
    globs, lost = leakreport.globs(patterns), Amount()
    processes = [_process(process, places, globs, lost) for process in reports.processes]
    document = {
        "schema_version": SCHEMA_VERSION,
        "lost_bytes": lost.bytes,
        "lost_blocks": lost.blocks,
        "processes": processes,
        "others": [printable(line) for line in reports.others],
        **(more or {}),
    }
    return json.dumps(document, indent=1) + "\n", lost
