"""Which stacks look like leaks: they have old live memory, and they grow.

A leak allocates all the time and never frees, so its live bytes are of every age and grow. Memory that was set up at the
start is old but does not grow, and memory of work in progress grows and shrinks but is young.
"""

from __future__ import annotations

from dataclasses import dataclass

from sheaf.profile import views
from sheaf.profile.area import Sample, Snapshot
from sheaf.profile.views import Row

GROWS, MAY_GROW, OLD = "grows", "may grow", "old"
_VERDICTS = (GROWS, MAY_GROW, OLD)
SURE = 2.0  # standard errors


@dataclass(frozen=True)
class Suspect:
    """
    A stack with live samples older than the limit. Bytes are estimates with standard errors; `growth` is that of all of
    its live bytes between two snapshots, 0 if there was only one. `oldest_ms` is the age of its oldest sample.
    """

    row: Row
    verdict: str
    old_bytes: float
    old_error: float
    old_objects: float
    live_bytes: float
    growth: float
    growth_error: float
    oldest_ms: int

    @property
    def order(self) -> tuple[float, ...]:
        """
        The most suspicious stack is the first: those that grow, by the growth that is sure; those that may grow, by how sure
        that is; the others by their old bytes.
        """
        if self.verdict == GROWS:
            rank = self.growth - SURE * self.growth_error
        else:
            rank = self.growth / self.growth_error if self.verdict == MAY_GROW and self.growth_error else 0.0
        return _VERDICTS.index(self.verdict), -rank, -self.old_bytes


def _verdict(growth: float, error: float) -> str:
    if growth > 0:
        return GROWS if growth > SURE * error else MAY_GROW
    return OLD


def find(snapshot: Snapshot, older_ms: int, first: Snapshot | None = None) -> list[Suspect]:
    """The suspects, the most suspicious first. `older_ms` is the age at the second snapshot from which a sample is old."""
    old: dict[int, list[Sample]] = {}
    for sample in snapshot.samples:
        if snapshot.age_ms(sample) >= older_ms:
            old.setdefault(sample.stack, []).append(sample)
    grown = {row.pcs: (row.values[1], row.errors[1] or 0.0) for row in views.growth(snapshot, first).rows} if first else {}
    suspects = []
    for at, samples in old.items():
        stack = snapshot.stacks[at]
        growth, error = grown.get(stack.pcs, (0.0, 0.0))
        count, size = sum(s.weight for s in samples), sum(s.weight * s.size for s in samples)
        old_error = sum(s.weight * (s.weight - 1) * s.size * s.size for s in samples) ** 0.5
        suspects.append(Suspect(Row((), stack.pcs, (size,), (old_error,)), _verdict(growth, error), size, old_error, count,
                                stack.live_bytes, growth, error, max(map(snapshot.age_ms, samples))))
    return sorted(suspects, key=lambda one: (one.order, one.row.pcs))
