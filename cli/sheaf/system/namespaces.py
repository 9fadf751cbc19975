"""Numbers of processes in PID namespaces: a record has the one that the process has for itself, in a container perhaps 1."""

from __future__ import annotations

import os
import time

from sheaf.system import proc

_FRESH = 0.2  # seconds for which a list of all processes is used again
_listed: tuple[float, int, list[tuple[int, ...]]] = (float("-inf"), 0, [])  # when, by two clocks, and the numbers


def own() -> int:
    """The PID namespace of this command, as the inode number of /proc/self/ns/pid; 0 if it is not known."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def foreign(namespace: int) -> bool:
    """Whether a namespace is another one than that of this command. One that is not known, which is 0, counts as the same."""
    return namespace != own() and 0 not in (namespace, own())


def _below(since_ns: int) -> list[tuple[int, ...]]:
    """
    The numbers of all processes in namespaces below that of /proc, in each of these, the innermost last. Processes that
    started before `since_ns`, in nanoseconds since 1970, are not missing.
    """
    global _listed
    now, clock = time.monotonic(), time.time_ns()
    if now - _listed[0] > _FRESH or _listed[1] <= since_ns:
        found = [numbers for numbers in map(proc.numbers, proc.pids()) if len(numbers) > 1]
        _listed = now, clock, found
    return _listed[2]


def candidates(pid: int, namespace: int, since_ns: int) -> list[int]:
    """
    The numbers, as this command sees them, of the processes that may have the number `pid` in a namespace, and had it at
    `since_ns`, in nanoseconds since 1970.
    """
    return [numbers[0] for numbers in _below(since_ns) if numbers[-1] == pid] if foreign(namespace) else [pid]
