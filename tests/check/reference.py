#!/usr/bin/env python3
"""Makes docs/counters.md and docs/options.md from the tables; with --check, says whether they are up to date."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GROUPS = {
    "SHEAF_SLOT_COUNTERS": "Per cache and slot",
    "SHEAF_CACHE_GAUGES": "Per cache",
    "SHEAF_PROCESS_VALUES": "Per process",
}


# The same in lib/include/sheaf/record.h, for who reads the file.
EXACT = [
    "All are exact, with three reservations. Fast-path counts follow from the word that the section commits, so that a",
    "restart cannot count twice; they reach a record by slow paths of their cache and slot, at the latest after 1024 frees (for",
    "objects above 1 KiB: allocations), and at the end. An event of a slow path is counted in the slot where the thread ran when",
    "it counted, which after a migration is the next one: sums over slots are exact. And threads that are killed inside a slow",
    "path leave it half counted.",
    "`remote_free` stays 0 until there are nodes to tell apart.",
]


def advice() -> dict[str, str]:
    lines = (Path(__file__).parent / "advice.txt").read_text().splitlines()
    return {name: text.strip() for name, _, text in (line.partition(":") for line in lines if line)}


def counters() -> str:
    text = (ROOT / "lib/slot/counters.def").read_text()
    told = advice()
    out = ["# Counters", "", "Made from lib/slot/counters.def by tests/check/reference.py; do not edit.", "", *EXACT]
    seen = set()
    for macro, title in GROUPS.items():
        part = text.split(f"#ifdef {macro}\n")[1].split("#endif")[0]
        out += ["", f"## {title}", "", "| name | counts | what it tells, what to do |", "|---|---|---|"]
        for name, help_text in re.findall(r'^X\((\w+),\s*"(.*)"\)$', part, re.M):
            if name not in told:
                raise SystemExit(f"tests/check/advice.txt: no line for {name}; say what it tells and what to do")
            seen.add(name)
            out.append(f"| `{name}` | {help_text} | {told[name]} |")
    if left := set(told) - seen:
        raise SystemExit(f"tests/check/advice.txt: {min(left)} is not a counter; take the line out")
    return "\n".join(out) + "\n"


def options() -> str:
    text = (ROOT / "preload/options.def").read_text()
    out = ["# Options", "", "Made from preload/options.def by tests/check/reference.py; do not edit.", "",
           "Each is read from the environment; sizes take K, M, G, T. Ignored in programs with raised privileges.",
           "", "| variable | kind | default | meaning |", "|---|---|---|---|"]  # fmt: skip
    for name, kind, default, help_text in re.findall(r'^X\((\w+), (\w+), "(.*?)", \d+, \d+, "(.*)"\)$', text, re.M):
        value = f"`{default}`" if default else "none"
        shown = help_text.replace("|", chr(92) + "|").replace("<", "&lt;")
        out.append(f"| `SHEAF_{name.upper()}` | {kind} | {value} | {shown} |")
    if len(out) - 8 != len(re.findall(r"^X\(", text, re.M)):
        raise SystemExit("preload/options.def: a line is not in the form X(name, kind, default, min, max, help)")
    return "\n".join(out) + "\n"


def main() -> int:
    stale = 0
    for path, text in ((ROOT / "docs/counters.md", counters()), (ROOT / "docs/options.md", options())):
        if "--check" not in sys.argv[1:]:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(f"docs/{path.name}: out of date; run tests/check/reference.py", file=sys.stderr)
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main())
