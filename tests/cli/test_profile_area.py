"""Reading the profile area of a record, damaged and hostile ones included."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import pytest
from areas import MODULES_AT, NAMES_AT, SAMPLES_AT, SIZE, STACKS_AT, STRATA, STRATA_AT, Area, One, stratum, sums
from conftest import write_record
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sheaf.commands.profile import views
from sheaf.commands.profile.area import Name, NoProfile, named, read_area
from sheaf.errors import SheafError

SAMPLES = [One((1, 2, 3), 1000), One((1, 2, 3), 2000, live=False), One((4,), 1 << 20, time_ms=500)]
MODULE = (1, 10, 0, b"\1" * 20, "/bin/x")
NAMES = [("Box.fill", "/srv/app.py"), ("évaluée", "b.py")]
FIRST = 120  # bytes of the stack without a depth


def write(path: Path, data: bytes, size: int = SIZE) -> Path:
    return write_record(path, {}, profile=data, profile_size=size)


def test_everything_is_read(tmp_path: Path) -> None:
    counted = {stratum(1000): (70, 71_680, 80, 81_920, 0, 0, 90, 92_160)}
    snapshot = read_area(Area(SAMPLES, [MODULE], lifetimes={(3, 5): 7.5}, counted=counted).write(tmp_path / "p.1.sheaf"))
    assert snapshot.complete
    assert snapshot.header.taken == 3
    entries = {(stack.pcs, stack.stratum): stack for stack in snapshot.stacks.values()}
    small, large = stratum(1000), stratum(2000)
    assert set(entries) == {((), 0), ((1, 2, 3), small), ((1, 2, 3), large), ((4,), STRATA - 1)}
    stack, other = entries[(1, 2, 3), small], entries[(1, 2, 3), large]
    for one, alive in ((stack, SAMPLES[:1]), (other, [])):
        taken = SAMPLES[:1] if alive else SAMPLES[1:2]
        assert (one.alloc_count, one.alloc_bytes, one.alloc_square) == pytest.approx(sums(taken))
        assert (one.live_count, one.live_bytes, one.live_square) == pytest.approx(sums(alive))
        assert (one.samples, one.live_samples) == (1, len(alive))
    assert stack.live_wasted == pytest.approx(24 * sums(SAMPLES[:1])[0])
    assert snapshot.strata[small].size == 1024
    assert (snapshot.strata[small].live_count, snapshot.strata[small].live_bytes) == (70, 71_680)
    assert len(snapshot.strata) == STRATA
    samples = [(one.size, one.time_ms, snapshot.stacks[one.stack].pcs) for one in snapshot.samples]
    assert samples == [(1000, 0, (1, 2, 3)), (1 << 20, 500, (4,))]
    assert [(m.start, m.end, m.path, m.build_id) for m in snapshot.modules] == [(1, 10, "/bin/x", b"\1" * 20)]
    assert snapshot.lifetimes[3][5] == 7.5
    assert snapshot.moment_ms == 60_000


@pytest.mark.parametrize("time_ms, expected", [(2000, 58_000), (61_000, 0), (0xFFFFFFFF - 4_000_000, 4_060_001)])
def test_ages(tmp_path: Path, time_ms: int, expected: int) -> None:
    snapshot = read_area(Area([One((1,), 100, time_ms=time_ms)]).write(tmp_path / "p.1.sheaf"))
    assert snapshot.age_ms(snapshot.samples[0]) == expected


def test_a_peak_is_that_of_unchanged_stacks(tmp_path: Path) -> None:
    old = read_area(Area([One((1,), 1000, peak=False)], epoch=6).write(tmp_path / "p.1.sheaf"))
    new = read_area(Area([One((1,), 1000, peak=False)], epoch=7).write(tmp_path / "p.2.sheaf"))
    assert max(stack.peak_bytes for stack in old.stacks.values()) == pytest.approx(sums([One((1,), 1000)])[1])
    assert max(stack.peak_bytes for stack in new.stacks.values()) == 0


def test_counts_older_than_samples_are_not_used(tmp_path: Path) -> None:
    path = tmp_path / "a.1.sheaf"
    small = stratum(1000)
    blocks = [*SAMPLES, *(One((4,), 1 << 20) for _ in range(8))]  # which are always sampled, and so never by chance
    counted = {small: (70, 71_680, 80, 81_920, 0, 0, 90, 92_160)}
    fresh = read_area(Area(blocks, [MODULE], counted=counted).write(path))
    assert (fresh.strata[small].live_count, fresh.strata[small].alloc_count) == (70, 90)
    old = read_area(Area(blocks, [MODULE], counted=counted, header={"strata_old": 1}).write(path))
    for number, one in enumerate(old.strata):
        mine = [stack for stack in old.stacks.values() if stack.stratum == number]
        assert one.live_count == round(sum(stack.live_count for stack in mine))
        assert one.live_bytes == round(sum(stack.live_bytes + stack.live_wasted for stack in mine))
    assert sum(one.live_count for one in old.strata) and old.strata[small].alloc_count == 90


def test_counts_are_used_where_chance_explains_the_samples(tmp_path: Path) -> None:
    # The process marks its counts as old whenever a sample that stands for much comes or goes, which proves nothing.
    small, always = stratum(1000), stratum(1 << 20)
    counted = {small: (70, 71_680, 80, 81_920, 0, 0, 90, 92_160), always: (1, 1 << 20, 1, 1 << 20, 0, 0, 1, 1 << 20)}
    found = read_area(Area(SAMPLES, [MODULE], counted=counted, header={"strata_old": 1}).write(tmp_path / "a.1.sheaf"))
    assert (found.strata[small].live_count, found.strata[always].live_count) == (70, 1)
    # Where heavy samples are missing, the others look precise. Counts of the same moment are better; old ones are not.
    many = {**counted, small: (90_000, 92_160_000, 90_000, 92_160_000, 0, 0, 90_000, 92_160_000)}
    for strata_ms, fresh in ((60_000, True), (59_000, False)):
        header = {"strata_old": 1, "strata_ms": strata_ms}
        found = read_area(Area(SAMPLES, [MODULE], counted=many, header=header).write(tmp_path / f"{strata_ms}.1.sheaf"))
        assert (found.strata[small].live_count == 90_000) == fresh
    # But a block that is always sampled is no chance: here the counts lack it.
    lacking = {**counted, always: (0,) * 8, small: (600, 614_400, 600, 614_400, 0, 0, 600, 614_400)}
    blocks = [*SAMPLES, *(One((4,), 1 << 20) for _ in range(3))]
    found = read_area(Area(blocks, [MODULE], counted=lacking, header={"strata_old": 1}).write(tmp_path / "b.1.sheaf"))
    assert found.strata[always].live_count == 4


def test_without_room(tmp_path: Path) -> None:
    with pytest.raises(NoProfile, match="no room for a profile") as caught:
        read_area(write_record(tmp_path / "p.1.sheaf", {}))
    assert not caught.value.room


@pytest.mark.parametrize("data", [b"", bytes(100), bytes(SIZE)])
def test_nothing_sampled(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(NoProfile, match="nothing was sampled") as caught:
        read_area(write(tmp_path / "p.1.sheaf", data))
    assert caught.value.room


def test_another_version(tmp_path: Path) -> None:
    data = bytearray(Area(SAMPLES).pack())
    struct.pack_into("<I", data, 8, 1)
    with pytest.raises(SheafError, match="unknown profile version 1"):
        read_area(write(tmp_path / "p.1.sheaf", bytes(data)))


def test_a_short_file_reads_as_zeros(tmp_path: Path) -> None:
    snapshot = read_area(write(tmp_path / "p.1.sheaf", Area(SAMPLES).pack()[:SAMPLES_AT]))
    assert snapshot.samples == []
    assert len(snapshot.stacks) == 4


def test_names(tmp_path: Path) -> None:
    area = Area(SAMPLES, names=NAMES)
    snapshot = read_area(write(tmp_path / "p.1.sheaf", area.pack()))
    found = [named(area.address(i, 40 + i)) for i in range(len(NAMES))]
    assert [(snapshot.names[one[0]], one[1]) for one in found if one] == [(Name(*one), 40 + i) for i, one in enumerate(NAMES)]
    assert named(0x7FFF_FFFF_FFFF) is None


@pytest.mark.parametrize(
    "at, code, value, what",
    [
        (STACKS_AT, "I", 4, "table of stacks"),  # a size too small
        (STACKS_AT, "I", 1 << 30, "table of stacks"),
        (STACKS_AT + 4, "H", 1 << 15, "table of stacks"),  # deeper than its size
        (STACKS_AT + 6, "H", STRATA, "table of stacks"),  # of no stratum
        (STACKS_AT + FIRST + 16, "d", float("nan"), "table of stacks"),
        (SAMPLES_AT + 24, "d", 0.5, "table of samples"),  # a weight below 1
        (SAMPLES_AT + 24, "d", float("inf"), "table of samples"),
        (SAMPLES_AT + 36, "I", 8, "table of samples"),  # no stack begins there
        (MODULES_AT + 56, "I", 33, "table of modules"),
        (128, "I", SIZE - 8, "table of stacks"),
        (128, "I", STACKS_AT + 4, "table of stacks"),
        (136, "I", 1 << 31, "table of stacks"),
        (152, "I", 1 << 31, "table of samples"),
        (164, "I", 1 << 31, "table of modules"),
        (168, "I", SIZE, "table of lifetimes"),
        (172, "I", SIZE, "table of strata"),
        (176, "I", 1, "table of strata"),  # fewer than those of large blocks
        (176, "I", 1 << 31, "table of strata"),
        (180, "I", SIZE, "table of names"),
        (188, "I", 1 << 31, "table of names"),
        (NAMES_AT, "I", 4, "table of names"),  # a size too small
        (NAMES_AT + 16, "I", 1 << 30, "table of names"),
        (NAMES_AT + 24, "H", 1 << 15, "table of names"),  # longer than its size
    ],
)
def test_damage_is_told_on_one_line(tmp_path: Path, at: int, code: str, value: float, what: str) -> None:
    data = bytearray(Area(SAMPLES, [MODULE], names=NAMES).pack())
    struct.pack_into(f"<{code}", data, at, value)
    with pytest.raises(SheafError, match=f"the profile is damaged .{what}.; copy the record again"):
        read_area(write(tmp_path / "p.1.sheaf", bytes(data)))


def test_a_killed_writer_leaves_one_torn_entry(tmp_path: Path) -> None:
    data = bytearray(Area(SAMPLES, header={"sequence": 9}).pack())
    stacks = read_area(write(tmp_path / "p.1.sheaf", bytes(data))).stacks
    last = max(stacks)
    struct.pack_into("<I", data, STACKS_AT + last, 0)
    snapshot = read_area(write(tmp_path / "p.2.sheaf", bytes(data)))
    assert not snapshot.complete
    assert set(snapshot.stacks) == set(stacks) - {last}
    assert all(sample.stack in snapshot.stacks for sample in snapshot.samples)


@pytest.mark.parametrize("size", [1, 199, 1 << 40, 1 << 63])
def test_an_impossible_size(tmp_path: Path, size: int) -> None:
    with pytest.raises(SheafError, match=r"damaged .size."):
        read_area(write(tmp_path / "p.1.sheaf", Area(SAMPLES).pack(), size))


NUMBERS = (900, 921_600, 950, 972_800, 3, 3072, 2000, 2_048_000)
COUNTED = dict.fromkeys((stratum(1000), stratum(2000), STRATA - 2), NUMBERS)
WHOLE = Area(SAMPLES * 20, [MODULE], counted=COUNTED, names=NAMES).pack()
PLACES = st.one_of(
    st.integers(0, 200),
    st.integers(NAMES_AT, NAMES_AT + 80),
    st.integers(STRATA_AT, STRATA_AT + STRATA * 72),
    st.integers(STACKS_AT, STACKS_AT + 600),
    st.integers(SAMPLES_AT, SAMPLES_AT + 300),
    st.integers(MODULES_AT, MODULES_AT + 360),
    st.integers(0, SIZE - 8),
)


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.lists(st.tuples(PLACES, st.binary(min_size=1, max_size=8)), min_size=1, max_size=6),
    length=st.one_of(st.just(SIZE), st.integers(0, SIZE)),
)
def test_hostile_areas(tmp_path: Path, changes: list[tuple[int, bytes]], length: int) -> None:
    """Any bytes give a snapshot whose parts fit together, or one line."""
    data = bytearray(WHOLE)
    for at, raw in changes:
        data[at : at + len(raw)] = raw
    try:
        snapshot = read_area(write(tmp_path / "p.1.sheaf", bytes(data[:length])))
    except SheafError as error:
        assert "\n" not in error.message
        return
    assert all(sample.stack in snapshot.stacks and sample.weight >= 1 for sample in snapshot.samples)
    assert all(stack.live_bytes >= 0 for stack in snapshot.stacks.values())
    assert all(snapshot.age_ms(sample) >= 0 for sample in snapshot.samples)
    for profile in (*views.available(snapshot), views.heap(snapshot), views.growth(snapshot, snapshot)):
        assert all(math.isfinite(number) for row in profile.rows for number in (*row.values, *row.errors) if number is not None)
