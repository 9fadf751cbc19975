#!/usr/bin/env python3
"""Compares the call trees that open docs/cold-path.md with the sources.

A tree is a block of indented lines with a function, its file and the condition of the call. The function must be defined
in that file, and the function of the line above that it is indented below must call it: by name, directly or through
functions of its own file that have no line, or through a hook (lib/platform/os/hooks.h) that the condition names. In
place of a function there may be a system call, of "the system". The sources are read instead of object files, because
most functions of the fast paths are inlined, differently by each compiler. The page must also say how many files and
folders the calls from malloc to mmap cross. Prints TAP.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tree import ROOT, bodies, listed

PAGE = ROOT / "docs" / "cold-path.md"
LINE = re.compile(r"    ( *)(\w+) {2,}([\w/.]+|the system)(?: {2,}(\S.*))?$")
SYSTEM = "the system"


@dataclass
class Line:
    number: int
    depth: int
    function: str
    file: str
    condition: str
    parent: Line | None = None
    children: list[Line] = field(default_factory=list)

    def path(self) -> list[Line]:
        return [*(self.parent.path() if self.parent else []), self]

    def __str__(self) -> str:
        return f"{PAGE.relative_to(ROOT)}:{self.number}: {self.function}"


def trees(text: str) -> list[Line]:
    """The lines of all blocks in which the second line is indented below the first."""
    found: list[Line] = []
    open_lines: list[Line] = []
    for number, row in enumerate(text.splitlines(), 1):
        match = LINE.match(row)
        if not match:
            open_lines = []
            continue
        line = Line(number, len(match[1]), match[2], match[3], match[4] or "")
        while open_lines and open_lines[-1].depth >= line.depth:
            open_lines.pop()
        if open_lines:
            line.parent = open_lines[-1]
            line.parent.children.append(line)
        open_lines.append(line)
        found.append(line)
    return found


def source(file: str) -> Path:
    return ROOT / file if file.startswith("preload/") else ROOT / "lib" / file


@cache
def functions(file: str) -> dict[str, str]:
    """The functions that a file defines, with their bodies; those that a macro defines by their name alone."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"", "", source(file).read_text(), flags=re.S)
    found = {name: "" for name in re.findall(r"^[A-Z]\w+\((\w+),", text, re.M)}
    return found | {name: body for name, _, body in bodies(text) if name}


def reached(line: Line) -> str:
    """The bodies of the line's function and of those in its file that it calls and that have no line below it."""
    there = functions(line.file)
    shown = {child.function for child in line.children}
    wanted, seen = [line.function], {line.function}
    text = ""
    while wanted:
        body = there[wanted.pop()]
        text += body
        calls = (set(re.findall(r"\b(\w+)\(", body)) & there.keys()) - seen - shown
        wanted += calls
        seen |= calls
    return text


@cache
def hooks() -> set[tuple[str, str]]:
    """The functions that are assigned to hooks."""
    text = "".join(file.read_text() for file in listed("lib/*.c", "preload/*.c"))
    return set(re.findall(r"\bhooks\.(\w+) = (\w+);", text))


def wrong(line: Line) -> str | None:
    if not line.condition and line.parent:
        return f"{line} has no condition"
    if line.file != SYSTEM:
        if not source(line.file).exists():
            return f"{line}: there is no file {line.file}"
        if line.function not in functions(line.file):
            return f"{line} is not defined in {line.file}"
    if not line.parent:
        return None
    if line.parent.file == SYSTEM or line.parent.function not in functions(line.parent.file):
        return None  # told at that line
    text = reached(line.parent)
    through = re.search(r"\bhooks\.(\w+)", line.condition)
    if through and (through[1], line.function) not in hooks():
        return f"{line} is not set as hooks.{through[1]}"
    call = rf"SYS_{line.function}\b" if line.file == SYSTEM else rf"hooks\.{through[1]}\(" if through else rf"\b{line.function}\("
    return None if re.search(call, text) else f"{line} is not called by {line.parent.function} in {line.parent.file}"


def wrong_figures(lines: list[Line], text: str) -> str | None:
    """Compares the figures with the longest path to mmap, and with the whole tree of malloc."""
    of_malloc = [line.path() for line in lines if line.path()[0].function == "malloc"]
    longest = max((path for path in of_malloc if path[-1].function == "mmap"), key=len, default=[])
    files = {source(line.file) for line in longest if line.file != SYSTEM}
    named = {path[-1].file for path in of_malloc} - {SYSTEM}
    true = f"crosses {len(files)} files in {len({file.parent for file in files})} folders; the tree names {len(named)} files"
    return None if true in " ".join(text.split()) else f"{PAGE.relative_to(ROOT)} does not say that malloc {true!r}"


def main() -> int:
    text = PAGE.read_text()
    lines = trees(text)
    roots = {line.path()[0].function for line in lines}
    results = [
        ("each line of the call trees is a call", [said for line in lines if (said := wrong(line))]),
        ("there is a tree of malloc and of free", [f"none of {root}" for root in ("malloc", "free") if root not in roots]),
        ("the page says how many files malloc crosses", [said for said in [wrong_figures(lines, text)] if said]),
    ]
    print(f"1..{len(results)}")
    for number, (name, failures) in enumerate(results, 1):
        print(f"{'not ok' if failures else 'ok'} {number} - {name}")
        for failure in failures:
            print(f"# {failure}")
    return int(any(failures for _, failures in results))


if __name__ == "__main__":
    sys.exit(main())
