#!/usr/bin/env python3
"""Checks the tree: includes and imports go down the layers only, sources stay short, the top level holds what it may."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LAYERS = [
    "platform/os",
    "platform/rseq",
    "platform/config",
    "memory/space",
    "memory/region",
    "memory/slab",
    "cache/slot",
    "cache",
    "diagnostics/feature",
    "diagnostics/script",
    "diagnostics/python",
    "diagnostics/ruby",
    "diagnostics/v8",
    "diagnostics/profile",
    "cache/node",
    "cache/deferred",
    "process",
    "cache/kmem",
    "front/malloc",
    "diagnostics/leak",
    "front/api",
]
# The rooms of the command; each imports itself, those before it, and the modules beside the rooms.
ROOMS = ["system", "records", "rendering", "commands"]
LONGEST = 620
SCREEN = 60
TOP = {
    "lib",
    "preload",
    "cli",
    "tests",
    "bench",
    "docs",
    "meson.build",
    "meson_options.txt",
    "README.md",
    "CONTRIBUTING.md",
    "pyproject.toml",
    "LICENSE",
}


def listed(*patterns: str) -> list[Path]:
    """The files of the tree that git does not ignore, added or not; only those that match a pattern if there are any."""
    done = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", *patterns], capture_output=True, text=True, check=True
    )
    return [ROOT / line for line in done.stdout.splitlines() if (ROOT / line).is_file()]


def layers(files: list[Path]) -> list[str]:
    """A file of lib/ includes its own layer, those below, and the public headers; quoted paths start at lib/."""
    wrong = []
    for file in files:
        name = file.relative_to(ROOT)
        layer = name.parent.as_posix().removeprefix("lib/")
        if name.parts[0] != "lib" or layer not in LAYERS:
            continue
        allowed = {"sheaf", *LAYERS[: LAYERS.index(layer) + 1]}
        for number, line in enumerate(file.read_text().splitlines(), 1):
            found = re.match(r'\s*#\s*include\s*"([^"]+)/', line)
            if found and found[1] not in allowed:
                wrong.append(f"{name}:{number}: may not include {found[1]}; allowed are {', '.join(sorted(allowed))}")
    return wrong


def rooms(files: list[Path]) -> list[str]:
    """A module of the command imports its own room and lower ones."""
    wrong = []
    for file in files:
        name = file.relative_to(ROOT)
        if name.suffix != ".py" or name.parts[:2] != ("cli", "sheaf") or name.parts[2] not in ROOMS:
            continue
        higher = ROOMS[ROOMS.index(name.parts[2]) + 1 :]
        for number, line in enumerate(file.read_text().splitlines(), 1):
            found = re.match(r"\s*(?:from|import) sheaf(?:\.| import )(\w+)", line)
            if found and found[1] in higher:
                wrong.append(f"{name}:{number}: may not import {found[1]}, which is a higher room")
    return wrong


def lengths(files: list[Path]) -> list[str]:
    wrong = []
    for file in files:
        if file.suffix in {".c", ".h", ".cc", ".cpp", ".hpp", ".def", ".py", ".sh"}:
            count = len(file.read_text().splitlines())
            if count > LONGEST:
                wrong.append(f"{file.relative_to(ROOT)}: {count} lines; split it, {LONGEST} is the most")
    return wrong


def functions(files: list[Path]) -> list[str]:
    """Counts from a brace in the first column to the next one, which is how functions stand in this tree."""
    wrong = []
    for file in files:
        if file.suffix not in {".c", ".h", ".cpp", ".hpp"}:
            continue
        start = 0
        for number, line in enumerate(file.read_text().splitlines(), 1):
            if line.rstrip() == "{":
                start = number
            elif line.startswith("}") and start:
                if number - start > SCREEN:
                    wrong.append(f"{file.relative_to(ROOT)}:{start}: a function of {number - start} lines; {SCREEN} is the most")
                start = 0
    return wrong


def cases(files: list[Path]) -> list[str]:
    """A real program that meson does not know of would never be run."""
    named = set(re.findall(r"'([\w+.-]+)'", (ROOT / "tests/real/meson.build").read_text().split("foreach")[0]))
    there = {file.stem for file in files if file.suffix == ".case" and file.parent.name == "real"}
    return [f"tests/real/meson.build: {name} is listed or there, not both" for name in sorted(named ^ there)]


def top(files: list[Path]) -> list[str]:
    names = {file.relative_to(ROOT).parts[0] for file in files}
    return [f"{name}: not a name for the top level" for name in sorted(names - TOP) if not name.startswith(".")]


def main() -> int:
    files = listed()
    failed = 0
    checks = (layers, rooms, lengths, functions, cases, top)
    print(f"1..{len(checks)}")
    for number, check in enumerate(checks, 1):
        wrong = check(files)
        print(f"{'not ok' if wrong else 'ok'} {number} - {check.__name__}")
        for line in wrong:
            print(f"# {line}")
        failed |= bool(wrong)
    return failed


if __name__ == "__main__":
    sys.exit(main())
