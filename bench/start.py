#!/usr/bin/env python3
"""What starting a program costs under each allocator: time and peak resident memory, beside an empty preloaded object."""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from compare import positive, write
from contest.build import Build, find_build
from contest.contestants import Contestant, find_contestants, fixed_environment, verify
from contest.errors import ContestError
from contest.figures import median_interval
from contest.load import LoadMeter, wait_for_quiet
from contest.machine import machine
from contest.report import SCHEMA_VERSION, markdown_table, text_table

BLOCK = 50  # rounds between two looks at the machine's load


@dataclass
class Samples:
    """Of one contestant; the n-th of each list come from the same start, and from the n-th round."""

    name: str
    ns: list[int] = field(default_factory=list)
    maxrss_kib: list[int] = field(default_factory=list)
    minor_faults: list[int] = field(default_factory=list)


@dataclass
class Starts:
    """All that was measured of one program."""

    program: str
    launcher_kib: int = 0
    repeated: int = 0
    disturbed: int = 0
    samples: dict[str, Samples] = field(default_factory=dict)


@dataclass(frozen=True)
class StartRow:
    """Times in ns, memory in KiB."""

    contestant: str
    least: float
    median: float
    over_empty: float  # median of the differences within rounds
    over_empty_low: float
    over_empty_high: float
    peak_rss: float
    peak_over_plain: float
    minor_faults: float


def run_block(build: Build, contestants: Sequence[Contestant], rounds: int, command: Sequence[str]) -> dict[str, Any]:
    """Some rounds by the launcher, which takes the time itself."""
    sets: list[str] = []
    for contestant in contestants:
        variables = (f"{name}={value}" for name, value in contestant.environment().items())
        sets += ["--set", contestant.name, *(word for variable in variables for word in ("--env", variable))]
    launch = [str(build.start), "--rounds", str(rounds), "--warm-up", "3", *sets, "--", *command]
    done = subprocess.run(launch, env=fixed_environment(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ContestError((done.stderr.strip().splitlines() or [f"{build.start} failed"])[-1])
    return dict(json.loads(done.stdout))


def measure(build: Build, contestants: Sequence[Contestant], command: Sequence[str], options: argparse.Namespace) -> Starts:
    """Blocks of rounds; one that met other load is taken again, a bounded number of times."""
    starts = Starts(Path(command[0]).name)
    left, retries = options.rounds, options.retries
    while left > 0:
        rounds = min(left, BLOCK)
        meter = LoadMeter()
        block = run_block(build, contestants, rounds, command)
        if meter.other_cpus() > options.load:
            if retries > 0:
                retries -= 1
                starts.repeated += 1
                wait_for_quiet(options.load, options.wait)
                continue
            starts.disturbed += rounds
        left -= rounds
        starts.launcher_kib = max(starts.launcher_kib, block["launcher_kib"])
        for found in block["contestants"]:
            samples = starts.samples.setdefault(found["name"], Samples(found["name"]))
            samples.ns += found["ns"]
            samples.maxrss_kib += found["maxrss_kib"]
            samples.minor_faults += found["minor_faults"]
    return starts


def rows_of(starts: Starts) -> list[StartRow]:
    """In the order of the contestants; `plain` and `empty` are always among them."""
    plain, empty = starts.samples["plain"], starts.samples["empty"]
    rows = []
    for samples in starts.samples.values():
        over = [ns - base for ns, base in zip(samples.ns, empty.ns, strict=True)]
        low, high = median_interval(over)
        rows.append(
            StartRow(
                contestant=samples.name,
                least=min(samples.ns),
                median=median(samples.ns),
                over_empty=median(over),
                over_empty_low=low,
                over_empty_high=high,
                peak_rss=median(samples.maxrss_kib),
                peak_over_plain=median(samples.maxrss_kib) - median(plain.maxrss_kib),
                minor_faults=median(samples.minor_faults),
            )
        )
    return rows


HEADINGS = ("allocator", "least ms", "median ms", "over empty ms", "(90%)", "peak KiB", "over plain", "faults")


def lines_of(starts: Starts) -> list[list[str]]:
    """As cells."""
    return [
        [
            row.contestant,
            f"{row.least / 1e6:.3f}",
            f"{row.median / 1e6:.3f}",
            f"{row.over_empty / 1e6:+.3f}",
            f"{row.over_empty_low / 1e6:+.3f}..{row.over_empty_high / 1e6:+.3f}",
            f"{row.peak_rss:.0f}",
            f"{row.peak_over_plain:+.0f}",
            f"{row.minor_faults:.0f}",
        ]
        for row in rows_of(starts)
    ]


def render(all_starts: Sequence[Starts], markdown: bool) -> str:
    """A table for each program."""
    table = markdown_table if markdown else text_table
    parts = []
    for starts in all_starts:
        rounds = len(starts.samples["plain"].ns)
        parts.append(f"Starting {starts.program}, {rounds} rounds:\n\n" + table(HEADINGS, lines_of(starts), 1))
        if starts.disturbed:
            parts.append(f"{starts.disturbed} of these rounds had other load on the machine.")
        if min(row.peak_rss for row in rows_of(starts)) <= starts.launcher_kib:
            parts.append(f"The launcher's own {starts.launcher_kib} KiB hide the peaks: link bench-start statically.")
    return "\n\n".join(parts)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="start.py", description=__doc__)
    add = made.add_argument
    add("--build", type=Path, metavar="DIR", help="build directory (default: build here, else in the repository)")
    add("--sheaf", type=Path, metavar="PATH", help="preloaded object (default: the build directory's)")
    add("--peer", action="append", default=[], metavar="NAME=PATH[,VAR=VALUE...]", help="one more allocator")
    add("--only", default="", metavar="A,B", help="these allocators only, beside plain and empty")
    add("--rounds", type=positive, default=300, metavar="N", help="starts of each (default: 300)")
    add("--retries", type=int, default=6, metavar="N", help="repeat a block with other load so often (default: 6)")
    add("--load", type=float, default=0.15, metavar="CPUS", help="other load that is accepted (default: 0.15 CPUs)")
    add("--wait", type=float, default=10, metavar="S", help="wait so long for it to go before repeating (default: 10)")
    add("--json", type=Path, metavar="FILE", help="write all samples and figures")
    add("--markdown", type=Path, metavar="FILE", help="write the tables")
    add("command", nargs="*", help="a program and its arguments (default: /bin/true, then bench-hundred)")
    return made


def exported(all_starts: Sequence[Starts], contestants: Sequence[Contestant]) -> dict[str, Any]:
    """All samples and all figures."""
    return {
        "schema_version": SCHEMA_VERSION,
        "command": sys.argv,
        "machine": machine(),
        "contestants": [
            {"name": contestant.name, "path": str(contestant.path or ""), "version": contestant.version}
            for contestant in contestants
        ],
        "programs": [{**asdict(starts), "rows": [asdict(row) for row in rows_of(starts)]} for starts in all_starts],
    }


def start(options: argparse.Namespace) -> int:
    """Everything."""
    build = find_build(options.build)
    only = [name for name in options.only.split(",") if name]
    found = find_contestants(options.sheaf or build.sheaf, options.sheaf is not None, options.peer, only)
    for contestant in found:
        verify(contestant, build.micro)
    yardsticks = [Contestant("plain"), Contestant("empty", build.empty)]
    contestants = [*yardsticks, *(contestant for contestant in found if contestant.name != "glibc")]
    commands = [options.command] if options.command else [["/bin/true"], [str(build.hundred)]]

    all_starts = [measure(build, contestants, command, options) for command in commands]
    print(render(all_starts, markdown=False))
    if options.json:
        write(options.json, json.dumps(exported(all_starts, contestants), indent=1))
    if options.markdown:
        write(options.markdown, render(all_starts, markdown=True))
    return 0


def main() -> int:
    """Errors as one line."""
    try:
        return start(parser().parse_args())
    except ContestError as error:
        print(f"start.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
