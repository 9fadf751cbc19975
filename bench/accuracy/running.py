"""A program while it runs, and what it says that it holds; truth.h defines the lines."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

TIMEOUT_S = 120


class Failed(Exception):
    """A program or profiler did not do its part; the message says which, and how."""


@dataclass
class Truth:
    """What the program has told so far: the bytes that each site holds, held at the peak, and had at which moment."""

    pid: int = 0
    held: dict[str, int] = field(default_factory=dict)
    peak: dict[str, int] = field(default_factory=dict)
    grown: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    def add(self, line: str) -> bool:
        """Take in a line; returns whether it says that the figures hold now."""
        match line.split():
            case ["held", name, size]:
                self.held[name] = int(size)
            case ["peak", name, size]:
                self.peak[name] = int(size)
            case ["grown", name, moment, size]:
                self.grown.setdefault(name, []).append((int(moment), int(size)))
            case ["ready", pid]:
                self.pid = int(pid)
                return True
        return False

    def at(self, name: str, moment_ns: int) -> int:
        """What a site held at a moment, in nanoseconds since 1970."""
        return max((size for moment, size in self.grown.get(name, []) if moment <= moment_ns), default=0)


def environment(values: Mapping[str, str]) -> dict[str, str]:
    """The environment without settings of any allocator, and these values."""
    ours = ("SHEAF_", "LD_PRELOAD", "MALLOC_", "TCMALLOC_", "ACCURACY_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)} | dict(values)


class Running:
    """A program that is started here, and ended with the context."""

    def __init__(self, command: Sequence[str | Path], values: Mapping[str, str], directory: Path) -> None:
        self.truth, self.directory = Truth(), directory
        self._errors = (directory / "errors").open("w+")
        self._process = subprocess.Popen(
            command,
            env=environment(values),
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._timer = threading.Timer(TIMEOUT_S, self._process.kill)

    def __enter__(self) -> Running:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def ready(self) -> Truth:
        """Wait until the program says that its figures hold. Raises Failed if it ends."""
        assert self._process.stdout
        for line in self._process.stdout:
            if self.truth.add(line):
                return self.truth
        raise self._failed()

    def go_on(self) -> None:
        """Let a program that waits continue."""
        assert self._process.stdin
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def wait(self) -> None:
        """Wait for the end. Raises Failed unless the status is 0."""
        self._process.communicate()
        if self._process.returncode:
            raise self._failed()

    def _failed(self) -> Failed:
        self._process.wait()
        self._errors.seek(0)
        last = self._errors.read().strip().splitlines()[-1:] or ["no message"]
        return Failed(f"the program ended with {self._process.returncode}: {last[0]}")
