"""The commands on damaged and hostile records: each gives a result, or one line and a status."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import hostile
import pytest
from areas import Area, One
from conftest import write_record
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sheaf.commands.profile.area import read_area
from sheaf.errors import SheafError
from sheaf.records import record
from sheaf.records.watch import Watch
from sheaf.rendering import memorytext, table

COUNTS = {"alloc_fastpath": 1000, "free_fastpath": 700, "slabs": 2, "objects": 2048, "free_in_slabs": 5}
SAMPLES = [One((1, 2, 3), 1000), One((1, 2, 3), 2000, live=False), One((4,), 1 << 20, time_ms=500)]
MODULES = [(1, 10, 0, b"\1" * 20, "/bin/true")]
FEW = settings(
    deadline=None, max_examples=40, derandomize=True, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def made(path: Path) -> bytes:
    """A record with caches and a profile, as a process would have written it."""
    area = Area(SAMPLES * 5, MODULES).pack()
    write_record(path, {"malloc-64": COUNTS, "malloc-128": COUNTS}, slot=2, profile=area, profile_size=len(area))
    data = path.read_bytes()
    path.unlink()
    return data


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The record of a real process if the object is there, otherwise a made one."""
    directory = tmp_path_factory.mktemp("real")
    library = os.environ.get("SHEAF_LIBRARY")
    if not library:
        return made(directory / "p.1.sheaf")
    subprocess.run(
        [sys.executable, "-c", "keep = [bytes(600) for _ in range(5000)]"],
        check=True,
        env={**os.environ, "LD_PRELOAD": library, "SHEAF_RECORD": str(directory), "SHEAF_PROFILE": "4096"},
    )
    data = next(directory.glob("*.sheaf")).read_bytes()
    return data[: 4 << 20]


def try_record(directory: Path, data: bytes, seed: int) -> None:
    draw = random.Random(seed)
    path = hostile.write(directory / "p.1.sheaf", hostile.hostile_record(data, draw), draw.choice([0, 0, 0, 1 << 20, 1 << 40]))
    with hostile.bounded():
        hostile.ask_all(directory, path)


@FEW
@given(seed=st.integers(0, 1 << 40))
def test_made_records(tmp_path: Path, seed: int) -> None:
    try_record(tmp_path, made(tmp_path / "p.1.sheaf"), seed)


@FEW
@given(seed=st.integers(0, 1 << 40))
def test_real_records(tmp_path: Path, real: bytes, seed: int) -> None:
    try_record(tmp_path, real, seed)


def test_every_field_of_the_header(tmp_path: Path) -> None:
    """Each number in the header takes each value at which a reader may stumble. Another record is still shown."""
    data = made(tmp_path / "p.1.sheaf")
    write_record(tmp_path / "good.2.sheaf", {"malloc-64": COUNTS})
    with hostile.bounded():
        for name, (_, kind) in hostile.fields(data).items():
            for value in hostile.numbers(len(data)) if kind in hostile.CODES else ():
                path = hostile.write(tmp_path / "p.1.sheaf", hostile.with_field(data, name, value))
                assert hostile.answer("stats", str(tmp_path)) == 0, (name, value)
                hostile.answer("stats", str(path))
                if name.startswith(("profile", "control", "window", "pid")):
                    for command in ("profile", "dump", "records"):
                        hostile.answer(command, str(tmp_path if command == "records" else path))
                else:
                    hostile.scrape(tmp_path)


@pytest.mark.parametrize("name", ["values_offset", "caches_offset", "slots_offset"])
@pytest.mark.parametrize("value", [1 << 40, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_an_offset_beyond_the_file(tmp_path: Path, name: str, value: int) -> None:
    path = hostile.write(tmp_path / "p.1.sheaf", hostile.with_field(made(tmp_path / "p.1.sheaf"), name, value))
    with pytest.raises(SheafError, match=r"cut short at|header is damaged"):
        record.read(path)


@pytest.mark.parametrize("at", [0, 7, 8, 12, 23, 24, 100, 500, 4095, 4096, 8191, 8192, 8200, 16383, 16384, 16900, 65535, 65536])
def test_truncated(tmp_path: Path, at: int) -> None:
    path = hostile.write(tmp_path / "p.1.sheaf", made(tmp_path / "p.1.sheaf")[:at])
    with hostile.bounded():
        hostile.ask_all(tmp_path, path)


SQUARES = ["cache in_use = alloc_fastpath", *(f"cache s{i + 1} = s{i} * s{i}" for i in range(60))]


@pytest.mark.parametrize(
    "more",
    [
        ["cache s0 = size * size", *SQUARES],
        ["process s0 = large_bytes * large_bytes", *(f"process s{i + 1} = s{i} * s{i}" for i in range(60))],
        [f"header char x{i}[65536]" for i in range(40)],
        [f"entry uint64_t x{i}[60000]" for i in range(40)],
        ["counter \x1b[31m"],
        ["header uint64_t slot_max", "header uint64_t slot_stride"],
    ],
)
def test_a_text_that_asks_for_too_much(tmp_path: Path, more: list[str]) -> None:
    data = made(tmp_path / "p.1.sheaf")
    path = hostile.write(tmp_path / "p.1.sheaf", hostile.with_text(data, [*hostile.text_of(data)[:-1], *more]))
    with hostile.bounded():
        hostile.ask_all(tmp_path, path)


def test_without_values(tmp_path: Path) -> None:
    data = made(tmp_path / "p.1.sheaf")
    lines = [line for line in hostile.text_of(data) if not line.startswith("value ")]
    path = hostile.write(tmp_path / "p.1.sheaf", hostile.with_text(data, lines))
    with pytest.raises(SheafError, match="header is damaged"):
        record.read(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"cache_max": 65535, "cache_stride": 65535, "slot_stride": (1 << 32) - 1},
        {"slot_max": 65535, "slot_stride": (1 << 32) - 1},
        {"cache_max": 65535, "counter_stride": 65535, "slot_stride": (1 << 32) - 1},
        {"slot_max": 65535, "slots_offset": 0},
    ],
)
def test_tables_that_lie_in_a_hole(tmp_path: Path, changes: dict[str, int]) -> None:
    """The file seems to be long enough for anything."""
    data = made(tmp_path / "p.1.sheaf")
    for name, value in changes.items():
        data = hostile.with_field(data, name, value)
    path = hostile.write(tmp_path / "p.1.sheaf", data, 1 << 40)
    with hostile.bounded():
        hostile.ask_all(tmp_path, path)


def test_files_that_are_none(tmp_path: Path) -> None:
    """A FIFO, a directory, a loop of links, a device and a huge hole: the good record is shown all the same."""
    write_record(tmp_path / "good.1.sheaf", {"malloc-64": COUNTS})
    os.mkfifo(tmp_path / "fifo.2.sheaf")
    (tmp_path / "directory.3.sheaf").mkdir()
    (tmp_path / "loop.4.sheaf").symlink_to("loop.4.sheaf")
    (tmp_path / "zero.5.sheaf").symlink_to("/dev/zero")
    (tmp_path / "dangling.6.sheaf").symlink_to("nowhere")
    hostile.write(tmp_path / "hole.7.sheaf", b"", 1 << 40)
    with hostile.bounded():
        for path in sorted(tmp_path.iterdir()):
            hostile.ask_all(tmp_path, path)
        assert hostile.answer("stats", str(tmp_path)) == 0
        assert b"malloc-64" in hostile.scrape(tmp_path)


def try_readers(directory: Path, data: bytes, seed: int) -> None:
    """The readers alone, for many more records."""
    path = hostile.write(directory / "p.1.sheaf", hostile.hostile_record(data, random.Random(seed)))
    for read in (record.read, record.read_head, read_area):
        try:
            found = read(path)
        except SheafError as error:
            assert "\n" not in error.message
            continue
        if isinstance(found, record.Record):
            table.machine(table.cache_rows(found.caches, True), memorytext.processes_json([found]), "json")
    for process in Watch([directory]).refresh(caches=True):
        assert process.memory
    if seed % 16 == 0:
        hostile.scrape(directory)


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        base = Path(sys.argv[3]).read_bytes()[: 1 << 20] if len(sys.argv) > 3 else made(Path(place, "p.1.sheaf"))
        hostile.explore(lambda seed: try_readers(Path(place), base, seed))
