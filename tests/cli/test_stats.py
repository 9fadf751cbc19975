"""`sheaf stats`, on records with known numbers."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Run, as_nobody, write_record
from sheaf.errors import SheafError
from sheaf.records import record
from sheaf.rendering import sizes

A = {
    "alloc_fastpath": 1000,
    "alloc_slowpath": 10,
    "free_fastpath": 700,
    "free_slowpath": 5,
    "sheaf_refill": 253,
    "sheaf_flush": 7,
    "slabs": 2,
    "objects": 2048,
    "free_in_slabs": 1500,
    "barn_objects": 100,
    "inherited": 3,
}


@pytest.fixture
def one(tmp_path: Path) -> Path:
    idle = {"slabs": 1, "objects": 512, "free_in_slabs": 512}
    return write_record(tmp_path / "prog.1.sheaf", {"malloc-64": A, "malloc-128": idle})


def test_numbers(sheaf: Run, one: Path) -> None:
    out = json.loads(sheaf("stats", "--format", "json", str(one)).stdout)
    assert out["schema_version"] == 3
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


def test_the_table_has_sizes_shares_and_large_blocks(sheaf: Run, tmp_path: Path) -> None:
    values = {"large_bytes": 3 << 20, "large_blocks": 2}
    path = write_record(tmp_path / "prog.1.sheaf", {"malloc-64": A}, values=values)
    first, second = sheaf("stats", str(path)).stdout.split("NAME", 1)[1].split("\n\n")
    rows = [line.split() for line in first.splitlines()]
    assert rows[0] == ["SIZE", "IN", "USE", "SHEAVES", "BARNS", "FREE", "SLABS", "MEMORY", "USED", "FAST"]
    assert rows[1] == ["malloc-64", "64", "308", "140", "100", "1500", "2", "128K", "15%", "99.1%"]
    assert rows[2] == ["large", "blocks", "-", "2", "-", "-", "-", "-", "3072K", "-", "-"]
    assert rows[3] == ["total", "-", "310", "140", "100", "1500", "2", "3200K", "97%", "99.1%"]
    assert second.split()[:9] == ["NAME", "REFILL", "FLUSH", "GETS", "FAILS", "PUTS", "FAILS", "malloc-64", "253"]
    assert "own mappings" not in first
    write_record(path, {"malloc-64": A}, values={**values, "mapped_bytes": 1 << 30})
    lines = sheaf("stats", str(path)).stdout.splitlines()
    assert next(line for line in lines if line.startswith("own mappings")).split()[-3:] == ["1.0G", "-", "-"]


def test_the_difference_has_large_blocks(sheaf: Run, tmp_path: Path) -> None:
    paths = [
        write_record(tmp_path / f"p.{i}.sheaf", {"malloc-64": A}, values={"large_bytes": i << 20, "large_blocks": i})
        for i in (1, 4)
    ]
    lines = sheaf("stats", "--diff", *map(str, paths)).stdout.splitlines()
    assert next(line for line in lines if line.startswith("large blocks")).split()[3:8] == ["3", "-", "-", "-", "-"]


@pytest.mark.parametrize("columns", [1, 13, 30, 44, 60, 79, 80, 100])
@pytest.mark.parametrize("more", [[], ["--by", "slot"], ["--by", "node"]])
def test_a_narrow_terminal_leaves_out_columns(sheaf: Run, tmp_path: Path, columns: int, more: list[str]) -> None:
    path = write_record(tmp_path / "prog.1.sheaf", {"malloc-64": A, "a-cache-with-a-long-name": A})
    out = sheaf("stats", *more, str(path), env={"COLUMNS": str(columns)}).stdout
    assert max(map(len, out.splitlines()[1:])) <= max(columns, 20) + 80 * ("not divided" in out)
    assert ("Not shown in" in out) == (columns < (75 if not more else 78))
    if not more:
        assert ("a-cache-with-a-long-name" in out.split("\n\n")[0]) == (columns >= 100)
        assert columns < 44 or "MEMORY" in out


def test_no_figure_has_two_names(sheaf: Run, tmp_path: Path) -> None:
    """Each counter, gauge and value is different, so equal figures are one figure."""
    numbers = {name: 10**6 + 1009 * 3**i for i, name in enumerate(A)}
    values = {
        name: 10**7 + 1000 * i
        for i, name in enumerate(
            ("slab_bytes", "large_bytes", "mapped_bytes", "warm_bytes", "span_cache_bytes", "purged_bytes", "resident_bytes")
        )
    }
    path = write_record(tmp_path / "prog.1.sheaf", {"malloc-64": numbers}, values=values, peak=1 << 25)
    out = json.loads(sheaf("stats", "--format", "json", str(path)).stdout)
    (row,), (process,) = out["rows"], out["processes"]
    figures = [n for n in row.values() if isinstance(n, int) and n]
    assert len(figures) == len(set(figures))
    flat = {**process, **process["values"], **process["memory"]}
    assert not process["values"].keys() & (process.keys() | process["memory"].keys())
    figures = [n for n in flat.values() if isinstance(n, int) and n > 10**6]
    assert len(figures) == len(set(figures))


def test_csv_and_jsonl(sheaf: Run, one: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(sheaf("stats", "--format", "csv", str(one)).stdout)))
    assert rows[0]["schema_version"] == "3"
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
    assert [row["name"] for row in rows] == ["malloc-64", "malloc-128"]  # by the number, not by the digits
    for key in ("IN USE", "in_use"):
        rows = json.loads(sheaf("stats", "--sort", key, "--format", "json", str(one)).stdout)["rows"]
        assert [row["name"] for row in rows] == ["malloc-64", "malloc-128"]
    done = sheaf("stats", "--sort", "in-use", str(one))
    assert (done.stderr, done.returncode) == ("sheaf: --sort in-use: no such column; did you mean in_use?\n", 2)
    later = write_record(tmp_path / "later.1.sheaf", {"malloc-64": {**A, "alloc_fastpath": 1500}})
    rows = json.loads(sheaf("stats", "--diff", "--format", "json", str(one), str(later)).stdout)["rows"]
    assert next(row for row in rows if row["name"] == "malloc-64")["in_use"] == 500


def test_a_directory_without_a_readable_record_is_an_error(sheaf: Run, tmp_path: Path) -> None:
    for name in ("a.1.sheaf", "b.2.sheaf"):
        (tmp_path / name).write_bytes(bytes(4096))
    done = sheaf("stats", str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"sheaf: {tmp_path}: 2 files: the header is missing: the process has just started, or was killed at "
        "its start; try again later\n"
    )
    (tmp_path / "c.3.sheaf").write_bytes(b"text" * 2000)
    done = sheaf("stats", str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 3
    assert done.stderr.splitlines()[-1] == f"sheaf: {tmp_path}: none of its 3 records can be read; run the programs again"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run the command as another user")
def test_records_of_another_user_are_one_line(sheaf: Run) -> None:
    """However many there are, whether or not another record can be read."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        for pid in range(38):
            write_record(Path(name) / f"p.{pid}.sheaf", {"malloc-64": A}).chmod(0o600)
        why = f"{name}: 38 files: Permission denied"
        nobody: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": []}
        done = sheaf("stats", name, **nobody)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", f"sheaf: {why}; run sheaf as the owner or as root\n")
        listed = sheaf("records", name, **nobody)
        assert (listed.returncode, listed.stdout.splitlines()[1:]) == (0, [f"not readable: {why}"])
        top = sheaf("top", "--batch", "-n", "1", name, **nobody)
        assert (top.returncode, top.stdout.splitlines()[1:]) == (0, [f"{why}; run sheaf as the owner or as root"])
        write_record(Path(name) / "q.99.sheaf", {"malloc-64": A})
        done = sheaf("stats", name, **nobody)
        assert (done.returncode, done.stderr) == (0, f"sheaf: {why}; run sheaf as the owner or as root\n")
        pruned = sheaf("records", "--prune", "--keep", "0", name, **nobody)
        assert pruned.returncode == 1
        assert len(pruned.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", ["\u00b2", "9" * 5000])
def test_a_number_without_a_process_is_an_error(sheaf: Run, name: str) -> None:
    done = sheaf("stats", name)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)


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


def reason(path: Path) -> str:
    """Why the record cannot be read."""
    with pytest.raises(SheafError) as caught:
        record.read(path)
    return caught.value.message.removeprefix(f"{path}: ")


def reasons(path: Path, offsets: Sequence[int]) -> Iterator[tuple[int, str]]:
    """Why the record cannot be read when the byte at each of these offsets is changed."""
    whole = path.read_bytes()
    with path.open("r+b", buffering=0) as file:
        for offset in offsets:
            os.pwrite(file.fileno(), bytes([whole[offset] ^ 0x21]), offset)
            yield offset, reason(path)
            os.pwrite(file.fileno(), whole[offset : offset + 1], offset)


def test_every_byte_of_the_header_and_the_text_is_checked(one: Path) -> None:
    for offset, said in reasons(one, range(4096)):
        expected = "not a Sheaf record" if offset < 8 else "unknown record version" if offset < 12 else "the header is damaged; "
        assert said.startswith(expected), offset


def test_every_byte_of_an_entry_is_checked(one: Path) -> None:
    """The entries of a cache in use and of an unused one."""
    for entry in (16384 + 512, 16384 + 5 * 512):
        for offset, said in reasons(one, range(entry, entry + 32 + 6 * 4)):
            assert said.startswith("the entry of a cache is damaged; "), offset


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("header uint32_t cache_max", "header uint32_t cache_mix"),
        ("header uint32_t pid", "header uint31_t pid"),
        ("cache in_use = inherited", "cache in_use = inherited +"),
        ("cache in_use =", "cache abuse ="),
        ("entry uint64_t gauges[24]", "entry uint64_t gauges[99999999]"),
        ("entry char name[32]", "entry uint32_t name"),
        ("entry uint32_t checksum", "entry uint32_t checked"),
        ("header uint64_t slots_offset", "header char slots_offset[8]"),
        ("counter ", "counter a\ncounter b\ncounter c\ncounter "),
    ],
)
def test_a_text_that_says_something_else_is_an_error(one: Path, old: str, new: str) -> None:
    whole = one.read_bytes()
    checked = whole[16:4096].rstrip(b"\n") + b"\n"
    checked = checked.replace(old.encode(), new.encode())[: 4096 - 16].ljust(4096 - 16, b"\n")
    one.write_bytes(whole[:12] + struct.pack("<I", zlib.crc32(checked)) + checked + whole[4096:])
    assert reason(one).startswith("the header is damaged; ")


def test_a_record_of_another_version_is_named(sheaf: Run, one: Path) -> None:
    whole = one.read_bytes()
    for version in (1, 3):
        one.write_bytes(whole[:8] + struct.pack("<I", version) + whole[12:])
        done = sheaf("stats", str(one))
        advice = f"unknown record version {version} (this command reads version 2); use the `sheaf` of the same release"
        assert (done.stderr, done.returncode) == (f"sheaf: {one}: {advice}\n", 1)


def test_a_record_of_a_later_library_is_read(sheaf: Run, tmp_path: Path) -> None:
    outputs = []
    for later in (False, True):
        path = write_record(tmp_path / "prog.1.sheaf", {"malloc-64": A, "malloc-128": {}}, slot=2, later=later)
        outputs.append(json.loads(sheaf("stats", "--all", "--format", "json", str(path)).stdout))
    assert outputs[0] == outputs[1]


def test_missing_things(sheaf: Run, tmp_path: Path) -> None:
    for target in (str(tmp_path / "none"), str(tmp_path), "99999999"):
        done = sheaf("stats", target)
        assert done.returncode == 1
        assert done.stderr.startswith("sheaf: ")
        assert len(done.stderr.splitlines()) == 1


def test_a_missing_directory_is_not_created(sheaf: Run, tmp_path: Path) -> None:
    done = sheaf("stats", str(tmp_path / "none") + "/")
    assert "No such file or directory" in done.stderr
    assert not (tmp_path / "none").exists()


def test_unreadable_things_are_named(one: Path) -> None:
    """Other users have no access to tmp_path; its owner removes the permissions of the file and the directory."""

    def complaint(target: Path) -> str:
        try:
            return str(len([record.read(path) for path in record.find(str(target))]))
        except SheafError as error:
            return error.message

    one.chmod(0)
    assert as_nobody(lambda: complaint(one)).startswith(f"{one}: Permission denied; ")
    open_one = one.parent / "open"
    open_one.mkdir(mode=0o000)
    assert "Permission denied" in as_nobody(lambda: complaint(open_one))
    if os.geteuid() == 0:
        ours = Path(str(os.getpid()))
        advice = "run sheaf as the user of the process or as root, or name the record file"
        assert as_nobody(lambda: complaint(ours)).endswith(f"; {advice}")


def test_a_bad_record_among_good_ones_is_left_out(sheaf: Run, one: Path) -> None:
    for name, content in (("empty", b""), ("begun", bytes(200000)), ("other", b"something else" * 1000)):
        (one.parent / f"{name}.2.sheaf").write_bytes(content)
    done = sheaf("stats", "--format", "json", str(one.parent))
    assert [row["in_use"] for row in json.loads(done.stdout)["rows"]] == [308, 0]
    lines = done.stderr.splitlines()
    assert [line.split(": ")[1] for line in lines] == [str(one.parent), str(one.parent / "other.2.sheaf")]
    assert "2 files: the header is missing: the process has just started" in lines[0]
    assert "not a Sheaf record" in lines[1]


def test_all_shows_caches_without_slabs(sheaf: Run, tmp_path: Path) -> None:
    path = write_record(tmp_path / "p.1.sheaf", {"malloc-64": A, "malloc-80": {}})
    for more, names in (([], ["malloc-64"]), (["--all"], ["malloc-64", "malloc-80"])):
        rows = json.loads(sheaf("stats", "--format", "json", *more, str(path)).stdout)["rows"]
        assert [row["name"] for row in rows] == names


def test_by_node_explains_a_single_row(sheaf: Run, tmp_path: Path) -> None:
    path = write_record(tmp_path / "p.1.sheaf", {"malloc-64": A, "malloc-80": A})
    rows = json.loads(sheaf("stats", "--by", "node", "--format", "json", str(path)).stdout)["rows"]
    assert [(row["name"], row["in_use"], row["fast_share"]) for row in rows] == [("all nodes", 616, round(1700 / 1715, 6))]
    assert "not divided by memory node" in sheaf("stats", "--by", "node", str(path)).stdout


def test_diff_by_slot_keeps_the_slot(sheaf: Run, tmp_path: Path) -> None:
    old = write_record(tmp_path / "old.1.sheaf", {"malloc-64": A}, slot=3)
    new = write_record(tmp_path / "new.1.sheaf", {"malloc-64": {**A, "alloc_fastpath": 1500}}, slot=3)
    rows = json.loads(sheaf("stats", "--by", "slot", "--diff", "--format", "json", str(old), str(new)).stdout)["rows"]
    assert [(row["slot"], row["alloc_fastpath"], row["free_fastpath"]) for row in rows] == [(3, 500, 0)]


def test_many_processes_are_summed_up(sheaf: Run, tmp_path: Path) -> None:
    for i in range(7):
        write_record(tmp_path / f"p.{i}.sheaf", {"malloc-64": A}, ended=i >= 2)
    lines = sheaf("stats", str(tmp_path)).stdout.splitlines()
    assert lines[:2] == ["7 processes: 2 ended by signal, _exit or exec, 5 ended", "7 ended, as their records were left:"]
    assert "highest peak 1 MiB" in lines[5]
    assert max(map(len, lines)) <= 80
    assert next(line for line in lines[2:] if not line.startswith("  ")).startswith("NAME")


def test_the_headline_adds_up_running_processes_apart_from_ended_ones(
    sheaf: Run, tmp_path: Path, worker: subprocess.Popen[str]
) -> None:
    records = tmp_path / "records"
    large = {"large_bytes": 1 << 40}
    for i in range(6):
        write_record(records / f"p.{i}.sheaf", {"malloc-64": A}, values=large)
    lines = sheaf("stats", str(records)).stdout.splitlines()
    assert lines[:2] == ["7 processes: 1 running, 6 ended", "1 running:"]
    assert re.match(r"  live [\d.]+ MiB: ", lines[2])
    ended = lines.index("6 ended, as their records were left:")
    assert lines[ended + 1].startswith("  live 6.0 TiB: ")
    assert "Rows add up all 7 processes. Use --only running to leave out 6 that may have ended." in lines
    only = sheaf("stats", "--only", "running", str(records)).stdout
    assert f"({worker.pid}), running, " in only.splitlines()[0]
    assert "Rows add up" not in only
    rows = json.loads(sheaf("stats", "--only", "ended", "--format", "json", str(records)).stdout)["rows"]
    assert [(row["name"], row["in_use"]) for row in rows] == [("malloc-64", 6 * 308)]


def test_only_without_such_a_process_is_an_error(sheaf: Run, one: Path) -> None:
    done = sheaf("stats", "--only", "running", str(one))
    said = "sheaf: --only running: no record is of a process that runs; leave the option out\n"
    assert (done.stderr, done.returncode) == (said, 1)


def test_a_closed_pipe_is_quiet(one: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "sheaf", "stats", one],
        stdout=writer,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT / "cli")},
    )
    os.close(writer)
    assert (done.stderr, done.returncode) == (b"", 141)


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (300 << 20, "300 MiB"),
        (5 << 40, "5 TiB"),
        (5 << 50, "5120 TiB"),
    ],
)
def test_sizes(number: int, said: str) -> None:
    assert sizes.size(number) == said


# ---- running processes ----

WORKER = """
import sys
keep = [bytes(5000) for _ in range(2000)]
print("ready", flush=True)
while sys.stdin.readline():
    keep += [bytes(1000) for _ in range(5000)]
    del keep[::3]
    print("done", flush=True)
"""


@pytest.fixture
def worker(library: str, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process with a record in tmp_path/records that allocates whenever it reads a line."""
    with subprocess.Popen(
        [sys.executable, "-m", "sheaf", "run", "--record", tmp_path / "records", sys.executable, "-c", WORKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "cli")},
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def test_a_record_that_changes_while_it_is_read(worker: subprocess.Popen[str]) -> None:
    assert worker.stdin
    assert worker.stdout
    path = next(record.find(str(worker.pid)))
    allocations = 0
    for _ in range(20):
        worker.stdin.write("go on\n")
        worker.stdin.flush()
        for _ in range(10):  # while the worker allocates
            caches = record.read(path).caches.values()
            now = sum(cache.count("alloc_fastpath") + cache.count("alloc_slowpath") for cache in caches)
            assert now >= allocations
            assert all(min(cache.derived().values()) >= 0 for cache in caches)
            allocations = now
        assert worker.stdout.readline() == "done\n"
    assert allocations > 20 * 5000 - 2048


def test_a_running_process_is_recognized_by_any_path_of_its_record(worker: subprocess.Popen[str], tmp_path: Path) -> None:
    found = next(record.find(str(worker.pid)))
    (tmp_path / "link").symlink_to(found.parent)
    os.link(found, tmp_path / "hard.sheaf")
    names = [found, tmp_path / "link" / found.name, found.parent / ".." / found.parent.name / found.name, tmp_path / "hard.sheaf"]
    assert [record.read(path).alive for path in names] == [True] * 4
    copy = tmp_path / found.name
    copy.write_bytes(found.read_bytes())
    assert not record.read(copy).alive
    worker.kill()
    worker.wait()
    assert [record.read(path).alive for path in names] == [False] * 4


def test_a_parent_without_a_record_names_its_child(library: str, tmp_path: Path) -> None:
    with subprocess.Popen(
        ["sh", "-c", '"$@"; true', "sh", sys.executable, "-m", "sheaf", "run", "--record", tmp_path, "cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "cli")},
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write("line\n")
        process.stdin.flush()
        assert process.stdout.readline() == "line\n"
        with pytest.raises(SheafError, match=f"{process.pid}: does not run on Sheaf, but its child [0-9]+ does"):
            next(record.find(str(process.pid)))


def test_a_killed_process_leaves_its_counters(sheaf: Run, worker: subprocess.Popen[str]) -> None:
    path = next(record.find(str(worker.pid)))
    worker.kill()
    worker.wait()
    out = json.loads(sheaf("stats", "--format", "json", str(path)).stdout)
    assert (out["processes"][0]["state"], out["processes"][0]["end_time_ns"]) == ("gone", 0)
    big = next(row for row in out["rows"] if row["object_size_bytes"] == 5120)
    assert big["in_use"] + big["in_sheaves"] + big["in_barns"] >= 2000
    assert "ended by signal, _exit or exec" in sheaf("stats", str(path)).stdout


def test_peak_memory_is_the_programs_own(library: str, tmp_path: Path) -> None:
    """vfork passes ru_maxrss of a large program on to the small program that it starts."""
    large = "import subprocess; keep = b'x' * (200 << 20); subprocess.run(['/bin/ls', '/'], stdout=subprocess.DEVNULL)"
    subprocess.run(
        [sys.executable, "-c", large], check=True, env={**os.environ, "LD_PRELOAD": library, "SHEAF_RECORD": str(tmp_path)}
    )
    records = {r.program: r for r in map(record.read, record.find(str(tmp_path)))}
    assert records["ls"].peak_rss < 100 << 20
    assert max(r.peak_rss for r in records.values()) > 200 << 20


# ---- messages that name the cause ----


def test_a_short_file_is_reported_with_its_size(sheaf: Run, one: Path) -> None:
    one.write_bytes(one.read_bytes()[:3000])
    assert sheaf("stats", str(one)).stderr == (
        f"sheaf: {one}: cut short at 3000 bytes; copy the record again, or run the program again\n"
    )


def test_root_is_not_advised_to_be_root(monkeypatch: pytest.MonkeyPatch, one: Path) -> None:
    def denied(*_: object, **__: object) -> str:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "read_text", denied)
    monkeypatch.setattr(os, "listdir", denied)
    for root, advice in ((True, "CAP_SYS_PTRACE"), (False, "as the user of the process or as root")):
        monkeypatch.setattr(os, "geteuid", lambda root=root: 0 if root else 1000)
        with pytest.raises(SheafError, match=advice):
            next(record.find(str(os.getpid())))
        with pytest.raises(SheafError, match="another directory" if root else "as its owner or as root"):
            next(record.find(str(one.parent)))


def test_a_zombie_is_named_as_one(sheaf: Run) -> None:
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        done = sheaf("stats", str(process.pid))
    assert done.stderr == f"sheaf: {process.pid}: has ended and waits for its parent (zombie); name its record file\n"


def test_a_fifo_among_records_is_skipped(sheaf: Run, one: Path) -> None:
    os.mkfifo(one.parent / "x.sheaf")
    done = sheaf("stats", "--format", "json", str(one.parent))
    assert done.returncode == 0
    assert len(json.loads(done.stdout)["processes"]) == 1
    assert done.stderr.startswith(f"sheaf: {one.parent}/x.sheaf: not a regular file; ")


def test_diff_shows_both_headings(sheaf: Run, one: Path, tmp_path: Path) -> None:
    later = write_record(tmp_path / "later.2.sheaf", {"malloc-64": {**A, "alloc_fastpath": 1500}})
    lines = sheaf("stats", "--diff", str(one), str(later)).stdout.splitlines()
    assert [line for line in lines if line.startswith(("before: ", "after: "))] == [
        "before: prog (99999999), ended, rseq mm_cid",
        "after: later (99999999), ended, rseq mm_cid",
    ]
    assert lines.index("Difference (after minus before)") > lines.index("after: later (99999999), ended, rseq mm_cid")


def test_undecodable_names_are_shown_as_bytes(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/\xff\n.sheaf"
    done = subprocess.run(
        [sys.executable, "-m", "sheaf", "stats", name], capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT / "cli")}
    )
    assert done.stderr.startswith(b"sheaf: " + os.fsencode(tmp_path) + b"/\\xff\\x0a.sheaf: No such file or directory; ")
    assert done.stderr.count(b"\n") == 1
