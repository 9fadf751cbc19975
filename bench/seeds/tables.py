#!/usr/bin/env python3
"""Runs the benchmarks of bench/seeds in interleaved rounds, and prints tables with the figures of the kernel."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Result = dict[str, Any]

# by batch and whether shuffled: percentage of time that sheaves save
KERNEL_BATCH = {
    (1, False): 17.2,
    (10, False): 15.3,
    (100, False): 31.0,
    (1000, False): 30.2,
    (10, True): 12.6,
    (100, True): 28.6,
    (1000, True): 6.3,
}
# ns for one object after the change, in order and randomised, by size
KERNEL_FRESH = {16: (3.30, 3.63), 32: (3.74, 4.24), 64: (4.60, 5.32), 128: (6.54, 7.39), 256: (6.61, 7.92), 512: (6.90, 8.28)}
BATCHES = {16: 256, 32: 128, 64: 64, 128: 32, 256: 32, 512: 32}
KERNEL_MMAP = "kernel, for one mmap: 0.0855 replacements and 0.154 empties before, 0.0814 and 0.074 after"
CAPACITIES = (0, 32, 64, 128, 256)  # 0: as the cache chooses
SLOTS = (8, 16, 32, 64, 128, 192, 256, 384)


class Runner:
    """Runs the programs in rounds, and keeps of each command the run with the least time."""

    def __init__(self, directory: Path, rounds: int, scale: float) -> None:
        self.directory, self.rounds, self.scale = directory, rounds, scale
        self.all: list[Result] = []

    def once(self, program: str, words: Sequence[str], ops: int) -> Result:
        """Returns the result of one process, a line of JSON."""
        count = max(int(ops * self.scale), 1)
        command = [str(self.directory / program), *words, "--ops", str(count)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        if done.returncode:
            raise SystemExit(f"tables.py: {' '.join(command)}: {done.stderr.strip() or done.returncode}")
        result: Result = json.loads(done.stdout)
        self.all.append({"command": " ".join([program, *words]), **result})
        return result

    def best(self, program: str, columns: Sequence[str], ops: int, key: str = "ns_per_op") -> list[Result]:
        """Runs all columns in turn in each round."""
        found: list[list[Result]] = [[] for _ in columns]
        for _ in range(self.rounds):
            for results, words in zip(found, columns, strict=True):
                results.append(self.once(program, words.split(), ops))
        return [min(results, key=lambda result: float(result[key])) for results in found]


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table in Markdown."""
    print(f"\n## {title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")
    sys.stdout.flush()


def batches(run: Runner) -> None:
    rows = []
    for (batch, shuffled), kernel in KERNEL_BATCH.items():
        common = f"batch --batch {batch} --rounds 2{' --shuffled' if shuffled else ''}"
        none, small, own = run.best("bench-columns", [f"{common} --capacity 0", f"{common} --capacity 32", common], 2000000)
        times = [float(result["ns_per_op"]) for result in (none, small, own)]
        better = [f"{100 * (1 - time / times[0]):.1f}%" for time in times[1:]]
        order = "shuffled" if shuffled else "fifo"
        rows.append([str(batch), order, *(f"{time:.2f}" for time in times), *better, f"{kernel}%"])
    head = ["batch", "order", "none, ns", "32, ns", "own, ns", "32 better by", "own better by", "kernel (32) better by"]
    table("B1: batches, sheaves against none; an op is one allocation and free", head, rows)


def deferred(run: Runner) -> None:
    if not (run.directory / "bench-deferred").exists():
        print("\nB2 with deferred frees: left out, built without liburcu")
        return
    cpus = os.cpu_count() or 1
    names = ("barn_gets_per_op", "barn_puts_per_op", "rcu_sheaves_per_op", "empties_per_op")
    rows = []
    for threads in sorted({1, cpus, 2 * cpus, 4 * cpus}):
        for capacity in CAPACITIES:
            for kept in (True, False):
                words = (
                    f"mmap2 --threads {threads}" + (f" --capacity {capacity}" if capacity else "") + " --drop-empty" * (not kept)
                )
                (one,) = run.best("bench-deferred", [words], 400000 // threads)
                row = [str(threads), str(capacity or "own"), "kept" if kept else "dropped", f"{one['ns_per_op']:.0f}"]
                shared = sum(float(one[name]) for name in names)
                cells = (*(float(one[name]) for name in names), shared, shared / 3)
                rows.append([*row, f"{one['prefills_fast']:.1%}", *(f"{cell:.4f}" for cell in cells)])
    head = ["threads", "capacity", "empty main", "ns", "fast prefills", "wanted", "given", "sealed", "empties"]
    table("B2: mmap2 with deferred frees, for one mmap", [*head, "shared for each round", "for each allocation"], rows)
    print(f"\n{KERNEL_MMAP}")
    rows = []
    for threads in sorted({1, cpus}):
        lines = [f"{name} --threads {threads}" for name in ("free", "kfree_rcu_1", "kfree_rcu_2")]
        at_once, one, two = run.best("bench-deferred", lines, 400000 // threads)
        times = [f"{result['ns_per_op']:.0f} ns" for result in (at_once, one, two)]
        rows.append([str(threads), *times, f"{one['recycled']:.0%}", f"{one['ops'] / one['grace_periods']:.0f}"])
    head = ["threads", "free", "kfree_rcu(p)", "kfree_rcu(p, rcu)", "sheaves reused", "objects a grace period"]
    table("Pairs of allocation and deferred free", head, rows)


def slots(run: Runner) -> None:
    head = [
        "load",
        "slots",
        "capacity",
        "empty main kept",
        "barn get",
        "barn put",
        "empty get",
        "empty put",
        "slab lock",
        "freed elsewhere",
        "shared",
    ]
    keys = ("barn_get", "barn_put", "empty_get", "empty_put", "slab", "foreign", "shared")
    wanted = [(load, n, 0, keep) for load in ("walk", "mmap2", "cross", "fork") for n in SLOTS for keep in (True, False)]
    wanted += [("mmap2", 384, capacity, keep) for capacity in CAPACITIES[1:] for keep in (True, False)]
    wanted += [("walk", 384, capacity, keep) for capacity in CAPACITIES[1:] for keep in (True, False)]
    rows = []
    for load, n, capacity, keep in wanted:
        words = [load, "--slots", str(n), *(["--capacity", str(capacity)] if capacity else []), *([] if keep else ["--no-keep"])]
        one = run.once("bench-slots", words, 2000000)
        counts = [f"{one[key]:.0f}" for key in keys]
        rows.append([load, str(n), str(capacity or "own"), "yes" if keep else "no", *counts])
    table("Virtual slots: shared operations for a million allocations", head, rows)


def cross(run: Runner) -> None:
    rows = []
    for pairs in (1, 2, 4, 8, 16):
        common = f"cross --pairs {pairs} --rounds 2"
        plain, none, own = run.best("bench-columns", [f"{common} --plain", f"{common} --capacity 0", common], 2000000)
        times = [f"{float(result['ns_per_op']):.1f}" for result in (plain, none, own)]
        share = f"{100 * float(own['fast_share']):.2f}%"
        rows.append([str(pairs), *times, share, str(own["barn_per_million"]), str(own["slab_objects_per_million"])])
    head = ["pairs", "no allocation, ns", "no sheaves, ns", "sheaves, ns", "fast paths", "barn/M", "slab objects/M"]
    table("B3: one thread allocates, another frees; an op is one object", head, rows)
    print("\nkernel: 36M -> 13M operations a second with sheaves, 47.65% of the cycles in allocation")


def fresh(run: Runner) -> None:
    for untouched in (False, True):
        rows = []
        for size, seed in BATCHES.items():
            for batch in (seed, 0):
                common = f"fresh --size {size} --rounds 3{f' --batch {batch}' if batch else ''}"
                common += " --untouched" if untouched else ""
                key = "ratio" if untouched else "ns_per_op"
                plain, mixed = run.best("bench-columns", [common, f"{common} --random"], 64 if untouched else 256, key)
                cells = [f"{float(one[field]):.2f}" for one in (plain, mixed) for field in ("ns_per_op", "beside", "ratio")]
                kernel = [f"{value:.2f}" for value in KERNEL_FRESH[size]] if batch else ["", ""]
                rows.append([str(size), str(plain["batch"]), *cells, *kernel])
        head = ["bytes", "batch", "ns", "beside", "ratio", "random, ns", "beside", "ratio", "kernel, ns", "kernel random, ns"]
        beside = "touching new memory" if untouched else "writing the addresses"
        table(f"B5: fresh slabs on {'un' if untouched else ''}touched memory, beside {beside}", head, rows)


PARTS = {"batch": batches, "deferred": deferred, "cross": cross, "fresh": fresh, "slots": slots}


def main() -> None:
    parser = argparse.ArgumentParser(prog="tables.py", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; default: all")
    parser.add_argument("--programs", type=Path, default=Path("build/bench/seeds"), help="directory with bench-columns")
    parser.add_argument("--rounds", type=int, default=3, help="processes of each column, interleaved (default: 3)")
    parser.add_argument("--scale", type=float, default=1, help="share of the operations, for a quick look")
    parser.add_argument("--export", type=Path, metavar="FILE.json", help="every run")
    options = parser.parse_args()
    if options.rounds < 1 or options.scale <= 0:
        parser.error("--rounds wants 1 or more, --scale a share above 0")
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    if not (options.programs / "bench-columns").exists():
        parser.error(f"{options.programs}: no bench-columns there; name bench/seeds of a build with --programs")
    run = Runner(options.programs, options.rounds, options.scale)
    for name, part in PARTS.items():
        if not options.parts or name in options.parts:
            part(run)
    if options.export:
        options.export.write_text(json.dumps({"schema_version": 1, "runs": run.all}, indent=1) + "\n")


if __name__ == "__main__":
    main()
