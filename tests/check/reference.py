#!/usr/bin/env python3
"""Makes docs/counters.md and docs/options.md from the tables; with --check, says whether they are up to date."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "cli"))

from sheaf.system import optiontable  # noqa: E402
from sheaf.system.optiontable import Option  # noqa: E402

GROUPS = {"SHEAF_SLOT_COUNTERS": "Per cache and slot", "SHEAF_CACHE_GAUGES": "Per cache", "SHEAF_PROCESS_VALUES": "Per process"}
SUMS = {"SHEAF_COUNTER_SUMS": "cache", "SHEAF_CACHE_SUMS": "cache", "SHEAF_PROCESS_SUMS": "process"}
DERIVED = [
    "A record contains these sums as text, and `sheaf stats` computes what it finds there. A counter stands for its sum",
    "over all slots, `size` and `slab_size` are those of the cache, and a negative result stands for 0.",
]


COUNTERS_HEAD = [
    "This page is for users who read `sheaf stats` or a record: it says what each counter counts and what to do about it.",
    "It is made from lib/cache/slot/counters.def by tests/check/reference.py; do not edit it.",
]
# lib/include/sheaf/record.h says the same.
EXACT = [
    "All counters are exact, with three reservations. Fast operations are counted when a slow path of their cache and slot",
    "adds them up, so a record is behind by up to 1024 frees (of objects above 1 KiB: allocations) until the process ends.",
    "An event of a slow path is counted in the slot where the thread runs at that moment, which after a migration is not",
    "the slot where it began; sums over slots are exact. A thread that is killed inside a slow path leaves that path half",
    "counted.",
    "",
    "`remote_free` stays 0 where there is one memory node.",
]
OPTIONS_HEAD = [
    "This page is for everybody who sets an option: it lists all of them with their values and defaults. It is made from",
    "lib/platform/config/options.def by tests/check/reference.py; do not edit it.",
]


def advice() -> dict[str, str]:
    lines = (Path(__file__).parent / "advice.txt").read_text().splitlines()
    return {name: text.strip() for name, _, text in (line.partition(":") for line in lines if line)}


def group(text: str, macro: str) -> str:
    return text.split(f"#ifdef {macro}\n")[1].split("#endif")[0]


def sums(text: str) -> list[str]:
    out = ["", "## What follows from them", "", *DERIVED, "", "| name | of | sum | meaning |", "|---|---|---|---|"]
    for macro, of in SUMS.items():
        part = group(text, macro)
        found = re.findall(r'^X\((\w+),\s+([^",]+),\s+"([^"]*)"\)$', part, re.M)
        if len(found) != len(re.findall(r"^X\(", part, re.M)):
            raise SystemExit("lib/cache/slot/counters.def: a line is not in the form X(name, sum, help)")
        out += [f"| `{name}` | {of} | `{formula}` | {help_text} |" for name, formula, help_text in found]
    return out


def counters() -> str:
    text = (ROOT / "lib/cache/slot/counters.def").read_text()
    told = advice()
    out = ["# Counters", "", *COUNTERS_HEAD, "", *EXACT]
    seen = set()
    for macro, title in GROUPS.items():
        part = group(text, macro)
        out += ["", f"## {title}", "", "| name | counts | what it tells, what to do |", "|---|---|---|"]
        for name, help_text in re.findall(r'^X\((\w+),\s*"(.*)"\)$', part, re.M):
            if name not in told:
                raise SystemExit(f"tests/check/advice.txt: no line for {name}; say what it tells and what to do")
            seen.add(name)
            out.append(f"| `{name}` | {help_text} | {told[name]} |")
    if left := set(told) - seen:
        raise SystemExit(f"tests/check/advice.txt: {min(left)} is not a counter; take the line out")
    return "\n".join(out + sums(text)) + "\n"


def wrong_rows(table: dict[str, Option]) -> list[str]:
    """What the compiler does not see: every row has its text and a default within its range, every choice its words."""
    wrong = []
    for name, option in table.items():
        for text in (option.text, *option.words.values(), *option.notes):
            if len(text) < 5 or text[-1] in ". " or text != " ".join(text.split()):
                wrong.append(f"{name}: '{text}' is no text, or has a full stop or double blanks")
        if option.kind in ("number", "size") and not option.least <= option.default_number <= option.most:
            wrong.append(f"{name}: the default {option.default} is not from {option.least} to {option.most}")
        if option.kind == "choice" and len(option.words) < 2:
            wrong.append(f"{name}: a choice of {len(option.words)} words; add rows OPTION_WORD({name}, ...)")
    return wrong


def options() -> str:
    table = optiontable.parse(optiontable.table_file().read_text())
    if wrong := wrong_rows(table):
        raise SystemExit("\n".join(f"lib/platform/config/options.def: {line}" for line in wrong))
    out = [
        "# Options",
        "",
        *OPTIONS_HEAD,
        "",
        "Each option is read from the environment and can be given to `sheaf run --option` by its name in lower case. Sizes",
        "take K, M, G and T (powers of 1024). A value that cannot be used is reported in one line on standard error, and the",
        "default is used. Programs with raised privileges ignore all options.",
        "",
        "| variable | values | default | meaning |",
        "|---|---|---|---|",
    ]
    for option in table.values():
        value = f"`{option.default}`" if option.default else "none"
        shown = option.help.replace("|", chr(92) + "|").replace("<", "&lt;")
        out.append(f"| `{option.variable}` | {option.values} | {value} | {shown} |")
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
