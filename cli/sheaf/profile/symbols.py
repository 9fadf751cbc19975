"""Names for the addresses of a profile."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sheaf.profile.area import Module, Snapshot
from sheaf.profile.views import Row

UNKNOWN = "(unknown stack)"


@dataclass(frozen=True)
class Frame:
    """
    A function in a call stack. `function` is never empty: where no symbol is known, it is module+offset or an address.
    `file` is empty and `line` 0 where they are not known.
    """

    function: str
    file: str
    line: int
    module: str  # path; empty for code that belongs to no file
    inlined: bool  # into the next frame outwards


class Symbolizer:
    """Finds functions, files and lines of return addresses in the modules of a process."""

    def __init__(self, modules: Sequence[Module], pid: int = 0) -> None:
        self.modules, self.pid = modules, pid
        self.notes: list[str] = []  # sentences about symbols that are missing, after prepare()

    def prepare(self, pcs: Iterable[int]) -> None:
        """Look up all these return addresses at once."""

    def frames(self, pc: int) -> tuple[Frame, ...]:
        """The frames of a return address, the innermost inlined function first."""
        for module in self.modules:
            if module.start <= pc < module.end:
                return (Frame(f"{Path(module.path).name}+{pc - module.bias:#x}", "", 0, module.path, False),)
        return (Frame(f"{pc:#x}", "", 0, "", False),)

    def stack(self, row: Row) -> list[Frame]:
        """The frames of a row, the outermost first. Labels become frames around the stack."""
        frames = [Frame(label, "", 0, "", False) for label in row.labels]
        if not row.pcs and not row.labels:
            return [Frame(UNKNOWN, "", 0, "", False)]
        return frames + [frame for pc in reversed(row.pcs) for frame in reversed(self.frames(pc))]


def symbolizer(snapshot: Snapshot) -> Symbolizer:
    """A symbolizer for the process of a snapshot."""
    return Symbolizer(snapshot.modules, snapshot.pid)
