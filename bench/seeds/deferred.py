#!/usr/bin/env python3
"""Runs bench-deferred over threads and capacities, and prints two tables: deferred.py BUILD/bench/seeds/bench-deferred."""

import argparse
import json
import os
import statistics
import subprocess
import sys

OPS = 400_000  # in all, for each run
ROUNDS = 3
KERNEL_PER_MMAP = 0.085 + 0.154  # replacements and empties fetched, before empty sheaves were kept


def run(program: str, *arguments: str) -> dict[str, float]:
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"deferred.py: {' '.join([program, *arguments])}: {done.stderr.strip() or done.returncode}")
    values: dict[str, float] = json.loads(done.stdout)
    return values


def median(program: str, *arguments: str) -> dict[str, float]:
    runs = [run(program, *arguments) for _ in range(ROUNDS)]
    return {name: statistics.median(r[name] for r in runs) for name in runs[0] if name != "test"}


def shared(values: dict[str, float]) -> float:
    """The operations beyond the slot; each changes a word that all CPUs share."""
    names = ("barn_gets_per_op", "barn_puts_per_op", "rcu_sheaves_per_op", "empties_per_op")
    return sum(values[name] for name in names)


def mmap2(program: str) -> None:
    cpus = os.cpu_count() or 1
    titles = ["threads", "capacity", "empty main", "ns/op", "fast prefills", "replaced", "put", "sealed", "empties"]
    print("|", " | ".join([*titles, "shared/op", "/allocation"]), "|")
    print("|---" * (len(titles) + 2) + "|")
    for threads in (1, cpus, 2 * cpus, 4 * cpus):
        for capacity in (32, 64, 128, 256, 0):
            for kept in (True, False):
                v = median(
                    program,
                    "mmap2",
                    "--threads",
                    str(threads),
                    "--ops",
                    str(OPS // threads),
                    *(("--capacity", str(capacity)) if capacity else ()),
                    *(() if kept else ("--drop-empty",)),
                )
                names = ("barn_gets_per_op", "barn_puts_per_op", "rcu_sheaves_per_op", "empties_per_op")
                row = [str(threads), str(capacity or "own"), "kept" if kept else "dropped", f"{v['ns_per_op']:.0f}"]
                row += [f"{v['prefills_fast']:.1%}", *(f"{v[name]:.4f}" for name in names)]
                print("|", " | ".join([*row, f"{shared(v):.4f}", f"{shared(v) / 3:.4f}"]), "|", flush=True)
    print(f"\nThe kernel's counts: {KERNEL_PER_MMAP:.3f} for each mmap.\n")


def pairs(program: str) -> None:
    print("| threads | free | kfree_rcu(p) | kfree_rcu(p, rcu) | sheaves reused | objects a grace period |")
    print("|---|---|---|---|---|---|")
    for threads in (1, os.cpu_count() or 1):
        ops = ("--threads", str(threads), "--ops", str(OPS // threads))
        at_once, one, two = (median(program, test, *ops) for test in ("free", "kfree_rcu_1", "kfree_rcu_2"))
        print(
            f"| {threads} | {at_once['ns_per_op']:.0f} ns | {one['ns_per_op']:.0f} ns | {two['ns_per_op']:.0f} ns "
            f"| {one['recycled']:.0%} | {one['ops'] / one['grace_periods']:.0f} |",
            flush=True,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", help="bench-deferred of a build")
    args = parser.parse_args()
    if not os.access(args.program, os.X_OK):
        parser.error(f"{args.program}: no program there; build it with meson, which wants liburcu")
    program = os.path.abspath(args.program)
    mmap2(program)
    pairs(program)
    return 0


if __name__ == "__main__":
    sys.exit(main())
