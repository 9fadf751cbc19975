"""`sheaf report`: add the source file and line of each frame to reports of SHEAF_DEBUG and SHEAF_LEAKS."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from sheaf import elf
from sheaf.errors import SheafError
from sheaf.places import Place, Places
from sheaf.process import FILE

_FRAME = re.compile(r"(sheaf: +)(.*)")
_OFFSET = re.compile(r"[0-9a-f]{1,16}")
_LONGEST = 64 << 10  # bytes of a line; the rest of a longer one counts as another line
_BATCH = 1000  # lines that are in memory at once


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


def _lines(name: str) -> Iterator[str]:
    """The lines of a file, or of standard input for "-", which may be closed. They may be any bytes."""
    try:
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(open(name, "rb")) if name != "-" else sys.stdin.buffer if sys.stdin else io.BytesIO()
            while raw := file.readline(_LONGEST):
                yield from raw.decode(errors="replace").splitlines()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise SheafError(f"{name}: {why}; name the file of SHEAF_DEBUG_LOG, or - for standard input") from error


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


@click.command(options_metavar="[OPTIONS]")
@click.option("--reports-only", is_flag=True, help="Omit lines that Sheaf did not write.")
@click.argument("file", type=FILE, metavar="FILE|-")
def report(reports_only: bool, file: str) -> None:
    """Print debugging reports with the source file and line of each frame.

    \b
    Examples:
      sheaf report /var/log/server.sheaf
      SHEAF_DEBUG=FZPU LD_PRELOAD=... ./server 2>&1 | sheaf report -

    FILE is the log that SHEAF_DEBUG_LOG names, or the standard error of the program. Source positions come from
    llvm-symbolizer (llvm) or addr2line (binutils), for programs and libraries with debugging information that are still where
    they were when the program ran. Other frames are printed unchanged.
    """
    with Places() as known:
        if known.tool is None:
            raise SheafError("llvm-symbolizer: not found; install llvm or binutils")
        lines = (line for line in _lines(file) if not reports_only or line.startswith("sheaf: "))
        while batch := list(itertools.islice(lines, _BATCH)):
            found = places_of(batch, known)
            for line in batch:
                click.echo(with_place(line, found))
