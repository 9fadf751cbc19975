"""Switch sampling on and off in a running process, through the control area of its record (sheaf/control.h)."""

from __future__ import annotations

import fcntl
import mmap
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sheaf import layout
from sheaf.errors import SheafError

_PROFILE = 4  # SHEAF_PROFILE
_DONE, _UNKNOWN, _RANGE, _NO_ROOM, _REFUSED = range(5)
_REFUSALS = {1: "all of its caches are debugged or hardened", 2: "it could not get memory", 3: "its Sheaf has no unwinder"}
_PATIENCE = 10.0  # seconds
_REQUEST, _ANSWER, _STATUS, _RESULT = 0, 1, 2, 3  # 8-byte words of the area
_WORDS = 12


@contextmanager
def _area(path: Path) -> Iterator[memoryview]:
    """The words of the control area, while no other client uses them."""
    reader = layout.Reader(path)
    with reader.file:
        offset, end = reader.optional("control_offset"), reader.optional("profile_offset") + reader.optional("profile_size")
        if not offset or offset % mmap.PAGESIZE:
            raise SheafError(f"{path}: the process cannot be asked to sample: its Sheaf is too old, or its record has no room")
        try:  # not by its path, which may lead to another file by now
            file = os.open(f"/proc/self/fd/{reader.file.fileno()}", os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise SheafError(f"{path}: {error.strerror}; run sheaf as the owner of the process or as root") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file).st_size < end:
            os.ftruncate(file, end)
        with mmap.mmap(file, mmap.PAGESIZE, offset=offset) as mapped, memoryview(mapped) as view, view.cast("Q") as words:
            yield words[:_WORDS]
    finally:
        os.close(file)


def _ask(path: Path, value: int, alive: Callable[[], bool]) -> tuple[int, int]:
    """Send the request and wait; returns the status and the first result."""
    with _area(path) as words, words:
        sequence = (words[_ANSWER] >> 16) + 1 & 0xFF
        word = value << 24 | sequence << 16 | _PROFILE
        words[_REQUEST] = word
        deadline = time.monotonic() + _PATIENCE
        while words[_ANSWER] != word:
            if not alive():
                raise SheafError(f"{path}: the process has ended")
            if time.monotonic() > deadline:
                words[_REQUEST] = 0  # withdrawn, unless the process has just done it
                if words[_ANSWER] == word:
                    break
                raise SheafError(f"{path}: the process did not answer in {_PATIENCE:.0f} s: it allocates nothing, or is "
                                 "stopped; try again while it works")  # fmt: skip
            time.sleep(0.01)
        return words[_STATUS], words[_RESULT]


def sample(path: Path, rate: int, alive: Callable[[], bool]) -> None:
    """
    Make the process of a record take a sample for each `rate` bytes on average; 0 stops it. Raises SheafError if it refuses,
    does not answer in time, or if `alive` says that it has ended.
    """
    status, result = _ask(path, rate, alive)
    if status == _DONE:
        return
    if status == _NO_ROOM:
        raise SheafError(f"{path}: no room for a profile: the file system is full; free some MiB in it")
    reasons = {_UNKNOWN: "its Sheaf has no profiles", _RANGE: "the rate is out of range; give a --rate from 1K to 1G"}
    reason = _REFUSALS.get(result, "its options forbid it") if status == _REFUSED else reasons.get(status, f"status {status}")
    raise SheafError(f"{path}: the process refuses to sample: {reason}")
