"""Reading the profile area of a record, damaged and hostile ones included."""

from __future__ import annotations

from pathlib import Path

import pytest
from areas import Area, One, sums
from sheaf.profile.area import read_area


def test_everything_is_read(tmp_path: Path) -> None:
    samples = [One((1, 2, 3), 1000), One((1, 2, 3), 2000, live=False), One((4,), 1 << 20, time_ms=500)]
    snapshot = read_area(Area(samples, [(1, 10, 0, b"\1" * 20, "/bin/x")], lifetimes={(3, 5): 7.5}).write(tmp_path / "p.1.sheaf"))
    assert snapshot.complete
    assert snapshot.header.taken == 3
    by_pcs = {stack.pcs: stack for stack in snapshot.stacks.values()}
    assert set(by_pcs) == {(), (1, 2, 3), (4,)}
    stack = by_pcs[1, 2, 3]
    assert (stack.alloc_count, stack.alloc_bytes, stack.alloc_variance) == pytest.approx(sums(samples[:2]))
    assert (stack.live_count, stack.live_bytes, stack.live_variance) == pytest.approx(sums(samples[:1]))
    assert (stack.samples, stack.live_samples) == (2, 1)
    assert [(s.size, s.time_ms, snapshot.stacks[s.stack].pcs) for s in snapshot.samples] == [(1000, 0, (1, 2, 3)), (1 << 20, 500, (4,))]
    assert [(m.start, m.end, m.path, m.build_id) for m in snapshot.modules] == [(1, 10, "/bin/x", b"\1" * 20)]
    assert snapshot.lifetimes[3][5] == 7.5
    assert snapshot.moment_ms == 60_000
