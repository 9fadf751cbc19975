"""`sheaf report`: add the source file and line of each frame to reports of SHEAF_DEBUG."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import click

from sheaf.errors import SheafError
from sheaf.process import FILE

_FRAME = re.compile(r"^sheaf: +.*\((.+)\+0x([0-9a-f]+)\)$")

Places = dict[tuple[str, int], str]  # FILE:LINE by object and offset


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


def _ask(tool: str, module: str, offsets: list[int]) -> list[str]:
    """FILE:LINE for each offset in an object; an empty string where it is unknown."""
    # Frames are return addresses. One byte less lies in the call instruction.
    asked = "".join(f"{max(offset - 1, 0):#x}\n" for offset in offsets)
    ran = subprocess.run([tool, "-e", module], input=asked, capture_output=True, text=True, errors="replace", check=False)
    answers = [line.split(" (discriminator")[0] for line in ran.stdout.splitlines()]
    if len(answers) != len(offsets):
        return [""] * len(offsets)
    return ["" if answer.startswith("??") or answer.endswith((":?", ":0")) else answer for answer in answers]


def _places(lines: list[str], tool: str) -> Places:
    """Source positions for all frames in the lines."""
    wanted: defaultdict[str, set[int]] = defaultdict(set)
    for line in lines:
        if match := _FRAME.match(line):
            wanted[match[1]].add(int(match[2], 16))
    places: Places = {}
    for module, offsets in wanted.items():
        if Path(module).is_file():
            ordered = sorted(offsets)
            places.update(zip(((module, offset) for offset in ordered), _ask(tool, module, ordered), strict=True))
    return places


def _with_place(line: str, places: Places) -> str:
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

    FILE is the log that SHEAF_DEBUG_LOG names, or the standard error of the program. Source positions come from addr2line
    (binutils), for programs and libraries with debugging information that are still where they were when the program
    ran. Other frames are printed unchanged.
    """
    tool = shutil.which("addr2line")
    if tool is None:
        raise SheafError("addr2line: not found; install binutils")
    lines = [line for line in _lines(file) if not reports_only or line.startswith("sheaf: ")]
    places = _places(lines, tool)
    for line in lines:
        click.echo(_with_place(line, places))
