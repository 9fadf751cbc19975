"""Two runs beside each other: what became slower or larger since an older one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sheaf.bench.exports import Report
from sheaf.bench.figures import Ratio, geometric_mean, unpaired_ratio
from sheaf.bench.report import MEMORY, REST, TIME, peers_of, resting, rows_of, series, subject_of
from sheaf.bench.runs import Outcome
from sheaf.bench.text import format_ratio, text_table


@dataclass(frozen=True)
class Change:
    """Of one test: new by old."""

    test: str
    time: Ratio | None  # None for a test that is about memory alone
    memory: Ratio
    rest: Ratio | None = None  # what stays resident, in the suite rest


def _relative(outcome: Outcome, subject: str, peers: Sequence[str]) -> list[float]:
    """
    Times in units of what the peers took in the same round, so that two machines or two days can be compared; plain
    times where the runs share no peer.
    """
    own = series(outcome.runs[subject], TIME)
    if not peers:
        return own
    others = [series(outcome.runs[name], TIME) for name in peers]
    return [value / geometric_mean([other[i] for other in others]) for i, value in enumerate(own)]


def changes(new: Report, old: Report) -> list[Change]:
    """For every test that both have."""
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


def _past(what: str, ratio: Ratio | None, limit: float, peer: str) -> list[str]:
    """Past the limit, and not by noise alone; a single round has no noise to know of."""
    if ratio is None or ratio.value <= limit or (ratio.count > 1 and ratio.low <= 1.0):
        return []
    return [f"{what} {ratio.value:.3f} of {peer}"]


def render_changes(found: Sequence[Change], subject: str) -> str:
    """As a table, with the geometric means below."""
    if not found:
        return "No test of this run is in the older one."
    keys = ("time", "memory", *(("rest",) if any(change.rest for change in found) else ()))
    lines = [[change.test, *(format_ratio(getattr(change, key)) for key in keys)] for change in found]
    means = [[ratio.value for change in found if (ratio := getattr(change, key))] for key in keys]
    lines.append(["geometric mean", *(f"{geometric_mean(values):.3f}" if values else "-" for values in means)])
    return f"{subject}, new by old, time relative to the peers of the same round\n\n" + text_table(
        ("test", "time", "peak memory", "at rest")[: len(keys) + 1], lines, 1
    )


def past_old(found: Sequence[Change], limit: float) -> list[str]:
    """Tests that got worse than the limit allows."""
    said = []
    for change in found:
        worse = [*_past("time", change.time, limit, "the older run"), *_past("memory", change.memory, limit, "the older run"),
                 *_past("memory at rest", change.rest, limit, "the older run")]
        said += [f"{change.test}: {line}" for line in worse]
    return said


def past_best(report: Report, limit: float) -> list[str]:
    """Tests whose time is past the limit beside this run's best peer."""
    subject = subject_of(report.contestants)
    rows = [row for outcome in report.outcomes for row in rows_of(outcome, report.contestants) if row.contestant == subject]
    return [f"{row.test}: {line}" for row in rows for line in _past("time", row.time_ratio, limit, row.fastest)]


def machine_differs(new: Report, old: Report) -> str:
    """A remark where the two runs are not of one machine."""
    keys: tuple[str, ...] = ("cpu", "cpus", "memory", "huge_pages")
    numbers = ("cpu_family", "cpu_model", "cpu_stepping")  # older exports have none
    keys += tuple(key for key in numbers if key in new.machine and key in old.machine)
    differing = [key.replace("_", " ") for key in keys if new.machine.get(key) != old.machine.get(key)]
    return f"the older run is of another machine ({', '.join(differing)} differ)" if differing else ""

