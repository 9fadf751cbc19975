"""What became of the process of a record: running, ended, replaced by exec, or not known.

A process keeps its number and its start time when it executes another program. If it still runs but does not map the
record, or if a later record is of the same process, it executed another program. A process that executed a program without
a record and ended afterwards cannot be told from one that was killed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from sheaf.errors import SheafError
from sheaf.records import record
from sheaf.records.record import Head
from sheaf.system import namespaces, proc

_INITIAL_NAMESPACE = 0xEFFFFFFC  # inode number of the PID namespace in which all processes are visible
_NUMBERS = re.compile(r"\.(\d{1,10})(?:\.(\d{1,3}))?\.sheaf")
_SAID = {
    "running": "running",
    "ended": "ended",
    "replaced": "replaced by exec",
    "gone": "ended by signal, _exit or exec",
    "copy": "copy of the record of a running process",
    "unknown": "in a PID namespace that is not visible here",
}
EXPLAINED = [
    ("running", "the process runs and keeps this record"),
    ("ended", "the process ended and closed its record"),
    ("replaced by exec of NAME", "the process executed NAME, which continued without this record"),
    (
        "ended by signal, _exit or exec",
        "the process ended without closing its record: it was killed, called _exit, or executed "
        "a program that kept no record and has ended",
    ),
    ("copy of the record of a running process", "the process runs and keeps another file; this one was copied from it"),
    ("in a PID namespace that is not visible here", "the process belongs to another container and may still run"),
]


@dataclass(frozen=True)
class State:
    """
    The state of a process: one of the names in _SAID, and the program that replaced it. `pid` is the number of a running
    process as this command sees it, which differs from that in the record if the process is in another PID namespace.
    """

    name: str
    program: str = ""
    pid: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return f"{self.kind} of {self.program}" if self.program else self.kind

    @property
    def kind(self) -> str:
        """The state in words, without the name of the program."""
        return _SAID[self.name]

    @property
    def ended(self) -> bool:
        """Whether the record changes no more."""
        return self.name in ("ended", "replaced", "gone")


def _start(pid: int) -> int:
    """The start time of a process in clock ticks since boot; 0 if it has ended, also if it waits for its parent."""
    now = proc.stat(pid)
    return now.start if now and not now.zombie else 0


class States:
    """The states of processes at one moment. Keeps what it reads of /proc and of directories, so it is to be used once."""

    def __init__(self, heads: Iterable[Head] = ()) -> None:
        self._heads: dict[Path, Head | None] = {head.path: head for head in heads}
        self._states: dict[Path, State] = {}
        self._directories: dict[Path, dict[int, list[Path]]] = {}
        self._boot = proc.text("sys", "kernel/random/boot_id").strip()

    def of(self, head: Head) -> State:
        """The state of the process of a record."""
        if head.path not in self._states:
            self._states[head.path] = self._find(head)
        return self._states[head.path]

    def _find(self, head: Head) -> State:
        if head.end_time_ns:
            return State("ended")
        if not head.process_start:  # of an older library, or without /proc
            return State("running", pid=head.here) if head.here else State("gone")
        if head.boot_id not in ("", self._boot):
            return self._ended(head)
        for pid in namespaces.candidates(head.pid, head.pid_namespace, head.start_time_ns):
            state = self._of_process(head, pid)
            if state:
                return state
        hidden = namespaces.foreign(head.pid_namespace) and namespaces.own() != _INITIAL_NAMESPACE
        return State("unknown") if hidden else self._ended(head)

    def _of_process(self, head: Head, pid: int) -> State | None:
        """The state of the record if this running process is, or once was, its process; None if it is another process."""
        try:
            text = record.maps(pid)
        except SheafError:  # a process of another user
            text = None
        files = record.mapped(pid, text or "")
        if any(record.same(head.path, file) for file in files):
            return State("running", pid=pid)
        if _start(pid) != head.process_start:
            return None
        later = self._successor(head)
        if later:
            return State("replaced", later.program)
        if text is None:
            return State("running", pid=pid)
        if ".sheaf (deleted)" in text or any(self._is_original(head, place) for file in files for place in file.places):
            return State("copy")
        return State("replaced", proc.text(pid, "comm", "replace").strip())

    def _is_original(self, head: Head, path: Path) -> bool:
        mapped = self._head(path)
        return mapped is not None and mapped.start_time_ns == head.start_time_ns

    def _ended(self, head: Head) -> State:
        later = self._successor(head)
        return State("replaced", later.program) if later else State("gone")

    def successor(self, head: Head) -> Head | None:
        """The record that the same process began next, after an exec."""
        return self._successor(head) if head.process_start and not head.end_time_ns else None

    def _successor(self, head: Head) -> Head | None:
        def identity(one: Head) -> tuple[int, int, int, str]:
            return one.pid, one.process_start, one.pid_namespace, one.boot_id

        heads = (self._head(path) for path in self._of_number(head.path.parent, head.pid))
        later = [one for one in heads if one and identity(one) == identity(head) and one.start_time_ns > head.start_time_ns]
        return min(later, key=lambda one: one.start_time_ns, default=None)

    def _head(self, path: Path) -> Head | None:
        if path not in self._heads:
            try:
                self._heads[path] = record.read_head(path)
            except SheafError:
                self._heads[path] = None
        return self._heads[path]

    def _of_number(self, directory: Path, pid: int) -> list[Path]:
        """The files in a directory whose names have the number of this process."""
        if directory not in self._directories:
            files: dict[int, list[Path]] = {}
            try:
                names = os.listdir(directory)
            except OSError:
                names = []
            for name in names:
                found = _NUMBERS.search(name)
                for number in {int(one) for one in found.groups() if one} if found else ():
                    files.setdefault(number, []).append(directory / name)
            self._directories[directory] = files
        return self._directories[directory].get(pid, [])
