"""From outcomes to rows: medians, ratios of Sheaf to each peer, geometric means, and what is worth a remark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from sheaf.bench.contestants import PLAIN, SUBJECT, Contestant
from sheaf.bench.figures import ENOUGH, Ratio, geometric_mean, paired_ratio, spread
from sheaf.bench.runs import Outcome, Result

SUITES = ("micro", "programs", "seeds", "real", "start", "command")
MANY = 12  # what is named one by one
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
    cpu_us: float  # of the timed part, all threads
    wall_us: float
    peak_rss_kib: float
    minor_faults: float
    time_ratio: Ratio | None  # the subject's time to this one's; on the subject's own row to the best peer's
    memory_ratio: Ratio | None
    fastest: str  # peer with the lowest median, empty where none was measured
    leanest: str


@dataclass(frozen=True)
class Mean:
    """Geometric means of one contestant over the tests of a suite that everybody finished; glibc is 1."""

    suite: str
    contestant: str
    tests: int
    time: float
    memory: float
    cpu: float


def series(runs: Sequence[Result], key: str) -> list[float]:
    """One value for each round, positive so that ratios exist."""
    return [max(float(run[key]), 1e-9) for run in runs]


def cpu_series(runs: Sequence[Result]) -> list[float]:
    """CPU time of the timed part; the kernel counts it in ticks at the coarsest."""
    return [max(1.0, float(run["user_us"]) + float(run["system_us"])) for run in runs]


@dataclass(frozen=True)
class Moments:
    """Resident memory of one contestant at the moments that a test names."""

    test: str
    contestant: str
    names: list[str]
    kib: list[float]


@dataclass(frozen=True)
class Findings:
    """What a report shows of its runs; everything else in it follows from this."""

    rows: list[Row]
    moments: list[Moments]
    means: list[Mean]
    notes: list[str]


def subject_of(contestants: Sequence[Contestant]) -> str:
    """Whom the ratios are about: Sheaf, or whoever comes last where it does not take part."""
    names = [contestant.name for contestant in contestants]
    return SUBJECT if SUBJECT in names else names[-1]


def peers_of(contestants: Sequence[Contestant]) -> list[str]:
    """All but the subject and its variants."""
    subject = subject_of(contestants)
    return [contestant.name for contestant in contestants if contestant.is_peer and contestant.name != subject]


def best(outcome: Outcome, peers: Sequence[str], key: str) -> str:
    """The peer with the lowest median."""
    medians = {name: median(series(outcome.runs[name], key)) for name in peers if outcome.runs.get(name)}
    return min(medians, key=lambda name: medians[name]) if medians else ""


def _ratio(outcome: Outcome, name: str, base: str, key: str) -> Ratio | None:
    if not outcome.runs.get(name) or not outcome.runs.get(base) or name == base:
        return None
    return paired_ratio(series(outcome.runs[name], key), series(outcome.runs[base], key))


def rows_of(outcome: Outcome, contestants: Sequence[Contestant]) -> list[Row]:
    """In the order of the contestants; who failed has none."""
    subject, peers = subject_of(contestants), peers_of(contestants)
    fastest, leanest = best(outcome, peers, TIME), best(outcome, peers, MEMORY)
    rows = []
    for name in (contestant.name for contestant in contestants if outcome.runs.get(contestant.name)):
        runs, own = outcome.runs[name], name == subject
        times = series(runs, TIME)
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
                time_ratio=_ratio(outcome, subject, fastest if own else name, TIME),
                memory_ratio=_ratio(outcome, subject, leanest if own else name, MEMORY),
                fastest=fastest,
                leanest=leanest,
            )
        )
    return rows


def _complete(outcomes: Sequence[Outcome], names: Sequence[str], suites: Sequence[str]) -> list[Outcome]:
    return [
        outcome
        for outcome in outcomes
        if outcome.in_means and set(suites) & set(outcome.suites) and all(outcome.runs.get(name) for name in names)
    ]


def _means_over(label: str, complete: Sequence[Outcome], names: Sequence[str]) -> list[Mean]:
    base = PLAIN if PLAIN in names else names[0]

    def mean(name: str, key: str) -> float:
        return geometric_mean([median(series(o.runs[name], key)) / median(series(o.runs[base], key)) for o in complete])

    def cpu(name: str) -> float:
        return geometric_mean([median(cpu_series(o.runs[name])) / median(cpu_series(o.runs[base])) for o in complete])

    return [Mean(label, name, len(complete), mean(name, TIME), mean(name, MEMORY), cpu(name)) for name in names]


def means(outcomes: Sequence[Outcome], contestants: Sequence[Contestant]) -> list[Mean]:
    """For each suite with more than one test; written and real programs together too."""
    names = [contestant.name for contestant in contestants]
    found: list[Mean] = []
    for label, suites in [*((suite, (suite,)) for suite in SUITES), ("programs+real", ("programs", "real"))]:
        complete = _complete(outcomes, names, suites)
        present = {suite for outcome in complete for suite in outcome.suites}
        if len(complete) > 1 and set(suites) <= present:
            found += _means_over(label, complete, names)
    return found


def verdicts(found: Sequence[Mean], contestants: Sequence[Contestant]) -> list[str]:
    """The subject against the fastest and the leanest single peer of each suite."""
    subject, peers = subject_of(contestants), peers_of(contestants)
    said = []
    for suite in dict.fromkeys(mean.suite for mean in found):
        here = {mean.contestant: mean for mean in found if mean.suite == suite}
        others = [here[name] for name in peers if name in here]
        if subject not in here or not others:
            continue
        own, fastest = here[subject], min(others, key=lambda mean: mean.time)
        leanest = min(others, key=lambda mean: mean.memory)
        said.append(
            f"{suite}, {own.tests} tests: {subject} takes {own.time / fastest.time:.3f} of the time of {fastest.contestant} "
            f"and {own.memory / leanest.memory:.3f} of the peak memory of {leanest.contestant}"
        )
    return said


def losses(rows: Sequence[Row], subject: str, time: float = 1.05, memory: float = 1.2) -> list[str]:
    """Lines on which the subject takes more than these factors of the best peer's time or memory, the worst first."""
    found: list[tuple[float, str]] = []
    for row in (row for row in rows if row.contestant == subject):
        for ratio, most, what, peer in (
            (row.time_ratio, time, "time", row.fastest),
            (row.memory_ratio, memory, "peak memory", row.leanest),
        ):
            if ratio and ratio.value > most:
                doubt = " (a tie)" if ratio.tie and ratio.count >= ENOUGH else ""
                found.append((ratio.value / most, f"{row.test}: {ratio.value:.2f} of the {what} of {peer}{doubt}"))
    return [line for _, line in sorted(found, reverse=True)]


def notes(outcomes: Sequence[Outcome]) -> list[str]:
    """What a reader has to know before believing a line."""
    said = []
    rounds = [len(runs) for outcome in outcomes for runs in outcome.runs.values()]
    if rounds and min(rounds) < ENOUGH:
        said.append(f"fewer than {ENOUGH} rounds: nothing here can be told from noise ('?')")
    disturbed = [outcome for outcome in outcomes if outcome.disturbed]
    if disturbed:
        most = max(max(outcome.other_cpus) for outcome in disturbed)
        counts = ", ".join(f"{outcome.test} {outcome.disturbed} of {len(outcome.other_cpus)}" for outcome in disturbed[:MANY])
        if len(disturbed) > MANY:
            counts = f"{sum(o.disturbed for o in disturbed)} in {len(disturbed)} of {len(outcomes)} tests"
        said.append(f"rounds with other load on the machine (up to {most:.2f} CPUs): {counts}")
    for outcome in outcomes:
        said += [f"{outcome.test}: {name} failed: {reason}" for name, reason in outcome.failures.items()]
    return said


def moments_of(outcome: Outcome, contestants: Sequence[Contestant]) -> list[Moments]:
    """Medians over the rounds; empty where the test names no moments."""
    found = []
    for name in (contestant.name for contestant in contestants):
        runs = [run for run in outcome.runs.get(name, []) if run.get("memory")]
        if not runs:
            continue
        marked = [i for i, point in enumerate(runs[0]["memory"]) if point["moment"]]
        names = [runs[0]["memory"][i]["moment"] for i in marked]
        kib = [median(float(run["memory"][i]["rss_kib"]) for run in runs) for i in marked]
        found.append(Moments(outcome.test, name, names, kib))
    return found


def findings(outcomes: Sequence[Outcome], contestants: Sequence[Contestant]) -> Findings:
    """Of a finished run."""
    return Findings(
        [row for outcome in outcomes for row in rows_of(outcome, contestants)],
        [moments for outcome in outcomes for moments in moments_of(outcome, contestants)],
        means(outcomes, contestants),
        notes(outcomes),
    )
