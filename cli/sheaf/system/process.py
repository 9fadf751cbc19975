"""Name a running process on Sheaf: by its number, or by the name of its program if only one process has that name."""

from __future__ import annotations

import difflib
import os
import re
from dataclasses import dataclass

from sheaf.errors import SheafError
from sheaf.system import proc

_NUMBER = re.compile("[0-9]{1,18}")
_OBJECT = "libsheaf-preload"
_LISTED = 8  # processes that a message lists


@dataclass(frozen=True)
class Running:
    """A process on Sheaf. `names` are those by which it may be named, the base name of its file first."""

    pid: int
    names: tuple[str, ...]
    recorded: bool  # whether it keeps a record

    @property
    def program(self) -> str:
        """The base name of its file."""
        return self.names[0]


def _names(pid: int) -> tuple[str, ...]:
    """
    The base names of the executed file and of the word by which it was called (python3 for python3.11), and the name that the
    process has for the kernel, which it may have chosen by itself.
    """
    try:
        file = os.path.basename(os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)"))
    except OSError:
        file = ""
    called = os.path.basename(proc.text(pid, "cmdline").partition("\0")[0])
    return tuple(dict.fromkeys(name for name in (file, called, proc.text(pid, "comm").rstrip("\n")) if name))


def command(pid: int) -> str:
    """The command line of a process, or the title that it gave itself (`postgres: checkpointer`); empty if it is not known."""
    return " ".join(proc.text(pid, "cmdline").replace("\0", " ").split())


def _on_sheaf(pid: int, names: tuple[str, ...]) -> Running | None:
    maps = proc.text(pid, "maps")
    recorded = re.search(r"\.sheaf$", maps, re.MULTILINE) is not None
    return Running(pid, names, recorded) if recorded or _OBJECT in maps else None


def on_sheaf() -> list[Running]:
    """All processes on Sheaf whose maps this user may read, by number."""
    found = (_on_sheaf(pid, _names(pid)) for pid in proc.pids())
    return sorted((one for one in found if one and one.names), key=lambda one: one.pid)


def named(name: str) -> list[int]:
    """The numbers of the processes on Sheaf with this name. Reads the maps of no other processes."""
    pairs = [(pid, _names(pid)) for pid in proc.pids()]
    return sorted(pid for pid, names in pairs if name in names and _on_sheaf(pid, names))


def resolve(name: str) -> int | None:
    """The number of the one process on Sheaf with this name; None if there is none. Raises SheafError if there are several."""
    if not name or "/" in name:
        return None
    found = named(name)
    if len(found) > 1:
        listed = ", ".join(map(str, found[:_LISTED])) + (", ..." if len(found) > _LISTED else "")
        raise SheafError(f"{name}: {len(found)} processes on Sheaf have this name: {listed}; give one of these numbers")
    return found[0] if found else None


def number(word: str) -> int:
    """The number of a running process from its number or name. Raises SheafError if there is none or if several match."""
    if _NUMBER.fullmatch(word):
        if not os.path.exists(f"/proc/{word}"):
            raise SheafError(f"{word}: no such process; name a running process by its number or program")
        return int(word)
    found = resolve(word)
    if found is None:
        near = difflib.get_close_matches(word, {name for one in on_sheaf() for name in one.names}, 1)
        hint = f"did you mean {near[0]}?" if near else "name a running process by its number or program, or see `sheaf top`"
        raise SheafError(f"{word}: no process of this name runs on Sheaf; {hint}")
    return found
