"""The watch over processes and their records: what it finds, and how little it reads."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Start, until, write_record
from sheaf.errors import SheafError
from sheaf.records import record
from sheaf.records.state import State, States
from sheaf.records.watch import Process, Watch
from sheaf.system import proc

COUNTS = {
    "alloc_fastpath": 1000,
    "alloc_slowpath": 10,
    "free_fastpath": 700,
    "free_slowpath": 5,
    "sheaf_refill": 253,
    "slabs": 2,
    "objects": 2048,
    "free_in_slabs": 1500,
    "barn_objects": 100,
    "inherited": 3,
}


def only(processes: list[Process], pid: int) -> Process:
    (found,) = (process for process in processes if process.pid == pid)
    return found


def test_numbers_of_an_ended_process(tmp_path: Path) -> None:
    path = write_record(tmp_path / "prog.1.sheaf", {"malloc-64": COUNTS, "malloc-128": COUNTS}, values={"large_bytes": 5})
    look = Watch([tmp_path])
    (process,) = look.refresh()
    assert (process.program, process.path, process.state.name, process.resident) == ("prog", path, "ended", 0)
    assert process.numbers.values["large_bytes"] == 5
    assert (process.numbers.caches, process.memory, process.rate("alloc_fastpath")) == (None, None, None)
    (process,) = look.refresh(caches=True)
    whole = record.read(path)
    for name, number in process.numbers.counters.items():
        assert number == sum(cache.counters[name] for cache in whole.parts)
    for name, number in process.numbers.cache_sums.items():
        assert number == sum(cache.derived()[name] for cache in whole.parts)
    assert process.numbers.sums == whole.derived()
    assert look.statistics.numbers == 1
    (process,) = look.refresh(caches=True)
    assert (look.statistics.numbers, look.statistics.headers) == (0, 0)
    assert process.numbers.counters["alloc_fastpath"] == 2000
    assert look.last(process).counters["alloc_fastpath"] == 2000


def test_an_ended_process_is_read_once(tmp_path: Path) -> None:
    for i in range(50):
        write_record(tmp_path / f"p.{i}.sheaf", {"malloc-64": COUNTS}, began=i)
    look = Watch([tmp_path])
    assert [process.start_time_ns for process in look.refresh(caches=True)] == list(range(50))
    assert (look.statistics.headers, look.statistics.numbers) == (50, 50)
    look.refresh(caches=True)
    assert (look.statistics.headers, look.statistics.numbers, look.statistics.processes) == (0, 0, 0)
    (tmp_path / "p.7.sheaf").unlink()
    write_record(tmp_path / "p.8.sheaf", {"malloc-64": COUNTS}, began=1000)
    found = look.refresh(caches=True)
    assert (len(found), found[-1].start_time_ns) == (49, 1000)
    assert look.statistics.headers == 1
    assert len(Watch([tmp_path], ended=False).refresh()) == 0
    look = Watch([tmp_path])
    assert all(process.memory is None for process in look.refresh(caches=True, of_ended=False))
    assert all(process.memory for process in look.refresh(caches=True))
    assert look.statistics.numbers == 49


def test_a_running_process_and_its_end(start: Start, tmp_path: Path) -> None:
    program = start()
    look = Watch([tmp_path])
    process = only(look.refresh(caches=True), program.pid)
    assert process.running
    assert process.resident > 1 << 20
    assert process.before is None
    program.work()
    process = only(look.refresh(caches=True), program.pid)
    assert (look.statistics.headers, look.statistics.numbers, look.statistics.maps) == (0, 1, 0)
    rate = process.rate("alloc_fastpath", "alloc_slowpath")
    assert rate is not None
    assert process.before
    assert rate * (process.numbers.at - process.before.at) > 3900  # the record lags by up to 1024 operations
    assert process.numbers.caches
    cache = next(one for one in process.numbers.caches if one.name == "malloc-640")
    assert cache.sums["in_use"] > 4000
    assert process.memory
    assert process.memory.live_objects >= 5000 * 600 - 1024 * 640
    program.end()
    process = only(look.refresh(caches=True), program.pid)
    assert (process.state.name, process.resident, bool(process.head.end_time_ns)) == ("ended", 0, True)
    assert only(look.refresh(caches=True), program.pid).rate("alloc_fastpath") is None
    assert look.statistics.numbers == 0


def test_a_killed_process(start: Start, tmp_path: Path) -> None:
    program = start()
    look = Watch([tmp_path])
    assert only(look.refresh(), program.pid).running
    program.process.kill()
    os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT)
    assert only(look.refresh(), program.pid).state.name == "gone"
    program.kill()
    assert only(look.refresh(), program.pid).state.name == "gone"
    assert look.statistics.numbers == 0


def test_a_process_that_executes_another_program(start: Start, tmp_path: Path) -> None:
    code = (
        "import os, sys; print('ready', flush=True); sys.stdin.readline(); "
        "os.environ.pop('LD_PRELOAD'); os.execvp('sleep', ['sleep', '600'])"
    )
    program = start(code=code)
    look = Watch([tmp_path])
    assert only(look.refresh(), program.pid).running
    assert program.process.stdin
    program.process.stdin.write("\n")
    program.process.stdin.flush()
    until(lambda: str(only(look.refresh(), program.pid).state) == "replaced by exec of sleep")


def test_processes_are_found_without_a_directory(start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SHEAF_RECORD", raising=False)
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    ended = write_record(first / "p.1.sheaf", {})
    program = start(first)
    look = Watch()
    found = look.refresh()
    assert only(found, program.pid).running
    assert ended in {process.path for process in found}  # it lies beside the record of a running process
    later = start(second)
    until(lambda: later.pid in {process.pid for process in look.refresh()})
    for _ in range(4):
        look.refresh()
    assert look.statistics.maps <= 20  # other processes of this machine may have just started
    assert {first, second} <= set(look.places)


def test_garbage_and_races(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_record(tmp_path / "good.1.sheaf", {"malloc-64": COUNTS})
    os.mkfifo(tmp_path / "fifo.sheaf")
    (tmp_path / "folder.sheaf").mkdir()
    (tmp_path / "link.sheaf").symlink_to(tmp_path / "good.1.sheaf")
    (tmp_path / "dangling.sheaf").symlink_to(tmp_path / "none")
    (tmp_path / "text.sheaf").write_text("hello")
    os.link(tmp_path / "good.1.sheaf", tmp_path / "second.sheaf")
    begun = tmp_path / "begun.sheaf"
    begun.write_bytes(bytes(65536))
    cut = write_record(tmp_path / "cut.3.sheaf", {"malloc-64": COUNTS})
    os.truncate(cut, 8195)
    damaged = write_record(tmp_path / "damaged.4.sheaf", {"malloc-64": COUNTS})
    damaged.write_bytes(damaged.read_bytes()[:100] + b"?" + damaged.read_bytes()[101:])
    look = Watch([tmp_path, tmp_path, tmp_path / "none"])
    assert len(look.refresh(caches=True)) == 1
    assert {path.name for path in look.others} == {"text.sheaf", "begun.sheaf", "cut.3.sheaf", "damaged.4.sheaf"}
    complete = write_record(tmp_path / "x", {"malloc-64": COUNTS}).read_bytes()
    begun.write_bytes(complete)
    assert len(look.refresh(caches=True)) == 2
    for _ in range(40):
        look.refresh(caches=True)
    assert look.statistics.headers == 0  # what is no record is tried again only now and then
    shutil.rmtree(tmp_path)
    assert look.refresh(caches=True) == []
    assert look.others == {}


def test_a_record_that_vanishes_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_record(tmp_path / "p.1.sheaf", {"malloc-64": COUNTS}, pid=os.getpid(), ended=False, start=1)
    judged = States.of

    def vanish(states: States, head: record.Head) -> State:
        path.unlink()
        return judged(states, head)

    monkeypatch.setattr(States, "of", vanish)
    look = Watch([tmp_path])
    assert look.refresh(caches=True) == []
    monkeypatch.undo()
    write_record(path, {"malloc-64": COUNTS})
    assert len(look.refresh(caches=True)) == 1


def test_a_number_that_was_given_to_another_process(start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The process ends, and another one with its number is there at the next look."""
    program = start()
    look = Watch([tmp_path])
    assert only(look.refresh(), program.pid).running
    program.process.kill()
    program.process.communicate()
    monkeypatch.setattr(proc, "stat", lambda pid: proc.Stat("S", 1, 1, 4096, ("1 (other", "00"), 0, 0, 0))
    assert only(look.refresh(), program.pid).state.name == "gone"


def test_only_what_is_asked_for_is_read(start: Start, tmp_path: Path) -> None:
    programs = [start() for _ in range(3)]
    look = Watch([tmp_path])
    look.refresh()
    found = {process.pid: process for process in look.refresh(caches={programs[1].pid})}
    assert [found[program.pid].numbers.caches is not None for program in programs] == [False, True, False]
    assert look.statistics.processes == 3


def test_a_record_without_a_header_is_found_later(start: Start, tmp_path: Path) -> None:
    """On tmpfs the time of the file does not tell that the header was written."""
    program = start()
    own = next(record.find(str(program.pid)))
    with own.open("r+b") as file:
        magic = file.read(8)
        file.seek(0)
        file.write(bytes(8))
        file.flush()
        times = own.stat().st_atime_ns, own.stat().st_mtime_ns
        look = Watch([tmp_path])
        assert look.refresh() == []
        file.seek(0)
        file.write(magic)
    os.utime(own, ns=times)
    assert only(look.refresh(), program.pid).running


def test_given_directories_and_found_ones(start: Start, tmp_path: Path) -> None:
    """With discover, both are watched; a directory that was found is dropped when it vanishes, a given one is kept."""
    given, found = tmp_path / "given", tmp_path / "found"
    given.mkdir()
    found.mkdir()
    ended = write_record(given / "p.1.sheaf", {})
    program = start(found)
    look = Watch([given], discover=True)
    until(lambda: program.pid in {process.pid for process in look.refresh()})
    assert ended in {process.path for process in look.refresh()}
    assert (look.counts[given], look.counts[found]) == (1, 1)
    program.kill()
    shutil.rmtree(found)
    shutil.rmtree(given)
    look.refresh()
    assert given in look.places
    assert found not in look.places


def test_processes_without_a_record_and_unreadable_ones(library: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    look = Watch([tmp_path], discover=True)
    with subprocess.Popen(["sleep", "1000"], env={**os.environ, "LD_PRELOAD": library, "SHEAF_RECORD": ""}) as bare:
        try:
            until(lambda: look.refresh() is not None and bare.pid in look.unrecorded)
        finally:
            bare.kill()
    look.refresh()
    assert bare.pid not in look.unrecorded

    def refuse(pid: int) -> str:
        raise SheafError("not permitted")

    monkeypatch.setattr(record, "maps", refuse)
    look = Watch([tmp_path], discover=True)
    look.refresh()
    assert os.getpid() in look.unreadable


def test_an_ended_process_that_is_forgotten(tmp_path: Path) -> None:
    path = write_record(tmp_path / "p.1.sheaf", {"malloc-64": COUNTS})
    look = Watch([tmp_path])
    (process,) = look.refresh(caches=True)
    look.forget(process)
    assert look.refresh(caches=True) == []
    assert look.statistics.headers == 0
    path.unlink()
    write_record(path, {"malloc-64": COUNTS}, began=1000)
    assert [one.start_time_ns for one in look.refresh()] == [1000]


def test_a_record_without_the_start_of_its_process(tmp_path: Path) -> None:
    """An older library, or a process without /proc: it runs as long as it maps the record."""
    code = (
        "import mmap, sys; input(); file = open(sys.argv[1], 'r+b'); m = mmap.mmap(file.fileno(), 0); "
        "print(flush=True); sys.stdin.read()"
    )
    path = tmp_path / "p.sheaf"
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as one:
        write_record(path, {}, pid=one.pid, ended=False)
        assert one.stdin and one.stdout
        one.stdin.write(b"\n")
        one.stdin.flush()
        one.stdout.readline()
        look = Watch([tmp_path])
        assert only(look.refresh(), one.pid).running
        one.kill()
    assert only(look.refresh(), one.pid).state.name == "gone"
