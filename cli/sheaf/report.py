"""`sheaf report`: add the source file and line of each frame to reports of SHEAF_DEBUG."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

import click

from sheaf.errors import SheafError
from sheaf.places import Places
from sheaf.process import FILE

_FRAME = re.compile(r"^sheaf: +.*\((.+)\+0x([0-9a-f]+)\)$")


def _lines(name: str) -> list[str]:
    """The lines of a file, or of standard input for "-"."""
    try:
        if name != "-":
            text = Path(name).read_text(errors="replace")
        else:  # the program's own output may be any bytes; standard input may be closed
            text = sys.stdin.buffer.read().decode(errors="replace") if sys.stdin else ""
    except OSError as error:
        raise SheafError(f"{name}: {error.strerror}; name the file of SHEAF_DEBUG_LOG, or - for standard input") from error
    return text.splitlines()


def _places(lines: list[str], known: Places) -> dict[tuple[str, int], str]:
    """FILE:LINE by object and offset for the frames in the lines."""
    wanted: defaultdict[str, set[int]] = defaultdict(set)
    for line in lines:
        if match := _FRAME.match(line):
            wanted[match[1]].add(int(match[2], 16))
    found: dict[tuple[str, int], str] = {}
    for module, offsets in wanted.items():
        if not Path(module).is_file():
            continue
        ordered = sorted(offsets)
        # Frames are return addresses. One byte less lies in the call instruction.
        answers = known.look_up(module, [max(offset - 1, 0) for offset in ordered])
        for offset, frames in zip(ordered, answers, strict=True):
            if frames and frames[0].file and frames[0].line:
                found[module, offset] = f"{frames[0].file}:{frames[0].line}"
    return found


def _with_place(line: str, places: dict[tuple[str, int], str]) -> str:
    match = _FRAME.match(line)
    place = places.get((match[1], int(match[2], 16))) if match else None
    return f"{line} {place}" if place else line


@click.command(options_metavar="[OPTIONS]")
@click.option("--reports-only", is_flag=True, help="Omit lines that Sheaf did not write.")
@click.argument("file", type=FILE, metavar="FILE|-")
def report(reports_only: bool, file: str) -> None:
    """Print debugging reports with the source file and line of each frame.

    \b
    Examples:
      sheaf report /var/log/server.sheaf
      sheaf run --debug FZPU -- ./server 2>&1 | sheaf report -

    FILE is the log that SHEAF_DEBUG_LOG names, or the standard error of the program. Source positions come from
    llvm-symbolizer (llvm) or addr2line (binutils), for programs and libraries with debugging information that are still where
    they were when the program ran. Other frames are printed unchanged.
    """
    with Places() as known:
        if known.tool is None:
            raise SheafError("llvm-symbolizer: not found; install llvm or binutils")
        lines = [line for line in _lines(file) if not reports_only or line.startswith("sheaf: ")]
        places = _places(lines, known)
    for line in lines:
        click.echo(_with_place(line, places))
