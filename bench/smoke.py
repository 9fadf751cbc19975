#!/usr/bin/env python3
"""Runs every benchmark once, tiny, and looks at what it prints. Decides nothing by time."""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from contest.build import Build, find_build
from contest.contestants import Contestant, fixed_environment, verify
from contest.errors import ContestError
from contest.runs import micro_tests, parse_result

HERE = Path(__file__).resolve().parent
OPS = 40
TIMEOUT_S = 60


def require(true: bool, what: str) -> None:
    """Not an assert, which -O would remove."""
    if not true:
        raise ContestError(what)


def output(command: Sequence[str | Path], contestant: Contestant) -> str:
    """Standard output of a program that has to succeed without a word on standard error."""
    environment = {**fixed_environment(), **contestant.environment()}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    words = " ".join(str(word) for word in command)
    require(done.returncode == 0, f"{contestant.name}: '{words}' ended with {done.returncode}: {done.stderr.strip()}")
    require(done.stderr == "", f"{contestant.name}: '{words}' said: {done.stderr.strip()}")
    return done.stdout


def check_result(result: dict[str, Any], test: str, contestant: Contestant) -> None:
    """What must hold of any run."""
    where = f"{contestant.name}, {test}: {result}"
    require(result["test"] == test, f"another test's name; {where}")
    require(result["ops"] >= 1 and result["repetitions"] >= 1, f"nothing done; {where}")
    require(0 < result["ns_per_op_min"] <= result["ns_per_op_median"], f"times out of order; {where}")
    require(result["peak_rss_kib"] > 0 and result["minor_faults"] >= 0, f"no memory figures; {where}")
    if contestant.path:
        require(Path(result["allocator"]).resolve() == contestant.path, f"another malloc; {where}")


def check_programs(build: Build, contestant: Contestant) -> None:
    """All of bench-micro's tests, and the other programs."""
    verify(contestant, build.micro)
    tests = micro_tests(build.micro, OPS, spread=False)
    require(len({test.name for test in tests}) == len(tests) > 0, "the list of tests is empty or has one twice")
    for test in tests:
        line = output([*test.command, "--repetitions", "2"], contestant)
        check_result(parse_result(line, test.name), test.name, contestant)
    spread = output([build.micro, "table-8", "--ops", "80", "--spread"], contestant)
    check_result(parse_result(spread, "table-8"), "table-8", contestant)

    threads = output([build.threads, "--threads", "40", "--alive", "10", "--settle-ms", "1"], contestant)
    found = parse_result(threads, "threads")
    check_result(found, "threads", contestant)
    require(all(found[f"rss_{moment}_kib"] > 0 for moment in ("start", "warm", "after", "settled")), f"no rss in {found}")
    output([build.hundred], contestant)


def check_refusals(build: Build) -> None:
    """Mistakes end with one line and a status."""
    commands: list[list[str | Path]] = [
        [build.micro, "no-such-test"],
        [build.micro, "pairs-64", "--ops", "none"],
        [build.threads, "--alive"],
        [build.start, "--set", "a"],
        [build.start, "--set", "a", "--", "/bin/false"],
    ]
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
        said = f"{command}: {done.returncode} {done.stdout!r} {done.stderr!r}"
        require(done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1, said)


def check_scripts(root: Path, sheaf: Path | None) -> None:
    """compare.py and start.py from end to end."""
    only = "glibc,sheaf" if sheaf else "glibc"
    common: list[str | Path] = ["--build", root, "--only", only, "--retries", "0"]
    if sheaf:
        common += ["--sheaf", sheaf]
    with TemporaryDirectory() as directory:
        json_file, markdown = Path(directory) / "out.json", Path(directory) / "out.md"
        exports: list[str | Path] = ["--json", json_file, "--markdown", markdown]
        choice = ["--tests", "pairs-16,batch-10-*,threads", "--rounds", "2", "--ops", "100"]
        output([sys.executable, HERE / "compare.py", *common, *choice, *exports], Contestant("compare.py"))
        found = json.loads(json_file.read_text())
        names = [test["test"] for test in found["tests"]]
        require(names == ["pairs-16", "batch-10-fifo", "batch-10-lifo", "batch-10-shuffled", "threads"], f"tests {names}")
        rows = [row["contestant"] for row in found["tests"][0]["rows"]]
        require(rows == only.split(","), f"rows {rows}")
        require(all(len(runs) == 2 for test in found["tests"] for runs in test["runs"].values()), "rounds are missing")
        require(markdown.read_text().count("| pairs-16 |") == len(rows), "rows are missing in the Markdown")

        output([sys.executable, HERE / "start.py", *common, "--rounds", "4", *exports], Contestant("start.py"))
        programs = json.loads(json_file.read_text())["programs"]
        require([program["program"] for program in programs] == ["true", "bench-hundred"], f"programs {programs}")
        samples = [len(sample["ns"]) for program in programs for sample in program["samples"].values()]
        require(samples == [4] * (2 * (2 + bool(sheaf))), f"samples {samples}")


def main() -> int:
    """Plain always, Sheaf where it is built."""
    parser = argparse.ArgumentParser(prog="smoke.py", description=__doc__)
    parser.add_argument("--build", type=Path, metavar="DIR", required=True, help="build directory")
    parser.add_argument("--sheaf", type=Path, metavar="PATH", help="preloaded object to run everything under, too")
    options = parser.parse_args()
    try:
        build = find_build(options.build)
        check_programs(build, Contestant("glibc"))
        if options.sheaf:
            check_programs(build, Contestant("sheaf", options.sheaf.resolve()))
        check_refusals(build)
        check_scripts(options.build, options.sheaf)
    except (ContestError, subprocess.TimeoutExpired) as error:
        print(f"smoke.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
