"""Runs tests in rounds: every contestant once in each, in random order, again while the machine does other things."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sheaf.bench.contestants import PLAIN, Contestant
from sheaf.bench.figures import shuffled
from sheaf.bench.load import LoadMeter, wait_for_quiet
from sheaf.errors import SheafError

# What every run says of itself, whatever kind of test made it; kinds may say more.
KEYS = ("ns_per_op_min", "ns_per_op_median", "peak_rss_kib", "minor_faults", "wall_us", "user_us", "system_us")

Result = dict[str, Any]
Say = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Test:
    """Something that can be run under one contestant; `together` takes all of them at once where rounds are finer still."""

    name: str
    suites: tuple[str, ...]
    what: str
    run: Callable[[Contestant, float], Result]
    together: Callable[[Sequence[Contestant], float], dict[str, Result]] | None = None
    in_means: bool = True
    warm_up: bool = False  # once plain, before the first round: files come from the page cache in all that count


@dataclass(frozen=True)
class Plan:
    """How it is measured."""

    rounds: int
    retries: int  # repetitions of one round at most, while other load is seen
    load_limit: float  # in CPUs
    wait_s: float  # for the load to go, before a repetition
    timeout_s: float
    seed: int = 0  # of the order within rounds


@dataclass
class Outcome:
    """All that is known of one test: runs by contestant, one for each round, and what went wrong."""

    test: str
    suites: tuple[str, ...] = ()
    what: str = ""
    in_means: bool = True
    runs: dict[str, list[Result]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    repeated: int = 0
    disturbed: int = 0  # rounds that were kept in spite of other load
    other_cpus: list[float] = field(default_factory=list)

    @property
    def timed(self) -> bool:
        """Whether its times are worth a comparison."""
        return all(timed(run) for runs in self.runs.values() for run in runs)


def timed(run: Result) -> bool:
    """False for a test that is about memory alone."""
    return run.get("timing") != "none"


def _one_pass(test: Test, contestants: Sequence[Contestant], plan: Plan, outcome: Outcome) -> tuple[dict[str, Result], float]:
    """Every contestant that has not failed yet, once; with the other load seen meanwhile."""
    results: dict[str, Result] = {}
    meter = LoadMeter()
    left = [contestant for contestant in contestants if contestant.name not in outcome.failures]
    if test.together and left:
        try:
            results = test.together(left, plan.timeout_s)
        except SheafError as error:
            outcome.failures.update((contestant.name, error.message) for contestant in left)
        return results, meter.other_cpus()
    for contestant in left:
        try:
            results[contestant.name] = test.run(contestant, plan.timeout_s)
        except SheafError as error:
            outcome.failures[contestant.name] = error.message
    return results, meter.other_cpus()


def _times(results: dict[str, Result]) -> bool:
    """Whether other load matters: what stays resident does not depend on it."""
    return all(timed(result) for result in results.values())


def run_round(test: Test, contestants: Sequence[Contestant], plan: Plan, outcome: Outcome) -> None:
    """The first undisturbed pass, or of the allowed ones that with the least other load."""
    best, least = _one_pass(test, contestants, plan, outcome)
    for _ in range(plan.retries):
        if least <= plan.load_limit or not _times(best):
            break
        outcome.repeated += 1
        wait_for_quiet(plan.load_limit, plan.wait_s)
        results, load = _one_pass(test, contestants, plan, outcome)
        if load < least:
            best, least = results, load
    outcome.disturbed += least > plan.load_limit and _times(best)
    outcome.other_cpus.append(round(least, 3))
    for name, result in best.items():
        outcome.runs.setdefault(name, []).append(result)


def _warm_up(test: Test, plan: Plan) -> None:
    """What fails here will fail again where it is told."""
    if test.warm_up:
        with contextlib.suppress(SheafError):
            test.run(Contestant(PLAIN), plan.timeout_s)


def run_all(tests: Sequence[Test], contestants: Sequence[Contestant], plan: Plan, say: Say) -> list[Outcome]:
    """Rounds outermost, so that a slow change of the machine meets all tests alike; an interrupt ends it early."""
    outcomes = [Outcome(test.name, test.suites, test.what, test.in_means) for test in tests]
    with contextlib.suppress(KeyboardInterrupt):
        for number in range(plan.rounds):
            order = shuffled(contestants, plan.seed, number)
            for place, (test, outcome) in enumerate(zip(tests, outcomes, strict=True)):
                say(number, place, test.name)
                if number == 0:
                    _warm_up(test, plan)
                run_round(test, order, plan, outcome)
    for outcome in outcomes:
        for name in outcome.failures:
            outcome.runs.pop(name, None)
    return outcomes
