"""Count with callgrind the instructions that the object takes for fixed loads without rseq."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from paths import CountError

# The loads have no threads, and their work does not depend on time.
LOADS = {
    "pairs": ("bench-micro", "pairs-64", 200000),
    "batches": ("bench-micro", "batch-1000-mixed", 200000),
    "compiler": ("bench-programs", "compiler-like", 100000),
}
TIMEOUT_S = 120
_NAMED = re.compile(r"^ob=\((\d+)\)(?: (.*))?$")


class Missing(Exception):
    """A tool is not installed."""


def self_cost(profile: str, object_name: str) -> int:
    """The instructions of one object in a callgrind file, without those of the functions that it calls in other objects."""
    names: dict[str, str] = {}
    here, total, skip = False, 0, False
    for line in profile.splitlines():
        named = _NAMED.match(line)
        if named:
            if named[2]:
                names[named[1]] = named[2]
            here = names.get(named[1], "").endswith(object_name)
        elif line.startswith("calls="):
            skip = True  # the next line has the cost of the callee
        elif line[:1] in "0123456789+-*" and line:
            if here and not skip:
                total += int(line.split()[1])
            skip = False
        elif line.startswith(("cob=", "cobj=")):
            defined = re.match(r"^cobj?=\((\d+)\) (.*)$", line)
            if defined:
                names[defined[1]] = defined[2]
    return total


def count(name: str, programs: Path, library: Path) -> float:
    """Instructions per operation of a load, including start and end of the process. Raises CountError or Missing."""
    program, test, ops = LOADS[name]
    environment = {"PATH": os.environ["PATH"], "LD_PRELOAD": str(library), "SHEAF_RSEQ": "off"}
    with TemporaryDirectory() as directory:
        out = Path(directory) / "out"
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--quiet"]
        run = [*command, str(programs / program), test, "--ops", str(ops), "--repetitions", "1"]
        try:
            done = subprocess.run(run, env=environment, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
        except FileNotFoundError:
            raise Missing("valgrind: not found; run apt install valgrind") from None
        except subprocess.TimeoutExpired:
            raise CountError(f"{program} {test}: took more than {TIMEOUT_S} s under valgrind; run it by hand") from None
        if done.returncode != 0:
            raise CountError(f"{program} {test}: failed under valgrind: {done.stderr.strip()[-200:]}")
        total = self_cost(out.read_text(), library.name)
    if total == 0:
        raise CountError(f"{library}: not used by {program} {test}; name an object that can be preloaded")
    return round(total / ops, 2)
