"""Estimates that are calibrated to counted totals, on small profiles that can be worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from areas import CLASSES, STRATA, Area, One, stratum, sums, weight
from sheaf.commands.profile import leaks, table, views
from sheaf.commands.profile.area import Snapshot, read_area
from sheaf.commands.profile.drawn import NOTHING_SEEN, drawn, lower_limit, upper_limit
from sheaf.commands.profile.symbols import Symbolizer
from sheaf.commands.profile.views import BEFORE, UNSAMPLED, Profile, Row

A, B, C = (1, 9), (2, 9), (3, 9)
THOUSAND, SMALL, ALWAYS = stratum(1000), stratum(60), STRATA - 1


def holds(count: int, size: int, before: int = 0) -> tuple[int, ...]:
    """The numbers of a stratum: as much live as at the peak, and twice as much allocated."""
    return count, count * size, count, count * size, before, before * size, 2 * count, 2 * count * size


def snapshot(directory: Path, samples: list[One], counted: Mapping[int, tuple[int, ...]], **more: object) -> Snapshot:
    return read_area(Area(samples, counted=counted, **more).write(directory / "p.1.sheaf"))  # type: ignore[arg-type]


def rows(profile: Profile) -> dict[tuple[int, ...] | str, Row]:
    return {row.name or row.pcs: row for row in profile.rows}


@pytest.mark.parametrize("events, low, high", [(1, 0.0253, 5.572), (2, 0.242, 7.225), (10, 4.795, 18.39), (100, 81.36, 121.6)])
def test_limits_of_rare_events(events: float, low: float, high: float) -> None:
    """The exact limits of the Poisson distribution."""
    assert lower_limit(events) == pytest.approx(low, abs=0.02)
    assert upper_limit(events) == pytest.approx(high, rel=0.005)
    assert upper_limit(0) == NOTHING_SEEN


def test_certain_samples_have_no_error() -> None:
    assert drawn([(1, 1)] * 5).error == 0
    assert 0 < drawn([(1.01, 1)] * 5).error < 1
    assert drawn([(100, 1)]).error == pytest.approx(460, rel=0.02)


def test_a_class_is_shared_out(tmp_path: Path) -> None:
    samples = [One(A, 1000)] * 3 + [One(B, 1024)]
    made = rows(views.live(snapshot(tmp_path, samples, {THOUSAND: holds(1000, 1024)})))
    share = sums(samples[:3])[0] / sums(samples)[0]
    assert made[A].values == pytest.approx((1000 * share, 1000 * share * 1000), rel=0.02)
    assert made[B].values == pytest.approx((1000 * (1 - share), 1000 * (1 - share) * 1024), rel=0.02)
    assert UNSAMPLED not in made
    assert not views.reliable(made[B].values[1], made[B].errors[1])


@pytest.mark.parametrize("view", ["peak", "allocated"])
def test_other_moments_are_calibrated_as_well(tmp_path: Path, view: str) -> None:
    profile = views.VIEWS[view](snapshot(tmp_path, [One(A, 1000)] * 3, {THOUSAND: holds(1000, 1024)}), None)
    assert profile.total(0) == pytest.approx((2000 if view == "allocated" else 1000, 0))
    assert rows(profile)[A].values[1] == pytest.approx(profile.total(0)[0] * 1000)


def test_the_only_stack_of_a_class_may_not_have_all_of_it(tmp_path: Path) -> None:
    few = rows(views.live(snapshot(tmp_path, [One(A, 1000)] * 3, {THOUSAND: holds(1500, 1024)})))[A]
    many = rows(views.live(snapshot(tmp_path, [One(A, 1000)] * 60, {THOUSAND: holds(30_000, 1024)})))[A]
    assert few.values[0] == 1500
    assert many.values[0] == 30_000
    assert (few.errors[0] or 0) > 1000
    assert (many.errors[0] or 0) == pytest.approx(NOTHING_SEEN * weight(1000), rel=0.01)


def test_what_has_no_sample_has_a_row(tmp_path: Path) -> None:
    one = snapshot(tmp_path, [One(A, 1000)] * 3, {THOUSAND: holds(1500, 1024), SMALL: holds(300, 64)})
    profile = views.live(one)
    made = rows(profile)
    assert made[UNSAMPLED].values == (300, 300 * 64)
    assert sum(row.values[0] for row in profile.rows) == 1800
    note = next(note for note in profile.notes if note.startswith(UNSAMPLED))
    assert "300 objects of 64 bytes" in note
    with Symbolizer([]) as nothing:
        assert UNSAMPLED in table.text(profile, nothing, 80)
        assert UNSAMPLED in table.text(views.age(one), nothing, 80)


def test_samples_that_cannot_explain_a_class_do_not_get_it(tmp_path: Path) -> None:
    """Two samples stand for about a thousand objects, and so not for a million."""
    made = rows(views.live(snapshot(tmp_path, [One(A, 1000)] * 2, {THOUSAND: holds(1_000_000, 1024)})))
    assert made[A].values[0] < 10_000
    assert made[UNSAMPLED].values[0] > 990_000


def test_objects_from_before_sampling(tmp_path: Path) -> None:
    samples = [One(A, 1000)] * 3  # they stand for 1574 objects
    within = rows(views.live(snapshot(tmp_path, samples, {THOUSAND: holds(5000, 1024, before=4000)})))
    assert within[A].values[0] == pytest.approx(sums(samples)[0])
    assert within[BEFORE].values[0] == pytest.approx(5000 - sums(samples)[0])
    too_many = rows(views.live(snapshot(tmp_path, samples, {THOUSAND: holds(1200, 1024, before=500)})))
    assert too_many[A].values[0] == pytest.approx(1200)
    too_few = rows(views.live(snapshot(tmp_path, samples, {THOUSAND: holds(3000, 1024, before=500)})))
    assert too_few[A].values[0] == pytest.approx(2500)
    assert too_few[BEFORE].values[0] == pytest.approx(500)


def test_always_sampled_blocks_are_exact(tmp_path: Path) -> None:
    samples = [One(A, 8 << 20)] * 20 + [One(B, 1000)] * 3
    made = rows(views.live(snapshot(tmp_path, samples, {THOUSAND: holds(9000, 1024), ALWAYS: holds(20, 8 << 20)})))
    assert made[A].values == (20, 20 * (8 << 20))
    assert made[A].errors == (0, 0)


def test_large_blocks_are_shared_out_by_bytes(tmp_path: Path) -> None:
    samples = [One(A, 100_000)] * 4 + [One(B, 400_000)] * 4
    whole = 10_000_000
    counted = {STRATA - 2: (40, whole, 40, whole, 0, 0, 80, 2 * whole)}
    profile = views.live(snapshot(tmp_path, samples, counted))
    assert profile.total()[0] == pytest.approx(whole)
    assert rows(profile)[A].values[1] == pytest.approx(whole * sums(samples[:4])[1] / sums(samples)[1], rel=0.1)


def test_a_stack_in_several_classes_is_one_row(tmp_path: Path) -> None:
    samples = [One(A, 1000)] * 3 + [One(A, 2000)] * 3
    made = rows(views.live(snapshot(tmp_path, samples, {THOUSAND: holds(1500, 1024), stratum(2000): holds(800, 2048)})))
    assert set(made) == {A}
    assert made[A].values == pytest.approx((2300, 1500 * 1000 + 800 * 2000))


def test_growth_is_what_was_counted(tmp_path: Path) -> None:
    (tmp_path / "later").mkdir()
    old = [One(A, 1000, time_ms=i) for i in range(20)] + [One(B, 1000, time_ms=50 + i) for i in range(3)]
    new = [*old, *(One(A, 1000, time_ms=100 + i) for i in range(20))]
    first = snapshot(tmp_path, old, {THOUSAND: holds(12_000, 1024), SMALL: holds(10, 64)}, now_ms=50_000)
    second = snapshot(tmp_path / "later", new, {THOUSAND: holds(21_000, 1024), SMALL: holds(30, 64)})
    profile = views.growth(second, first)
    made = rows(profile)
    assert made[A].values == pytest.approx((9000, 9_000_000), rel=0.02)
    assert views.reliable(made[A].values[1], made[A].errors[1])
    assert B not in made
    assert made[UNSAMPLED].values == (20, 20 * 64)
    assert profile.total(0)[0] == pytest.approx(9020)
    assert leaks.find(second, 0, first)[0].verdict == leaks.GROWS


def test_stacks_that_were_thinned_out_take_the_blame(tmp_path: Path) -> None:
    """What the sums miss is due to the stack with heavy samples, not to the one whose objects were nearly all drawn."""
    one = snapshot(tmp_path, [One(A, 1000)] * 60 + [One(B, 1000)], {THOUSAND: holds(32_200, 1024)})
    heavy = next(at for at, stack in one.stacks.items() if stack.pcs == B)
    stack = one.stacks[heavy]
    stacks = {
        **one.stacks,
        heavy: replace(stack, live_count=10_000.0, live_bytes=1e7, live_square=1e8, alloc_count=10_000.0, alloc_square=1e8),
    }
    made = rows(views.live(replace(one, stacks=stacks)))
    assert made[A].values[0] == pytest.approx(sums([One(A, 1000)] * 60)[0], rel=0.15)
    assert made[A].values[0] + made[B].values[0] == pytest.approx(32_200)


def test_a_process_that_counted_nothing_has_samples_alone(tmp_path: Path) -> None:
    profile = views.live(snapshot(tmp_path, [One(A, 1000)] * 3, {}))
    assert rows(profile)[A].values == pytest.approx(sums([One(A, 1000)] * 3)[:2])
    assert any("had not counted its objects" in note for note in profile.notes)


def test_sizes_of_classes() -> None:
    assert len(CLASSES) == STRATA - 2
    assert list(CLASSES) == sorted(CLASSES)
