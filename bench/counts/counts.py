#!/usr/bin/env python3
"""
Keep the cost of the fast paths in counts.toml, so that no change alters it unnoticed. `check` compares a built object with
the file, `update` writes the counts of the object to the file. The counts depend on the compiler; without an entry for the
compiler nothing is checked. The output of `check` is TAP.
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
TOLERANCE = 0.01  # relative, for callgrind's counts, which include decay steps that the clock triggers
HEAD = "# Written by `bench/counts/counts.py update`. A change of these counts changes the speed of every program.\n"


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
    """The difference between an entry and a count in words; empty if they agree."""
    if isinstance(found, float):
        if held is not None and abs(found - held) <= TOLERANCE * held:
            return ""
        return f"{name}: {found} instructions per operation, expected {held}"
    if held is not None and list(held) == list(found):
        return ""
    return f"{name}: {list(found)} instructions, loads, stores, expected {held}"


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
            print(f"# {said}; if the change is intended, run bench/counts/counts.py update {object_}")
    return failed


def _run(options: argparse.Namespace) -> int:
    machine = paths.machine_of(options.object)
    objdump = next((tool for tool in (f"{machine}-linux-gnu-objdump", "objdump") if shutil.which(tool)), "objdump")
    key = f"{machine} {paths.compiler_of(options.object, objdump)}{' callgrind' if options.programs else ''}"
    held = _read()
    if options.action == "check" and key not in held:
        print(f"1..0 # SKIP no counts for {key}; to add them, run bench/counts/counts.py update {options.object}")
        return 0
    found = _measure(options, objdump)
    if options.action == "check":
        return _check(key, held[key], found, options.object)
    _write({**held, key: found})
    return 0


def main() -> int:
    """Run an action; returns the exit status. Errors are printed on one line."""
    parser = argparse.ArgumentParser(prog="counts.py", description=__doc__)
    parser.add_argument("action", choices=["check", "update"])
    parser.add_argument("object", type=Path, help="libsheaf-preload.so of a build with the default options")
    parser.add_argument("--programs", type=Path, metavar="DIR", help="count fixed loads of the programs in DIR with callgrind")
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
