#!/usr/bin/env python3
"""Run every suite of `sheaf bench` with few operations and check output and exports. Times do not decide the result."""

from __future__ import annotations

import argparse
import csv
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

TIMEOUT_S = 200
CLI = Path(__file__).resolve().parents[1] / "cli"
REAL = ("lua", "git-repack", "redis-set")  # a script, a threaded command, a server
TOOLS = ("hyperfine", "time", "lua5.4", "git", "redis-server", "redis-benchmark")
SCALED = ("micro", "programs", "seeds", "start", "rest")


class Failed(Exception):
    """A check failed; the message describes the problem."""


def require(true: bool, what: str) -> None:
    """Raise Failed unless `true` holds. Unlike assert, it also works under python -O."""
    if not true:
        raise Failed(what)


def run(command: Sequence[str | Path], status: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command; raises Failed unless it ends with `status`."""
    environment = {**os.environ, "PYTHONPATH": str(CLI)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    words = " ".join(str(word) for word in command)
    require(done.returncode == status, f"'{words}' ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr.strip()}")
    return done


def bench(*arguments: str | Path, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Run `sheaf bench`; raises Failed unless it ends with `status`."""
    return run([sys.executable, "-m", "sheaf", "bench", *arguments], status)


def check_run(result: dict[str, Any], where: str) -> None:
    """Check the result of one run."""
    require(0 < result["ns_per_op_min"] <= result["ns_per_op_median"], f"{where}: times out of order: {result}")
    require(result["peak_rss_kib"] > 0 and result["minor_faults"] >= 0, f"{where}: no memory figures: {result}")
    require(all(point["rss_kib"] > 0 for point in result.get("memory", [])), f"{where}: no resident memory: {result}")


def check_export(file: Path, names: Sequence[str], contestants: Sequence[str], rounds: int) -> None:
    """Check that an export has every test with every contestant in every round."""
    found = json.loads(file.read_text())
    tests = {test["test"]: test for test in found["tests"]}
    require(sorted(tests) == sorted(names), f"tests {sorted(tests)}, expected {sorted(names)}")
    for name, test in tests.items():
        require(not test["failures"], f"{name}: {test['failures']}")
        require(sorted(test["runs"]) == sorted(contestants), f"{name}: ran with {sorted(test['runs'])}")
        require([row["contestant"] for row in test["rows"]] == list(contestants), f"{name}: rows out of order")
        for contestant, runs in test["runs"].items():
            require(len(runs) == rounds, f"{name}, {contestant}: {len(runs)} rounds")
            for result in runs:
                check_run(result, f"{name}, {contestant}")


def check_scaled(top: Path, contestants: Sequence[str]) -> None:
    """Check all suites but real, all kinds of export, the comparison of two runs, and plots."""
    files = [top / f"out.{kind}" for kind in ("json", "csv", "md")]
    exports: list[str | Path] = [word for file in files for word in ("--export", file)]
    names = [line.split("\t")[1] for line in bench(*SCALED, "--list").stdout.splitlines()]
    require(len(set(names)) == len(names) > 60, f"the list has duplicates or is too short: {names}")
    only = ["--only", ",".join(contestants)]
    done = bench(*SCALED, "--ops", "400", "--rounds", "2", "--retries", "0", *only, *exports)
    check_export(files[0], names, contestants, 2)
    with files[1].open() as lines:
        require(len(list(csv.DictReader(lines))) == len(names) * len(contestants), "the CSV lacks rows")
    for name in names:
        require(name in done.stdout and f"| {name} |" in files[2].read_text(), f"{name} is not in the table")

    compared = bench("--from", files[0], "--against", files[0], "--fail-above", "1.001").stdout
    require("1.000" in compared, f"the ratio of a run to itself is not 1: {compared[-500:]}")
    slow = json.loads(files[0].read_text())
    for test in slow["tests"]:
        for result in test["runs"][contestants[-1]]:
            result["ns_per_op_median"] *= 2
    (top / "slow.json").write_text(json.dumps(slow))
    bench("--from", top / "slow.json", "--against", files[0], "--fail-above", "1.5", status=3)
    if importlib.util.find_spec("matplotlib"):
        bench("--from", files[0], "--plot", top / "plots")
        drawn = {file.name for file in (top / "plots").iterdir()}
        for plot in ("micro-time", "programs-memory", "rest-memory", "scaling", "memory-over-time", "rest-over-time"):
            require({f"{plot}.svg", f"{plot}.png"} <= drawn, f"{plot} was not drawn: {sorted(drawn)}")


def check_machine(programs: Path) -> None:
    """Check the output of bench-machine, if it exists for this architecture."""
    program = programs / "bench-machine"
    if not program.exists():
        return
    found = json.loads(run([program], 0).stdout)
    require(100 < found["mhz"] < 20000, f"a frequency of {found['mhz']} MHz")
    for key in ("store_forward_cycles", "store_forward_computed_cycles"):
        require(0 < found[key] < 1000, f"{key} is {found[key]}")


def check_real(top: Path, contestants: Sequence[str]) -> bool:
    """Check some real programs and a user's command. Returns false if tools are missing."""
    file = top / "real.json"
    common: list[str | Path] = ["--rounds", "1", "--retries", "0", "--only", ",".join(contestants), "--export", file]
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        print(f"smoke.py: the suite real was skipped; run apt install {' '.join(missing)}", file=sys.stderr)
        return False
    bench("real", "--tests", ",".join(REAL), *common)
    check_export(file, REAL, contestants, 1)
    bench(*common, "--", sys.executable, "-c", "print(len([[] for _ in range(1000)]))")
    check_export(file, ["command"], contestants, 1)
    bench(*common, "--", "/bin/false", status=1)
    return True


def check_refusals(programs: Path) -> None:
    """Check that wrong command lines give one line and a status."""
    for arguments, status in (
        (["--tests", "no-such-*"], 2),
        (["no-such-suite"], 2),
        (["--peer", "nothing"], 2),
        (["--export", "out.txt"], 2),
        (["--from", "/nowhere.json"], 2),
        (["--", "no-such-program"], 127),
    ):
        # without peers, because a missing peer would print another line
        done = bench("--only", "glibc", *arguments, status=status)
        require(done.stdout == "" and done.stderr.count("\n") == 1, f"{arguments}: {done.stdout!r} {done.stderr!r}")
    commands: list[list[str | Path]] = [
        [programs / "bench-micro", "no-such-test"],
        [programs / "bench-micro", "pairs-64", "--ops", "none"],
        [programs / "bench-threads", "--alive"],
        [programs / "bench-start", "--set", "a", "--", "/bin/false"],
    ]
    for command in commands:
        done = run(command, 1)
        require(done.stdout == "" and done.stderr.count("\n") == 1, f"{command}: {done.stdout!r} {done.stderr!r}")


def main() -> int:
    """Run the checks with glibc and Sheaf. Returns the exit status; 77 tells meson that the test was skipped."""
    parser = argparse.ArgumentParser(prog="smoke.py", description=__doc__)
    parser.add_argument("suite", choices=["scaled", "real"], help="all suites but real with few operations, or the suite real")
    parser.add_argument("--programs", type=Path, required=True, help="directory with the benchmark programs")
    parser.add_argument("--sheaf", type=Path, required=True, help="the preloaded object")
    options = parser.parse_args()
    os.environ["SHEAF_BENCH_DIR"] = str(options.programs.resolve())
    os.environ["SHEAF_LIBRARY"] = str(options.sheaf.resolve())
    contestants = ["glibc", "sheaf"]
    try:
        with TemporaryDirectory() as top:
            if options.suite == "real":
                return 0 if check_real(Path(top), contestants) else 77
            check_scaled(Path(top), contestants)
            check_machine(options.programs.resolve())
            check_refusals(options.programs.resolve())
    except (Failed, subprocess.TimeoutExpired) as error:
        print(f"smoke.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
