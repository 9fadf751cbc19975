"""The frames in reports of SHEAF_DEBUG and SHEAF_LEAKS, and their functions, source files and lines."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sheaf.system import elf
from sheaf.system.places import Place, Places

_FRAME = re.compile(r"(sheaf: +)(.*)")
_OFFSET = re.compile(r"[0-9a-f]{1,16}")


@dataclass(frozen=True)
class Frame:
    """A line of a stack. `symbol` is the name with its offset, such as main+0x10, as the process found it; often empty."""

    indent: str
    symbol: str
    module: str
    offset: int


Found = dict[tuple[str, int], tuple[Place, ...]]  # by module and offset; the innermost inlined function comes first


def frame_of(line: str) -> Frame | None:
    """The frame that a line of a report describes; None for other lines."""
    match = _FRAME.fullmatch(line) if line.endswith(")") else None
    if match is None:
        return None
    symbol, _, place = match[2][:-1].partition("(")
    module, _, offset = place.rpartition("+0x")
    return Frame(match[1], symbol.strip(), module, int(offset, 16)) if module and _OFFSET.fullmatch(offset) else None


def places_of(lines: Iterable[str], known: Places) -> Found:
    """What debugging information says of the frames in the lines."""
    wanted: defaultdict[str, set[int]] = defaultdict(set)
    for line in lines:
        if frame := frame_of(line):
            wanted[frame.module].add(frame.offset)
    found: Found = {}
    for module, offsets in wanted.items():
        if not os.path.isfile(module):  # Path.is_file() would raise OSError for a long name
            continue
        ordered = sorted(offsets)
        named = elf.has_symbol_table(Path(module))
        # Frames are return addresses. One byte less lies in the call instruction.
        answers = known.look_up(module, [max(offset - 1, 0) for offset in ordered])
        for offset, places in zip(ordered, answers, strict=True):
            found[module, offset] = places if named or any(place.line for place in places) else ()
    return found


def with_place(line: str, found: Found) -> str:
    """The line with the source position of its frame, and with the function if the process did not find its name."""
    frame = frame_of(line)
    places = found.get((frame.module, frame.offset)) if frame else None
    if frame is None or not places:
        return line
    symbol = frame.symbol or places[0].function
    module = f"({frame.module}+{frame.offset:#x})"
    position = f"{places[0].file}:{places[0].line}" if places[0].file and places[0].line else ""
    return frame.indent + " ".join(part for part in (symbol, module, position) if part)
