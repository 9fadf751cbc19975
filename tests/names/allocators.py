#!/usr/bin/env python3
"""
Run a program that is linked with another malloc, statically and with its shared library, with and without Sheaf:
allocators.py OBJECT BUILD CXX. Output and status must be the same. Prints TAP.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ENTRIES = Path(__file__).resolve().parent / "entries.cpp"


@dataclass
class Malloc:
    name: str
    package: str
    header: str
    static: str  # the name of the archive
    shared: str
    flags: tuple[str, ...] = ()


MALLOCS = (
    Malloc("jemalloc", "libjemalloc-dev", "jemalloc/jemalloc.h", "libjemalloc.a", "-ljemalloc", ("-lm",)),
    Malloc("tcmalloc", "libgoogle-perftools-dev", "gperftools/tcmalloc.h", "libtcmalloc_minimal.a", "-ltcmalloc_minimal"),
    Malloc("mimalloc", "libmimalloc-dev", "mimalloc.h", "libmimalloc.a", "-lmimalloc"),
)


def link(cxx: list[str], malloc: Malloc, kind: str, out: Path) -> str:
    """Link the program; returns why that is impossible, or nothing."""
    exists = subprocess.run([*cxx, "-E", "-include", malloc.header, "-x", "c++", os.devnull], capture_output=True)
    if exists.returncode:
        return f"{malloc.header} is missing; install {malloc.package}"
    library = malloc.shared
    if kind == "static":
        asked = subprocess.run([*cxx, f"-print-file-name={malloc.static}"], capture_output=True, text=True, check=True)
        library = asked.stdout.strip()
        if not Path(library).is_absolute():
            return f"{malloc.package} has no {malloc.static}"
    # With builtins the compiler may leave out pairs of calls.
    flags = ["-std=c++17", "-O1", "-g", "-fno-builtin", "-fsized-deallocation", "-pthread", "-U_FORTIFY_SOURCE"]
    flags.append(f"-D{malloc.name.upper()}")
    whole = ["-Wl,--whole-archive", library, "-Wl,--no-whole-archive"] if kind == "static" else ["-Wl,--no-as-needed", library]
    subprocess.run([*cxx, *flags, str(ENTRIES), *whole, *malloc.flags, "-ldl", "-o", str(out)], check=True)
    return ""


def run(program: Path, preloaded: str) -> tuple[int, str, str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SHEAF_") or k == "SHEAF_RSEQ"}
    environment["LD_PRELOAD"] = preloaded
    if preloaded:
        environment["SHEAF_STATS"] = "1"
    done = subprocess.run([program], env=environment, capture_output=True, text=True, timeout=250)
    return done.returncode, done.stdout, done.stderr


def compare(program: Path, sheaf: str, kind: str) -> str:
    """What differs on Sheaf; and whether Sheaf steps aside where the program has the malloc, and only there."""
    without, with_sheaf = run(program, ""), run(program, sheaf)
    if without[0] != 0:
        return f"without Sheaf: status {without[0]}, {without[1]}{without[2]}"
    if without[:2] != with_sheaf[:2]:
        return f"{without} without Sheaf, {with_sheaf} with it"
    used = "in sheaves" in with_sheaf[2]
    if used != (kind == "shared"):
        return "Sheaf was used" if used else "Sheaf was not used"
    return ""


def main() -> int:
    sheaf, build, cxx = str(Path(sys.argv[1]).resolve()), Path(sys.argv[2]).resolve(), sys.argv[3].split()
    build.mkdir(parents=True, exist_ok=True)
    failed = number = 0
    print(f"1..{2 * len(MALLOCS)}")
    for malloc in MALLOCS:
        for kind in ("static", "shared"):
            number += 1
            program = build / f"{malloc.name}-{kind}"
            why = link(cxx, malloc, kind, program)
            if why:
                print(f"ok {number} - {malloc.name}-{kind} # SKIP {why}", flush=True)
                continue
            problem = compare(program, sheaf, kind)
            failed += bool(problem)
            print(f"{'not ok' if problem else 'ok'} {number} - {malloc.name}-{kind}", flush=True)
            print("".join(f"# {line}\n" for line in problem.splitlines()), end="", flush=True)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
