"""Tests implemented by the benchmark programs, each of which prints its result as a line of JSON; and starts of programs."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from sheaf.commands.bench.contestants import Contestant, fixed_environment
from sheaf.commands.bench.programs import Programs
from sheaf.commands.bench.runs import KEYS, Result, Test
from sheaf.errors import SheafError

# Few programs behave like these tests. They are shown, but do not count in the means.
NOT_IN_MEANS = frozenset({"producer-consumer-blind"})
LIST_S = 60
STARTS = 30  # starts for each contestant in a round
EMPTY = "empty"  # a preloaded object without code, to which over_empty_ns is relative


def parse_result(line: str, test: str) -> Result:
    """Parse the line that a benchmark program prints. Raises SheafError if keys are missing."""
    try:
        result = json.loads(line)
    except ValueError:
        raise SheafError(f"{test}: the program printed no JSON ('{line[:60]}'); rebuild the benchmarks") from None
    missing = [key for key in KEYS if key not in result]
    if missing:
        raise SheafError(f"{test}: the result lacks {', '.join(missing)}; rebuild the benchmarks")
    return dict(result)


def _run_group(command: Sequence[str], environment: dict[str, str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run a command. At the timeout its whole process group is killed, because a hung child would disturb later runs."""
    with subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=timeout_s)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def captured(command: Sequence[str], environment: dict[str, str], timeout_s: float) -> str:
    """Standard output of a command. Raises SheafError with the reason if it fails or exceeds the timeout."""
    try:
        done = _run_group(command, environment, timeout_s)
    except subprocess.TimeoutExpired:
        raise SheafError(f"took more than {timeout_s:g} s") from None
    except OSError as error:
        raise SheafError(f"{command[0]}: {error.strerror}") from None
    if done.returncode < 0:
        raise SheafError(f"killed by signal {-done.returncode}")
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise SheafError(said[-1] if said else f"exit status {done.returncode}")
    return done.stdout


def run_native(command: Sequence[str], name: str, contestant: Contestant, timeout_s: float) -> Result:
    """Run a benchmark program once with a contestant; returns its result."""
    return parse_result(captured(command, {**fixed_environment(), **contestant.environment()}, timeout_s), name)


def native_test(name: str, suites: tuple[str, ...], what: str, command: Sequence[str | Path]) -> Test:
    """The test that runs a program which prints a result."""
    words = tuple(str(word) for word in command)
    return Test(name, suites, what, functools.partial(run_native, words, name), in_means=name not in NOT_IN_MEANS)


def listed_tests(program: Path, suite: str, ops: int | None, spread: bool) -> list[Test]:
    """All tests that a benchmark program lists."""
    try:
        listed = captured([str(program), "--list"], dict(os.environ), LIST_S)
    except SheafError as error:
        raise SheafError(f"{program}: --list failed ({error.message}); rebuild the benchmarks") from None
    options = (*(("--ops", str(ops)) if ops else ()), *(("--spread",) if spread else ()))
    rows = (line.partition("\t") for line in listed.splitlines())
    return [native_test(name, (suite,), what, (program, name, *options)) for name, _, what in rows]


def threads_test(programs: Programs, ops: int | None) -> Test:
    """The test of bench-threads, which is a program with a single test."""
    few = ("--threads", str(max(ops, 2)), "--alive", "2", "--settle-ms", "1") if ops else ()
    what = "20000 threads in total, 1000 at a time, each of which allocates; an op is one thread"
    return native_test("threads", ("micro",), what, (programs["bench-threads"], *few))


def _start_result(found: dict[str, list[int]], empty: list[int]) -> Result:
    ns = found["ns"]
    return {
        "ops": len(ns),
        "ns_per_op_min": min(ns),
        "ns_per_op_median": median(ns),
        "over_empty_ns": median(mine - base for mine, base in zip(ns, empty, strict=True)),
        "peak_rss_kib": median(found["maxrss_kib"]),
        "minor_faults": median(found["minor_faults"]),
        "wall_us": sum(ns) / 1000,
        "user_us": sum(found["user_us"]),
        "system_us": sum(found["system_us"]),
    }


def run_starts(
    programs: Programs, command: Sequence[str], starts: int, contestants: Sequence[Contestant], timeout_s: float
) -> dict[str, Result]:
    """Start a command with all contestants and the empty object, in rounds. bench-start measures the times."""
    sets: list[str] = []
    for contestant in [*contestants, Contestant(EMPTY, programs["libbench-empty.so"])]:
        variables = (f"{name}={value}" for name, value in contestant.environment().items())
        sets += ["--set", contestant.name, *(word for variable in variables for word in ("--env", variable))]
    launch = [str(programs["bench-start"]), "--rounds", str(starts), "--warm-up", "3", *sets, "--", *command]
    block = json.loads(captured(launch, fixed_environment(), timeout_s))
    samples = {found["name"]: found for found in block["contestants"]}
    return {name: _start_result(found, samples[EMPTY]["ns"]) for name, found in samples.items() if name != EMPTY}


def start_test(name: str, what: str, suites: tuple[str, ...], programs: Programs, program: Path, ops: int | None) -> Test:
    """The test that starts a program and waits for its end."""
    together = functools.partial(run_starts, programs, [str(program)], min(ops, STARTS) if ops else STARTS)

    def alone(contestant: Contestant, timeout_s: float) -> Result:
        return together([contestant], timeout_s)[contestant.name]

    return Test(name, suites, what, alone, together)


def native_tests(programs: Programs, ops: int | None, spread: bool) -> list[Test]:
    """All tests of the suites micro, programs, seeds, start and rest."""
    tests = listed_tests(programs["bench-micro"], "micro", ops, spread)
    if programs.has("bench-cxx"):
        tests += listed_tests(programs["bench-cxx"], "micro", ops, spread)
    tests.append(threads_test(programs, ops))
    what = "start /bin/true and wait for its end; an op is one start"
    tests.append(start_test("start-true", what, ("micro", "start"), programs, Path("/bin/true"), ops))
    what = "start a program that makes a hundred allocations; an op is one start"
    tests.append(start_test("start-hundred", what, ("start",), programs, programs["bench-hundred"], ops))
    tests += listed_tests(programs["bench-programs"], "programs", ops, spread=False)
    if programs.has("bench-index"):
        tests += listed_tests(programs["bench-index"], "programs", ops, spread=False)
    tests += listed_tests(programs["bench-seeds"], "seeds", ops, spread=False)
    tests += listed_tests(programs["bench-rest"], "rest", ops, spread=False)
    return tests
