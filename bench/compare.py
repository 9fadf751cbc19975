#!/usr/bin/env python3
"""Compares allocators over the micro benchmark: time, peak memory and page faults, in interleaved rounds."""

import argparse
import fnmatch
import json
import sys
import time
from pathlib import Path

from contest.build import Build, find_build
from contest.contestants import find_contestants, verify
from contest.errors import ContestError
from contest.machine import machine
from contest.report import exported, render
from contest.runs import Plan, Test, micro_tests, run_all

EXAMPLES = """\
examples:
  compare.py                                        every test, 5 rounds
  compare.py --tests 'pairs-*,batch-1000-*'         some of them
  compare.py --peer mimalloc=/opt/lib/libmimalloc.so.3
  compare.py --only glibc,sheaf --peer sheaf-small=build/preload/libsheaf-preload.so,SHEAF_CAPACITY=32
"""


def positive(text: str) -> int:
    """A whole number from 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1 on")
    return value


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="compare.py", description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = made.add_argument
    add("--build", type=Path, metavar="DIR", help="build directory (default: build here, else in the repository)")
    add("--sheaf", type=Path, metavar="PATH", help="preloaded object (default: the build directory's)")
    add("--peer", action="append", default=[], metavar="NAME=PATH[,VAR=VALUE...]", help="one more allocator")
    add("--only", default="", metavar="A,B", help="these allocators only")
    add("--tests", default="", metavar="A,B", help="these tests only; * and ? match (default: all)")
    add("--rounds", type=positive, default=5, metavar="N", help="runs of each test and allocator (default: 5)")
    add("--ops", type=positive, metavar="N", help="operations in a repetition (default: each test's own)")
    add("--spread", action="store_true", help="give each thread of a test a CPU of its own, in turn")
    add("--retries", type=int, default=3, metavar="N", help="repeat a round with other load so often (default: 3)")
    add("--load", type=float, default=0.15, metavar="CPUS", help="other load that is accepted (default: 0.15 CPUs)")
    add("--wait", type=float, default=10, metavar="S", help="wait so long for it to go before repeating (default: 10)")
    add("--timeout", type=float, default=120, metavar="S", help="most seconds for one run (default: 120)")
    add("--json", type=Path, metavar="FILE", help="write all runs and figures")
    add("--markdown", type=Path, metavar="FILE", help="write the tables")
    add("--list", action="store_true", help="name the tests and end")
    return made


def all_tests(build: Build, ops: int | None, spread: bool) -> list[Test]:
    """bench-micro's, and the one program that is a test of its own."""
    threads = ("--threads", str(max(ops, 2)), "--alive", "2", "--settle-ms", "1") if ops else ()
    return [*micro_tests(build.micro, ops, spread), Test("threads", (str(build.threads), *threads))]


def chosen(tests: list[Test], wanted: str) -> list[Test]:
    """Those that a pattern names, in the order of the list."""
    patterns = [pattern for pattern in wanted.split(",") if pattern]
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(test.name, pattern) for test in tests):
            raise ContestError(f"--tests {pattern}: no such test; see --list")
    return [test for test in tests if not patterns or any(fnmatch.fnmatchcase(test.name, p) for p in patterns)]


class Progress:
    """One line on a terminal, with the time left as the runs so far suggest; nothing elsewhere."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._shown = sys.stderr.isatty()

    def __call__(self, done: int, total: int, what: str) -> None:
        left = (time.monotonic() - self._start) / done * (total - done) if done else 0.0
        if self._shown:
            minutes, seconds = divmod(int(left), 60)
            print(f"\r\033[K{done}/{total} {what}, {minutes}:{seconds:02} left", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Clears the line."""
        if self._shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def write(path: Path, text: str) -> None:
    """Fails in one line."""
    try:
        path.write_text(text + "\n")
    except OSError as error:
        raise ContestError(f"{path}: {error.strerror}; choose another file") from None


def compare(options: argparse.Namespace) -> int:
    """Everything; returns the exit status: 1 when a run failed."""
    build = find_build(options.build)
    tests = chosen(all_tests(build, options.ops, options.spread), options.tests)
    if options.list:
        print("\n".join(test.name for test in tests))
        return 0
    only = [name for name in options.only.split(",") if name]
    contestants = find_contestants(options.sheaf or build.sheaf, options.sheaf is not None, options.peer, only)
    for contestant in contestants:
        verify(contestant, build.micro)

    progress = Progress()
    plan = Plan(options.rounds, options.retries, options.load, options.wait, options.timeout)
    try:
        outcomes = run_all(tests, contestants, plan, progress)
    finally:
        progress.end()
    print(render(outcomes, contestants, markdown=False))
    if options.json:
        write(options.json, json.dumps(exported(outcomes, contestants, machine(), sys.argv), indent=1))
    if options.markdown:
        write(options.markdown, render(outcomes, contestants, markdown=True))
    return 1 if any(outcome.failures for outcome in outcomes) else 0


def main() -> int:
    """Errors as one line."""
    try:
        return compare(parser().parse_args())
    except ContestError as error:
        print(f"compare.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
