"""Reading the numbers of records: in batches, with sums of columns, and with little."""

from __future__ import annotations

import contextlib
import os
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import conftest
import pytest
from conftest import write_record
from many import copies, sleepers
from sheaf.commands import stats
from sheaf.records import cache, contents, layout, record, sums
from sheaf.records.cache import Merger
from sheaf.records.watch import Watch

COUNTS = {"alloc_fastpath": 1000, "alloc_slowpath": 10, "free_fastpath": 700, "slabs": 2, "objects": 2048, "inherited": 3}


# ---- sums ----


@pytest.mark.parametrize("seed", range(20))
def test_compiled_sums_equal_evaluated_ones(seed: int) -> None:
    draw = random.Random(seed)
    groups = [[f"n{i}" for i in range(draw.randint(1, 6))], [f"n{i}" for i in range(3, 9)], ["size", "slabs"]]
    known = [*dict.fromkeys(name for group in groups for name in group), "unknown"]
    lines: list[str] = []
    for number in range(8):
        terms = [" * ".join(draw.choices(known, k=draw.randint(1, 3))) for _ in range(draw.randint(1, 5))]
        line = f"s{number} = {terms[0]}" + "".join(f" {draw.choice('+-')} {term}" for term in terms[1:])
        with contextlib.suppress(ValueError):  # its numbers would be too large
            sums.parse([*lines, line])
            lines.append(line)
            known.append(f"s{number}")
    parsed = sums.parse(lines)
    rows = [[[draw.choice((0, 1, draw.randrange(1 << 64))) for _ in group] for group in groups] for _ in range(4)]
    flat = [[number for row in rows for number in row[i]] for i in range(len(groups))]
    expected = []
    for row in rows:
        values = defaultdict(
            int,
            {
                name: number
                for group, numbers in reversed(list(zip(groups, row, strict=True)))
                for name, number in zip(group, numbers, strict=True)
            },
        )
        expected.append(tuple(sums.evaluate(parsed, values.__getitem__).values()))
    assert sums.Adder(parsed, *groups)(*flat) == expected


@pytest.mark.parametrize(
    "line",
    [
        "a = ",
        "a = b +",
        "a = b ** c",
        "a = __import__('os')",
        "a = b; c",
        "a = 1e5.real",
        "a = b[0]",
        "a",
        "a = b + (c)",
        "a = " + " + ".join(["b"] * 101),
        "a = " + " * ".join(["b"] * 101),
    ],
)
def test_wrong_sums(line: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(line)}$"):
        sums.parse([line])


@pytest.mark.parametrize("name", ["import", "lambda", "None", "zip", "rows", "s0", "v0_0", "a0", "\u00e9"])
def test_names_of_the_text_do_not_reach_the_source(name: str) -> None:
    assert sums.Adder(sums.parse([f"{name} = {name} + x", f"x = {name}"]), [name, "y"])([3, 4]) == [(3, 3)]


# ---- caches ----


def in_slots(path: Path, slots: dict[int, dict[str, int]], **more: object) -> Path:
    """A record in which each of these slots has these counters of malloc-64; malloc-16 and malloc-32 are not used."""
    write_record(path, {"malloc-64": {**COUNTS, **slots[max(slots)]}}, slot=max(slots), **more)  # type: ignore[arg-type]
    data = bytearray(path.read_bytes())
    for slot, numbers in slots.items():
        for i, counter in enumerate(conftest.COUNTERS):
            at = 65536 + slot * 16 * 128 + i * 8
            data[at : at + 8] = numbers.get(counter, 0).to_bytes(8, "little")
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("large", [64, (1 << 62) // 3])
def test_counters_are_summed_over_slots(tmp_path: Path, large: int) -> None:
    slots = {
        slot: {name: (slot + 1) * (i + 1) * large // 64 for i, name in enumerate(conftest.COUNTERS)} for slot in (0, 1, 3, 7)
    }
    one = record.read(in_slots(tmp_path / "p.1.sheaf", slots))
    assert one.caches["malloc-64"].slots == slots
    for name in conftest.COUNTERS:
        expected = sum(numbers[name] for numbers in slots.values())
        assert one.caches["malloc-64"].count(name) == expected
        assert one.contents.counters()[conftest.COUNTERS.index(name)] == expected


@pytest.mark.parametrize("used", [(), (0,), (15,), (0, 15), (1, 2, 3), (3, 9), tuple(range(16))])
@pytest.mark.parametrize("guess", [0, 1, 4, 15, 16, 99])
def test_the_last_entry_in_use_is_found(used: tuple[int, ...], guess: int) -> None:
    table = bytearray(16 * 256)
    for number in used:
        table[number * 256 + random.Random(number).randrange(256)] = 1
    assert contents._used(bytes(table), 256, guess) == max(used, default=-1) + 1


def test_unused_entries_between_used_ones(tmp_path: Path) -> None:
    """Entries may lie anywhere; what lies in the slots for an unused entry does not count."""
    names = {f"c{i}": {**COUNTS, "alloc_fastpath": i + 1} for i in range(6)}
    path = write_record(tmp_path / "p.1.sheaf", names)
    data = bytearray(path.read_bytes())
    for gap in (0, 2, 3):
        data[16384 + gap * 512 : 16384 + (gap + 1) * 512] = bytes(512)
    path.write_bytes(data)
    one = record.read(path)
    assert {name: found.count("alloc_fastpath") for name, found in one.caches.items()} == {"c1": 2, "c4": 5, "c5": 6}
    assert [part.number for part in one.parts] == [1, 4, 5]
    (process,) = Watch([tmp_path]).refresh(caches=True)
    assert process.numbers.counters["alloc_fastpath"] == 13


def test_records_of_different_releases_are_added_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = write_record(tmp_path / "a.1.sheaf", {"malloc-64": COUNTS})
    counters, gauges = conftest.COUNTERS, conftest.GAUGES
    monkeypatch.setattr(conftest, "COUNTERS", ["novel", *reversed(counters)])
    monkeypatch.setattr(conftest, "GAUGES", ["height", *reversed(gauges)])
    second = write_record(tmp_path / "b.2.sheaf", {"malloc-64": {**COUNTS, "novel": 7, "height": 9}})
    for order in ([first, second, first], [second, first, second]):
        records = [record.read(path) for path in order]
        merged = record.merge(records)["malloc-64"]
        assert merged.count("alloc_fastpath") == 3000
        assert merged.count("novel") == 7 * order.count(second)
        assert merged.gauges["height"] == 9 * order.count(second)
        assert merged.gauges["objects"] == 3 * 2048
        assert merged.derived()["in_use"] == 3 * (3 + 1010 - 700)


@pytest.mark.parametrize("count", [1, cache._BATCH, cache._BATCH + 1, 3 * cache._BATCH + 5])
def test_any_number_of_records_is_added(tmp_path: Path, count: int) -> None:
    one = record.read(in_slots(tmp_path / "p.1.sheaf", {0: {"alloc_fastpath": 5}, 2: {"alloc_fastpath": 1 << 50}}))
    merger = Merger(slots=True)
    for _ in range(count):
        merger.add(one.contents)
    slots = merger.by_name()["malloc-64"].slots
    assert {slot: numbers["alloc_fastpath"] for slot, numbers in slots.items()} == {0: 5 * count, 2: count << 50}


# ---- costs ----


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The system calls on files that Python code makes, by name, and the bytes that they read."""
    made: dict[str, int] = {"bytes": 0}

    def counted(name: str, function: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **more: object) -> object:
            made[name] = made.get(name, 0) + 1
            result = function(*args, **more)
            made["bytes"] += len(result) if isinstance(result, bytes) else 0
            return result

        return call

    for name in ("open", "pread", "read", "fstat", "lseek", "stat", "listdir", "scandir"):
        monkeypatch.setattr(os, name, counted(name, getattr(os, name)))
    return made


@pytest.fixture
def crowd(library: str, tmp_path: Path) -> Iterator[tuple[Path, int, int]]:
    """A directory with records of ended and of running processes, and their numbers."""
    with sleepers(10, tmp_path, library):
        copies(next(tmp_path.iterdir()), tmp_path, 300)
        yield tmp_path, 300, 10


def test_stats_reads_each_record_once(crowd: tuple[Path, int, int], calls: dict[str, int]) -> None:
    directory, ended, live = crowd
    layout._described.cache_clear()
    loaded = stats._Loaded([str(directory)], "cache")
    assert len(loaded.records) == ended + live
    assert layout._described.cache_info().misses == 1  # the text, which is the same in all, is parsed once
    assert calls["open"] == ended + live
    assert calls["pread"] <= 5 * (ended + live)  # header, entries, and the slots in use
    assert calls["bytes"] < 80_000 * (ended + live)
    assert calls["lseek"] <= 4 * (ended + live)


def test_a_refresh_reads_the_numbers_of_running_processes_only(crowd: tuple[Path, int, int], calls: dict[str, int]) -> None:
    directory, ended, live = crowd
    watch = Watch([directory])
    assert len(watch.refresh(caches=True)) == ended + live
    for asked, preads in ((True, 4), (False, 1)):
        calls.clear()
        calls["bytes"] = 0
        watch.refresh(caches=asked)
        assert calls["scandir"] == 1
        assert calls["open"] == 2 * live  # the record and /proc/PID/stat
        assert calls["pread"] <= preads * live
        assert watch.statistics.headers == watch.statistics.maps == 0
        assert (watch.statistics.numbers, watch.statistics.processes) == (live, live)
    assert calls["bytes"] < 1500 * live  # without caches: the values and /proc/PID/stat
