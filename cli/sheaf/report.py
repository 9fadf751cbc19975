"""`sheaf report`: reports of SHEAF_DEBUG with the file and line of each frame."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import click

from sheaf.errors import SheafError

_FRAME = re.compile(r"^sheaf: +.*\((.+)\+0x([0-9a-f]+)\)$")

Places = dict[tuple[str, int], str]


def _lines(name: str) -> list[str]:
    try:
        if name != "-":
            text = Path(name).read_text(errors="replace")
        else:  # whatever bytes the program writes between its reports; no standard input has none
            text = sys.stdin.buffer.read().decode(errors="replace") if sys.stdin else ""
    except OSError as error:
        raise SheafError(f"{name}: {error.strerror}; name the file of SHEAF_DEBUG_LOG, or - for standard input") from error
    return text.splitlines()


def _ask(tool: str, module: str, offsets: list[int]) -> list[str]:
    """File and line for each offset; one that is not known has none."""
    # What is noted are return addresses: the call is the instruction before.
    asked = "".join(f"{max(offset - 1, 0):#x}\n" for offset in offsets)
    ran = subprocess.run([tool, "-e", module], input=asked, capture_output=True, text=True, errors="replace", check=False)
    answers = [line.split(" (discriminator")[0] for line in ran.stdout.splitlines()]
    if len(answers) != len(offsets):
        return [""] * len(offsets)
    return ["" if answer.startswith("??") or answer.endswith((":?", ":0")) else answer for answer in answers]


def _places(lines: list[str], tool: str) -> Places:
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
@click.option("--reports-only", is_flag=True, help="Leave out lines that are not Sheaf's.")
@click.argument("file", metavar="FILE|-")
def report(reports_only: bool, file: str) -> None:
    """Print reports of SHEAF_DEBUG with the source file and line of each frame.

    \b
    Examples:
      sheaf report /var/log/server.sheaf
      sheaf run --debug FZPU -- ./server 2>&1 | sheaf report -

    Files and lines come from addr2line (of binutils) for objects that have debugging information and still stand where
    they stood when the program ran; other frames stay as they are.
    """
    tool = shutil.which("addr2line")
    if tool is None:
        raise SheafError("addr2line: not found; install binutils")
    lines = [line for line in _lines(file) if not reports_only or line.startswith("sheaf: ")]
    places = _places(lines, tool)
    for line in lines:
        click.echo(_with_place(line, places))
