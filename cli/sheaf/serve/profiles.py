"""Heap profiles of running processes: as bytes for pprof, and as a tree of functions for flame graphs.

All functions read records and look up symbols, which takes time. They are called in threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sheaf.errors import SheafError, printable
from sheaf.profile import pprof, symbols, views
from sheaf.profile.area import NoProfile, Snapshot, read_area
from sheaf.profile.symbols import Frame, shortened
from sheaf.profile.views import Profile
from sheaf.serve.machine import Process

KINDS = ("live", "allocated", "peak")
_SMALLEST = 1 / 2000  # share of the total; smaller functions are added up in their callers
_DEEPEST = 100  # frames; deeper ones count in their callers


def take(process: Process) -> Snapshot:
    """What was sampled in a process so far. Raises SheafError if nothing was, or if the process has ended."""
    try:
        snapshot = read_area(process.head.path)
    except NoProfile as error:
        raise SheafError(f"{process.pid}: nothing was sampled in this process; run the program with `sheaf run --profile`, or "
                         "start the server with --control and use the button of the page") from error
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


@dataclass
class _Node:
    """A function in one context. `value` includes what it calls."""

    frame: Frame | None
    value: float = 0.0
    below: dict[tuple[str, str], _Node] = field(default_factory=dict)

    def add(self, frames: Sequence[Frame], value: float) -> None:
        """Add a stack, the outermost frame first."""
        node = self
        node.value += value
        for frame in frames[:_DEEPEST]:
            node = node.below.setdefault((frame.function, frame.module), _Node(frame))
            node.value += value

    def to_json(self, least: float) -> dict[str, Any]:
        """The function and those below it with at least this value, the largest first."""
        shown = sorted((node for node in self.below.values() if node.value >= least), key=lambda node: -node.value)
        frame = self.frame
        name = shortened(frame.function) if frame else "all"
        about = {"function": frame.function, "place": frame.place, "module": frame.module} if frame else {}
        return {"name": name, "value": round(self.value), **about, "children": [node.to_json(least) for node in shown]}


def tree(snapshot: Snapshot, kind: str) -> dict[str, Any]:
    """One of KINDS as a tree of functions, callers above those that they call. Values are estimates, in bytes."""
    profile: Profile = views.VIEWS[kind](snapshot, None)
    root = _Node(None)
    with symbols.symbolizer(snapshot) as symbolizer:
        symbolizer.prepare(profile.pcs)
        for row in profile.rows:
            value = row.values[profile.main]
            if value > 0:
                root.add(symbolizer.stack(row), value)
        notes = [*profile.notes, *symbolizer.notes]
    _, error = profile.total()
    return {
        "kind": kind, "title": profile.title, "program": snapshot.program, "sampling": snapshot.header.on,
        "rate_bytes": snapshot.header.rate, "samples": snapshot.header.taken, "time_ns": profile.time_ns,
        "error_bytes": None if error is None else round(error), "notes": [printable(note) for note in notes],
        "tree": root.to_json(_SMALLEST * root.value),
    }  # fmt: skip
