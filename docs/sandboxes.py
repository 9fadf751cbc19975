#!/usr/bin/env python3
"""Writes the table of sandboxes in docs/platforms.md from docs/results/platforms/sandboxes.tsv: docs/sandboxes.py [--check]

tests/sandbox/run makes the figures: build/results/platforms/sandboxes.tsv, which is copied when it is worth keeping."""

import re
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
PAGE, TABLE = DOCS / "platforms.md", DOCS / "results/platforms/sandboxes.tsv"
PLACE = re.compile(r"(?<=<!-- docs/sandboxes.py begins -->\n).*?(?=<!-- docs/sandboxes.py ends -->)", re.S)


def table() -> str:
    """The rows as they were measured; a failure begins with an exclamation mark."""
    rows = [line.split("\t") for line in TABLE.read_text().splitlines()]
    # The directory differs from run to run.
    cells = [[re.sub(r"sheaf: no record in \S+:", "", cell).split(";")[0].replace("  ", " ") for cell in row] for row in rows]
    cells.insert(1, ["---"] * len(cells[0]))
    return "\n" + "".join(f"| {' | '.join(row)} |\n" for row in cells) + "\n"


def main() -> int:
    before = PAGE.read_text()
    after = PLACE.sub(lambda _: table(), before)
    if "--check" in sys.argv:
        if before != after:
            print("docs/platforms.md: its table of sandboxes is not up to date; run docs/sandboxes.py")
        return int(before != after)
    PAGE.write_text(after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
