"""Readers of other files, damaged and hostile: programs, exports of benchmarks, reports, maps of JIT compilers."""

from __future__ import annotations

import array
import copy
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hostile
import pytest
from conftest import write_record
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sheaf.commands import report
from sheaf.commands.bench import against, exports
from sheaf.commands.bench.report import findings, subject_of
from sheaf.commands.doctor import command as doctor
from sheaf.commands.doctor import program as doctor_program
from sheaf.commands.doctor.finding import Finding, future
from sheaf.commands.profile import jit
from sheaf.errors import SheafError
from sheaf.records import control, record, spanmap
from sheaf.records.control import Answer
from sheaf.rendering import frames, leakreport, memorymap
from sheaf.system import elf, preload, program
from sheaf.system.places import Places

FEW = settings(
    deadline=None, max_examples=100, derandomize=True, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
SEEDS = given(seed=st.integers(0, 1 << 40))


# ---- programs ----


def shown(path: Path) -> list[Finding]:
    """What doctor says of a program, without the trial."""
    found = doctor_program.read(path)
    findings = [found] if isinstance(found, Finding) else doctor_program.examine(found, future())[0]
    assert findings
    assert all("\n" not in doctor._line(one, False) for one in findings)
    return findings


def try_program(directory: Path, data: bytes, seed: int) -> None:
    draw = random.Random(seed)
    if draw.random() < 0.5:  # the headers, and what they lead to
        head = bytearray(data[: 64 + 56 * 16])
        at = draw.randrange(16, len(head) - 8) & ~3
        struct.pack_into("<Q", head, at, draw.choice([*hostile.numbers(len(data)), draw.getrandbits(16)]) & (1 << 64) - 1)
        data = bytes(head) + data[len(head) :]
    path = hostile.write(directory / "program", hostile.changed(data, draw), draw.choice([0, 0, 1 << 40]))
    path.chmod(0o755)
    with hostile.bounded():
        shown(path)
        program.obstacle(path)
        elf.has_symbol_table(path)
        for read in (elf.read, elf.details, elf.build_id):
            try:
                read(path)
            except elf.Damaged:
                continue


def dynamic(entries: list[tuple[int, int]], more: bytes = b"", segments: int = 0, kind: int = 4) -> bytes:
    """A dynamically linked program: headers, then the dynamic section at 4096, then `more`, all at the same addresses."""
    interpreter = b"/lib64/ld-linux-x86-64.so.2\0"
    table = b"".join(struct.pack("<QQ", *one) for one in [*entries, (0, 0)])
    size = 4096 + len(table) + len(more)
    headers = [(1, 0, size), (3, 3000, len(interpreter)), (2, 4096, len(table)), *[(kind, 0, size)] * segments]
    raw = struct.pack("<4s5B7x2HI3QI6H", b"\x7fELF", 2, 1, 1, 0, 0, 3, 62, 1, 0, 64, 0, 0, 64, 56, len(headers), 64, 0, 0)
    raw += b"".join(struct.pack("<2I6Q", one, 4, at, at, at, length, length, 8) for one, at, length in headers[:50])
    start = raw[:3000].ljust(3000, b"\0") + interpreter
    return start.ljust(4096, b"\0") + table + more


@pytest.fixture
def true(tmp_path: Path) -> bytes:
    found = shutil.which("true")
    assert found
    return Path(found).read_bytes()


@FEW
@SEEDS
def test_programs(tmp_path: Path, true: bytes, seed: int) -> None:
    try_program(tmp_path, true, seed)


TABLE = 4096 + 16 * 8


@pytest.mark.parametrize(
    "entries, more",
    [
        ([(1, 1)] * 100_000 + [(5, 4096), (10, 16 * 100_000)], b"a" * 1_000_000),  # as many libraries as can be
        ([(5, TABLE), (10, 1 << 16), (6, TABLE), (4, TABLE)], struct.pack("<2I", 1, (1 << 32) - 1)),
        ([(5, TABLE), (10, 64), (6, TABLE), (0x6FFFFEF5, TABLE)], struct.pack("<5I", 1, 0, 0, 0, 1 << 20) + bytes(64)),
        ([(5, TABLE), (10, 64), (6, TABLE), (0x6FFFFEF5, TABLE)], struct.pack("<5I", (1 << 32) - 1, 0, 0, 0, 1)),
        (
            [(5, TABLE), (10, 64), (6, TABLE), (4, TABLE), (0x6FFFFFFE, TABLE), (0x6FFFFFFF, 1 << 63)],
            struct.pack("<HHIII", 1, 65535, 1, 16, 16) * 20_000,
        ),  # versions without end
    ],
)
@pytest.mark.parametrize("hole", [0, 1 << 40])
def test_tables_without_end(tmp_path: Path, entries: list[tuple[int, int]], more: bytes, hole: int) -> None:
    data = bytearray(dynamic(entries, more))
    if hole:
        struct.pack_into("<2Q", data, 64 + 32, hole, hole)  # the first segment has all of the file
    path = hostile.write(tmp_path / "program", bytes(data), hole)
    path.chmod(0o755)
    with hostile.bounded():
        shown(path)


def test_many_notes_of_the_whole_file(tmp_path: Path) -> None:
    path = hostile.write(tmp_path / "program", dynamic([], struct.pack("<3I", 0, 0, 1) * 1_000_000, 40))
    path.chmod(0o755)
    with hostile.bounded():
        shown(path)


@pytest.mark.parametrize(
    "make",
    [
        lambda path: os.mkfifo(path),
        lambda path: path.mkdir(),
        lambda path: path.symlink_to(path.name),
        lambda path: path.symlink_to("/dev/zero"),
    ],
)
def test_interpreters_that_are_no_files(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "interpreter")
    path = tmp_path / "program"
    path.write_text(f"#!{tmp_path}/interpreter\n")
    path.chmod(0o755)
    with hostile.bounded():
        assert any(one.status == "problem" or "cannot be examined" in one.what for one in shown(path))
        program.obstacle(path)
    # In a process of its own, because the command becomes the program if it can.
    path_of_command = str(Path(__file__).resolve().parents[2] / "cli")
    done = subprocess.run(
        [sys.executable, "-m", "sheaf", "run", "--record", str(tmp_path / "interpreter" / "records"), "true"],
        env={**os.environ, "PYTHONPATH": path_of_command},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert "Traceback" not in done.stderr and done.returncode in {0, 125}


def test_a_library_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "fifo.so")
    monkeypatch.setenv("SHEAF_LIBRARY", str(tmp_path / "fifo.so"))
    with pytest.raises(SheafError, match=r"SHEAF_LIBRARY=.*: no"):
        preload.library()


# ---- exports of benchmarks ----


def export(rounds: int = 2) -> dict[str, Any]:
    """An export with two allocators and two tests."""
    keys = ("ns_per_op_min", "ns_per_op_median", "peak_rss_kib", "minor_faults", "wall_us", "user_us", "system_us")
    run = {**dict.fromkeys(keys, 5.0), "memory": [{"moment": "1 s", "ms": 3, "rss_kib": 100, "live_kib": 50}]}
    names = ("glibc", "sheaf")
    contestants = [{"name": name, "path": None, "version": "1", "variables": {"A": "b"}, "mode": ""} for name in names]
    tests = [
        {
            "test": name,
            "suites": [name],
            "what": "a test",
            "in_means": True,
            "failures": {},
            "repeated": 0,
            "disturbed": 0,
            "runs": {who: [run] * rounds for who in names},
            "other_cpus": [0.1] * rounds,
        }
        for name in ("micro", "rest")
    ]
    return {
        "schema_version": 2,
        "command": ["sheaf", "bench"],
        "machine": {"cpu": "x", "cpus": 2},
        "seed": 1,
        "contestants": contestants,
        "tests": tests,
    }


STRANGE: list[Any] = [
    None,
    True,
    0,
    -1,
    1e308,
    -1e308,
    float("inf"),
    float("nan"),
    10**400,
    2**64,
    "",
    "x",
    "\x1b[31m",
    "\ud800",
    [],
    [[]],
    {},
    {"": {}},
    [None],
    "sheaf",
    ["micro"],
]


def somewhere(found: Any, draw: random.Random) -> None:
    """Replace, remove or add something at a random place."""
    while isinstance(found, dict | list) and found:
        key = draw.choice(list(found)) if isinstance(found, dict) else draw.randrange(len(found))
        if not isinstance(found[key], dict | list) or not found[key] or draw.random() < 0.15:
            choice = draw.randrange(4)
            if choice == 0:
                del found[key]
            elif choice == 1 and isinstance(found, list):
                found.append(copy.deepcopy(found[key]))
            else:
                found[key] = copy.deepcopy(draw.choice(STRANGE))
            return
        found = found[key]


def compare(path: Path) -> None:
    """What --against and --from do with an export."""
    try:
        old = exports.read(path)
    except SheafError as error:
        assert "\n" not in error.message
        return
    (path.parent / "new.json").write_text(json.dumps(export()))
    new = exports.read(path.parent / "new.json")
    found = against.changes(new, old)
    against.render_changes(found, subject_of(new.contestants)).encode()
    against.worse_than_old(found, 1.05)
    against.machine_differs(new, old)
    findings(old.outcomes, old.contestants)
    exports.to_json(old)


def try_export(directory: Path, seed: int) -> None:
    draw = random.Random(seed)
    found = export(draw.randint(1, 3))
    for _ in range(draw.randint(1, 3)):
        somewhere(found, draw)
    data = json.dumps(found).encode()
    path = hostile.write(directory / "old.json", hostile.changed(data, draw) if draw.random() < 0.3 else data)
    with hostile.bounded():
        compare(path)


@settings(FEW, max_examples=1000)
@SEEDS
def test_exports(tmp_path: Path, seed: int) -> None:
    try_export(tmp_path, seed)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[",
        "[" * 100_000,
        "{}",
        "[]",
        "null",
        "1" * 5000,
        '"' + "\\ud800" * 9,
        "\x00",
        '{"schema_version": []}',
        '{"schema_version": 2, "tests": ' + "9" * 5000 + "}",
    ],
)
def test_files_that_are_no_exports(tmp_path: Path, text: str) -> None:
    with hostile.bounded(), pytest.raises(SheafError):
        exports.read(hostile.write(tmp_path / "old.json", text.encode()))


def test_an_export_that_is_too_large(tmp_path: Path) -> None:
    with hostile.bounded(), pytest.raises(SheafError, match="not an export"):
        exports.read(hostile.write(tmp_path / "old.json", b"{}", 1 << 40))


# ---- reports ----

REPORT = """\
sheaf: overflow: bytes were written past the end of 0x6f9f61e80010 (malloc-64)
sheaf:   object 0x6f9f61e80010 of 60 bytes, in use
sheaf:     main+0x10 (/usr/bin/true+0x119c)
sheaf:     (/usr/bin/true+0x16fd)
sheaf: leak: 24 bytes in 1 block of malloc-32, lost, and 14724 bytes in 201 blocks through it:
sheaf:     main+0x10 (/usr/bin/true+0x119c)
sheaf: lost 5.3 KiB in 57 blocks; still referenced: 71.1 KiB in 3 blocks (process 16736, server)
"""
PIECES = [
    "sheaf:     ",
    "(",
    ")",
    "+0x",
    "f" * 300,
    "9" * 5000,
    "/usr/bin/true",
    "/" + "a" * 5000,
    "\0",
    "(" * 2000,
    "()" * 3000,
    "\u2028",
    "\r",
    "sheaf: leak: ",
    " bytes in ",
    " lost ",
    "(process 1, ",
    "\ud800",
    "\n",
]


def try_report(directory: Path, seed: int) -> None:
    draw = random.Random(seed)
    text = list(REPORT)
    for _ in range(draw.randint(1, 6)):
        text.insert(draw.randrange(len(text)), draw.choice(PIECES))
    data = "".join(text).encode("utf-8", "surrogatepass")
    path = hostile.write(directory / "report", hostile.changed(data, draw) if draw.random() < 0.5 else data)
    with hostile.bounded():
        assert hostile.answer("report", str(path)) == 0
        leakreport.text(path.read_bytes().decode(errors="replace").splitlines(), ["leak*"])


@settings(FEW, max_examples=40)
@SEEDS
def test_reports(tmp_path: Path, seed: int) -> None:
    try_report(tmp_path, seed)


@pytest.mark.parametrize(
    "line",
    [
        "(" * 60_000,
        "sheaf: " + "(" * 60_000 + "+0x",
        "sheaf:   " + "(+0x" * 20_000 + ")",
        "sheaf: lost " + "(process 1, " * 5000,
        "sheaf: leak: " + "9" * 10_000 + " bytes in 1 block of x, lost:",
        "sheaf:  (" + "/a" * 3000 + "+0x1)",
        "sheaf:  (" + "/a" * 3000 + "+0x1)",
        "sheaf:  (\0+0x1)",
    ],
)
def test_long_lines_of_reports(tmp_path: Path, line: str) -> None:
    with hostile.bounded(), Places() as known:
        frames.places_of([line] * 3, known)
        leakreport.text([line] * 3, ["x"])
        assert hostile.answer("report", str(hostile.write(tmp_path / "report", f"{line}\n".encode() * 3))) == 0


@pytest.mark.parametrize("place", [("/usr/bin/true", 0x119C), ("./a (b)", 1), ("/x+0x1", 2)])
@pytest.mark.parametrize("symbol", ["", "main+0x10"])
def test_frames_are_found(place: tuple[str, int], symbol: str) -> None:
    frame = frames.frame_of(f"sheaf:     {symbol}{' ' * bool(symbol)}({place[0]}+{place[1]:#x})")
    assert frame
    assert (frame.indent, frame.symbol, frame.module, frame.offset) == ("sheaf:     ", symbol, *place)


def test_a_huge_report_is_not_kept_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = hostile.write(tmp_path / "report", b"", 8 << 30)
    monkeypatch.setattr(report, "_LONGEST", 64 << 20)
    with hostile.bounded():
        assert sum(1 for _ in zip(report._lines(str(path)), range(3), strict=False)) == 3


@pytest.mark.parametrize("name", ["", "x" * 5000, "/dev/null/x", "/proc/self/mem", "/tmp", "\udcff"])
def test_names_of_files_that_cannot_be_read(name: str) -> None:
    for command in ("report", "stats", "profile", "leaks", "records", "dump", "trim"):
        hostile.answer(command, name)


# ---- maps of JIT compilers ----


@settings(FEW, max_examples=200)
@given(lines=st.lists(st.one_of(st.binary(max_size=60), st.from_regex(rb"[0-9a-f]{1,16} [0-9a-f]{1,16} (py::|JS:)[^\n]{0,20}"))))
def test_maps_of_jit_compilers(lines: list[bytes]) -> None:
    found = jit.Map(lines)
    for address in (0, 1, 1 << 63, (1 << 64) - 1):
        found.find(address)


@pytest.mark.parametrize("data", [b"\n" * (2 << 20), b"0 0 x" * (8 << 20), b"".join(b"%x 1 x\n" % i for i in range(3000))])
def test_long_maps_take_little_memory(tmp_path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "_MOST", 1000)
    path = hostile.write(tmp_path / "perf.map", data)
    with hostile.bounded():
        found = jit._read(path, os.geteuid(), 0)
    assert len(found._starts) <= jit._MOST


# ---- what a process answers ----


class Liar:
    """A process that answers as it likes."""

    who = "liar (1)"

    def __init__(self, draw: random.Random, path: Path) -> None:
        self.draw, self.head = draw, record.read_head(path)

    def ask(self, operation: int, subject: int = 0, value: int = 0) -> Answer:
        number = self.draw.choice([0, 1, 100, 16384, value, 1 << 32, (1 << 64) - 1, self.draw.getrandbits(20)])
        first, count = self.draw.choice([value, value, number]), self.draw.choice([1, 100, 16384, number])
        total = self.draw.choice([1 << 14, 1 << 20, 1 << 63, number])
        return Answer(self.draw.choice([0, 0, 0, 0, 2, 3, 77]), (first, count, total, 0, 0, 0, 0, 0))

    def window(self) -> bytes:
        return self.draw.randbytes(control.WINDOW_BYTES)


def try_answers(directory: Path, seed: int) -> None:
    path = write_record(directory / "p.1.sheaf", {"malloc-64": {"slabs": 1}, "malloc-128": {"slabs": 1}})
    with hostile.bounded():
        try:
            words = spanmap.read(Liar(random.Random(seed), path))  # type: ignore[arg-type]
        except SheafError:
            return
        check_map(words, path)


def check_map(words: array.array[int], path: Path) -> None:
    read = record.read(path)
    found = spanmap.spans(words[:100_000], read)
    spanmap.by_cache(found, read)
    memorymap.text(found, 80)


@FEW
@SEEDS
def test_answers(tmp_path: Path, seed: int) -> None:
    try_answers(tmp_path, seed)


if __name__ == "__main__":
    import tempfile

    began, programs = time.monotonic(), [Path("/bin/true").read_bytes(), Path(sys.argv[3]).read_bytes()]
    with tempfile.TemporaryDirectory() as place:
        here = Path(place)
        for test in (
            lambda seed: try_program(here, programs[seed % 2], seed),
            lambda seed: try_export(here, seed),
            lambda seed: try_answers(here, seed),
            lambda seed: try_report(here, seed),
        ):
            hostile.explore(test)
            print(f"{time.monotonic() - began:.0f} s", flush=True)
