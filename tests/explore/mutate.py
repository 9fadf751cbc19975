"""Builds each seeded defect and lets the explorer look for it: mutate.py [--seconds N] [NUMBER...]

The sources are copied, so that the tree stays as it is. Each defect gets half of the seconds for the scenarios that
its entry names, and the rest for all of them. The last line is `N of N mutants found`.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
PROGRAM = "tests/explore/explore"


BLOCK = re.compile(
    r"^=== (?P<name>[^\n]+)\nfile: (?P<file>[^\n]+)\nscenarios: (?P<scenarios>[^\n]+)\n(?:equivalent: (?P<equivalent>[^\n]+)\n)?"
    r"<<<\n(?P<old>.*?)---\n(?P<new>.*?)>>>\n",
    re.M | re.S,
)


@dataclass(frozen=True)
class Mutant:
    """One defect: `old` becomes `new` in `file`. `equivalent`: why it does no harm, or empty."""

    name: str
    file: str
    old: str
    new: str
    scenarios: tuple[str, ...]
    equivalent: str


def mutants() -> Iterator[Mutant]:
    """Read the list."""
    for block in BLOCK.finditer((Path(__file__).parent / "mutants.txt").read_text()):
        yield Mutant(
            block["name"],
            block["file"],
            block["old"].removesuffix("\n"),
            block["new"].removesuffix("\n"),
            tuple(block["scenarios"].split("; ")),
            block["equivalent"] or "",
        )


class Unusable(Exception):
    """A mutant cannot be made; the message says why."""


def copy(to: Path) -> None:
    """Copy the tracked files, and configure a build, unless that was done before."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=TOP, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        target = to / name
        if not (TOP / name).is_file() or (target.is_file() and target.read_bytes() == (TOP / name).read_bytes()):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(TOP / name, target)
    if not (to / "build" / "build.ninja").is_file():
        subprocess.run(["meson", "setup", "build", "-Dbench=false"], cwd=to, check=True, stdout=subprocess.DEVNULL)


def build(tree: Path) -> None:
    """Build the explorer of that tree."""
    done = subprocess.run(["ninja", "-C", tree / "build", PROGRAM], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unusable("it does not compile: " + done.stdout[-600:])


def explore(tree: Path, seconds: float, scenario: str | None) -> tuple[int, str]:
    """Explore until the first failure. Returns the number of executions and the failure, which may be empty."""
    command = [str(tree / "build" / PROGRAM), "--stop", "--seconds", str(seconds), "--traces", str(tree / "build")]
    if scenario:
        command += ["--scenario", scenario]
    output = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False).stdout
    failure = re.search(r"^FAILED: (.*)$", output, re.M)
    executions = re.search(r"^(\d+) executions, \d+ failures$", output, re.M)
    if not executions:
        raise Unusable("the explorer ended early: " + output[-300:])
    return int(executions[1]), failure[1] if failure else ""


def look(tree: Path, mutant: Mutant, seconds: float) -> tuple[int, str]:
    """Look for one mutant. Returns executions and the failure that gave it away."""
    path = tree / mutant.file
    text = path.read_text()
    if text.count(mutant.old) != 1:
        raise Unusable(f"its text occurs {text.count(mutant.old)} times in {mutant.file}")
    path.write_text(text.replace(mutant.old, mutant.new))
    try:
        build(tree)
        total = 0
        for scenario in (*mutant.scenarios, None):
            share = seconds / 2 if scenario is None else seconds / 2 / len(mutant.scenarios)
            executions, failure = explore(tree, share, scenario)
            total += executions
            if failure:
                return total, failure
        return total, ""
    finally:
        path.write_text(text)


def main() -> int:
    """Go through the mutants; 0 if all are found that are not equivalent."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="for each mutant, at most (default 60)")
    parser.add_argument("numbers", nargs="*", type=int, help="mutants by number; all without")
    options = parser.parse_args()
    tree = TOP / "build" / "mutants"
    copy(tree)
    every = list(mutants())
    chosen = options.numbers or range(1, len(every) + 1)
    found = expected = 0
    for number in chosen:
        mutant = every[number - 1]
        expected += not mutant.equivalent
        try:
            executions, failure = look(tree, mutant, options.seconds)
        except Unusable as why:
            print(f"unusable {number}: {mutant.name}: {why}", flush=True)
            continue
        found += bool(failure)
        verdict = "found" if failure else "equivalent" if mutant.equivalent else "MISSED"
        print(f"{verdict} {number}: {mutant.name}: {executions} executions: {failure or mutant.equivalent}", flush=True)
    print(f"{found} of {len(chosen)} mutants found, {expected} expected")
    return found < expected


if __name__ == "__main__":
    sys.exit(main())
