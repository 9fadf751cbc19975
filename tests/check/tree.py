#!/usr/bin/env python3
"""Checks the tree: includes and imports go down only, sources stay short, the top level holds what it may."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The folders of lib/ from the top down: a request goes from the first ones to the last.
LAYERS = [
    "rcu",
    "front/api",
    "diagnostics/leak",
    "front/malloc",
    "cache/kmem",
    "process",
    "cache/deferred",
    "cache/node",
    "diagnostics/profile",
    "diagnostics/v8",
    "diagnostics/ruby",
    "diagnostics/python",
    "diagnostics/script",
    "diagnostics/feature",
    "cache",
    "cache/slot",
    "memory/slab",
    "memory/region",
    "memory/space",
    "platform/config",
    "platform/rseq",
    "platform/os",
    "platform/arch",
]
# The rooms of the command from the top down.
ROOMS = ["commands", "rendering", "records", "system"]
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
    "Cargo.toml",
    "LICENSE",
    "CHANGELOG.md",
    "SECURITY.md",
    "debian",
    "dist",
}


def listed(*patterns: str) -> list[Path]:
    """The files of the tree that git does not ignore, added or not; only those that match a pattern if there are any."""
    done = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", *patterns], capture_output=True, text=True, check=True
    )
    return [ROOT / line for line in done.stdout.splitlines() if (ROOT / line).is_file()]


def includes(files: list[Path]) -> list[str]:
    """A file of lib/ includes its own folder, folders below it, and the public headers; quoted paths start at lib/."""
    wrong = []
    for file in files:
        name = file.relative_to(ROOT)
        folder = name.parent.as_posix().removeprefix("lib/")
        folder = "platform/arch" if folder.startswith("platform/arch/") else folder
        if name.parts[0] != "lib" or folder not in LAYERS:
            continue
        allowed = {"sheaf", *LAYERS[LAYERS.index(folder) :]}
        for number, line in enumerate(file.read_text().splitlines(), 1):
            found = re.match(r'\s*#\s*include\s*"([^"]+)/', line)
            if found and found[1] not in allowed:
                wrong.append(f"{name}:{number}: includes {found[1]}, which is not below it: LAYERS in tests/check/tree.py")
    return wrong


def rooms(files: list[Path]) -> list[str]:
    """A module of the command imports its own room and lower ones."""
    wrong = []
    for file in files:
        name = file.relative_to(ROOT)
        if name.suffix != ".py" or name.parts[:2] != ("cli", "sheaf") or name.parts[2] not in ROOMS:
            continue
        higher = ROOMS[: ROOMS.index(name.parts[2])]
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


def bodies(text: str) -> Iterator[tuple[str, int, str]]:
    """Each function's name, first line and body, from a brace in the first column to the next one."""
    start, head, lines = 0, "", text.splitlines()
    for number, line in enumerate(lines, 1):
        if line.rstrip() == "{" and not re.match(r"(class|struct|namespace)\b[^()]*$", head):
            start = number
            name = re.search(r"(\w+)\((?!\()", re.sub(r"__attribute__\(\(.*?\)\)", "", head))
        elif line.startswith("}") and start:
            yield name[1] if name else "", start, "\n".join(lines[start : number - 1])
            start = 0
        head = head + line if line and not line.startswith(("#", "}")) and not line.endswith((";", "*/")) else ""


def functions(files: list[Path]) -> list[str]:
    wrong = []
    for file in files:
        if file.suffix not in {".c", ".h", ".cpp", ".hpp"}:
            continue
        for _, start, body in bodies(file.read_text()):
            if (count := body.count("\n") + 2) > SCREEN:
                wrong.append(f"{file.relative_to(ROOT)}:{start}: a function of {count} lines; {SCREEN} is the most")
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
    checks = (includes, rooms, lengths, functions, cases, top)
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
