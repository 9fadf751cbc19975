#!/usr/bin/env python3
"""
Holds the cost of the fast paths in a file that a change has to update knowingly. `check` compares a built object with
counts.toml, `update` writes what it has now. What is counted depends on the compiler, so there is an entry for each; with
another one nothing is checked. Speaks TAP.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tomllib
from dataclasses import astuple
from pathlib import Path
from typing import Any

import callgrind
import paths
from paths import CountError

FILE = Path(__file__).resolve().parent / "counts.toml"
TOLERANCE = 0.01  # of callgrind's counts: a decay that is due by the clock takes a few instructions
HEAD = "# Written by `bench/counts/counts.py update`; what changes here changes the speed of every program.\n"


def _read() -> dict[str, Any]:
    return tomllib.loads(FILE.read_text()) if FILE.exists() else {}


def _write(found: dict[str, Any]) -> None:
    lines = [HEAD]
    for key in sorted(found):
        lines.append(f'["{key}"]')
        for name, value in found[key].items():
            lines.append(f'"{name}" = {list(value) if isinstance(value, (list, tuple)) else value}')
        lines.append("")
    FILE.write_text("\n".join(lines))


def _difference(name: str, held: Any, found: Any) -> str:
    if isinstance(found, float):
        if held is not None and abs(found - held) <= TOLERANCE * held:
            return ""
        return f"{name}: {found} instructions for an operation, {held} are held"
    if held is not None and list(held) == list(found):
        return ""
    return f"{name}: {list(found)} instructions, loads, stores; {held} are held"


def _measure(options: argparse.Namespace, objdump: str) -> dict[str, Any]:
    if options.programs:
        return {name: callgrind.count(name, options.programs, options.object.resolve()) for name in callgrind.LOADS}
    return {name: astuple(counts) for name, counts in paths.count(options.object, objdump).items()}


def _check(key: str, held: dict[str, Any], found: dict[str, Any], object_: Path) -> int:
    print(f"1..{len(found)}")
    failed = 0
    for number, (name, value) in enumerate(found.items(), 1):
        said = _difference(name, held.get(name), value)
        failed |= bool(said)
        print(f"{'not ok' if said else 'ok'} {number} - {name} ({key})")
        if said:
            print(f"# {said}; if that is meant: bench/counts/counts.py update {object_}")
    return failed


def _run(options: argparse.Namespace) -> int:
    machine = paths.machine_of(options.object)
    objdump = next((tool for tool in (f"{machine}-linux-gnu-objdump", "objdump") if shutil.which(tool)), "objdump")
    key = f"{machine} {paths.compiler_of(options.object, objdump)}{' callgrind' if options.programs else ''}"
    held = _read()
    if options.action == "check" and key not in held:
        print(f"1..0 # SKIP nothing is held for {key}; bench/counts/counts.py update {options.object}")
        return 0
    found = _measure(options, objdump)
    if options.action == "check":
        return _check(key, held[key], found, options.object)
    _write({**held, key: found})
    return 0


def main() -> int:
    """Errors as one line."""
    parser = argparse.ArgumentParser(prog="counts.py", description=__doc__)
    parser.add_argument("action", choices=["check", "update"])
    parser.add_argument("object", type=Path, help="libsheaf-preload.so as the default options build it")
    parser.add_argument("--programs", type=Path, metavar="DIR", help="count fixed loads of DIR's programs under callgrind")
    options = parser.parse_args()
    try:
        return _run(options)
    except callgrind.Missing as error:
        print(f"1..0 # SKIP {error}")
        return 0
    except OSError as error:
        print(f"counts.py: {error.filename}: {error.strerror}; name the object and the programs of a build", file=sys.stderr)
        return 1
    except CountError as error:
        print(f"counts.py: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
