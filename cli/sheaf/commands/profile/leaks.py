"""Which stacks look like leaks: they have old live memory, and they grow.

A leak allocates all the time and never frees, so its live bytes are of every age and grow. Memory that was set up at the
start is old but does not grow, and memory of work in progress grows and shrinks but is young.
"""

from __future__ import annotations

from dataclasses import dataclass

from sheaf.commands.profile import views
from sheaf.commands.profile.area import Sample, Snapshot
from sheaf.commands.profile.estimate import LIVE, Figure, estimates, sampled, scales
from sheaf.commands.profile.views import Row

GROWS, MAY_GROW, OLD = "grows", "may grow", "old"
_VERDICTS = (GROWS, MAY_GROW, OLD)


@dataclass(frozen=True)
class Suspect:
    """
    A stack with live samples older than the limit. Bytes are estimates with errors; `growth` is that of all of its live bytes
    between two snapshots, 0 if there was only one. `oldest_ms` is the age of its oldest sample.
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
            rank = self.growth - self.growth_error
        else:
            rank = self.growth / self.growth_error if self.verdict == MAY_GROW and self.growth_error else 0.0
        return _VERDICTS.index(self.verdict), -rank, -self.old_bytes


def _verdict(growth: float, error: float) -> str:
    if growth > 0:
        return GROWS if growth > error else MAY_GROW
    return OLD


def find(snapshot: Snapshot, older_ms: int, first: Snapshot | None = None) -> list[Suspect]:
    """The suspects, the most suspicious first. `older_ms` is the age at the second snapshot from which a sample is old."""
    made = estimates(snapshot, LIVE)
    factors = scales(snapshot, made)
    groups: dict[int, list[Sample]] = {}
    for sample in snapshot.samples:
        if snapshot.age_ms(sample) >= older_ms and sample.stack in factors:
            groups.setdefault(sample.stack, []).append(sample)
    old: dict[tuple[int, ...], Figure] = {}
    oldest: dict[tuple[int, ...], int] = {}
    for at, samples in groups.items():
        pcs = snapshot.stacks[at].pcs
        old[pcs] = old.get(pcs, Figure()) + sampled(samples, factors[at])
        oldest[pcs] = max(oldest.get(pcs, 0), *map(snapshot.age_ms, samples))
    size = {row.pcs: row.values[1] for row in views.live(snapshot).rows if not row.name}
    grown = (
        {row.pcs: (row.values[1], row.errors[1] or 0.0) for row in views.growth(snapshot, first).rows if not row.name}
        if first
        else {}
    )
    suspects = []
    for pcs, figure in old.items():
        growth, error = grown.get(pcs, (0.0, 0.0))
        row = Row((), pcs, (figure.bytes,), (figure.bytes_error,))
        suspects.append(
            Suspect(
                row,
                _verdict(growth, error),
                figure.bytes,
                figure.bytes_error,
                figure.objects,
                size.get(pcs, 0.0),
                growth,
                error,
                oldest[pcs],
            )
        )
    return sorted(suspects, key=lambda one: (one.order, one.row.pcs))
