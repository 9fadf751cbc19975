#!/usr/bin/env python3
"""
Counts the cases of a platform: reads FOLDER/SUITE.tap, and writes FOLDER.tsv with a line for each suite, and FOLDER.tap with
the cases that failed or were skipped. A suite that did not end is left out.

    tests/platforms/tally.py FOLDER
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

SUITES = ("conformance", "stress", "fork", "misuse", "unit", "layer", "regress", "rseq", "limits", "real", "command")


def count(lines: list[str]) -> tuple[int, int, int]:
    """How many cases passed, failed and were skipped."""
    cases = [line for line in lines if re.match(r"(not )?ok\b", line)]
    failed = sum(line.startswith("not ") for line in cases)
    skipped = sum("# SKIP" in line for line in cases)
    return len(cases) - failed - skipped, failed, skipped


def main() -> None:
    """See above."""
    folder = Path(sys.argv[1])
    rows, notes = [], []
    for suite in SUITES:
        tap = folder / f"{suite}.tap"
        if not tap.exists():
            continue
        lines = tap.read_text(errors="replace").splitlines()
        if not any(line.startswith(("1..", "not ok - ")) for line in lines):
            continue
        rows.append("\t".join((folder.name, suite, *map(str, count(lines)))))
        notes += [line for line in lines if line.startswith("not ok") or "# SKIP" in line]
    folder.with_name(folder.name + ".tsv").write_text("".join(f"{row}\n" for row in rows))
    folder.with_name(folder.name + ".tap").write_text("".join(f"{note}\n" for note in notes))
    print("\n".join(rows))


if __name__ == "__main__":
    main()
