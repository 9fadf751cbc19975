"""`sheaf trim`, `sheaf set` and `sheaf dump`: requests to running processes through their records."""

from __future__ import annotations

import array
import fcntl
import itertools
import json
import mmap
import os
import pwd
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import ROOT, Run, as_nobody, write_record
from sheaf.errors import SheafError
from sheaf.records import control, layout, record, spanmap
from sheaf.rendering import memorymap
from sheaf.system import progress

BUSY = """
import sys
kept = [bytes(i % 2500) for i in range(20000)]
large = [bytearray(300000) for _ in range(10)]
print("ready", flush=True)
while True:
    [bytes(i % 3000) for i in range(1000)]
"""
IDLE = "import time; kept = [bytes(1000) for _ in range(1000)]; print('ready', flush=True); time.sleep(600)"
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(library: str, tmp_path: Path) -> Iterator[Start]:
    """A function that starts Python with a record in tmp_path/records and waits until it prints a line."""
    running: list[subprocess.Popen[str]] = []
    directory = tmp_path / "records"
    directory.mkdir()

    def begin(code: str, *before: str, record_in: Path | None = directory, **more: str) -> subprocess.Popen[str]:
        env = {**os.environ, "LD_PRELOAD": library, **more}
        if record_in:
            env["SHEAF_RECORD"] = str(record_in)
        process = subprocess.Popen([*before, sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=env)
        running.append(process)
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        return process

    yield begin
    for process in running:
        process.kill()
        process.communicate()


def said(done: subprocess.CompletedProcess[str], status: int = 1) -> str:
    """The one line of an error."""
    assert done.returncode == status, done
    assert done.stdout == ""
    line, rest = done.stderr.split("\n", 1)
    assert rest == ""
    return line.removeprefix("sheaf: ")


# ---- trim and set ----


def test_trim_says_what_went_back(sheaf: Run, start: Start) -> None:
    pid = start(BUSY).pid
    done = sheaf("trim", str(pid))
    size = r"[\d.]+ (bytes|[KMG]iB)"
    some, none = f"{size}; resident {size} before, {size} after", rf"nothing that was resident \({size} before, {size} after\)"
    assert re.fullmatch(rf"\S+ \({pid}\): returned ({some}|{none})\n", done.stdout), done
    path = next(record.find(str(pid)))
    assert sheaf("trim", str(path)).returncode == 0
    while record.read(path).process["trims"] != 2:  # a slow path may publish an earlier number a moment later
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("setting", "answer"),
    [
        ("decay=200", "decay is 200 milliseconds now"),
        ("keep=64M", "keep is 64M now"),
        ("helper=auto", "helper is auto now"),
        ("helper=0", "helper is 0 now"),
        ("huge=0", "huge is 0 now"),
        ("barn-max=0", "barn_max is 0 now"),
        ("SHEAF_DECAY=0", "decay is 0 milliseconds now"),
    ],
)
def test_set(sheaf: Run, start: Start, setting: str, answer: str) -> None:
    pid = start(BUSY).pid
    done = sheaf("set", str(pid), setting)
    assert (done.stdout.partition(": ")[2], done.returncode) == (answer + "\n", 0), done


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("decay=86400001", "decay=86400001: out of range; give a number from 0 to 86400000, in milliseconds"),
        ("decay=-1", "decay=-1: not a number; give a number from 0 to 86400000, in milliseconds"),
        ("keep=1T", "keep=1T: out of range; give a size such as 1M, from 0 to 1T"),
        ("keep", "keep: no value; give keep=VALUE"),
        ("helper=2", "helper=2: no such choice; give auto, 0 or 1"),
        ("huge=yes", "huge=yes: neither 0 nor 1; give 0 or 1"),
        (
            "slots=cpu_id",
            "slots: cannot change while the process runs; set SHEAF_SLOTS before its start, "
            "or give one of decay, keep, helper, huge, barn_max",
        ),
        ("decya=1", "decya: no such option; did you mean decay?"),
        ("=", ": no such option; give one of decay, keep, helper, huge, barn_max"),
    ],
)
def test_wrong_settings(sheaf: Run, setting: str, why: str) -> None:
    assert said(sheaf("set", "4711", setting), 2) == why


def test_an_option_without_effect_is_refused(sheaf: Run, start: Start) -> None:
    pid = start(BUSY, SHEAF_BARN="0").pid
    assert "barn_max=1M would have no effect: no effect with barn=0" in said(sheaf("set", str(pid), "barn_max=1M"))


def test_every_bound_and_number_is_that_of_the_object() -> None:
    """The numbers of options, operations, statuses and kinds that the command repeats from sheaf/control.h."""
    from sheaf.commands import set as setting

    header = (ROOT / "lib/include/sheaf/control.h").read_text()
    numbers = {name: int(number) for name, number in re.findall(r"^\s+(SHEAF_\w+) = (\d+),", header, re.M)}
    settable = {name[10:].lower(): n for name, n in numbers.items() if name.startswith("SHEAF_SET_")}
    assert settable == setting.SUBJECTS
    for name in ("FOLD", "TRIM", "SET", "PROFILE", "MAP", "DONE", "UNKNOWN", "RANGE", "NO_ROOM", "REFUSED", "NO_EFFECT"):
        assert getattr(control, name) == numbers[f"SHEAF_{name}"], name
    for kind, name in enumerate(spanmap.KINDS):
        assert numbers[f"SHEAF_SLICE_{name.upper()}"] == kind


def test_what_a_trim_has_returned() -> None:
    """By how much resident memory fell, not what the process gave back of memory that it had never touched."""
    from sheaf.commands.trim import _said

    assert _said(832 << 10, (2 << 20) + 8192, 2 << 20) == "returned 8 KiB; resident 2056 KiB before, 2048 KiB after"
    assert _said(40 << 20, 91 << 20, 53 << 20) == "returned 38 MiB; resident 91 MiB before, 53 MiB after"
    assert _said(832 << 10, 2 << 20, 2 << 20) == "returned nothing that was resident (2 MiB before, 2 MiB after)"
    assert _said(832 << 10, None, None) == "returned at most 832 KiB"


# ---- dump ----


def test_dump_as_text(sheaf: Run, start: Start) -> None:
    pid = start(BUSY).pid
    done = sheaf("dump", str(pid), env={"COLUMNS": "80"})
    lines = done.stdout.splitlines()
    heading = next(line for line in lines if line.startswith("NAME"))
    assert re.match(rf"\S+ \({pid}\): slabs [\d.]+ MiB, large blocks [\d.]+ [KM]iB, free ", lines[0]), done
    assert re.sub(" +", " ", heading) == "NAME SIZE SLABS MEMORY OUT EMPTY <25% <50% <75% <100% FULL"
    assert max(map(len, lines)) <= 80
    rows = [line.split() for line in lines[lines.index(heading) + 1 :] if line.startswith("malloc-")]
    assert any(row[0] == "malloc-2304" for row in rows)
    assert all(re.fullmatch(r"\d{2,5}K|\d+(\.\d)?[MG]", row[3]) for row in rows)
    assert "each character stands for 64 KiB of the region" in lines
    assert re.search(r"^ +0 KiB  x{1,8}[0-9#.x-]+", done.stdout, re.M)
    assert re.search(r"^ +\d+ MiB  \S*L{5}", done.stdout, re.M)


def test_dump_as_json_agrees_with_the_record(sheaf: Run, start: Start) -> None:
    pid = start(BUSY).pid
    done = sheaf("dump", "--json", str(pid))
    out = json.loads(done.stdout)
    assert (out["schema_version"], out["pid"], out["slice_bytes"]) == (3, pid, 65536)
    runs = [run for run in out["spans"] if run["kind"] == "slab"]
    assert sum(run["slices"] for run in runs) == out["slices"]["slab"]
    places = [(run["first"], run["first"] + run["slices"]) for run in out["spans"]]
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(places))
    caches = {cache["name"]: cache for cache in out["caches"]}
    for name, cache in caches.items():
        own = [run for run in runs if run["cache"] == name]
        assert (len(own), sum(run["out"] for run in own)) == (cache["slabs"], cache["out"]), name
        assert sum(cache["slabs_by_fill"].values()) == cache["slabs"]
        assert 0 <= cache["out"] <= cache["objects"]
    kept = record.read(next(record.find(str(pid)))).caches["malloc-2304"]  # of which the program frees few
    assert caches["malloc-2304"]["memory_bytes"] == pytest.approx(kept.memory, rel=0.2)
    assert out["slices"]["large"] * 65536 >= 10 * 300000


def test_a_map_of_several_windows(monkeypatch: pytest.MonkeyPatch, start: Start) -> None:
    pid = start("big = bytearray(1300 << 20)\n" + BUSY).pid
    with control.connect(str(pid)) as process:
        words = spanmap.read(process)
        read = record.read(process.head.path)
    assert len(words) > 16384
    runs = spanmap.spans(words, read)
    assert sum(run.slices for run in runs) == len(words)
    assert max(run.slices for run in runs if run.kind == spanmap.LARGE) >= 1300 << 20 >> 16
    assert len(memorymap.text(runs, 80)) <= 40


def test_dump_as_a_page(sheaf: Run, start: Start, tmp_path: Path) -> None:
    file = tmp_path / "map.html"
    done = sheaf("dump", "--output", str(file), str(start(BUSY).pid))
    assert (done.stdout, done.stderr) == (f"wrote {file}\n", "")
    assert "slab of malloc-" in file.read_text()


def test_pages_that_cannot_be_written(sheaf: Run, start: Start, tmp_path: Path) -> None:
    assert said(sheaf("dump", "--output", "map.pdf", "1"), 2) == (
        "--output map.pdf: not a page; give a name that ends with .html"
    )
    file = tmp_path / "none" / "map.html"
    assert said(sheaf("dump", "--output", str(file), str(start(BUSY).pid))) == (
        f"{file}: No such file or directory; name a file that can be written"
    )


def test_the_map_in_characters() -> None:
    def span(slices: int, kind: int, out: int = 0, objects: int = 0) -> spanmap.Span:
        return spanmap.Span(0, slices, kind, out=out, objects=objects)

    rows = [
        span(8, spanmap.OTHER),
        span(4, spanmap.SLAB, 10, 10),
        span(4, spanmap.SLAB, 1, 10),
        span(16, spanmap.LARGE),
        span(16, spanmap.FREE),
        span(16, spanmap.RETURNED),
        span(100, spanmap.UNMAPPED),
        span(2, spanmap.SLAB, 99, 100),
    ]
    lines = memorymap.text(rows, 80)
    assert lines[1] == "     0 KiB  " + "x" * 8 + "####" + "1111" + "L" * 16 + "-" * 16 + "." * 16
    assert lines[2].strip() == "..."
    assert lines[3] == "     8 MiB  " + " " * 36 + "99"
    assert memorymap.text(rows, 80, rows=1)[0] == "each character stands for 256 KiB of the region"
    assert memorymap.text(rows, 80, rows=1)[1].split() == ["0", "KiB", "xx#1LLLL----....", "9"]
    assert memorymap.text([], 80) == ["each character stands for 64 KiB of the region"]


# ---- which process ----


def test_a_process_is_known_by_its_name(sheaf: Run, start: Start) -> None:
    name = f"named{os.getpid()}"
    code = f"import ctypes; ctypes.CDLL(None).prctl(15, {name[:15]!r}.encode())\n{BUSY}"  # PR_SET_NAME
    pid = start(code).pid
    assert f" ({pid}): returned " in sheaf("trim", name[:15]).stdout
    start(code)
    assert f"{name[:15]}: 2 processes on Sheaf have this name: " in said(sheaf("trim", name[:15]))


def test_targets_that_are_no_process(sheaf: Run, start: Start, tmp_path: Path) -> None:
    assert said(sheaf("trim", "999999999")) == (
        "999999999: no such process; name a running process, a record file or a directory"
    )
    assert "no process of this name runs on Sheaf" in said(sheaf("trim", "nosuchprogram"))
    assert said(sheaf("trim", str(tmp_path))) == f"{tmp_path}: is a directory; name one process or its record"
    assert "name a .sheaf file" in said(sheaf("dump", __file__))
    assert "not a time" in said(sheaf("trim", "1", "--timeout", "soon"), 2)
    assert "not a time" in said(sheaf("trim", "1", "--timeout", "0"), 2)
    process = start(IDLE)
    path = next(record.find(str(process.pid)))
    copy = tmp_path / path.name
    shutil.copy(path, copy)
    assert "is a copy of the record of a running process" in said(sheaf("trim", str(copy)))
    process.kill()
    process.wait()
    assert said(sheaf("trim", str(path))).endswith("has ended by signal, _exit or exec; name a running process")


def test_processes_without_a_record(sheaf: Run, start: Start) -> None:
    pid = start(IDLE, record_in=None).pid
    assert said(sheaf("trim", str(pid))) == (f"{pid}: runs on Sheaf but keeps no record; start it with `sheaf run --record DIR`")
    with subprocess.Popen(["sleep", "600"]) as other:
        assert "does not run on Sheaf; start it with `sheaf run --record DIR`" in said(sheaf("trim", str(other.pid)))
        other.kill()


def test_a_record_without_a_control_area(sheaf: Run, tmp_path: Path) -> None:
    path = write_record(tmp_path / "old.1.sheaf", {}, pid=os.getpid(), ended=False)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 4096):
        assert said(sheaf("trim", str(path))) == (
            f"old ({os.getpid()}): runs on Sheaf 0.1.0, whose records have no control area; "
            "start it again with the Sheaf of this command"
        )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_processes_of_other_users(sheaf: Run, start: Start, tmp_path: Path) -> None:
    setpriv = shutil.which("setpriv")
    assert setpriv
    nobody = pwd.getpwnam("nobody")
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, nobody.pw_uid, nobody.pw_gid)
    for directory in (tmp_path, *tmp_path.parents):
        if not directory.stat().st_mode & 1:
            directory.chmod(directory.stat().st_mode | 0o5)
    drop = (setpriv, f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups")
    other = start(BUSY, *drop, record_in=theirs).pid
    assert sheaf("trim", str(other)).returncode == 0
    assert (next(record.find(str(other))).stat().st_mode & 0o777) == 0o644
    own = start(BUSY).pid
    path = next(record.find(str(own)))

    def ask(target: str) -> Callable[[], str]:
        def asking() -> str:
            try:
                with control.connect(target):
                    return "connected"
            except SheafError as error:
                return error.message

        return asking

    assert as_nobody(ask(str(path))) == f"{path}: the record belongs to root; run sheaf as root"
    assert "Permission denied; run sheaf as the user of the process or as root" in as_nobody(ask(str(own)))
    assert as_nobody(ask(str(next(record.find(str(other)))))) == "connected"


# ---- processes that do not answer ----


def test_a_process_that_sleeps(sheaf: Run, start: Start) -> None:
    """Its helper thread answers every request."""
    pid = start(IDLE).pid
    assert f" ({pid}): returned " in sheaf("trim", str(pid)).stdout
    assert "malloc-1152" in sheaf("dump", str(pid)).stdout
    assert sheaf("set", str(pid), "decay=0").returncode == 0
    assert sheaf("profile", "--seconds", "0.1", str(pid)).returncode == 0
    assert sheaf("trim", str(pid)).returncode == 0


def test_a_process_that_sleeps_without_a_helper(sheaf: Run, start: Start) -> None:
    pid = start(IDLE, SHEAF_HELPER="0").pid
    line = said(sheaf("trim", str(pid), "--timeout", "0.3"))
    assert re.fullmatch(
        rf"\S+ \({pid}\): did not answer within 0.3 s: it sleeps, and it has no helper thread; "
        "try again while it works, or start it with SHEAF_HELPER=1",
        line,
    )
    path = next(record.find(str(pid)))
    assert request_of(path) == 0


def test_a_process_that_sleeps_and_has_a_helper(sheaf: Run, start: Start) -> None:
    code = IDLE.replace("kept =", "grown = [bytes(1000) for _ in range(20000)]; del grown; kept =")
    pid = start(code, SHEAF_HELPER="1", SHEAF_DECAY="100").pid
    for _ in range(3):
        assert sheaf("trim", str(pid), "--timeout", "50").returncode == 0


def test_a_process_that_is_stopped(sheaf: Run, start: Start) -> None:
    pid = start(BUSY).pid
    os.kill(pid, signal.SIGSTOP)
    os.waitpid(pid, os.WUNTRACED)
    assert said(sheaf("trim", str(pid), "--timeout", "300ms")).endswith(
        f"({pid}): did not answer within 0.3 s: it is stopped; continue it with `kill -CONT {pid}`"
    )
    os.kill(pid, signal.SIGCONT)
    assert sheaf("trim", str(pid)).returncode == 0


def test_a_long_wait_says_what_it_waits_for(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    said_so: list[str] = []
    monkeypatch.setattr(progress, "_LONG", 0.0)
    monkeypatch.setattr("click.echo", lambda text, err: said_so.append(text))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    pid = start(IDLE, SHEAF_HELPER="0").pid
    with control.connect(str(pid), 0.1) as process, pytest.raises(SheafError, match="did not answer within"):
        process.ask(control.TRIM)
    assert said_so == [
        f"{process.who}: has not answered yet: it sleeps, and it has no helper thread; "
        "waiting for 0.1 s at most (--timeout), Ctrl-C ends that"
    ]


def test_one_time_limit_for_all_waits(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time that passes before the process is asked counts."""
    pid = start(IDLE, SHEAF_HELPER="0").pid
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with control.connect(str(pid), 5) as process:
        now += 6
        with pytest.raises(SheafError, match="did not answer within 5 s"):
            process.ask(control.TRIM)


def request_of(path: Path) -> int:
    """The request that stands in a record."""
    reader = layout.Reader(path)
    with reader.file:
        return reader.numbers(reader.number("control_offset"), 1)[0]


def test_a_process_that_ends_while_it_is_asked(start: Start) -> None:
    process = start(IDLE, SHEAF_HELPER="0")
    path = next(record.find(str(process.pid)))
    asking = subprocess.Popen(
        [sys.executable, "-m", "sheaf", "trim", str(process.pid), "--timeout", "50"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "cli")},
    )
    while not request_of(path):
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert asking.communicate()[1].endswith(f"({process.pid}): ended while it was asked; name a running process\n")
    assert asking.returncode == 1


def test_one_client_at_a_time(sheaf: Run, start: Start) -> None:
    pid = start(BUSY).pid
    path = next(record.find(str(pid)))
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert said(sheaf("trim", str(pid), "--timeout", "0.2")).endswith(
            "another sheaf command has been asking it for 0.2 s; try again when that has ended"
        )
        fcntl.flock(file, fcntl.LOCK_UN)
        assert sheaf("trim", str(pid)).returncode == 0


# ---- readers ----


def test_readers_accept_the_profile_area_and_any_bytes_in_the_control_area(sheaf: Run, start: Start) -> None:
    pid = start(IDLE, SHEAF_HELPER="0").pid  # so that nothing changes meanwhile
    path = next(record.find(str(pid)))
    reader = layout.Reader(path)
    with reader.file:
        end = reader.number("profile_offset") + reader.number("profile_size")
        place, slots = reader.number("control_offset"), reader.number("slots_offset")
        assert path.stat().st_size == reader.number("file_size") <= reader.number("profile_offset")
    before = sheaf("stats", "--format", "json", str(path)).stdout
    os.truncate(path, end)
    with path.open("r+b") as file:
        file.seek(place + 8)
        file.write(random.Random(1).randbytes(slots - place - 8))
        file.seek(end - 4096)
        file.write(b"\xff" * 4096)
    after = sheaf("stats", "--format", "json", str(path)).stdout
    assert json.loads(after)["rows"] == json.loads(before)["rows"]
    assert "running" in sheaf("records", str(path.parent)).stdout


def test_words_of_a_map_may_be_anything(tmp_path: Path) -> None:
    words = array.array("I", random.Random(2).randbytes(4 * 5000))
    read = record.read(write_record(tmp_path / "p.1.sheaf", {}))
    runs = spanmap.spans(words, read)
    assert sum(run.slices for run in runs) == 5000
    assert spanmap.by_cache(runs, read) == []
    assert memorymap.text(runs, 80)
