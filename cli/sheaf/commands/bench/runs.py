"""Run tests in rounds, each contestant once per round in random order. Rounds disturbed by other load are repeated."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sheaf.commands.bench.contestants import PLAIN, Contestant
from sheaf.commands.bench.figures import shuffled
from sheaf.commands.bench.load import LoadMeter, wait_for_quiet
from sheaf.errors import SheafError

# Keys in the result of every kind of test; some kinds have more.
KEYS = ("ns_per_op_min", "ns_per_op_median", "peak_rss_kib", "minor_faults", "wall_us", "user_us", "system_us")

Result = dict[str, Any]
Say = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Test:
    """
    A test that runs with one contestant and a time limit in seconds. `together` runs it with all contestants at once, for
    tests that interleave them themselves.
    """

    name: str
    suites: tuple[str, ...]
    what: str
    run: Callable[[Contestant, float], Result]
    together: Callable[[Sequence[Contestant], float], dict[str, Result]] | None = None
    in_means: bool = True
    warm_up: bool = False  # run once with glibc before the first round, so that files are in the page cache


@dataclass(frozen=True)
class Plan:
    """The options of the measurement."""

    rounds: int
    retries: int  # maximum repetitions of one round under other load
    load_limit: float  # accepted load by other processes, in CPUs
    wait_s: float  # maximum wait for the load to end before a repetition
    timeout_s: float  # for one run
    seed: int = 0  # of the order within rounds


@dataclass
class Outcome:
    """The results of one test: by contestant a run for each round, or the reason of its failure."""

    test: str
    suites: tuple[str, ...] = ()
    what: str = ""
    in_means: bool = True
    runs: dict[str, list[Result]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    repeated: int = 0
    disturbed: int = 0  # rounds that were kept despite other load
    other_cpus: list[float] = field(default_factory=list)

    @property
    def timed(self) -> bool:
        """Whether the test measures time."""
        return all(timed(run) for runs in self.runs.values() for run in runs)


def timed(run: Result) -> bool:
    """Whether the run measures time, not only memory."""
    return run.get("timing") != "none"


def _one_pass(test: Test, contestants: Sequence[Contestant], plan: Plan, outcome: Outcome) -> tuple[dict[str, Result], float]:
    """Run every contestant that has not failed once. Returns the results and the other load meanwhile, in CPUs."""
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
    """Whether other load matters, which does not affect results that measure only memory."""
    return all(timed(result) for result in results.values())


def run_round(test: Test, contestants: Sequence[Contestant], plan: Plan, outcome: Outcome) -> None:
    """Add a round to the outcome: the first undisturbed pass, or after all retries the pass with the least other load."""
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
    """Run the test once with glibc. A failure is ignored here, because the first round reports it."""
    if test.warm_up:
        with contextlib.suppress(SheafError):
            test.run(Contestant(PLAIN), plan.timeout_s)


def run_all(tests: Sequence[Test], contestants: Sequence[Contestant], plan: Plan, say: Say) -> list[Outcome]:
    """
    Run all rounds. Each round runs all tests, so that slow changes of the machine affect all tests alike. An interrupt ends
    the measurement early. `say` is called before each test with round, index and name.
    """
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
