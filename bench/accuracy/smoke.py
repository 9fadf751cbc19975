#!/usr/bin/env python3
"""Runs accuracy.py once with two quick programs, and tests what does not depend on time: smoke.py BUILD."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

SCRIPT = Path(__file__).resolve().parents[1] / "accuracy.py"
ROWS = ("churn: site_big", "churn: site_small", "peak: site_fill", "peak: site_churn")


def require(true: bool, what: str) -> None:
    """Not an assert, which -O would remove."""
    if not true:
        raise SystemExit(f"smoke.py: {what}")


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the script."""
    return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, check=False, timeout=100)


def check(document: dict[str, Any], table: str) -> None:
    """All rows are there, and blocks that are always sampled are exact."""
    rows = {row["row"]: row for row in document["rows"]}
    require(tuple(rows) == ROWS and all(name in table for name in ROWS), f"other rows: {list(rows)}\n{table}")
    require(all(row["profiler"] == "sheaf" and len(row["runs"]) == 1 for row in rows.values()), f"other runs: {rows}")
    big = rows["churn: site_big"]["runs"][0]
    require(big == {"truth": 160_000_000, "bytes": 160_000_000, "error": 0}, f"large blocks are not exact: {big}")
    for name in ("churn: site_small", "peak: site_fill"):
        one = rows[name]["runs"][0]
        require(0 < one["bytes"] < 3 * one["truth"] and one["error"] > 0, f"{name}: {one}")


def main() -> int:
    """Returns 77, which meson takes as skipped, where a peak cannot be measured because there is no C++ compiler."""
    build = Path(sys.argv[1])
    if not (build / "bench" / "accuracy" / "accuracy-peak").exists():
        print("smoke.py: there is no accuracy-peak, because there is no C++ compiler", file=sys.stderr)
        return 77
    with TemporaryDirectory() as top:
        file = Path(top) / "out.json"
        done = run(build, "--runs", "1", "--only", "churn", "peak", "--json", file)
        require(done.returncode == 0, f"ended with {done.returncode}: {done.stdout}{done.stderr}")
        check(json.loads(file.read_text()), done.stdout)
    missing = run(os.devnull, "--only", "churn")
    require(missing.returncode == 1 and "build it with ninja" in missing.stderr, f"a missing build: {missing}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
