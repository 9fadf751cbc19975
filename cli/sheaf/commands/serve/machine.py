"""The processes of this machine that run on Sheaf, and their records.

scan() brings a Watch up to date and passes what it found to the accounts. It keeps the tally of each running process, and
of ended ones only which of them were counted.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sheaf.commands.serve.accounts import Accounts, Reading, Tally
from sheaf.errors import SheafError, printable
from sheaf.records import record, watch
from sheaf.records.memory import Memory
from sheaf.records.record import Head, Record
from sheaf.system import proc

MOST_DIRECTORIES = 32  # in metrics
MOST_NAMED = 50  # processes without a record, and problems, that are listed one by one
_MOST_COUNTED = 20_000  # ended processes that are remembered as counted
# A process that starts or forks writes its values within microseconds after the header. Until then they are read as 0.
_YOUNG_NS = 100_000_000
_BIGGER = 1.25  # a process displaces a shown one that is smaller by this factor, so that series do not alternate
Key = tuple[int, int, int, int]  # pid, PID namespace, start in clock ticks, start of the record


@dataclass(frozen=True)
class Limits:
    """Bounds on what the server keeps and exports."""

    processes: int = 20  # shown apart in /metrics
    programs: int = 50
    caches: int = 0  # of a program


@dataclass
class Process:
    """A running process with a record. Sizes are in bytes, times in nanoseconds since the epoch."""

    key: Key
    pid: int  # in the PID namespace of this server
    head: Head
    uid: int
    tally: Tally
    memory: Memory
    resident: int  # 0 if unknown
    shown: bool = False

    @property
    def held(self) -> int:
        """Bytes that decide which processes are the largest."""
        return max(self.resident, self.memory.live + self.memory.warm)


@dataclass(frozen=True)
class Bare:
    """A process that runs on Sheaf and keeps no record."""

    pid: int
    program: str


@dataclass(frozen=True)
class Room:
    """A directory of records and the file system it is on, in bytes."""

    path: str
    records: int
    size: int
    free: int


@dataclass(frozen=True)
class Snapshot:
    """The result of a scan. The list stays as it is, but its processes are updated by later scans."""

    time_ns: int
    processes: list[Process]  # the largest first
    bare: list[Bare]  # at most MOST_NAMED
    bare_count: int
    unreadable: list[int]  # PIDs, at most MOST_NAMED
    unreadable_count: int
    rooms: list[Room]  # at most MOST_DIRECTORIES
    problems: list[str]  # at most MOST_NAMED
    problem_count: int
    seconds: float  # that the scan took


def _comm(pid: int) -> str:
    return printable(proc.text(pid, "comm", "replace").rstrip("\n"))


def _uid(pid: int) -> int | None:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


def _key(head: Head) -> Key:
    return head.pid, head.pid_namespace, head.process_start, head.start_time_ns


def _room(directory: Path, records: int) -> Room | None:
    try:
        status = os.statvfs(directory)
    except OSError:
        return None
    return Room(printable(str(directory)), records, status.f_frsize * status.f_blocks, status.f_frsize * status.f_bavail)


class Machine:
    """
    All processes on Sheaf that this user may read: those whose maps can be read, and those with records in `directories`.
    scan() may be called by several threads.
    """

    def __init__(self, directories: Iterable[Path] = (), limits: Limits | None = None, discover: bool = True) -> None:
        self.limits = limits or Limits()
        self.accounts = Accounts(self.limits.programs, self.limits.caches)
        self.started_ns = time.time_ns()
        self.scans = 0
        self.lock = threading.Lock()  # held by readers of accounts as well
        self._watch = watch.Watch(directories, discover=discover)
        self._processes: dict[Key, Process] = {}
        self._counted: dict[Key, None] = {}  # ended processes, the latest last
        self.snapshot = Snapshot(0, [], [], 0, [], 0, [], [], 0, 0)

    def scan(self) -> Snapshot:
        """Read all records that may have changed."""
        with self.lock:
            began = time.monotonic()
            found = self._watch.refresh(caches=True, of_ended=self._counts)
            self.accounts.begin_scan()
            running: dict[Key, Process] = {}
            for one in found:
                if one.running:
                    process = self._keep(one)
                    if process:
                        running[process.key] = process
            for one in found:
                if one.state.ended:
                    self._end(one)
                    self._watch.forget(one)
            for key in self._processes.keys() - running.keys() - self._counted.keys():
                if not self._vanish(self._processes[key]):
                    running[key] = self._processes[key]
            self._processes = running
            self._choose()
            self.scans += 1
            self.snapshot = self._snapshot(began)
            return self.snapshot

    def _keep(self, one: watch.Process) -> Process | None:
        """Count a running process; None if its values are not complete yet."""
        memory = one.memory
        if memory is None:
            return None
        key = _key(one.head)
        process = self._processes.get(key)
        reading = self._reading(one, one.numbers)
        if process is None:
            if 0 <= time.time_ns() - one.start_time_ns < _YOUNG_NS:
                return None
            process = Process(key, one.pid, one.head, _uid(one.pid) or 0, self.accounts.open(reading), memory, one.resident)
        else:
            self.accounts.update(process.tally, reading)
            process.memory, process.resident, process.head = memory, one.resident, one.head
        self.accounts.hold(process.tally, one, memory)
        return process

    def _end(self, one: watch.Process) -> None:
        """
        Count what a process did before it ended, once. A process that was never seen running counts if it began after the
        server did.
        """
        key = _key(one.head)
        if key in self._counted:
            return
        process = self._processes.get(key)
        if process is None and not self._counts(one.head):
            return
        try:
            enough = one.numbers.counters and not self.limits.caches
            reading = self._reading(one, one.numbers if enough else self._watch.last(one))
        except SheafError:  # removed already; what was read while the process ran stays
            reading = None
        if process is None and reading:
            self.accounts.close(self.accounts.open(reading), one.state.name)
        elif process:
            if reading:
                self.accounts.update(process.tally, reading)
            self.accounts.close(process.tally, one.state.name)
        self._remember(key)

    def _counts(self, head: Head) -> bool:
        """Whether a process that was never seen running counts: if it began after the server did."""
        return head.start_time_ns >= self.started_ns

    def _reading(self, one: watch.Process, numbers: watch.Numbers) -> Reading:
        caches = (numbers.caches or ()) if self.limits.caches else ()
        return Reading(one.program, numbers.values, numbers.gauges, numbers.counters, caches)

    def _vanish(self, process: Process) -> bool:
        """
        Decide about a process whose record could not be read this time, and return whether it is gone. It is if it has
        ended, or if its record was removed; the values that were read last stay in the sums.
        """
        now = proc.stat(process.pid)
        ended = now is None or process.head.process_start not in (0, now.start)
        if not ended and process.head.path.exists():
            return False
        self.accounts.close(process.tally, "gone")
        self._remember(process.key)
        return True

    def _remember(self, key: Key) -> None:
        self._counted[key] = None
        while len(self._counted) > _MOST_COUNTED:
            del self._counted[next(iter(self._counted))]

    def _choose(self) -> None:
        """
        Choose the processes that are shown apart. One that is shown stays unless another one is larger by _BIGGER, so that
        processes of similar size do not take turns, each time with new series.
        """
        rank = sorted(self._processes.values(), key=lambda p: p.held * (_BIGGER if p.shown else 1), reverse=True)
        for i, process in enumerate(rank):
            process.shown = i < self.limits.processes

    def _snapshot(self, began: float) -> Snapshot:
        looked = self._watch
        bare, unreadable = looked.unrecorded, looked.unreadable
        problems = [printable(why) for why in looked.others.values()]
        rooms: list[Room] = []
        numbers = looked.counts
        for place in looked.places:
            room = _room(place, numbers.get(place, 0))
            if room is None:
                problems.append(f"{printable(str(place))}: the directory cannot be read")
            elif len(rooms) < MOST_DIRECTORIES:
                rooms.append(room)
        return Snapshot(
            time.time_ns(),
            sorted(self._processes.values(), key=lambda process: -process.held),
            [Bare(pid, _comm(pid)) for pid in bare[:MOST_NAMED]],
            len(bare),
            sorted(unreadable)[:MOST_NAMED],
            len(unreadable),
            rooms,
            problems[:MOST_NAMED],
            len(problems),
            time.monotonic() - began,
        )

    def directories(self) -> list[Path]:
        """The directories of records that are known."""
        with self.lock:
            return self._watch.places

    def find(self, pid: int) -> Process | None:
        """The running process with this number."""
        return next((process for process in self.snapshot.processes if process.pid == pid), None)

    def named(self, program: str) -> Process | None:
        """The largest running process of a program."""
        return next((process for process in self.snapshot.processes if process.head.program == program), None)


def head_of(path: Path) -> Head | None:
    """The head of a record; None for a file that is not a record, or not yet."""
    try:
        return record.read_head(path)
    except SheafError:
        return None


def read(process: Process) -> Record:
    """The record of a process as it is now. Raises SheafError if it cannot be read, or is that of another process."""
    one = record.read(process.head.path)
    if _key(one) != process.key:
        raise SheafError(f"{process.pid}: the process has ended; choose another")
    return one
