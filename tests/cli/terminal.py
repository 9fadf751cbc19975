"""A pseudo-terminal with a program, controlled by a test."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import termios
from collections.abc import Callable
from types import TracebackType
from typing import Self

import pyte

PATIENCE = 60  # seconds without output after which a test fails


class Terminal:
    """The program leads a new session and is the foreground process group. Its output collects in `seen`."""

    def __init__(self, argv: list[str], environment: dict[str, str]) -> None:
        self.seen = ""
        self._looked = 0
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            try:
                os.execvpe(argv[0], argv, environment)
            finally:
                os._exit(127)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        os.close(self._fd)
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)

    def _read(self) -> bool:
        """Wait for output and take it; returns false at the end of all output."""
        ready, _, _ = select.select([self._fd], [], [], PATIENCE)
        assert ready, f"no more output after {self._shown()}"
        try:
            raw = os.read(self._fd, 65536)
        except OSError:  # the last writer has closed the terminal
            return False
        self._take(raw)
        return bool(raw)

    def _take(self, raw: bytes) -> None:
        self.seen += raw.decode().replace("\r\n", "\n")

    def _shown(self) -> str:
        return repr(self.seen)

    def expect(self, text: str) -> str:
        """Wait for `text` after the previously expected text; returns the rest of its line."""
        while (at := self.seen.find(text, self._looked)) < 0 or "\n" not in self.seen[at:]:
            assert self._read(), f"{text!r} is not in {self.seen!r}"
        self._looked = at + len(text)
        return self.seen[self._looked : self.seen.index("\n", self._looked)]

    def attributes(self) -> list[object]:
        """The settings of the terminal, such as echo."""
        return termios.tcgetattr(self._fd)

    def expect_part(self, text: str) -> None:
        """Wait for `text` in a line that need not have ended."""
        while (at := self.seen.find(text, self._looked)) < 0:
            assert self._read(), f"{text!r} is not in {self.seen!r}"
        self._looked = at + len(text)

    def type(self, keys: str) -> None:
        """Type keys, with control characters for ^C and the like."""
        os.write(self._fd, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        """Change the size of the terminal, like a window that is resized."""
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("4H", lines, columns, 0, 0))

    def end(self) -> int:
        """Read to the end; returns the exit status, or the negative number of a signal."""
        while self._read():
            pass
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)


class Display(Terminal):
    """A terminal of some size, which shows what a program draws. `raw` is all that the program wrote."""

    def __init__(self, argv: list[str], environment: dict[str, str], columns: int = 80, lines: int = 24) -> None:
        super().__init__(argv, environment)
        self.raw = b""
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self.resize(columns, lines)

    def resize(self, columns: int, lines: int) -> None:
        """Change the size."""
        self._screen.resize(lines, columns)
        super().resize(columns, lines)

    def _take(self, raw: bytes) -> None:
        self.raw += raw
        self._stream.feed(raw)

    def _shown(self) -> str:
        return "\n" + self.text()

    def text(self) -> str:
        """What is on the screen."""
        return "\n".join(line.rstrip() for line in self._screen.display)

    def wait(self, true: Callable[[str], bool]) -> str:
        """Wait until the text of the screen fulfils a condition, and return it."""
        while not true(self.text()):
            assert self._read(), f"the program ended; the screen was\n{self.text()}"
        return self.text()
