#!/usr/bin/env python3
"""Checks that all files that name the version of Sheaf name the same one."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ("meson.build", r"^  version: '(.+)',$")
# Where the version is, by the first match of a pattern.
PLACES = [
    ("pyproject.toml", r'^version = "(.+)"$'),
    ("Cargo.toml", r'^version = "(.+)"$'),
    ("CHANGELOG.md", r"^## (\d\S*)"),
    ("debian/changelog", r"^sheaf \((.+)\) "),
    ("dist/rpm/sheaf.spec", r"^Version: +(.+)$"),
    ("dist/rpm/sheaf.spec", r"^\* .* (\S+)-\d+$"),
    ("dist/alpine/APKBUILD", r"^pkgver=(.+)$"),
    ("docs/man/sheaf.1", r'"sheaf (\S+)"'),
]


def found(name: str, pattern: str) -> str:
    """The version in a file; a text that is no version if the pattern matches nothing."""
    match = re.search(pattern, (ROOT / name).read_text(), re.MULTILINE)
    return match[1] if match else f"nothing like {pattern}"


def main() -> int:
    """Print each place that differs; returns the exit status."""
    version = found(*SOURCE)
    problems = []
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        problems.append(f"{SOURCE[0]}: {version}: not of the form MAJOR.MINOR.PATCH")
    for name, pattern in PLACES:
        other = found(name, pattern)
        if other != version:
            problems.append(f"{name}: has {other}, and {SOURCE[0]} has {version}")
    print("\n".join(problems) or f"all have {version}")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
