#!/usr/bin/env python3
"""
Check or write the tables of docs/debug.md from the output of the programs: table.py --check|--write DEBUGGED CACHED.
LD_PRELOAD must name Sheaf's object.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs/debug.md"
HEAD = "| fault | seen by default | report with `FZPU` |\n|---|---|---|\n"


def rows(program: str) -> str:
    ran = subprocess.run([program, "--table"], capture_output=True, text=True, check=True, timeout=100)
    return "".join(line + "\n" for line in ran.stdout.splitlines())


def is_on_sheaf(program: str) -> bool:
    """Whether the dynamic linker would load Sheaf's malloc into the program. The program is not run."""
    environment = {**os.environ, "LD_TRACE_LOADED_OBJECTS": "1"}
    loaded = subprocess.run([program], capture_output=True, text=True, check=True, env=environment).stdout
    return re.search(r"libsheaf-(preload|malloc)\.so", loaded) is not None


def main() -> int:
    mode, debugged, cached = sys.argv[1:]
    if not is_on_sheaf(debugged):  # the program would find no fault, and the table would say so
        print(f"tests/misuse/table.py: {debugged} does not run on Sheaf; set LD_PRELOAD to libsheaf-preload.so", file=sys.stderr)
        return 2
    text = page = PAGE.read_text()
    for name, program in (("malloc", debugged), ("caches", cached)):
        start, end = f"<!-- table of {name} -->\n", f"<!-- end of {name} -->\n"
        pattern = re.compile(re.escape(start) + ".*?" + re.escape(end), re.DOTALL)
        if not pattern.search(text):
            print(f"docs/debug.md: the line {start.strip()} is missing; add it at the table of {name}", file=sys.stderr)
            return 1
        made = start + "\n" + HEAD + rows(program) + "\n" + end
        text = pattern.sub(lambda _, made=made: made, text)  # type: ignore[misc]
    if mode == "--write":
        PAGE.write_text(text)
    elif text != page:
        print("docs/debug.md: the tables are out of date; run tests/misuse/table.py --write DEBUGGED CACHED", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
