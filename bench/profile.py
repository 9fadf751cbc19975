#!/usr/bin/env python3
"""Measure the cost of sampling: micro benchmarks and models of programs with and without SHEAF_PROFILE, in interleaved rounds.

python3 bench/profile.py BUILD [--rounds N] [--repetitions N] [--only PART]

BUILD is a build directory with benchmarks. In each round a test runs with each setting in turn, and the ratio of the best
times is taken. Prints the median of the rounds' ratios for each test, and the geometric means of these. `record` is the same
object with a record and without samples; `plain` has neither.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

SETTINGS: dict[str, tuple[str, ...]] = {"plain": (), "record": ("SHEAF_RECORD",), "profile": ("SHEAF_RECORD", "SHEAF_PROFILE")}
LEFT_OUT = ("idle-", "thread-start", "fork-exec")  # these measure sleeps, and processes that have a record each


def tests(build: Path) -> list[tuple[Path, str]]:
    found = []
    for name in ("bench-micro", "bench-programs"):
        program = build / "bench" / name
        listed = subprocess.run([program, "--list"], capture_output=True, text=True, check=True)
        found += [(program, line.split("\t")[0]) for line in listed.stdout.splitlines()]
    return [(program, test) for program, test in found if not test.startswith(LEFT_OUT)]


def measure(program: Path, test: str, library: Path, setting: str, rate: str, repetitions: int) -> float:
    """Nanoseconds per operation in the best repetition. Exits if the program fails."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("SHEAF_")}
    with tempfile.TemporaryDirectory() as records:
        values = {"SHEAF_RECORD": records, "SHEAF_PROFILE": rate}
        env |= {"LD_PRELOAD": str(library), **{name: values[name] for name in SETTINGS[setting]}}
        command = [str(program), test, "--repetitions", str(repetitions)]
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, check=False, text=True)
    if done.returncode:
        raise SystemExit(
            f"profile.py: {test} with {setting}: ended with {done.returncode}; run {program.name} by hand to see why"
        )
    return float(json.loads(done.stdout)["ns_per_op_min"])


def mean(tests: list[list[float]]) -> str:
    """The geometric mean over all tests and rounds, with its interval if there are rounds to compare."""
    logs = [[math.log(ratio) for ratio in rounds] for rounds in tests]
    centre = statistics.mean(statistics.mean(rounds) for rounds in logs)
    if len(logs[0]) < 2:
        return f"{math.exp(centre):.3f}"
    error = 1.96 * math.sqrt(sum(statistics.variance(rounds) / len(rounds) for rounds in logs)) / len(logs)
    return f"{math.exp(centre):.3f} ({math.exp(centre - error):.3f} to {math.exp(centre + error):.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("build", type=Path, help="build directory")
    parser.add_argument("--rounds", type=int, choices=range(1, 100), default=3, metavar="N", help="number of rounds (default: 3)")
    parser.add_argument(
        "--repetitions", type=int, choices=range(1, 100), default=5, metavar="N", help="repetitions in each run (default: 5)"
    )
    parser.add_argument("--only", default="", metavar="PART", help="only tests whose names contain this")
    parser.add_argument("--rate", default="512K", metavar="BYTES", help="mean distance between samples (default: 512K)")
    args = parser.parse_args()
    library = (args.build / "preload" / "libsheaf-preload.so").resolve(strict=True)
    wanted = [(program.resolve(), test) for program, test in tests(args.build) if args.only in test]
    times: dict[tuple[str, str], list[dict[str, float]]] = {}
    for turn in range(args.rounds):
        for program, test in wanted:
            order = list(SETTINGS)
            times.setdefault((program.name, test), []).append(
                {
                    setting: measure(program, test, library, setting, args.rate, args.repetitions)
                    for setting in order[turn % 3 :] + order[: turn % 3]
                }
            )
    print(f"{'test':26} {'plain':>12} {'record/plain':>14} {'profile/record':>15}")
    ratios: dict[str, list[tuple[list[float], list[float]]]] = {}
    for (program_name, test), rounds in times.items():
        plain = min(one["plain"] for one in rounds)
        record = [one["record"] / one["plain"] for one in rounds]
        profile = [one["profile"] / one["record"] for one in rounds]
        ratios.setdefault(program_name, []).append((profile, record))
        print(f"{test:26} {plain:9.2f} ns {statistics.median(record):14.3f} {statistics.median(profile):15.3f}")
    for name, found in ratios.items():
        to_record, of_record = mean([a for a, _ in found]), mean([b for _, b in found])
        print(f"{name}: geometric means of {len(found)}: profile/record {to_record}, record/plain {of_record}")


if __name__ == "__main__":
    main()
