"""The reports of a program under `sheaf run --debug`: printed with source positions while the program runs."""

from __future__ import annotations

import glob
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from sheaf.rendering import frames
from sheaf.system import places

_EVERY_S = 0.2  # how often the log is looked at
_LARGEST_PIECE = 1 << 20  # bytes that are read at once


def useful(spec: str) -> bool:
    """
    Whether source positions can be added to the reports that a value of SHEAF_DEBUG asks for. Without a tool, and where each
    allocation is traced (T), the program had better write by itself.
    """
    traced = any("T" in part.partition(",")[0].upper() for part in spec.split(";"))
    return bool(spec) and not traced and places.tool() is not None


class Reports:
    """
    A private log to which the processes of a run append their reports. A thread prints what is appended with `say`. The last
    lines are printed on leaving; signals are blocked by then (child.run).
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._directory = tempfile.mkdtemp(prefix="sheaf-")
        self.path = Path(self._directory) / "reports"
        self.path.touch()
        # A program may give up its privileges before it reports something. The name cannot be guessed.
        os.chmod(self._directory, 0o711)
        os.chmod(self.path, 0o622)
        self._file = self.path.open("rb")
        self._part = b""
        self._places = places.Places()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> Reports:
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are for the main thread
        self._thread.start()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._file.close()
        self._places.close()
        if self._in_use():
            self._say(f"sheaf: processes of the program still run; their reports follow in {self.path}")
        else:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _follow(self) -> None:
        while not self._over.wait(_EVERY_S):
            self._print()
        self._print()
        if self._part:
            self._lines([self._part])

    def _print(self) -> None:
        """Print the complete lines that were appended since the last call."""
        while piece := self._file.read(_LARGEST_PIECE):
            *lines, self._part = (self._part + piece).split(b"\n")
            self._lines(lines)

    def _lines(self, raw: list[bytes]) -> None:
        lines = [line.decode(errors="replace") for line in raw]
        found = frames.places_of(lines, self._places)
        if lines:
            self._say("\n".join(frames.with_place(line, found) for line in lines))

    def _in_use(self) -> bool:
        """Whether a process that this user may examine still has the log open."""
        for name in glob.iglob("/proc/[0-9]*/fd/*"):
            try:
                if os.readlink(name) == str(self.path):
                    return True
            except OSError:
                continue
        return False
