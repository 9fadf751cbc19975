#!/usr/bin/env python3
"""Runs bench-columns and bench-slots with few operations, and tests their counts. No time decides."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

TOP = Path(sys.argv[1])


def require(true: bool, what: str) -> None:
    """Not an assert, which -O would remove."""
    if not true:
        raise SystemExit(f"smoke.py: {what}")


def run(program: str, line: str) -> dict[str, Any]:
    """Returns the result of one run."""
    done = subprocess.run([TOP / program, *line.split()], capture_output=True, text=True, check=False, timeout=60)
    require(done.returncode == 0, f"{program} {line}: ended with {done.returncode}: {done.stderr}")
    return dict(json.loads(done.stdout))


def refused(program: str, line: str) -> None:
    """A wrong argument must give one line of message and status 1."""
    done = subprocess.run([TOP / program, *line.split()], capture_output=True, text=True, check=False, timeout=60)
    require(done.returncode == 1 and done.stderr.count("\n") == 1 and not done.stdout, f"{program} {line}: {done}")


def main() -> None:
    for order in ("", " --shuffled"):
        none = run("bench-columns", f"batch --batch 100 --capacity 0 --ops 20000{order}")
        own = run("bench-columns", f"batch --batch 100 --ops 20000{order}")
        require(none["fast_share"] == 0, f"capacity 0 has fast paths: {none}")
        require(own["fast_share"] > 0.9, f"few fast paths in batches: {own}")
    cross = run("bench-columns", "cross --pairs 2 --ops 100000 --rounds 2")
    require(cross["barn_per_million"] > 0 or cross["slab_objects_per_million"] > 0, f"nothing crossed: {cross}")
    require(run("bench-columns", "cross --pairs 2 --plain --ops 20000 --rounds 2")["barn_per_million"] == 0, "plain allocates")
    for words in ("", " --random", " --untouched", " --random --untouched"):
        fresh = run("bench-columns", f"fresh --size 64 --batch 64 --ops 2 --rounds 2{words}")
        require(fresh["ns_per_op"] > 0 and fresh["beside"] > 0, f"no times: {fresh}")
    for load in ("walk", "mmap2", "cross", "fork"):
        few, same = (run("bench-slots", f"{load} --slots 16 --capacity 32 --ops 100000") for _ in range(2))
        require(few == same, f"counts of {load} differ from run to run: {few} {same}")
        wide = run("bench-slots", f"{load} --slots 384 --ops 100000")
        require(wide["shared"] < few["shared"], f"{load}: capacity 32 shares less than the cache's own: {wide} {few}")
    require(run("bench-slots", "cross --slots 8 --ops 100000")["foreign"] > 900000, "nothing was freed elsewhere")
    for program, line in (
        ("bench-columns", "nothing"),
        ("bench-columns", "batch --batch"),
        ("bench-slots", "walk --slots 1"),
        ("bench-slots", "walk --slots 385"),
        ("bench-slots", "nothing"),
    ):
        refused(program, line)


if __name__ == "__main__":
    main()
