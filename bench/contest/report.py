"""From outcomes to rows, and from rows to text, Markdown and JSON."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from contest.contestants import SUBJECT, Contestant
from contest.figures import Ratio, geometric_mean, paired_ratio, spread
from contest.runs import Outcome

SCHEMA_VERSION = 1

# A line that few programs resemble may be shown, but would flatter an allocator in a mean.
NOT_IN_MEANS = frozenset({"producer-consumer-blind"})


@dataclass(frozen=True)
class Row:
    """One test under one contestant: medians over the rounds."""

    test: str
    contestant: str
    ns_per_op: float
    ns_per_op_least: float
    spread: float
    best_peer: str
    to_best: Ratio | None
    to_glibc: Ratio | None
    to_mimalloc: Ratio | None
    cpus: float
    peak_rss_kib: float
    minor_faults: float


def _series(runs: Sequence[dict[str, Any]], key: str) -> list[float]:
    return [float(run[key]) for run in runs]


def _cpus(runs: Sequence[dict[str, Any]]) -> float:
    """CPUs kept busy on average: near 1 where threads should have run side by side, they did not."""
    return median((float(run["user_us"]) + float(run["system_us"])) / max(1.0, float(run["wall_us"])) for run in runs)


def best_peer(outcome: Outcome, peers: Sequence[str]) -> str:
    """The peer with the lowest median; empty where none was measured."""
    medians = {name: median(_series(outcome.runs[name], "ns_per_op_median")) for name in peers if name in outcome.runs}
    return min(medians, key=lambda name: medians[name]) if medians else ""


def rows_of(outcome: Outcome, contestants: Sequence[Contestant]) -> list[Row]:
    """In the order of the contestants; who failed has none."""
    times = {name: _series(runs, "ns_per_op_median") for name, runs in outcome.runs.items()}
    best = best_peer(outcome, [contestant.name for contestant in contestants if contestant.is_peer])

    def ratio(name: str, base: str) -> Ratio | None:
        return paired_ratio(times[name], times[base]) if base in times else None

    rows = []
    for name in (contestant.name for contestant in contestants if contestant.name in times):
        runs = outcome.runs[name]
        rows.append(
            Row(
                test=outcome.test,
                contestant=name,
                ns_per_op=median(times[name]),
                ns_per_op_least=min(_series(runs, "ns_per_op_min")),
                spread=spread(times[name]),
                best_peer=best,
                to_best=ratio(name, best),
                to_glibc=ratio(name, "glibc"),
                to_mimalloc=ratio(name, "mimalloc"),
                cpus=_cpus(runs),
                peak_rss_kib=median(_series(runs, "peak_rss_kib")),
                minor_faults=median(_series(runs, "minor_faults")),
            )
        )
    return rows


def format_ns(ns: float) -> str:
    """Three significant digits or so, in the unit that suits."""
    for limit, divisor, unit in ((1e3, 1, "ns"), (1e6, 1e3, "us"), (1e9, 1e6, "ms")):
        if ns < limit:
            return f"{ns / divisor:.{1 if ns / divisor < 100 else 0}f} {unit}"
    return f"{ns / 1e9:.2f} s"


def format_ratio(ratio: Ratio | None) -> str:
    """A tie carries a tilde."""
    if ratio is None:
        return "-"
    digits = 2 if ratio.value < 9.95 else 0
    tie = ratio.tie and not ratio.low == ratio.high == 1.0
    return f"{'~' if tie else ''}{ratio.value:.{digits}f}"


HEADINGS = ("test", "allocator", "time/op", "spread", "/best", "/glibc", "/mimalloc", "CPUs", "peak KiB", "faults")


def _cells(row: Row) -> list[str]:
    return [
        row.test,
        row.contestant,
        format_ns(row.ns_per_op),
        f"{row.spread * 100:.0f}%",
        format_ratio(row.to_best),
        format_ratio(row.to_glibc),
        format_ratio(row.to_mimalloc),
        f"{row.cpus:.1f}",
        f"{row.peak_rss_kib:.0f}",
        f"{row.minor_faults:.0f}",
    ]


def text_table(headings: Sequence[str], lines: Sequence[Sequence[str]], left: int) -> str:
    """The first `left` columns flush left, numbers flush right; a repeated first cell is left blank."""
    widths = [max(len(line[i]) for line in [headings, *lines]) for i in range(len(headings))]
    shown, previous = [], ""
    for line in [headings, *lines]:
        padded = enumerate(zip(line, widths, strict=True))
        cells = [cell.ljust(width) if i < left else cell.rjust(width) for i, (cell, width) in padded]
        if line[0] == previous:
            cells[0] = " " * widths[0]
        previous = line[0]
        shown.append("  ".join(cells).rstrip())
    return "\n".join(shown)


def markdown_table(headings: Sequence[str], lines: Sequence[Sequence[str]], left: int) -> str:
    """GitHub's kind."""
    rules = ["---" if i < left else "--:" for i in range(len(headings))]
    return "\n".join(f"| {' | '.join(line)} |" for line in [headings, rules, *lines])


def means(outcomes: Sequence[Outcome], contestants: Sequence[Contestant]) -> list[dict[str, Any]]:
    """Geometric means against glibc, over the tests that every contestant finished."""
    names = [contestant.name for contestant in contestants]
    counted = [outcome for outcome in outcomes if outcome.test not in NOT_IN_MEANS]
    complete = [outcome for outcome in counted if all(name in outcome.runs for name in names)]
    if not complete or "glibc" not in names:
        return []

    def mean(name: str, key: str) -> float:
        return geometric_mean(
            [median(_series(outcome.runs[name], key)) / median(_series(outcome.runs["glibc"], key)) for outcome in complete]
        )

    return [
        {
            "contestant": name,
            "tests": len(complete),
            "time": mean(name, "ns_per_op_median"),
            "peak_rss": mean(name, "peak_rss_kib"),
        }
        for name in names
    ]


def mean_lines(found: Sequence[dict[str, Any]]) -> list[list[str]]:
    """As cells."""
    return [[mean["contestant"], f"{mean['time']:.3f}", f"{mean['peak_rss']:.3f}"] for mean in found]


MEAN_HEADINGS = ("allocator", "time", "peak memory")


def memory_lines(outcomes: Sequence[Outcome], contestants: Sequence[Contestant]) -> list[list[str]]:
    """Resident memory around the thread test's generations, as cells; empty where it was not run."""
    lines = []
    for outcome in outcomes:
        for contestant in contestants:
            runs = outcome.runs.get(contestant.name, [])
            if runs and "rss_after_kib" in runs[0]:
                start, warm, after, settled = (
                    median(_series(runs, f"rss_{moment}_kib")) for moment in ("start", "warm", "after", "settled")
                )
                cells = [f"{value:.0f}" for value in (start, warm, after, settled)]
                lines.append([contestant.name, *cells, f"{after - warm:+.0f}"])
    return lines


MEMORY_HEADINGS = ("allocator", "start", "first generation", "last", "1.2 s later", "last - first")


def notes(outcomes: Sequence[Outcome]) -> list[str]:
    """What a reader has to know before he believes a line."""
    disturbed = [outcome for outcome in outcomes if outcome.disturbed]
    said = []
    if disturbed:
        most = max(max(outcome.other_cpus) for outcome in disturbed)
        counts = (f"{outcome.test} {outcome.disturbed} of {len(outcome.other_cpus)}" for outcome in disturbed)
        said.append(f"rounds with other load on the machine (up to {most:.2f} CPUs): {', '.join(counts)}")
    for outcome in outcomes:
        said += [f"{outcome.test}: {name} failed: {reason}" for name, reason in outcome.failures.items()]
    return said


def verdict(found: Sequence[dict[str, Any]], contestants: Sequence[Contestant]) -> str:
    """Ours against the best single peer, where both were measured."""
    peers = {contestant.name for contestant in contestants if contestant.is_peer}
    ours = [mean for mean in found if mean["contestant"] == SUBJECT]
    others = [mean for mean in found if mean["contestant"] in peers]
    if not ours or not others:
        return ""
    fastest = min(others, key=lambda mean: float(mean["time"]))
    leanest = min(others, key=lambda mean: float(mean["peak_rss"]))
    return (
        f"{SUBJECT} over {ours[0]['tests']} tests: {ours[0]['time'] / fastest['time']:.3f} of the time of "
        f"{fastest['contestant']}, {ours[0]['peak_rss'] / leanest['peak_rss']:.3f} of the peak memory of "
        f"{leanest['contestant']}"
    )


def render(outcomes: Sequence[Outcome], contestants: Sequence[Contestant], markdown: bool) -> str:
    """The whole report."""
    table = markdown_table if markdown else text_table
    parts = [table(HEADINGS, [_cells(row) for outcome in outcomes for row in rows_of(outcome, contestants)], 2)]
    found = means(outcomes, contestants)
    if len(outcomes) > 1 and found:
        parts.append("Geometric means, glibc is 1:\n\n" + table(MEAN_HEADINGS, mean_lines(found), 1))
        parts.append(verdict(found, contestants))
    memory = memory_lines(outcomes, contestants)
    if memory:
        parts.append("Resident KiB around 20 generations of threads:\n\n" + table(MEMORY_HEADINGS, memory, 1))
    parts.append("\n".join(("- " if markdown else "") + note for note in notes(outcomes)))
    return "\n\n".join(part for part in parts if part)


def exported(
    outcomes: Sequence[Outcome], contestants: Sequence[Contestant], machine: dict[str, str | int], command: list[str]
) -> dict[str, Any]:
    """All runs and all figures; new fields may be added, none is taken away within a schema version."""
    return {
        "schema_version": SCHEMA_VERSION,
        "command": command,
        "machine": machine,
        "contestants": [
            {
                "name": contestant.name,
                "path": str(contestant.path) if contestant.path else None,
                "version": contestant.version,
                "variables": contestant.variables,
            }
            for contestant in contestants
        ],
        "tests": [{**asdict(outcome), "rows": [asdict(row) for row in rows_of(outcome, contestants)]} for outcome in outcomes],
        "means": means(outcomes, contestants),
    }
