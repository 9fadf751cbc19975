#!/usr/bin/env python3
"""
Renders the matrix of docs/platforms.md from docs/results/platforms/: rows are suites, columns are platforms.

    docs/platforms.py [--check]              write the page, or say whether it is what the files say
    docs/platforms.py --take FOLDER          copy the results of runs from there first (build/results/platforms)

Each platform has a file PLATFORM.tsv with lines "PLATFORM SUITE passed failed skipped", separated by tabs, and may have a file
PLATFORM.tap with the cases that failed or were skipped.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = HERE / "platforms.md"
RESULTS = HERE / "results/platforms"
BEGIN, END = "<!-- made by docs/platforms.py: begin -->", "<!-- made by docs/platforms.py: end -->"
SUITES = ("conformance", "stress", "fork", "misuse", "unit", "layer", "regress", "rseq", "limits", "real", "command")
WIDTH = 4  # platforms in a table, so that it fits a page


@dataclass(frozen=True)
class Count:
    """The cases of a suite on a platform."""

    passed: int
    failed: int
    skipped: int

    def __str__(self) -> str:
        return f"{self.passed}/{self.failed}/{self.skipped}" if self.failed or self.skipped else str(self.passed)


Matrix = dict[str, dict[str, Count]]


def natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts 2.9 before 2.31."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def read(folder: Path) -> Matrix:
    """The counts by platform and suite."""
    matrix: Matrix = {}
    for path in sorted(folder.glob("*-*.tsv"), key=lambda path: natural(path.stem)):
        for line in path.read_text().splitlines():
            platform, suite, passed, failed, skipped = line.split("\t")
            if platform != path.stem or suite not in SUITES:
                sys.exit(
                    f"docs/platforms.py: {path}: {platform} {suite}: not a suite of {path.stem}; see tests/platforms/tally.py"
                )
            matrix.setdefault(platform, {})[suite] = Count(int(passed), int(failed), int(skipped))
    return matrix


def table(matrix: Matrix, platforms: list[str]) -> list[str]:
    """The lines of a table of these platforms."""
    lines = ["| suite | " + " | ".join(platforms) + " |", "|---" * (len(platforms) + 1) + "|"]
    for suite in SUITES:
        cells = [str(matrix[platform].get(suite, "not run")) for platform in platforms]
        lines.append(f"| {suite} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def cases(folder: Path, pattern: str) -> dict[str, list[tuple[str, str]]]:
    """By reason: the cases whose line has the pattern, which ends in the name and the reason, with their platforms."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for path in sorted(folder.glob("*.tap"), key=lambda path: natural(path.stem)):
        for line in path.read_text().splitlines():
            if match := re.match(pattern, line):
                found[match["why"].strip()].append((re.sub(r"^\d* *-? *", "", match["name"]).strip(), path.stem))
    return found


def listed(folder: Path) -> list[str]:
    """The failed and skipped cases."""
    lines = []
    for title, pattern in (("Failed", r"not ok (?P<name>[^#]*)(?P<why>)"), ("Skipped", r"ok (?P<name>[^#]*)# SKIP (?P<why>.*)")):
        for why, names in sorted(cases(folder, pattern).items()):
            by_platforms: dict[str, list[str]] = defaultdict(list)
            for name in dict.fromkeys(name for name, _ in names):
                by_platforms[", ".join(platform for other, platform in names if other == name)].append(name)
            lines.append(f"- {title}{f': {why}' if why else ''}.")
            lines += [f"  - {'; '.join(group)} ({platforms})" for platforms, group in by_platforms.items()]
    return [*lines, ""] if lines else []


def render(folder: Path) -> str:
    """What stands between the markers."""
    matrix = read(folder)
    platforms = sorted(matrix, key=natural)
    lines = [BEGIN, ""]
    for first in range(0, len(platforms), WIDTH):
        lines += table(matrix, platforms[first : first + WIDTH])
    return "\n".join([*lines, *listed(folder), END])


def take(folder: Path) -> None:
    """Copy results of runs."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    for path in [*folder.glob("*-*.tsv"), *folder.glob("*-*.tap")]:
        shutil.copy(path, RESULTS / path.name)


def main() -> int:
    """See above; returns the exit status."""
    if len(sys.argv) == 3 and sys.argv[1] == "--take":
        take(Path(sys.argv[2]))
    page = PAGE.read_text()
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        print(f"{PAGE}: the markers of the matrix are missing; see docs/platforms.py")
        return 1
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    wanted = before + render(RESULTS) + after
    if sys.argv[1:] == ["--check"]:
        if page != wanted:
            print(f"{PAGE}: the matrix is not what docs/results/platforms says; run docs/platforms.py")
        return page != wanted
    PAGE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
