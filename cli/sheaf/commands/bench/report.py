"""Derive a report from outcomes: medians, ratios of Sheaf to each peer, geometric means, and notes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from sheaf.commands.bench.contestants import PLAIN, SUBJECT, Contestant
from sheaf.commands.bench.figures import ENOUGH, Ratio, geometric_mean, paired_ratio, spread
from sheaf.commands.bench.runs import Outcome, Result

SUITES = ("micro", "programs", "seeds", "real", "start", "rest", "command")
REST = "rest"  # the suite that measures resident memory at rest
AT_REST = "1 s"  # the moment after the last free at which memory at rest is compared
MANY = 12  # up to this many tests are listed by name
LITTLE_KIB = 8192  # memory at rest, program and libraries included, that is never a loss
TIME, MEMORY = "ns_per_op_median", "peak_rss_kib"


@dataclass(frozen=True)
class Row:
    """One test under one contestant: medians over the rounds."""

    suite: str
    test: str
    contestant: str
    ns_per_op: float
    ns_per_op_least: float
    spread: float
    cpu_us: float  # of all threads, in the timed part
    wall_us: float
    peak_rss_kib: float
    minor_faults: float
    time_ratio: Ratio | None  # subject's time to this one's; in the subject's own row to the fastest peer's
    memory_ratio: Ratio | None
    fastest: str  # the peer with the lowest median; empty if none was measured
    leanest: str
    timed: bool = True  # False if the test measures only memory; time_ratio is None then
    rest_rss_kib: float | None = None  # resident memory at rest; only in the suite rest
    rest_live_kib: float | None = None  # live memory at the same moment, a lower bound
    rest_ratio: Ratio | None = None
    least_resting: str = ""  # the peer with the lowest median of memory at rest


@dataclass(frozen=True)
class Mean:
    """Geometric means of one contestant over the tests of a suite that all contestants finished, relative to base_of()."""

    suite: str
    contestant: str
    tests: int
    time: float | None  # None if no test measures time
    memory: float
    cpu: float | None
    rest: float | None = None  # memory at rest; only in the suite rest


def series(runs: Sequence[Result], key: str) -> list[float]:
    """A measure in every round. Zeros become 1e-9, so that ratios exist."""
    return [max(float(run[key]), 1e-9) for run in runs]


def cpu_series(runs: Sequence[Result]) -> list[float]:
    """CPU time of the timed part in microseconds in every round, at least 1, since the kernel may count in ticks."""
    return [max(1.0, float(run["user_us"]) + float(run["system_us"])) for run in runs]


@dataclass(frozen=True)
class Moments:
    """Resident memory of one contestant at the named moments of a test."""

    test: str
    contestant: str
    names: list[str]
    kib: list[float]
    live_kib: list[float] = field(default_factory=list)  # empty if the test does not report it
    suite: str = ""


@dataclass(frozen=True)
class Findings:
    """The contents of a report."""

    rows: list[Row]
    moments: list[Moments]
    means: list[Mean]
    notes: list[str]


def subject_of(contestants: Sequence[Contestant]) -> str:
    """The contestant that is compared with the peers: Sheaf, or the last one if Sheaf does not take part."""
    names = [contestant.name for contestant in contestants]
    return SUBJECT if SUBJECT in names else names[-1]


def base_of(names: Sequence[str]) -> str:
    """The contestant to which means are relative: glibc, or the first one if glibc does not take part."""
    return PLAIN if PLAIN in names else names[0]


def peers_of(contestants: Sequence[Contestant]) -> list[str]:
    """All contestants except the subject and variants of Sheaf."""
    subject = subject_of(contestants)
    return [contestant.name for contestant in contestants if contestant.is_peer and contestant.name != subject]


def resting(runs: Sequence[Result], key: str = "rss_kib") -> list[float]:
    """Memory at rest (`key` rss_kib or live_kib) in every round; empty if a run does not report it."""
    found = []
    for run in runs:
        found += [float(p[key]) for p in run.get("memory", []) if p["moment"] == AT_REST and key in p]
    return found if len(found) == len(runs) else []


def best(outcome: Outcome, peers: Sequence[str], key: str) -> str:
    """The peer with the lowest median of a measure; empty if there is none."""
    return _lowest({name: series(outcome.runs[name], key) for name in peers if outcome.runs.get(name)})


def _lowest(values: dict[str, list[float]]) -> str:
    medians = {name: median(found) for name, found in values.items() if found}
    return min(medians, key=lambda name: medians[name]) if medians else ""


def _rest_ratio(outcome: Outcome, name: str, base: str) -> Ratio | None:
    own, other = (resting(outcome.runs.get(one, [])) for one in (name, base))
    return paired_ratio(own, other) if name != base and own and len(own) == len(other) else None


def _ratio(outcome: Outcome, name: str, base: str, key: str) -> Ratio | None:
    if not outcome.runs.get(name) or not outcome.runs.get(base) or name == base:
        return None
    return paired_ratio(series(outcome.runs[name], key), series(outcome.runs[base], key))


def rows_of(outcome: Outcome, contestants: Sequence[Contestant]) -> list[Row]:
    """The rows of one test in the order of the contestants, without those that failed."""
    subject, peers = subject_of(contestants), peers_of(contestants)
    fastest, leanest = best(outcome, peers, TIME), best(outcome, peers, MEMORY)
    rest = outcome.suites[:1] == (REST,)
    least = _lowest({peer: resting(outcome.runs.get(peer, [])) for peer in peers}) if rest else ""
    rows = []
    for name in (contestant.name for contestant in contestants if outcome.runs.get(contestant.name)):
        runs, own = outcome.runs[name], name == subject
        times = series(runs, TIME)
        kept, live = (resting(runs), resting(runs, "live_kib")) if rest else ([], [])
        rows.append(
            Row(
                suite=outcome.suites[0] if outcome.suites else "",
                test=outcome.test,
                contestant=name,
                ns_per_op=median(times),
                ns_per_op_least=min(series(runs, "ns_per_op_min")),
                spread=spread(times),
                cpu_us=median(cpu_series(runs)),
                wall_us=median(series(runs, "wall_us")),
                peak_rss_kib=median(series(runs, MEMORY)),
                minor_faults=median(float(run["minor_faults"]) for run in runs),
                time_ratio=_ratio(outcome, subject, fastest if own else name, TIME) if outcome.timed else None,
                memory_ratio=_ratio(outcome, subject, leanest if own else name, MEMORY),
                fastest=fastest if outcome.timed else "",
                leanest=leanest,
                timed=outcome.timed,
                rest_rss_kib=median(kept) if kept else None,
                rest_live_kib=median(live) if live else None,
                rest_ratio=_rest_ratio(outcome, subject, least if own else name) if rest else None,
                least_resting=least,
            )
        )
    return rows


def _complete(outcomes: Sequence[Outcome], names: Sequence[str], suites: Sequence[str]) -> list[Outcome]:
    """The tests of some suites that count in means and that all contestants finished."""
    return [
        outcome
        for outcome in outcomes
        if outcome.in_means and set(suites) & set(outcome.suites) and all(outcome.runs.get(name) for name in names)
    ]


def _means_over(label: str, complete: Sequence[Outcome], names: Sequence[str]) -> list[Mean]:
    """The means of all contestants over some tests. Tests that measure only memory do not count in the means of time."""
    base = base_of(names)
    timed = [outcome for outcome in complete if outcome.timed]
    at_rest = [o for o in complete if o.suites[:1] == (REST,) and all(resting(o.runs[name]) for name in names)]

    def mean(name: str, over: Sequence[Outcome], values: Callable[[Sequence[Result]], list[float]]) -> float | None:
        ratios = [median(values(o.runs[name])) / median(values(o.runs[base])) for o in over]
        return geometric_mean(ratios) if ratios else None

    return [
        Mean(
            label,
            name,
            len(complete),
            mean(name, timed, lambda runs: series(runs, TIME)),
            mean(name, complete, lambda runs: series(runs, MEMORY)) or 1.0,
            mean(name, timed, cpu_series),
            mean(name, at_rest, resting),
        )
        for name in names
    ]


def means(outcomes: Sequence[Outcome], contestants: Sequence[Contestant]) -> list[Mean]:
    """
    The means for each suite with more than one test, and for programs and real together. There are none with a single
    contestant, which would be compared with itself.
    """
    names = [contestant.name for contestant in contestants]
    found: list[Mean] = []
    if len(names) < 2:
        return found
    for label, suites in [*((suite, (suite,)) for suite in SUITES), ("programs+real", ("programs", "real"))]:
        complete = _complete(outcomes, names, suites)
        present = {suite for outcome in complete for suite in outcome.suites}
        if len(complete) > 1 and set(suites) <= present:
            found += _means_over(label, complete, names)
    return found


def verdicts(found: Sequence[Mean], contestants: Sequence[Contestant]) -> list[str]:
    """A line for each suite that compares the subject with the best peer in time and in memory."""
    subject, peers = subject_of(contestants), peers_of(contestants)
    said = []
    for suite in dict.fromkeys(mean.suite for mean in found):
        here = {mean.contestant: mean for mean in found if mean.suite == suite}
        others = [here[name] for name in peers if name in here]
        if subject not in here or not others:
            continue
        own = here[subject]
        measures = (("time", "time"), ("memory", "peak memory"), ("rest", "memory at rest"))
        parts = [_beside(own, others, key, what) for key, what in measures]
        *first, last = [part for part in parts if part]
        said.append(f"{suite}, {own.tests} tests: {subject} takes {' and '.join([', '.join(first), last] if first else [last])}")
    return said


def _beside(own: Mean, others: Sequence[Mean], key: str, what: str) -> str:
    """The ratio to the best of the others in one measure, in words; empty if a value is missing."""
    values = {mean.contestant: getattr(mean, key) for mean in others}
    if getattr(own, key) is None or None in values.values():
        return ""
    lowest = min(values, key=lambda name: values[name])
    return f"{getattr(own, key) / values[lowest]:.3f} of the {what} of {lowest}"


def losses(rows: Sequence[Row], subject: str, time: float = 1.05, memory: float = 1.2) -> list[str]:
    """
    The tests in which the subject exceeds the time or memory of the best peer by these factors, the worst first. Memory at
    rest counts only above LITTLE_KIB: 3 MiB instead of 2 is no loss.
    """
    found: list[tuple[float, str]] = []
    for row in (row for row in rows if row.contestant == subject):
        for ratio, most, what, peer in (
            (row.time_ratio, time, "time", row.fastest),
            (row.memory_ratio, memory, "peak memory", row.leanest),
            (row.rest_ratio if (row.rest_rss_kib or 0) > LITTLE_KIB else None, memory, "memory at rest", row.least_resting),
        ):
            if ratio and ratio.value > most:
                doubt = " (a tie)" if ratio.tie and ratio.count >= ENOUGH else ""
                found.append((ratio.value / most, f"{row.test}: {ratio.value:.2f} of the {what} of {peer}{doubt}"))
    return [line for _, line in sorted(found, reverse=True)]


def notes(outcomes: Sequence[Outcome]) -> list[str]:
    """Warnings about the results: too few rounds, other load, failures."""
    said = []
    rounds = [len(runs) for outcome in outcomes for runs in outcome.runs.values()]
    if rounds and min(rounds) < ENOUGH:
        said.append(f"fewer than {ENOUGH} rounds: no ratio can be distinguished from noise ('?')")
    disturbed = [outcome for outcome in outcomes if outcome.disturbed]
    if disturbed:
        most = max(max(outcome.other_cpus) for outcome in disturbed)
        counts = ", ".join(f"{outcome.test} {outcome.disturbed} of {len(outcome.other_cpus)}" for outcome in disturbed[:MANY])
        if len(disturbed) > MANY:
            counts = f"{sum(o.disturbed for o in disturbed)} in {len(disturbed)} of {len(outcomes)} tests"
        said.append(f"rounds disturbed by other load (up to {most:.2f} CPUs): {counts}")
    for outcome in outcomes:
        said += [f"{outcome.test}: {name} failed: {reason}" for name, reason in outcome.failures.items()]
    return said


def moments_of(outcome: Outcome, contestants: Sequence[Contestant]) -> list[Moments]:
    """Medians over the rounds at the named moments; empty if the test has none."""
    found = []
    for name in (contestant.name for contestant in contestants):
        runs = [run for run in outcome.runs.get(name, []) if run.get("memory")]
        if not runs:
            continue
        marked = [i for i, point in enumerate(runs[0]["memory"]) if point["moment"]]
        names = [runs[0]["memory"][i]["moment"] for i in marked]
        kib = [median(float(run["memory"][i]["rss_kib"]) for run in runs) for i in marked]
        live = [median(float(run["memory"][i].get("live_kib", 0)) for run in runs) for i in marked]
        live = live if all("live_kib" in point for point in runs[0]["memory"]) else []
        found.append(Moments(outcome.test, name, names, kib, live, outcome.suites[0] if outcome.suites else ""))
    return found


def findings(outcomes: Sequence[Outcome], contestants: Sequence[Contestant]) -> Findings:
    """The findings of a finished run."""
    return Findings(
        [row for outcome in outcomes for row in rows_of(outcome, contestants)],
        [moments for outcome in outcomes for moments in moments_of(outcome, contestants)],
        means(outcomes, contestants),
        notes(outcomes),
    )
