"""The findings of `sheaf doctor`, and what they are about: a process that runs, or one that this shell would start."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sheaf.system.proc import fields

Status = Literal["ok", "note", "problem"]
_getauxval = ctypes.CDLL(None).getauxval
_getauxval.argtypes, _getauxval.restype = (ctypes.c_ulong,), ctypes.c_ulong


@dataclass(frozen=True)
class Finding:
    """One line of the output. `subject` is a key that docs/doctor.md lists; `advice` is empty where nothing is to be done."""

    status: Status
    subject: str
    what: str
    advice: str = ""


def ok(subject: str, what: str) -> Finding:
    """A finding that needs no action."""
    return Finding("ok", subject, what)


def note(subject: str, what: str, advice: str) -> Finding:
    """A finding that changes how Sheaf works, but does not prevent it."""
    return Finding("note", subject, what, advice)


def problem(subject: str, what: str, advice: str) -> Finding:
    """A finding because of which the program does not run on Sheaf, or not as requested."""
    return Finding("problem", subject, what, advice)


@dataclass(frozen=True)
class Process:
    """
    The process under examination: its directory in /proc and the environment that it was started with. Before a program
    runs, this is the present process, whose limits and environment the program inherits. With `overwritten` the program has
    put something else, such as its title, in the place of the environment, which is unknown then.
    """

    proc: Path
    environment: Mapping[str, str]
    overwritten: bool = False

    def _read(self, name: str) -> str:
        """The text of a file in /proc; empty if it cannot be read."""
        try:
            return (self.proc / name).read_text(errors="surrogateescape")
        except OSError:
            return ""

    def status(self) -> dict[str, str]:
        """The fields of /proc/PID/status."""
        return fields(self._read("status"))

    def limit(self, name: str) -> int | None:
        """A soft limit by its name in /proc/PID/limits; None if there is none, or if it cannot be read."""
        for line in self._read("limits").splitlines():
            if line.startswith(name):
                value = line[len(name) :].split()[0]
                return int(value) if value.isdigit() else None
        return None

    def auxiliary(self, key: int) -> int:
        """An entry of the auxiliary vector; 0 if it is missing or cannot be read. libc has that of this process itself."""
        if self.proc == SELF:
            return int(_getauxval(key))
        try:
            raw = (self.proc / "auxv").read_bytes()
        except OSError:
            return 0
        return next((value for number, value in struct.iter_unpack("@2N", raw[: len(raw) // 16 * 16]) if number == key), 0)

    def maps(self) -> str:
        """The memory map. Raises OSError if it cannot be read."""
        return (self.proc / "maps").read_text(errors="surrogateescape")

    def groups(self) -> list[tuple[str, str]]:
        """The controllers and the path of each control group; no controllers stand for version 2."""
        lines = (line.split(":", 2) for line in self._read("cgroup").splitlines())
        return [(parts[1], parts[2]) for parts in lines if len(parts) == 3]

    def path(self, name: str) -> Path:
        """The file that the process means by an absolute path, which in a container is not the one of this process."""
        return Path(name) if self.proc == SELF else Path(f"{self.proc}/root{name}")


SELF = Path("/proc/self")


def future() -> Process:
    """A program that is yet to be started from here."""
    return Process(SELF, os.environ)


def running(pid: int) -> Process:
    """A running process. Its environment is empty if it cannot be read."""
    proc = Path(f"/proc/{pid}")
    try:
        raw = (proc / "environ").read_bytes()
    except OSError:
        raw = b""
    variables = [one for one in raw.removesuffix(b"\0").split(b"\0") if b"=" in one]
    overwritten = raw != b"" and len(variables) <= raw.removesuffix(b"\0").count(b"\0")
    pairs = (os.fsdecode(one).partition("=") for one in variables)
    return Process(proc, {name: value for name, _, value in pairs}, overwritten)
