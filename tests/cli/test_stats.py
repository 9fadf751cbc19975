"""`sheaf stats`, on records whose numbers are known."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from conftest import Run, write_record

A = {"alloc_fastpath": 1000, "alloc_slowpath": 10, "free_fastpath": 700, "free_slowpath": 5, "sheaf_refill": 253,
     "sheaf_flush": 7, "slabs": 2, "objects": 2048, "free_in_slabs": 1500, "barn_objects": 100, "inherited": 3}


@pytest.fixture
def one(tmp_path: Path) -> Path:
    idle = {"slabs": 1, "objects": 512, "free_in_slabs": 512}
    return write_record(tmp_path / "prog.1.sheaf", {"malloc-64": A, "malloc-128": idle})


def test_numbers(sheaf: Run, one: Path) -> None:
    out = json.loads(sheaf("stats", "--format", "json", str(one)).stdout)
    assert out["schema_version"] == 1
    row = out["rows"][0]
    assert row["name"] == "malloc-64"
    assert row["in_use"] == 3 + 1010 - 705
    assert row["in_sheaves"] == 2048 - 1500 - 100 - 308
    assert row["in_barns"] == 100
    assert row["memory_bytes"] == 2 * 65536
    assert row["fast_share"] == round(1700 / 1715, 6)
    assert out["processes"][0]["program"] == "prog"


def test_table_fits_and_is_plain(sheaf: Run, one: Path) -> None:
    done = sheaf("stats", str(one), env={"NO_COLOR": "1"})
    assert done.returncode == 0
    assert "malloc-64" in done.stdout
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_csv_and_jsonl(sheaf: Run, one: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(sheaf("stats", "--format", "csv", str(one)).stdout)))
    assert rows[0]["schema_version"] == "1"
    assert int(rows[0]["in_use"]) == 308
    lines = sheaf("stats", "--format", "jsonl", str(one)).stdout.splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["malloc-64", "malloc-128"]


def test_directory_is_merged(sheaf: Run, tmp_path: Path) -> None:
    write_record(tmp_path / "a.1.sheaf", {"malloc-64": A})
    write_record(tmp_path / "b.2.sheaf", {"malloc-64": A})
    rows = json.loads(sheaf("stats", "--format", "json", str(tmp_path)).stdout)["rows"]
    assert [(row["name"], row["in_use"]) for row in rows] == [("malloc-64", 616)]


def test_by_slot_sort_and_diff(sheaf: Run, tmp_path: Path, one: Path) -> None:
    rows = json.loads(sheaf("stats", "--by", "slot", "--format", "json", str(one)).stdout)["rows"]
    assert rows[0]["alloc_fastpath"] == 1000
    rows = json.loads(sheaf("stats", "--sort", "name", "--format", "json", str(one)).stdout)["rows"]
    assert rows[0]["name"] == "malloc-128"
    later = write_record(tmp_path / "later.1.sheaf", {"malloc-64": {**A, "alloc_fastpath": 1500}})
    rows = json.loads(sheaf("stats", "--diff", "--format", "json", str(one), str(later)).stdout)["rows"]
    assert next(row for row in rows if row["name"] == "malloc-64")["in_use"] == 500


@pytest.mark.parametrize("content", [b"", b"SHEAFREC", b"hello" * 2000])
def test_files_that_are_no_records(sheaf: Run, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.sheaf"
    path.write_bytes(content)
    done = sheaf("stats", str(path))
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert str(path) in done.stderr


def test_cut_short_anywhere(sheaf: Run, one: Path) -> None:
    whole = one.read_bytes()
    for size in (100, 5000, 8195, 17000, len(whole) - 50):
        one.write_bytes(whole[:size])
        done = sheaf("stats", str(one))
        assert "Traceback" not in done.stderr
        assert done.returncode in (0, 1)


def test_damaged_headers(sheaf: Run, one: Path) -> None:
    whole = bytearray(one.read_bytes())
    for offset in range(16, 88, 4):
        for value in (b"\0\0\0\0", b"\xff\xff\xff\xff"):
            damaged = whole.copy()
            damaged[offset : offset + 4] = value
            one.write_bytes(bytes(damaged))
            done = sheaf("stats", str(one))
            assert "Traceback" not in done.stderr, (offset, value)
    one.write_bytes(bytes(whole))


def test_missing_things(sheaf: Run, tmp_path: Path) -> None:
    for target in (str(tmp_path / "none"), str(tmp_path), "99999999"):
        done = sheaf("stats", target)
        assert done.returncode == 1
        assert done.stderr.startswith("sheaf: ")
        assert len(done.stderr.splitlines()) == 1
