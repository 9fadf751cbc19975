"""Runs tests in rounds: every contestant once in each, in rotated order, again while the machine does other things."""

import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contest.contestants import Contestant, fixed_environment
from contest.errors import ContestError
from contest.figures import rotated
from contest.load import LoadMeter, wait_for_quiet

KEYS = ("test", "ops", "ns_per_op_min", "ns_per_op_median", "peak_rss_kib", "minor_faults", "wall_us", "user_us")


@dataclass(frozen=True)
class Test:
    """A program and its arguments; it prints one line of JSON."""

    name: str
    command: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """How it is measured."""

    rounds: int
    retries: int  # repetitions of one round at most, while other load is seen
    load_limit: float  # in CPUs
    wait_s: float  # for the load to go, before a repetition
    timeout_s: float


@dataclass
class Outcome:
    """All that is known of one test: runs by contestant, one for each round, and what went wrong."""

    test: str
    runs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    repeated: int = 0
    disturbed: int = 0  # rounds that were kept in spite of other load
    other_cpus: list[float] = field(default_factory=list)


def parse_result(line: str, test: str) -> dict[str, Any]:
    """The one line that a bench program prints, checked."""
    try:
        result = json.loads(line)
    except ValueError:
        raise ContestError(f"{test}: the program printed no JSON ('{line[:60]}')") from None
    missing = [key for key in KEYS if key not in result]
    if missing:
        raise ContestError(f"{test}: no {', '.join(missing)} in the result; rebuild the benchmarks")
    return dict(result)


def run_once(test: Test, contestant: Contestant, timeout_s: float) -> dict[str, Any]:
    """One process. Fails with what happened, in words."""
    environment = {**fixed_environment(), **contestant.environment()}
    try:
        done = subprocess.run(test.command, env=environment, capture_output=True, text=True, check=False, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise ContestError(f"took more than {timeout_s:g} s") from None
    if done.returncode < 0:
        raise ContestError(f"killed by signal {-done.returncode}")
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise ContestError(said[-1] if said else f"exit status {done.returncode}")
    return parse_result(done.stdout, test.name)


def _one_pass(
    test: Test, contestants: Sequence[Contestant], plan: Plan, outcome: Outcome
) -> tuple[dict[str, dict[str, Any]], float]:
    """Every contestant that has not failed yet, once; with the other load seen meanwhile."""
    results: dict[str, dict[str, Any]] = {}
    meter = LoadMeter()
    for contestant in contestants:
        if contestant.name in outcome.failures:
            continue
        try:
            results[contestant.name] = run_once(test, contestant, plan.timeout_s)
        except ContestError as error:
            outcome.failures[contestant.name] = str(error)
    return results, meter.other_cpus()


def run_round(test: Test, contestants: Sequence[Contestant], plan: Plan, outcome: Outcome) -> None:
    """The first undisturbed pass, or of the allowed ones that with the least other load."""
    best, least = _one_pass(test, contestants, plan, outcome)
    for _ in range(plan.retries):
        if least <= plan.load_limit:
            break
        outcome.repeated += 1
        wait_for_quiet(plan.load_limit, plan.wait_s)
        results, load = _one_pass(test, contestants, plan, outcome)
        if load < least:
            best, least = results, load
    outcome.disturbed += least > plan.load_limit
    outcome.other_cpus.append(round(least, 3))
    for name, result in best.items():
        outcome.runs.setdefault(name, []).append(result)


def run_all(
    tests: Sequence[Test], contestants: Sequence[Contestant], plan: Plan, progress: Callable[[int, int, str], None]
) -> list[Outcome]:
    """Rounds outermost, so that a slow change of the machine meets all tests alike."""
    outcomes = [Outcome(test.name) for test in tests]
    for number in range(plan.rounds):
        order = rotated(contestants, number)
        for place, (test, outcome) in enumerate(zip(tests, outcomes, strict=True)):
            progress(number * len(tests) + place, plan.rounds * len(tests), f"round {number + 1}, {test.name}")
            run_round(test, order, plan, outcome)
    for outcome in outcomes:
        for name in outcome.failures:
            outcome.runs.pop(name, None)
    return outcomes


def micro_tests(micro: Path, ops: int | None, spread: bool) -> list[Test]:
    """All that bench-micro lists."""
    done = subprocess.run([micro, "--list"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ContestError(f"{micro}: --list failed; rebuild the benchmarks")
    options = (*(("--ops", str(ops)) if ops else ()), *(("--spread",) if spread else ()))
    names = [line.split("\t")[0] for line in done.stdout.splitlines()]
    return [Test(name, (str(micro), name, *options)) for name in names]
