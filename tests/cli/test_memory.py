"""The memory of a process in `sheaf stats`: live, warm, returned, resident."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT, Run, Start, write_record
from sheaf.records import memory, record
from sheaf.records.memory import Memory
from sheaf.records.record import Record
from sheaf.rendering import memorytext

# In records of write_record(), an object takes 64 bytes and a slab 64 KiB.
OBJECTS = {"alloc_fastpath": 1000, "free_fastpath": 700, "slabs": 2, "objects": 2000, "free_in_slabs": 1500, "barn_objects": 100}
VALUES = {
    "large_bytes": 131072,
    "warm_bytes": 400000,
    "span_cache_bytes": 65536,
    "purged_bytes": 5 << 30,
    "mapped_bytes": 4096,
    "resident_bytes": 700000,
}


def read(path: Path) -> Memory:
    return memory.of_process(record.read(path))


def test_known_numbers(tmp_path: Path) -> None:
    m = read(write_record(tmp_path / "p.1.sheaf", {"malloc-64": OBJECTS}, values=VALUES))
    assert (m.live_objects, m.live_large) == (300 * 64, 131072 + 4096)
    assert (m.sheaves, m.barns, m.slabs) == (100 * 64, 100 * 64, 2 * 65536 - 500 * 64)
    assert (m.span_cache, m.region, m.returned) == (65536, 400000 - 65536, 5 << 30)
    assert (m.resident, m.peak_resident) == (700000, 1 << 20)
    assert m.live_objects + m.sheaves + m.barns + m.slabs == 2 * 65536


def test_memory_is_shown_and_exported(sheaf: Run, tmp_path: Path) -> None:
    path = write_record(tmp_path / "p.1.sheaf", {"malloc-64": OBJECTS}, values=VALUES)
    lines = sheaf("stats", str(path)).stdout.splitlines()
    assert lines[1:5] == [
        "  live 151 KiB: objects 18.8 KiB, large blocks 132 KiB",
        "  warm at most 500 KiB: sheaves 6.2 KiB, barns 6.2 KiB, slabs 96.8 KiB,",
        "    span cache 64 KiB, region 327 KiB",
        "  returned 5 GiB in total; resident 684 KiB, peak 1 MiB",
    ]
    (process,) = json.loads(sheaf("stats", "--format", "json", str(path)).stdout)["processes"]
    assert process["memory"]["live_bytes"] == 300 * 64 + 131072 + 4096
    assert process["memory"]["returned_bytes"] == 5 << 30
    assert process["memory"]["warm_bytes"] == 12800 + 99072 + 400000


def test_warm_memory_is_at_most_what_is_resident(tmp_path: Path) -> None:
    """Free objects of a fresh slab were never touched."""
    m = read(write_record(tmp_path / "p.1.sheaf", {"malloc-64": OBJECTS}, values=VALUES))
    assert (m.warm_most, m.anonymous) == (m.warm, None)
    running = replace(m, anonymous=232 << 10)
    assert running.warm_most == 232 << 10
    assert memorytext.lines(running)[1].startswith("  warm at most 232 KiB of 500 KiB: sheaves 6.2 KiB, ")
    assert memorytext.lines(replace(m, anonymous=1 << 30))[1].startswith("  warm at most 500 KiB: sheaves ")
    assert memorytext.to_json(running)["warm_most_bytes"] == 232 << 10


def test_a_running_process_has_a_peak(sheaf: Run, start: Start, tmp_path: Path) -> None:
    pid = start(code="x = bytearray(50 << 20); del x\nprint('ready', flush=True)\nimport sys; sys.stdin.read()").pid
    (one,) = json.loads(sheaf("top", "--json", "-n", "1", str(tmp_path)).stdout)["processes"]
    (two,) = json.loads(sheaf("stats", "--format", "json", str(pid)).stdout)["processes"]
    for found in (one["memory"], two["memory"]):
        assert found["peak_resident_bytes"] > 50 << 20 > found["resident_bytes"] > found["anonymous_bytes"] > 0
        assert found["warm_most_bytes"] <= min(found["warm_bytes"], found["anonymous_bytes"])
    assert " resident " in sheaf("stats", str(pid)).stdout.split("warm at most ")[1].split("peak ")[0]


def test_a_process_that_was_killed_tells_no_resident_memory(sheaf: Run, tmp_path: Path) -> None:
    values = {**VALUES, "resident_bytes": 0}
    path = write_record(tmp_path / "p.1.sheaf", {"malloc-64": OBJECTS}, ended=False, values=values, peak=0)
    assert (read(path).resident, read(path).peak_resident) == (None, None)
    assert "  returned 5 GiB in total\n" in sheaf("stats", str(path)).stdout


def test_an_older_record_counts_the_span_cache_in_the_region(tmp_path: Path) -> None:
    values = {name: value for name, value in VALUES.items() if name not in ("span_cache_bytes", "resident_bytes")}
    m = read(write_record(tmp_path / "p.1.sheaf", {"malloc-64": OBJECTS}, values=values))
    assert (m.span_cache, m.region, m.resident) == (0, 400000, None)


def test_many_processes_are_added_up(sheaf: Run, tmp_path: Path) -> None:
    for i in range(6):
        write_record(tmp_path / f"p.{i}.sheaf", {"malloc-64": OBJECTS}, values=VALUES)
    m = memory.of_all([record.read(path) for path in record.find(str(tmp_path))])
    assert (m.live_objects, m.resident, m.peak_resident) == (6 * 300 * 64, 6 * 700000, 1 << 20)
    assert "resident 4.0 MiB, highest peak 1 MiB" in sheaf("stats", str(tmp_path)).stdout


# ---- real processes ----

BURST = """
import sys
keep = [bytes(n % 3000 + 600) for n in range(40000)]
del keep[::3]
large = [b"x" * 3000000 for _ in range(20)]
print("burst", flush=True)
sys.stdin.readline()
del keep, large
print("freed", flush=True)
sys.stdin.readline()
"""


# mallopt(M_MMAP_THRESHOLD) makes the second block a mapping of its own.
OUTSIDE = """
import ctypes, sys
block = b"x" * 9000000
ctypes.CDLL(None).mallopt(-3, 1 << 20)
block = b"x" * 9000001
print("burst", flush=True)
sys.stdin.readline()
del block
print("freed", flush=True)
sys.stdin.readline()
"""


def start(library: str, directory: Path, code: str = BURST, **options: str) -> subprocess.Popen[str]:
    env = {**os.environ, "LD_PRELOAD": library, "SHEAF_RECORD": str(directory), **options}
    return subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    )


def conserved(found: Record) -> Memory:
    """The memory of a process; asserts that the caches and the region count the same bytes."""
    m = memory.of_process(found)
    assert m.live_objects + m.sheaves + m.barns + m.slabs == found.process["slab_bytes"]
    assert m.live_large == found.process["large_bytes"] + found.process["mapped_bytes"]
    assert m.span_cache + m.region == found.process["warm_bytes"]
    return m


def test_memory_adds_up_at_runtime_and_at_the_end(library: str, tmp_path: Path) -> None:
    with start(library, tmp_path) as process:
        assert process.stdin and process.stdout
        assert process.stdout.readline() == "burst\n"
        path = next(record.find(str(process.pid)))
        full = conserved(record.read(path))
        assert full.live > 30 << 20
        assert full.resident and full.resident > full.live
        assert full.peak_resident and full.peak_resident >= full.resident
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "freed\n"
        freed = conserved(record.read(path))
        assert freed.live < full.live - (20 << 20)
        assert freed.live_large < full.live_large - (50 << 20)
        process.communicate("\n")
    ended = conserved(record.read(path))
    assert ended.resident and ended.peak_resident
    assert 0 < ended.resident <= ended.peak_resident


def test_blocks_outside_the_region_are_live_until_freed(library: str, tmp_path: Path) -> None:
    with start(library, tmp_path, OUTSIDE) as process:
        assert process.stdin and process.stdout
        assert process.stdout.readline() == "burst\n"
        path = next(record.find(str(process.pid)))
        full = conserved(record.read(path))
        assert full.live_large >= record.read(path).process["mapped_bytes"] > 9000000
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "freed\n"
        assert record.read(path).process["mapped_bytes"] == 0
        assert conserved(record.read(path)).live_large <= full.live_large - 9000000
        process.communicate("\n")


def test_the_table_at_exit_has_the_same_figures(library: str, tmp_path: Path) -> None:
    with start(library, tmp_path, SHEAF_STATS="1") as process:
        said = process.communicate("\n\n")[1]
    told = {name.strip(): int(value) for name, _, value in (line.rpartition("=") for line in said.splitlines()) if name}
    m = conserved(record.read(tmp_path / next(iter(os.listdir(tmp_path)))))
    assert told["in use bytes"] == m.live
    assert told["large bytes"] == m.live_large
    assert told["free in sheaves"] == m.sheaves
    assert told["free in barns"] == m.barns
    assert told["free in slabs"] == m.slabs
    assert told["free in span caches"] == m.span_cache
    assert told["free in region"] == m.region
    assert told["given back"] == m.returned
    assert told["resident"] > 0


def test_memory_that_the_helper_returns_is_recorded_while_the_program_sleeps(library: str, tmp_path: Path) -> None:
    with start(library, tmp_path, SHEAF_HELPER="1", SHEAF_DECAY="100") as process:
        assert process.stdin and process.stdout
        assert process.stdout.readline() == "burst\n"
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "freed\n"
        path = next(record.find(str(process.pid)))
        for _ in range(600):
            m = read(path)
            if m.warm < 8 << 20 and m.returned > 20 << 20:
                break
            time.sleep(0.1)
        else:
            pytest.fail(f"the record still has {m}")
        process.communicate("\n")


def test_run_prints_memory_as_json(library: str) -> None:
    words = [sys.executable, "-m", "sheaf", "run", "--stats=json", "--", "ls", "-d", "/"]
    done = subprocess.run(
        words, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "cli"), "SHEAF_LIBRARY": library}
    )
    (process,) = json.loads(done.stderr)["processes"]
    assert process["memory"]["live_bytes"] >= 0


QUARANTINE = """
import ctypes, os
libc = ctypes.CDLL(None)
libc.malloc.argtypes, libc.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
for block in [libc.malloc(30000) for _ in range(200)]:
    libc.free(block)
if os.fork() == 0:
    libc.free(libc.malloc(30000))
else:
    os.wait()
"""


def test_what_is_in_quarantine_at_a_fork_is_not_in_use_in_the_child(library: str, tmp_path: Path) -> None:
    with start(library, tmp_path, QUARANTINE, SHEAF_HARDEN="quarantine=16M") as process:
        process.communicate()
    records = [record.read(path) for path in record.find(str(tmp_path))]
    assert len(records) == 2
    for one in records:
        conserved(one)
        found = one.caches["malloc-30720"].derived()
        assert found["in_use"] < 10
        assert found["in_sheaves"] >= 200
