"""Name a running process on Sheaf: by its number, or by the name of its program if only one process has that name."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from sheaf.errors import SheafError

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


def _text(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="surrogateescape")
    except OSError:
        return ""


def _names(pid: int) -> tuple[str, ...]:
    """
    The base names of the executed file and of the word by which it was called (python3 for python3.11), and the name that the
    process has for the kernel, which it may have chosen by itself.
    """
    try:
        file = os.path.basename(os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)"))
    except OSError:
        file = ""
    called = os.path.basename(_text(pid, "cmdline").partition("\0")[0])
    return tuple(dict.fromkeys(name for name in (file, called, _text(pid, "comm").rstrip("\n")) if name))


def command(pid: int) -> str:
    """The command line of a process, or the title that it gave itself (`postgres: checkpointer`); empty if it is not known."""
    return " ".join(_text(pid, "cmdline").replace("\0", " ").split())


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdecimal())


def _on_sheaf(pid: int, names: tuple[str, ...]) -> Running | None:
    maps = _text(pid, "maps")
    recorded = re.search(r"\.sheaf$", maps, re.MULTILINE) is not None
    return Running(pid, names, recorded) if recorded or _OBJECT in maps else None


def on_sheaf() -> list[Running]:
    """All processes on Sheaf whose maps this user may read, by number."""
    found = (_on_sheaf(pid, _names(pid)) for pid in _pids())
    return sorted((one for one in found if one and one.names), key=lambda one: one.pid)


def named(name: str) -> list[int]:
    """The numbers of the processes on Sheaf with this name. Reads the maps of no other processes."""
    pairs = [(pid, _names(pid)) for pid in _pids()]
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


def completions(incomplete: str) -> list[CompletionItem]:
    """Numbers and names of processes on Sheaf that begin with `incomplete`, described by program or number."""
    running = on_sheaf()
    by_name: dict[str, list[int]] = {}
    for one in running:
        by_name.setdefault(one.program, []).append(one.pid)
    items = [CompletionItem(str(one.pid), help=one.program) for one in running]
    items += [CompletionItem(name, help=f"process {pids[0]}") for name, pids in sorted(by_name.items()) if len(pids) == 1]
    return [item for item in items if item.value.startswith(incomplete)]


class ProcessArgument(click.ParamType):  # type: ignore[type-arg]  # not generic in older click
    """The type of an argument that names a running process on Sheaf. Its value is the number of the process."""

    name = "process"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number of the process."""
        return value if isinstance(value, int) else number(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Numbers and names of processes on Sheaf."""
        return completions(incomplete)


class TargetArgument(click.ParamType):  # type: ignore[type-arg]
    """The type of an argument that names a file, a directory or a process. Its value is the word as it was written."""

    name = "target"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The word itself."""
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Processes on Sheaf, and files by the shell's own means."""
        return [*completions(incomplete), CompletionItem(incomplete, type="file")]


class _PathArgument(click.ParamType):  # type: ignore[type-arg]
    """A name that shells complete as a file or a directory. click.Path would check and report it in its own words."""

    def __init__(self, name: str, kind: str) -> None:
        self.name, self._kind = name, kind

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """By the shell's own means."""
        return [CompletionItem(incomplete, type=self._kind)]


FILE, DIRECTORY = _PathArgument("file", "file"), _PathArgument("directory", "dir")
