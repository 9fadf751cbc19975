"""Compare a run with an older one: which tests became slower or use more memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sheaf.commands.bench.exports import Report
from sheaf.commands.bench.figures import Ratio, geometric_mean, unpaired_ratio
from sheaf.commands.bench.report import MEMORY, REST, TIME, peers_of, resting, rows_of, series, subject_of
from sheaf.commands.bench.runs import Outcome
from sheaf.commands.bench.text import format_ratio, text_table


@dataclass(frozen=True)
class Change:
    """The ratios of the new run to the old one for one test."""

    test: str
    time: Ratio | None  # None for a test that measures only memory
    memory: Ratio
    rest: Ratio | None = None  # resident memory at rest; only in the suite rest


def _relative(outcome: Outcome, subject: str, peers: Sequence[str]) -> list[float]:
    """
    The times of the subject divided by the geometric mean of the peers in the same round, so that runs on different machines
    or days can be compared. Times in nanoseconds if the runs have no peer in common.
    """
    own = series(outcome.runs[subject], TIME)
    if not peers:
        return own
    others = [series(outcome.runs[name], TIME) for name in peers]
    return [value / geometric_mean([other[i] for other in others]) for i, value in enumerate(own)]


def changes(new: Report, old: Report) -> list[Change]:
    """The changes of all tests that both runs contain."""
    subject = subject_of(new.contestants)
    before = {outcome.test: outcome for outcome in old.outcomes if outcome.runs.get(subject)}
    found = []
    for now in (outcome for outcome in new.outcomes if outcome.runs.get(subject) and outcome.test in before):
        then = before[now.test]
        peers = [name for name in peers_of(new.contestants) if now.runs.get(name) and then.runs.get(name)]
        timed = now.timed and then.timed
        time = unpaired_ratio(_relative(now, subject, peers), _relative(then, subject, peers)) if timed else None
        memory = unpaired_ratio(series(now.runs[subject], MEMORY), series(then.runs[subject], MEMORY))
        kept = [resting(outcome.runs[subject]) if outcome.suites[:1] == (REST,) else [] for outcome in (now, then)]
        found.append(Change(now.test, time, memory, unpaired_ratio(*kept) if all(kept) else None))
    return found


def _beyond(what: str, ratio: Ratio | None, limit: float, peer: str) -> list[str]:
    """One line if the ratio exceeds the limit and its interval lies above 1. With a single round there is no interval."""
    if ratio is None or ratio.value <= limit or (ratio.count > 1 and ratio.low <= 1.0):
        return []
    return [f"{what} {ratio.value:.3f} of {peer}"]


def render_changes(found: Sequence[Change], subject: str) -> str:
    """The changes as a table; the last line has the geometric means."""
    if not found:
        return "The two runs have no test in common."
    keys = ("time", "memory", *(("rest",) if any(change.rest for change in found) else ()))
    lines = [[change.test, *(format_ratio(getattr(change, key)) for key in keys)] for change in found]
    means = [[ratio.value for change in found if (ratio := getattr(change, key))] for key in keys]
    lines.append(["geometric mean", *(f"{geometric_mean(values):.3f}" if values else "-" for values in means)])
    title = f"Ratio of the new run to the old one for {subject}; times are relative to the peers in the same round"
    return f"{title}\n\n" + text_table(("test", "time", "peak memory", "at rest")[: len(keys) + 1], lines, 1)


def worse_than_old(found: Sequence[Change], limit: float) -> list[str]:
    """A line for each measure that became worse by more than the limit."""
    said = []
    for change in found:
        worse = [
            *_beyond("time", change.time, limit, "the older run"),
            *_beyond("memory", change.memory, limit, "the older run"),
            *_beyond("memory at rest", change.rest, limit, "the older run"),
        ]
        said += [f"{change.test}: {line}" for line in worse]
    return said


def slower_than_best(report: Report, limit: float) -> list[str]:
    """A line for each test that exceeds the limit in time compared with the fastest peer of the same run."""
    subject = subject_of(report.contestants)
    rows = [row for outcome in report.outcomes for row in rows_of(outcome, report.contestants) if row.contestant == subject]
    return [f"{row.test}: {line}" for row in rows for line in _beyond("time", row.time_ratio, limit, row.fastest)]


def machine_differs(new: Report, old: Report) -> str:
    """A remark if the two runs are from different machines, otherwise an empty string."""
    keys: tuple[str, ...] = ("cpu", "cpus", "memory", "huge_pages")
    numbers = ("cpu_family", "cpu_model", "cpu_stepping")  # missing in older exports
    keys += tuple(key for key in numbers if key in new.machine and key in old.machine)
    differing = [key.replace("_", " ") for key in keys if new.machine.get(key) != old.machine.get(key)]
    if not differing:
        return ""
    return f"the older run is from another machine ({', '.join(differing)} differ); its figures may not be comparable"
