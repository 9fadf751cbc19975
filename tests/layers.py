"""The layers of lib/: a file includes only from its own folder and those below; files stay short; the top level is bare."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

LAYERS = ["os", "region", "slab", "cache", "malloc", "api"]
LINES = 620
TOP = {"lib", "preload", "cli", "tests", "bench", "docs", "meson.build", "meson_options.txt", "README.md", "LICENSE",
       "pyproject.toml"}


def wrong_includes(root: Path) -> list[str]:
    """Includes that go up."""
    found = []
    for rank, layer in enumerate(LAYERS):
        for file in (root / "lib" / layer).glob("*.[ch]"):
            for name in re.findall(r'#include "(\w+)/', file.read_text()):
                if name in LAYERS and LAYERS.index(name) > rank:
                    found.append(f"{file}: includes {name}/, which is above {layer}/")
    return found


def main() -> int:
    root = Path(__file__).resolve().parents[1]
    problems = wrong_includes(root)
    names = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True).stdout.split("\n")
    for name in filter(None, names):
        if name.split("/")[0] not in TOP and not name.startswith("."):
            problems.append(f"{name}: does not belong at the top level")
        path = root / name
        if path.suffix in {".c", ".h", ".cpp", ".py", ".hpp"} and path.exists():
            lines = len(path.read_text().splitlines())
            if lines > LINES:
                problems.append(f"{name}: {lines} lines, at most {LINES}")
    print("\n".join(problems))
    return 1 if problems else 0


sys.exit(main())
