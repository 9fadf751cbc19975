#!/usr/bin/env python3
"""Checks the tree: includes go down the layers only, sources stay short, the top level holds what it may."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LAYERS = ["os", "region", "slab", "cache", "malloc", "api"]
LONGEST = 620
TOP = {"lib", "preload", "cli", "tests", "bench", "docs", "meson.build", "meson_options.txt", "README.md",
       "pyproject.toml", "LICENSE"}  # fmt: skip


def sources() -> list[Path]:
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True, check=True
    )
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).is_file()]


def layers(files: list[Path]) -> list[str]:
    wrong = []
    for file in files:
        parts = file.relative_to(ROOT).parts
        if parts[0] != "lib" or len(parts) < 3 or parts[1] not in LAYERS:
            continue
        for number, line in enumerate(file.read_text().splitlines(), 1):
            found = re.match(r'\s*#\s*include\s*"(?:\.\./)*(\w+)/', line)
            if found and found[1] in LAYERS and LAYERS.index(found[1]) > LAYERS.index(parts[1]):
                wrong.append(f"{'/'.join(parts)}:{number}: {parts[1]} may not include {found[1]}, a layer above it")
    return wrong


def lengths(files: list[Path]) -> list[str]:
    wrong = []
    for file in files:
        if file.suffix in {".c", ".h", ".cc", ".cpp", ".hpp", ".def", ".py", ".sh"}:
            count = len(file.read_text().splitlines())
            if count > LONGEST:
                wrong.append(f"{file.relative_to(ROOT)}: {count} lines; split it, {LONGEST} is the most")
    return wrong


def top(files: list[Path]) -> list[str]:
    names = {file.relative_to(ROOT).parts[0] for file in files}
    return [f"{name}: not a name for the top level" for name in sorted(names - TOP) if not name.startswith(".")]


def main() -> int:
    files = sources()
    failed = 0
    print("1..3")
    for number, check in enumerate((layers, lengths, top), 1):
        wrong = check(files)
        print(f"{'not ok' if wrong else 'ok'} {number} - {check.__name__}")
        for line in wrong:
            print(f"# {line}")
        failed |= bool(wrong)
    return failed


if __name__ == "__main__":
    sys.exit(main())
