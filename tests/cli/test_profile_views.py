"""The arithmetic of the views of a profile, on samples with known contents."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from areas import Area, One, sums, weight
from sheaf.commands.profile import leaks, views
from sheaf.commands.profile.area import Snapshot, read_area
from sheaf.commands.profile.drawn import drawn
from sheaf.commands.profile.views import Profile, Row
from sheaf.errors import SheafError

A, B, C = (1, 9), (2, 9), (3, 9)
FIRST = [One(A, 1000), One(A, 3000), One(B, 600_000), One(C, 64, live=False)]


def snapshot(path: Path, samples: list[One], **more: object) -> Snapshot:
    return read_area(Area(samples, **more).write(path / "p.1.sheaf"))  # type: ignore[arg-type]


def alone(size: int) -> float:
    """The error of the number of objects for which one sample of this size stands."""
    return drawn([(weight(size), 1)]).error


def by_stack(profile: Profile) -> dict[tuple[int, ...], Row]:
    assert len({(row.labels, row.pcs) for row in profile.rows}) == len(profile.rows)
    return {row.pcs: row for row in profile.rows}


def test_live(tmp_path: Path) -> None:
    rows = by_stack(views.live(snapshot(tmp_path, FIRST)))
    assert set(rows) == {A, B}
    count, size, _ = sums(FIRST[:2])
    assert rows[A].values == pytest.approx((count, size))
    assert rows[A].errors[0] == pytest.approx(math.hypot(alone(1000), alone(3000)))
    assert rows[B].errors == (0, 0)


def test_a_total_adds_squares_of_errors(tmp_path: Path) -> None:
    profile = views.live(snapshot(tmp_path, FIRST))
    assert profile.total(0) == pytest.approx((sums(FIRST[:3])[0], math.hypot(alone(1000), alone(3000))))
    assert profile.total()[0] == pytest.approx(sums(FIRST[:3])[1])
    assert profile.period == 512 << 10


def test_allocated(tmp_path: Path) -> None:
    first = snapshot(tmp_path, FIRST, now_ms=10_000)
    rows = by_stack(views.allocated(first))
    assert rows[C].values == pytest.approx(sums(FIRST[3:])[:2])
    later = [*FIRST, One(A, 2000, live=False), One(C, 64)]
    profile = views.allocated(snapshot(tmp_path, later, now_ms=14_500), first)
    rows = by_stack(profile)
    assert set(rows) == {A, C}
    assert rows[A].values == pytest.approx(sums(later[4:5])[:2])
    assert rows[A].errors[0] == pytest.approx(alone(2000))
    assert profile.duration_ns == 4_500_000_000
    assert "in 4.5 s" in profile.title


def test_peak(tmp_path: Path) -> None:
    samples = [One(A, 1000, live=False), One(B, 500, peak=False)]
    rows = by_stack(views.peak(snapshot(tmp_path, samples)))
    assert set(rows) == {A}
    assert rows[A].values == pytest.approx(sums(samples[:1])[:2])
    assert rows[A].errors[0] == pytest.approx(alone(1000))


def test_growth_cancels_what_lives_in_both(tmp_path: Path) -> None:
    first = snapshot(tmp_path, FIRST, now_ms=10_000)
    second = replace(first, samples=list(first.samples), stacks=dict(first.stacks))
    gone = next(sample for sample in first.samples if sample.size == 600_000)
    second.samples.remove(gone)
    new = replace(first.samples[0], address=0x9000, size=1020, weight=weight(1020), time_ms=11_000)
    second.samples.append(new)
    for sample, sign in ((gone, -1), (new, 1)):
        stack = second.stacks[sample.stack]
        second.stacks[sample.stack] = replace(
            stack,
            live_count=stack.live_count + sign * sample.weight,
            live_bytes=stack.live_bytes + sign * sample.weight * sample.size,
        )
    rows = by_stack(views.growth(second, first))
    assert set(rows) == {A, B}
    assert rows[B].values == pytest.approx((-gone.weight, -gone.weight * gone.size))
    assert rows[A].values == pytest.approx((new.weight, new.weight * 1020))
    assert alone(1020) <= (rows[A].errors[0] or 0) < 2 * alone(1020)


def test_growth_needs_two_of_one_process(tmp_path: Path) -> None:
    one, other = snapshot(tmp_path, FIRST), snapshot(tmp_path, FIRST, start_ns=5)
    with pytest.raises(SheafError, match="needs a process that runs"):
        views.growth(one)
    with pytest.raises(SheafError, match="different processes"):
        views.growth(one, other)


def test_age(tmp_path: Path) -> None:
    times = {59_500: "younger than 1 s", 51_000: "1 s to 10 s", 50_000: "10 s to 1 min", 1: "10 s to 1 min", 0: "1 min to 10 min"}
    samples = [One(A, 1000, time_ms=time) for time in times]
    profile = views.age(snapshot(tmp_path, samples))
    found = {row.labels[0]: row.values[1] for row in profile.rows}
    one = sums(samples[:1])[1]
    assert found == pytest.approx({band: one * list(times.values()).count(band) for band in times.values()})
    assert profile.total()[0] == pytest.approx(5 * one)


def test_lifetimes(tmp_path: Path) -> None:
    first = snapshot(tmp_path, FIRST, lifetimes={(0, 0): 5.0, (15, 23): 2.0})
    rows = {row.labels: row.values[0] for row in views.lifetimes(first).rows}
    assert rows == {("up to 16 bytes", "lived less than 1 ms"): 5.0, ("above 256 KiB", "lived 1.17 h or longer"): 2.0}
    later = snapshot(tmp_path, FIRST, lifetimes={(0, 0): 6.0, (15, 23): 2.0, (3, 10): 1.0})
    rows = {row.labels: row.values[0] for row in views.lifetimes(later, first).rows}
    assert rows == {("up to 16 bytes", "lived less than 1 ms"): 1.0, ("up to 128 bytes", "lived less than 1.02 s"): 1.0}


def test_wasted(tmp_path: Path) -> None:
    samples = [One(A, 100), One(A, 112), One(B, 1000, live=False)]
    rows = by_stack(views.wasted(snapshot(tmp_path, samples)))
    assert set(rows) == {A}
    assert rows[A].values == pytest.approx((12 * weight(100),), rel=1e-3)
    assert (rows[A].errors[0] or 0) > rows[A].values[0]  # there are two samples


def test_heap_has_all_columns(tmp_path: Path) -> None:
    first = snapshot(tmp_path, FIRST)
    profile = views.heap(first)
    assert [column.name for column in profile.columns] == [
        "inuse_objects",
        "inuse_space",
        "alloc_objects",
        "alloc_space",
        "peak_objects",
        "peak_space",
    ]
    rows = by_stack(profile)
    assert set(rows) == {A, B, C}
    assert rows[C].values == pytest.approx((0, 0, *sums(FIRST[3:])[:2], *sums(FIRST[3:])[:2]))
    assert [column.name for column in views.heap(first, first).columns][-1] == "alloc_space"


def test_notes_name_what_is_missing(tmp_path: Path) -> None:
    header: dict[str, int | float] = {"lost_samples": 3, "lost_stacks": 2, "slowed": 1, "pid_of_parent": 7, "taken": 10}
    text = " ".join(views.live(snapshot(tmp_path, FIRST, header=header)).notes)
    for part in ("3 of 10 samples were lost", "stacks of 2 of 10", "1 of 10 samples were taken at a lower rate", "process 7"):
        assert part in text


# ---- leaks ----


def grown(tmp_path: Path, before: list[One], after: list[One]) -> tuple[Snapshot, Snapshot]:
    return snapshot(tmp_path, before, now_ms=50_000), snapshot(tmp_path, after, now_ms=60_000)


def test_leaks_are_ordered_by_sure_growth(tmp_path: Path) -> None:
    setup = [One(C, 1 << 22, time_ms=1) for _ in range(3)]
    old = [One(A, 1 << 20, time_ms=10), One(B, 4096, time_ms=10), *setup]
    new = [One(A, 1 << 20, time_ms=55_000 + i) for i in range(8)] + [One(B, 4096, time_ms=55_000)]
    young = [One((5,), 1 << 20, time_ms=55_000 + i) for i in range(9)]
    first, second = grown(tmp_path, old, [*old, *new, *young])
    found = leaks.find(second, 10_000, first)
    assert [(one.row.pcs, one.verdict) for one in found] == [(A, leaks.GROWS), (B, leaks.MAY_GROW), (C, leaks.OLD)]
    assert found[0].growth == pytest.approx(sums(new[:8])[1])
    assert found[0].growth_error == 0
    assert found[0].old_bytes == pytest.approx(sums(old[:1])[1])
    assert found[0].oldest_ms == 59_990
    assert found[2].growth == 0


def test_leaks_of_one_snapshot_are_ordered_by_old_bytes(tmp_path: Path) -> None:
    samples = [One(A, 1000), One(B, 600_000), One(C, 1 << 21, time_ms=59_999)]
    found = leaks.find(snapshot(tmp_path, samples), 30_000)
    assert [one.row.pcs for one in found] == [B, A]
    assert {one.verdict for one in found} == {leaks.OLD}
