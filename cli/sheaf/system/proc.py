"""What /proc says of processes and threads. A process may end at any time, which is no error here.

psutil has no numbers of PID namespaces, no tracer, no start address of the code, and reads some files in each call.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PAGE = os.sysconf("SC_PAGESIZE")
_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) \S+ ([0-9a-f]+) ([0-9a-f]+):([0-9a-f]+) (\d+) +(/.*)")


@dataclass(frozen=True, slots=True)
class Stat:
    """
    The parts of /proc/PID/stat that are used here: the letter of the state, the number of threads, the start in clock ticks
    since boot, and resident bytes. `image` changes when the process executes a program.
    """

    state: str
    threads: int
    start: int
    resident: int
    image: tuple[str, str]
    minor_faults: int
    user_ticks: int
    system_ticks: int

    @property
    def zombie(self) -> bool:
        """Whether it has ended and waits for its parent."""
        return self.state in "ZX"


def stat(of: int | str) -> Stat | None:
    """A process, or with PID/task/TID a thread, as the system sees it; None if there is none."""
    try:
        fd = os.open(f"/proc/{of}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        raw = os.read(fd, 4096)
    except OSError:
        return None
    finally:
        os.close(fd)
    before, _, after = raw.decode("utf-8", "replace").rpartition(")")
    words = after.split()
    if len(words) < 26:
        return None
    # words[0] is field 3. Fields 26 and 28 are the addresses of the code and of the stack.
    return Stat(
        state=words[0],
        threads=int(words[17]),
        start=int(words[19]),
        resident=int(words[21]) * _PAGE,
        image=(before, words[23] + words[25]),
        minor_faults=int(words[7]),
        user_ticks=int(words[11]),
        system_ticks=int(words[12]),
    )


def readable() -> bool:
    """Whether /proc can be read at all. Some sandboxes hide it, and then no process is known to run or to have ended."""
    return stat("self") is not None


def text(of: int | str, name: str, errors: str = "surrogateescape") -> str:
    """A file of a process; empty if it cannot be read."""
    try:
        return Path(f"/proc/{of}/{name}").read_text(errors=errors)
    except OSError:
        return ""


def fields(text: str) -> dict[str, str]:
    """The fields in the text of /proc/PID/status."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, _, value in pairs}


def status(of: int | str) -> dict[str, str]:
    """The fields of /proc/PID/status; none if it cannot be read."""
    return fields(text(of, "status"))


def kib(status: dict[str, str], name: str) -> int | None:
    """A field such as VmRSS in bytes; None if it is missing."""
    number = status.get(name, "").removesuffix(" kB")
    return int(number) << 10 if number.isdecimal() and len(number) <= 15 else None


def resident(pid: int | None) -> int | None:
    """The resident bytes of a process; None if they are not known."""
    found = stat(pid) if pid else None
    return found.resident if found else None


def pids() -> list[int]:
    """The numbers of all processes."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def tasks(pid: int) -> list[int]:
    """The numbers of the threads of a process; none if it has ended."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def numbers(of: int | str) -> tuple[int, ...]:
    """The numbers of a process or thread in its PID namespaces, that of /proc first; empty if they are not known."""
    return tuple(map(int, status(of).get("NSpid", "").split()))


@dataclass(frozen=True, slots=True)
class Mapping:
    """A mapped file: addresses, offset in the file, device, inode and path."""

    start: int
    end: int
    offset: int
    device: int
    inode: int
    path: str


def mappings(maps: str, suffix: str = "") -> Iterator[Mapping]:
    """The mapped files in the text of /proc/PID/maps whose paths end with `suffix`, by address."""
    for found in (_MAPPING.fullmatch(line) for line in maps.splitlines() if line.endswith(suffix)):
        if found:
            start, end, offset, major, minor = (int(found[i], 16) for i in range(1, 6))
            yield Mapping(start, end, offset, os.makedev(major, minor), int(found[6]), found[7])
