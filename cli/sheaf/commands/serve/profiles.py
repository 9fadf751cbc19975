"""Heap profiles of running processes: as bytes for pprof, and as a tree of functions for flame graphs.

All functions read records and look up symbols, which takes time. They are called in threads.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sheaf.commands.profile import pprof, symbols, views
from sheaf.commands.profile import tree as calls
from sheaf.commands.profile.area import NoProfile, Snapshot, read_area
from sheaf.commands.profile.symbols import shortened
from sheaf.commands.profile.tree import Node
from sheaf.commands.profile.views import Profile
from sheaf.commands.serve.machine import Process
from sheaf.errors import SheafError, printable

KINDS = ("live", "allocated", "peak")
_SMALLEST = 1 / 2000  # share of the total; smaller functions are added up in their callers


def take(process: Process) -> Snapshot:
    """What was sampled in a process so far. Raises SheafError if nothing was, or if the process has ended."""
    try:
        snapshot = read_area(process.head.path)
    except NoProfile as error:
        raise SheafError(
            f"{process.pid}: nothing was sampled in this process; run the program with `sheaf run --profile`, or "
            "start the server with --control and use the button of the page"
        ) from error
    if snapshot.pid != process.head.pid:
        raise SheafError(f"{process.pid}: the process has ended; choose another")
    return snapshot


def encoded(snapshot: Snapshot, first: Snapshot | None, allocated: bool) -> bytes:
    """
    A gzipped profile for pprof, of what is live and of what was allocated; with `first`, of the time since then.
    `allocated` decides which of the two is shown first.
    """
    profile = views.heap(snapshot, first)
    wanted = "alloc_space" if allocated else "inuse_space"
    names = [column.name for column in profile.columns]
    if wanted in names:
        profile = replace(profile, main=names.index(wanted))
    with symbols.symbolizer(snapshot) as symbolizer:
        return pprof.dump(profile, symbolizer)


def _to_json(node: Node, least: float) -> dict[str, Any]:
    """A function and those below it with at least this value, the largest first."""
    frame = node.frame
    name = shortened(frame.function) if frame else "all"
    about = {"function": frame.function, "place": frame.place, "module": frame.module} if frame else {}
    return {
        "name": name,
        "value": round(node.value),
        "error": round(node.error),
        "unreliable": node.unreliable,
        **about,
        "children": [_to_json(one, least) for one in node.largest(least)],
    }


def tree(snapshot: Snapshot, kind: str) -> dict[str, Any]:
    """One of KINDS as a tree of functions, callers above those that they call. Values are estimates, in bytes."""
    profile: Profile = views.VIEWS[kind](snapshot, None)
    with symbols.symbolizer(snapshot) as symbolizer:
        root = calls.tree(profile, symbolizer)
        notes = [*profile.notes, *symbolizer.notes]
    _, error = profile.total()
    return {
        "kind": kind,
        "title": profile.title,
        "program": snapshot.program,
        "sampling": snapshot.header.on,
        "rate_bytes": snapshot.header.rate,
        "samples": snapshot.header.taken,
        "time_ns": profile.time_ns,
        "error_bytes": None if error is None else round(error),
        "notes": [printable(note) for note in notes],
        "tree": _to_json(root, _SMALLEST * root.value),
    }
