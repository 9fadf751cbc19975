"""Print "pass|fail|skip NAME" for every test in meson's testlog.json (JSON lines) or a JUnit file."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path


def meson(path: Path) -> list[tuple[str, str]]:
    """Name and verdict of every meson test."""
    verdicts = {"OK": "pass", "EXPECTEDFAIL": "pass", "SKIP": "skip"}
    tests = [json.loads(line) for line in path.read_text().splitlines() if line]
    return [(test["name"], verdicts.get(test["result"], "fail")) for test in tests]


def junit(path: Path) -> list[tuple[str, str]]:
    """Name and verdict of every case."""
    cases = []
    for case in ElementTree.parse(path).iter("testcase"):
        kinds = {child.tag for child in case}
        verdict = "fail" if kinds & {"failure", "error"} else "skip" if "skipped" in kinds else "pass"
        cases.append((case.get("name", "?"), verdict))
    return cases


def main() -> None:
    path, label = Path(sys.argv[1]), sys.argv[2]
    try:
        cases = junit(path) if path.suffix == ".xml" else meson(path)
    except (OSError, ValueError, ElementTree.ParseError) as error:
        cases = [(f"results unreadable ({error})", "fail")]
    for name, verdict in cases:
        print(verdict, f"{label}: {name}")


main()
