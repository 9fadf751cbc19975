#!/usr/bin/env python3
"""
Checks that libraries for other machines (-Dportable=true) need no newer libc than they promise.

    tests/check/symbols.py LIBRARY...
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

NEWEST = (2, 17)
LIBRARIES = {"libc.so.6", "libgcc_s.so.1"}


def symbol_problems(path: Path) -> list[str]:
    """Symbols that the library needs and that the oldest libc may lack, and libraries that not every system has."""
    problems = []
    for line in subprocess.run(["objdump", "-T", path], capture_output=True, text=True, check=True).stdout.splitlines():
        if "*UND*" not in line:
            continue
        fields, weak = line.split("*UND*"), line[17:24].strip().startswith("w")
        version, name = re.search(r"\(?GLIBC_([\d.]+)\)?", fields[1]), line.split()[-1]
        if not version and not weak and "(GCC_" not in fields[1]:
            problems.append(f"{name}: needed without a version")
        if version and tuple(map(int, version[1].split("."))) > NEWEST:
            problems.append(f"{name}: needs glibc {version[1]}")
    dynamic = subprocess.run(["objdump", "-p", path], capture_output=True, text=True, check=True).stdout
    return problems + [f"needs {name}" for name in re.findall(r"NEEDED +(\S+)", dynamic) if name not in LIBRARIES]


def main() -> int:
    """Print all problems; returns the exit status."""
    problems = [f"{path}: {problem}" for path in sys.argv[1:] for problem in symbol_problems(Path(path))]
    print("\n".join(problems) or f"{len(sys.argv) - 1} libraries need at most glibc {'.'.join(map(str, NEWEST))}")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
