"""Print "pass|fail|skip NAME" for every case in meson's testlog.json (JSON lines), a JUnit file or a TAP file.

Each case of a meson test with TAP output counts. A test that failed although none of its cases did (it crashed or stopped
early) counts as one more failure.
"""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

VERDICTS = {"OK": "pass", "EXPECTEDFAIL": "pass", "SKIP": "skip"}


def tap(text: str) -> list[tuple[str, str]]:
    """Return the name and verdict of every case in TAP output, or an empty list if the text is not TAP."""
    if not re.search(r"^1\.\.\d+", text, re.M):
        return []
    cases = []
    for bad, name, skipped in re.findall(r"^(not )?ok\b *\d* *-? *(.*?) *(# *skip.*)?$", text, re.M | re.I):
        cases.append((name, "fail" if bad else "skip" if skipped else "pass"))
    return cases


def meson(path: Path) -> list[tuple[str, str]]:
    """Return the name and verdict of every meson test, or of each of its cases if it printed TAP."""
    out = []
    for test in map(json.loads, filter(None, path.read_text().splitlines())):
        name = re.sub(r"^.* - [^:]*:", "", test["name"])
        verdict = VERDICTS.get(test["result"], "fail")
        cases = tap(test.get("stdout", ""))
        out += [(f"{name}: {case}", result) for case, result in cases]
        if not cases or (verdict == "fail" and all(result != "fail" for _, result in cases)):
            out.append((f"{name} ({test['result']})" if verdict == "fail" else name, verdict))
    return out


def junit(path: Path) -> list[tuple[str, str]]:
    """Return the name and verdict of every case."""
    cases = []
    for case in ElementTree.parse(path).iter("testcase"):
        kinds = {child.tag for child in case}
        verdict = "fail" if kinds & {"failure", "error"} else "skip" if "skipped" in kinds else "pass"
        cases.append((case.get("name", "?"), verdict))
    return cases


def main() -> None:
    path, label = Path(sys.argv[1]), sys.argv[2]
    try:
        if path.suffix == ".tap":
            cases = tap(path.read_text(errors="replace"))
        else:
            cases = junit(path) if path.suffix == ".xml" else meson(path)
    except (OSError, ValueError, KeyError, ElementTree.ParseError) as error:
        cases = [(f"results unreadable ({error})", "fail")]
    if not cases:
        cases = [("no test was run", "fail")]
    for name, verdict in cases:
        print(verdict, f"{label}: {name}")


main()
