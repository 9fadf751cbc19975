"""Names of code that a JIT compiler made, from the map /tmp/perf-PID.map that it writes for perf(1)."""

from __future__ import annotations

import bisect
import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from sheaf.errors import printable
from sheaf.system.places import Place

_LARGEST = 256 << 20  # bytes; a longer file is not read to its end
_MOST = 1 << 20  # functions; of a map with more, the first ones are kept
_LONGEST = 16 << 10  # bytes of a line
_LINE = re.compile(rb"(?:0x)?([0-9a-fA-F]{1,16}) (?:0x)?([0-9a-fA-F]{1,16}) (.+)")
_PYTHON = re.compile(r"py::(.+?):(.+)")  # CPython's trampolines
_NODE = re.compile(r"(?:JS|LazyCompile|Function|Script|Eval|Builtin):[~*^+]?(\S*) (?:file://)?(.+?):(\d+)(?::\d+)?")


def _place(text: str) -> Place:
    """The function that an interpreter or a virtual machine describes in this way."""
    if found := _PYTHON.fullmatch(text):
        return Place(found[1], found[2], 0)
    if found := _NODE.fullmatch(text):
        return Place(found[1] or "(anonymous)", found[2], int(found[3]))
    return Place(text, "", 0)


class Map:
    """
    Functions by address. A later line replaces an earlier one of the same start, because JIT compilers reuse memory. `note`
    says what is wrong with the file; empty if nothing is.
    """

    def __init__(self, lines: Iterable[bytes] = (), name: str = "the map", note: str = "") -> None:
        found: dict[int, tuple[int, bytes]] = {}
        bad = 0
        for line in lines:
            parts = _LINE.match(line)
            bad += not parts
            if parts and (len(found) < _MOST or int(parts[1], 16) in found):
                found[int(parts[1], 16)] = int(parts[2], 16), parts[3]
        self._starts = sorted(found)
        self._found = found
        self.note = note or (f"{name}: lines that cannot be read: {bad}." if bad else "")

    def __bool__(self) -> bool:
        return bool(self._starts)

    def find(self, address: int) -> Place | None:
        """The function that contains an address."""
        at = bisect.bisect_right(self._starts, address) - 1
        if at < 0:
            return None
        size, name = self._found[self._starts[at]]
        return _place(printable(name.decode("utf-8", "replace"))) if address < self._starts[at] + size else None


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a map, without the rest of very long ones."""
    left, begins = _LARGEST, True
    while left > 0 and (line := file.readline(_LONGEST)):
        left -= len(line)
        if begins:
            yield line.rstrip(b"\r\n")
        begins = line.endswith(b"\n")


def _read(path: Path, owner: int, since_ns: int) -> Map:
    """
    The map in a file; empty if it cannot be read or was last changed before `since_ns`. Anybody may create files in /tmp, so
    it must be a file that belongs to the user of the process, to this user or to root.
    """
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_mtime_ns < since_ns:
                return Map()
            if not stat.S_ISREG(status.st_mode):
                return Map(note=f"{path} is not used: it is no regular file.")
            if status.st_uid not in (0, os.geteuid(), owner):
                return Map(note=f"{path} is not used: it belongs to user {status.st_uid}, not to the user of the process.")
            return Map(_lines(file), str(path))
    except OSError as error:
        return Map(note=f"{path} is not used: it is a symbolic link." if error.errno == errno.ELOOP else "")


def read(pid: int, alive: bool, began_ns: int = 0, here: int | None = None) -> Map:
    """
    The map of a process that started at `began_ns`, and may have ended. It is empty if there is none. `pid` is the number that
    the process has for itself, and `here` the one that it has for this command.
    """
    name, owner, since_ns = f"tmp/perf-{pid}.map", os.geteuid(), began_ns - 1_000_000_000  # file times are coarse
    found = Map()
    if alive:
        with contextlib.suppress(OSError):
            owner = os.stat(f"/proc/{here or pid}").st_uid
        found = _read(Path(f"/proc/{here or pid}/root/{name}"), owner, since_ns)  # in a container
    return found if found or found.note else _read(Path("/", name), owner, since_ns)
