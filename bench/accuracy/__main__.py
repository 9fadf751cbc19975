"""Compare the figures of heap profiles with what programs hold, as they say themselves.

Each program runs once for each profiler in each round, in changing order. The table has, in MB of 10^6 bytes: the truth; the
least, the median and the largest estimate; the median of the errors (±) and in how many runs the truth was within the error,
within half of it, and within 15% of the estimate's target. Deviations of less than a thousandth of what the program holds
count as none.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from figures import Summary, summary, table
from profilers import PEERS, Profiler, Sheaf
from running import Failed
from subjects import SUBJECTS, Measured, unavailable


def processor() -> str:
    """The CPU as the kernel names it, with family and model, because virtual machines have vague names."""
    fields = dict(line.split("\t: ", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if "\t: " in line)
    known = {name.strip(): value.strip() for name, value in fields.items()}
    return ", ".join(
        f"{word}{known[name]}"
        for name, word in (("model name", ""), ("cpu family", "family "), ("model", "model "))
        if name in known
    )


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="accuracy.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("build", type=Path, metavar="BUILD", help="build directory")
    parser.add_argument("--runs", type=int, choices=range(1, 1001), default=20, metavar="N", help="number of runs (default: 20)")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=SUBJECTS,
        default=list(SUBJECTS),
        metavar="NAME",
        help=f"only these programs, of {', '.join(SUBJECTS)}",
    )
    parser.add_argument("--peers", action="store_true", help="also jemalloc's and tcmalloc's profilers")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all runs to FILE")
    return parser.parse_args()


def usable(names: list[str], profilers: list[Profiler], build: Path) -> tuple[list[str], list[Profiler]]:
    """The programs and profilers that exist; the others are named on standard error."""
    missing = {name: reason for name in names if (reason := unavailable(name, build))}
    missing |= {profiler.name: reason for profiler in profilers if (reason := profiler.missing())}
    for name, reason in missing.items():
        print(f"accuracy.py: {name} is left out: {reason}", file=sys.stderr)
    return [name for name in names if name not in missing], [one for one in profilers if one.name not in missing]


def once(name: str, profiler: Profiler, turn: int) -> list[Measured] | None:
    """The figures of one run; None if it failed, which standard error says."""
    with TemporaryDirectory(prefix="accuracy-") as directory:
        try:
            return list(SUBJECTS[name](profiler, Path(directory)))
        except Failed as error:
            print(f"accuracy.py: run {turn + 1} of {name} with {profiler.name}: {error}", file=sys.stderr)
            return None


def measure(names: list[str], profilers: list[Profiler], runs: int) -> tuple[dict[tuple[str, str], list[Measured]], int]:
    """All figures by row and profiler, and the number of runs that failed. Ctrl-C ends the measurement earlier."""
    found: dict[tuple[str, str], list[Measured]] = {}
    failures = 0
    try:
        for turn in range(runs):
            order = profilers[turn % len(profilers) :] + profilers[: turn % len(profilers)]
            for name, profiler in ((name, profiler) for name in names for profiler in order):
                made = once(name, profiler, turn)
                failures += made is None
                for one in made or []:
                    found.setdefault((one.row, profiler.name), []).append(one)
            if sys.stderr.isatty():
                print(f"\r{turn + 1} of {runs} runs", end="\n" if turn + 1 == runs else "", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print("accuracy.py: stopped; the table has the runs so far", file=sys.stderr)
    return found, failures


def export(file: Path, found: dict[tuple[str, str], list[Measured]], summaries: list[Summary]) -> None:
    """Write the table and all runs as JSON."""
    rows = [
        asdict(one)
        | {
            "runs": [
                {"truth": run.truth, "bytes": run.figure.bytes, "error": run.figure.error} for run in found[one.row, one.profiler]
            ]
        }
        for one in summaries
    ]
    file.write_text(json.dumps({"cpu": processor(), "rows": rows}, indent=1) + "\n")


def main() -> int:
    """Returns 1 if a run failed, or if nothing could run."""
    options = arguments()
    build = options.build.resolve()
    profilers: list[Profiler] = [Sheaf(build), *(peer(build) for peer in PEERS if options.peers)]
    names, profilers = usable(options.only, profilers, build)
    if not names or not profilers:
        return 1
    found, failures = measure(names, profilers, options.runs)
    rows = dict.fromkeys(row for row, _ in found)
    summaries = [summary(one.name, found[row, one.name]) for row in rows for one in profilers if (row, one.name) in found]
    print(f"{processor()}; MB of 10^6 bytes")
    print(table(summaries))
    if options.json:
        export(options.json, found, summaries)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
