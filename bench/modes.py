#!/usr/bin/env python3
"""Measure the cost of options: micro benchmarks in each mode, in interleaved rounds, as ratios of best times to the default.

python3 bench/modes.py BUILD/bench/bench-micro BUILD/preload/libsheaf-preload.so [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
from pathlib import Path

MODES = {
    "default": {},
    "tiny": {"SHEAF_MODE": "tiny"},
    **{
        word: {"SHEAF_HARDEN": word}
        for word in (
            "random",
            "check",
            "zero-free",
            "zero-alloc",
            "guard",
            "quarantine=16M",
            "sample=5000",
            "sample=100000",
            "all",
        )
    },
    "fail, for another class": {"SHEAF_FAIL": "probability=0,cache=malloc-640,verbose=0"},
}
TESTS = {
    "pairs-64": 1000000,
    "batch-1000-shuffled": 500000,
    "batch-1000-mixed": 300000,
    "table-2": 500000,
    "fresh-64": 1000000,
    "large-replace": 2000,
}


def measure(program: str, library: str, test: str, mode: str) -> tuple[float, int]:
    """Nanoseconds per operation in the best repetition, and peak memory in KiB. Exits if the program fails."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("SHEAF_")}
    done = subprocess.run(
        [program, test, "--ops", str(TESTS[test]), "--repetitions", "3"],
        env={**env, "LD_PRELOAD": library, **MODES[mode]},
        stdout=subprocess.PIPE,
        check=False,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"modes.py: {program} {test} in mode {mode}: ended with {done.returncode}; run it by hand to see why")
    out = json.loads(done.stdout)
    return float(out["ns_per_op_min"]), int(out["peak_rss_kib"])


def existing_file(name: str) -> str:
    """Check that a file exists. The loader ignores a missing object, and the results would be those of glibc."""
    if not Path(name).is_file():
        raise argparse.ArgumentTypeError(f"{name}: no such file; build it with meson")
    return str(Path(name).resolve())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("program", type=existing_file, help="bench-micro of a build")
    parser.add_argument("library", type=existing_file, help="libsheaf-preload.so of the same build")
    parser.add_argument(
        "--rounds",
        type=int,
        choices=range(1, 100),
        default=3,
        metavar="N",
        help="number of rounds, of which the best counts (default: 3)",
    )
    args = parser.parse_args()
    seen: dict[tuple[str, str], list[tuple[float, int]]] = {}
    for _ in range(args.rounds):
        for test in TESTS:
            for mode in MODES:
                seen.setdefault((mode, test), []).append(measure(args.program, args.library, test, mode))
    print("| mode |" + "".join(f" {test} |" for test in TESTS))
    print("|---|" + "---|" * len(TESTS))
    for mode in MODES:
        cells = []
        for test in TESTS:
            time = min(t for t, _ in seen[mode, test])
            ratio = time / min(t for t, _ in seen["default", test])
            peak = statistics.median(m for _, m in seen[mode, test]) / 1024
            cells.append(f" {time:.1f} ns, {peak:.1f} MiB |" if mode == "default" else f" {ratio:.2f}, {peak:.1f} |")
        print(f"| {mode} |" + "".join(cells))


if __name__ == "__main__":
    main()
