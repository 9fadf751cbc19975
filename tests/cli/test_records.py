"""`sheaf records`, and the states of the processes that the records belong to."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT, Run, until, write_record
from sheaf.errors import SheafError
from sheaf.records import layout, record
from sheaf.records.state import State, States
from sheaf.system import namespaces

DAY = 86400 * 10**9
FOREVER = "import time; keep = [bytes(1000) for _ in range(1000)]; print('ready', flush=True); time.sleep(60)"
BECOME = (
    "import os, sys; print('ready', flush=True); sys.stdin.readline(); os.environ.update(LD_PRELOAD={!r}); "
    "words = {!r}.split(); os.execvp(words[0], words)"
)


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def ended(directory: Path, *ages: float) -> None:
    """Records of processes that ended so many days ago, named by that number."""
    for age in ages:
        end = time.time_ns() - int(age * DAY)
        write_record(directory / f"p.{age:g}.sheaf", {}, values={"end_time_ns": end}, began=end - DAY)


def listed(sheaf: Run, *args: str) -> dict[str, dict[str, object]]:
    """What `sheaf records` says of each file."""
    done = sheaf("records", "--format", "json", *args)
    assert done.returncode == 0, done.stderr
    return {Path(str(row["path"])).name: row for row in json.loads(done.stdout)["records"]}


def begin(library: str, directory: Path, code: str, *before: str) -> subprocess.Popen[str]:
    """Start Python with a record and wait until it prints a line."""
    process = subprocess.Popen(
        [*before, sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "LD_PRELOAD": library, "SHEAF_RECORD": str(directory)},
    )
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    return process


def stop(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def state(path: Path) -> State:
    head = record.read_head(path)
    return States().of(head)


# ---- the list ----


def test_records_are_listed_by_age(sheaf: Run, tmp_path: Path) -> None:
    ended(tmp_path, 2, 30, 0.5)
    lines = sheaf("records", str(tmp_path)).stdout.splitlines()
    assert [line.split()[:2] for line in lines[1:4]] == [["p.30.sheaf", "4w"], ["p.2.sheaf", "2d"], ["p.0.5.sheaf", "12h"]]
    assert all(line.endswith(" ended") for line in lines[1:4])
    assert re.fullmatch(r"3 records, [\d.]+ KiB on disk; 0 running", lines[4])
    row = listed(sheaf, str(tmp_path))["p.2.sheaf"]
    assert (row["state"], row["replaced_by"], row["removed"]) == ("ended", None, False)
    assert row["age_seconds"] == pytest.approx(2 * 86400, abs=60)


def test_the_directory_is_that_of_the_environment_or_the_current_one(sheaf: Run, tmp_path: Path) -> None:
    ended(tmp_path, 1)
    assert set(listed(sheaf, str(tmp_path))) == {"p.1.sheaf"}
    assert "p.1.sheaf" in sheaf("records", env={"SHEAF_RECORD": str(tmp_path)}).stdout
    assert "p.1.sheaf" in sheaf("records", cwd=tmp_path, env={"SHEAF_RECORD": ""}).stdout


def test_an_empty_directory_is_no_error(sheaf: Run, tmp_path: Path) -> None:
    done = sheaf("records", "--prune", "--keep", "3", str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "removed 0 records, 0 bytes; left 0 records, 0 bytes on disk; 0 running\n")
    assert sheaf("records", str(tmp_path / "none")).returncode == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--prune", "sheaf: --prune: needs --older-than AGE or --keep N, such as --older-than 7d"),
        ("--older-than 7", "sheaf: --older-than 7: not an age; give a number and s, m, h, d or w, such as 12h or 7d"),
        ("--older-than -7d", "sheaf: --older-than -7d: not an age; give a number and s, m, h, d or w, such as 12h or 7d"),
        ("--keep -1", "sheaf records: --keep: -1 is not in the range x>=0; see `sheaf records --help`"),
    ],
)
def test_wrong_selections(sheaf: Run, tmp_path: Path, line: str, said: str) -> None:
    done = sheaf("records", str(tmp_path), *line.split())
    assert (done.stderr, done.returncode) == (said + "\n", 2)


# ---- removal ----


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ("--older-than 3d", {"p.1.sheaf", "p.2.sheaf"}),
        ("--older-than 3d --keep 4", {"p.1.sheaf", "p.2.sheaf", "p.4.sheaf", "p.5.sheaf"}),
        ("--keep 3", {"p.1.sheaf", "p.2.sheaf", "p.4.sheaf"}),
        ("--keep 0", set()),
        ("--keep 9", {"p.1.sheaf", "p.2.sheaf", "p.4.sheaf", "p.5.sheaf", "p.6.sheaf"}),
        ("--older-than 1w", {"p.1.sheaf", "p.2.sheaf", "p.4.sheaf", "p.5.sheaf", "p.6.sheaf"}),
        ("--older-than 60h", {"p.1.sheaf", "p.2.sheaf"}),
    ],
)
def test_the_selected_records_are_removed(sheaf: Run, tmp_path: Path, options: str, left: set[str]) -> None:
    ended(tmp_path, 1, 2, 4, 5, 6)
    every = names(tmp_path)
    assert set(listed(sheaf, *options.split(), str(tmp_path))) == every - left
    assert names(tmp_path) == every
    removed = {name for name, row in listed(sheaf, "--prune", *options.split(), str(tmp_path)).items() if row["removed"]}
    assert (names(tmp_path), removed) == (left, every - left)


@pytest.mark.parametrize(
    ("options", "left"),
    [("--keep 1", {"p.1.sheaf", "q.3.sheaf"}), ("--keep 0", set()), ("--keep 2", {"p.1.sheaf", "p.2.sheaf", "q.3.sheaf"})],
)
def test_the_number_to_keep_is_that_of_each_program(sheaf: Run, tmp_path: Path, options: str, left: set[str]) -> None:
    ended(tmp_path, 1, 2)
    end = time.time_ns() - 3 * DAY
    write_record(tmp_path / "q.3.sheaf", {}, values={"end_time_ns": end}, began=end - DAY)
    listed(sheaf, "--prune", *options.split(), str(tmp_path))
    assert names(tmp_path) == left


# ---- processes that were killed ----


def killed(path: Path, alive_days: float, interval: int = 0) -> Path:
    """The record of a process that was killed, and last said so many days ago that it is alive. The file is as old."""
    then = time.time_ns() - int(alive_days * DAY)
    write_record(
        path,
        {},
        ended=False,
        began=then,
        start=1,
        profile_size=4096,
        values={"alive_time_ns": then, "alive_interval_ns": interval},
    )
    os.utime(path, ns=(then, then))
    return path


def test_a_process_that_said_that_it_is_alive_ended_after_that(sheaf: Run, tmp_path: Path) -> None:
    """The time of the last change of the file, which mapped writes leave alone, would make the second record an old one."""
    killed(tmp_path / "old.1.sheaf", 2, 300 * 10**9)
    recent = killed(tmp_path / "recent.1.sheaf", 0.001, 300 * 10**9)  # 86 s
    os.utime(recent, ns=(DAY, DAY))
    rows = listed(sheaf, "--prune", "--older-than", "1m", str(tmp_path))
    assert rows["old.1.sheaf"]["age_seconds"] == pytest.approx(2 * 86400 - 300, abs=60)
    assert (rows["recent.1.sheaf"]["age_seconds"], rows["recent.1.sheaf"]["age_is_known"]) == (0, True)
    assert names(tmp_path) == {"recent.1.sheaf"}


def test_a_process_that_slept_may_have_ended_just_now(sheaf: Run, tmp_path: Path) -> None:
    """It did not say that it is alive, so its age begins when it is found to have ended."""
    path = killed(tmp_path / "p.1.sheaf", 30)
    assert set(listed(sheaf, "--older-than", "7d", str(tmp_path))) == set()  # listing notes nothing
    assert record.read_head(path).found_ended_ns == 0
    done = sheaf("records", "--prune", "--older-than", "7d", str(tmp_path))
    assert done.stdout.endswith("; 1 whose end is not known, of age 0 from now on\n"), done
    head = record.read_head(path)
    assert abs(time.time_ns() - head.found_ended_ns) < 60 * 10**9
    sheaf("records", "--prune", "--older-than", "7d", str(tmp_path))
    assert record.read_head(path).found_ended_ns == head.found_ended_ns
    with path.open("r+b") as file:  # eight days later
        reader = layout.Reader(path)
        with reader.file:
            file.seek(reader.number("control_offset") + record.FOUND_ENDED)
        file.write((time.time_ns() - 8 * DAY).to_bytes(8, "little"))
    assert listed(sheaf, "--prune", "--older-than", "7d", str(tmp_path))["p.1.sheaf"]["removed"]


def test_a_process_killed_a_second_ago_is_not_old(sheaf: Run, library: str, tmp_path: Path) -> None:
    """The record is written to in memory only, so its file looks as old as the process."""
    process = begin(library, tmp_path, FOREVER)
    path = next(record.find(str(process.pid)))
    head = record.read_head(path)
    assert head.alive_interval_ns == 300 * 10**9
    assert head.start_time_ns <= head.alive_time_ns <= time.time_ns()
    stop(process)
    os.utime(path, ns=(DAY, DAY))
    listed(sheaf, "--prune", "--older-than", "1s", str(tmp_path))
    assert path.exists()


def test_what_is_not_a_record_stays(sheaf: Run, tmp_path: Path) -> None:
    ended(tmp_path, 5)
    inside = tmp_path / "records"
    inside.mkdir()
    ended(inside, 6)
    (inside / "notes.txt").write_text("notes")
    (inside / "text.sheaf").write_text("SHEAF")
    (inside / "begun.sheaf").write_bytes(bytes(65536))
    (inside / "link.sheaf").symlink_to(tmp_path / "p.5.sheaf")
    (inside / "folder.sheaf").mkdir()
    os.mkfifo(inside / "fifo.sheaf")
    damaged = write_record(inside / "damaged.3.sheaf", {})
    damaged.write_bytes(damaged.read_bytes()[:100] + b"?" + damaged.read_bytes()[101:])
    (inside / "p.7.txt").write_bytes((inside / "p.6.sheaf").read_bytes())
    before = names(inside)
    done = sheaf("records", "--prune", "--keep", "0", str(inside))
    assert done.returncode == 0
    assert names(inside) == before - {"p.6.sheaf"}
    assert names(tmp_path) == {"p.5.sheaf", "records"}
    assert len(re.findall("^not a record: ", done.stdout, re.M)) == 4
    assert f"not a record: {inside}: 3 files: not a regular file" in done.stdout
    assert "Traceback" not in done.stderr


def test_records_of_running_processes_stay(sheaf: Run, library: str, tmp_path: Path) -> None:
    process = begin(library, tmp_path, FOREVER)
    try:
        ended(tmp_path, 9)
        own = next(record.find(str(process.pid)))
        assert listed(sheaf, str(tmp_path))[own.name]["state"] == "running"
        (tmp_path / "elsewhere").symlink_to(tmp_path)
        done = sheaf("records", "--prune", "--keep", "0", "--older-than", "0s", str(tmp_path / "elsewhere"))
        assert done.stdout.splitlines()[-1].endswith("1 running")
        assert names(tmp_path) == {own.name, "elsewhere"}
    finally:
        stop(process)
    time.sleep(1.1)
    sheaf("records", "--prune", "--older-than", "0s", str(tmp_path))
    assert names(tmp_path) == {"elsewhere"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may remove everything")
def test_a_record_that_cannot_be_removed_is_named(sheaf: Run, tmp_path: Path) -> None:
    ended(tmp_path, 3)
    tmp_path.chmod(0o500)
    done = sheaf("records", "--prune", "--keep", "0", str(tmp_path))
    tmp_path.chmod(0o700)
    assert done.returncode == 1
    assert "p.3.sheaf: not removed: Permission denied; " in done.stderr


# ---- exec ----


def test_a_process_that_executes_a_program_without_a_record(sheaf: Run, library: str, tmp_path: Path) -> None:
    process = begin(library, tmp_path, BECOME.format("", "sleep 60"))
    assert process.stdin
    path = next(record.find(str(process.pid)))
    assert str(state(path)) == "running"
    process.stdin.write("\n")
    process.stdin.flush()
    until(lambda: str(state(path)) == "replaced by exec of sleep")
    assert f"({process.pid}), replaced by exec of sleep, " in sheaf("stats", str(path)).stdout
    out = json.loads(sheaf("stats", "--format", "json", str(path)).stdout)["processes"][0]
    assert (out["state"], out["replaced_by"]) == ("replaced", "sleep")
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert str(state(path)) == "ended by signal, _exit or exec"
    stop(process)
    assert str(state(path)) == "ended by signal, _exit or exec"


def test_a_process_that_executes_a_program_with_a_record(library: str, tmp_path: Path) -> None:
    process = begin(library, tmp_path, BECOME.format(library, "ls /"))
    first = next(record.find(str(process.pid)))
    process.communicate("\n")
    (second,) = set(tmp_path.iterdir()) - {first}
    assert (str(state(first)), str(state(second))) == ("replaced by exec of ls", "ended")
    second.unlink()
    assert str(state(first)) == "ended by signal, _exit or exec"


def test_a_chain_of_programs(library: str, tmp_path: Path) -> None:
    """Each record names the next program, not the last one."""
    subprocess.run(
        ["bash", "-c", "exec bash -c 'exec ls /'"],
        stdout=subprocess.DEVNULL,
        check=True,
        env={**os.environ, "LD_PRELOAD": library, "SHEAF_RECORD": str(tmp_path)},
    )
    heads = sorted((record.read_head(path) for path in tmp_path.iterdir()), key=lambda head: head.start_time_ns)
    states = States(heads)
    assert [str(states.of(head)) for head in heads] == ["replaced by exec of bash", "replaced by exec of ls", "ended"]


def test_a_number_that_was_given_again_is_another_process(tmp_path: Path) -> None:
    """This process has the number, but it started at another time."""
    path = write_record(tmp_path / f"p.{os.getpid()}.sheaf", {}, pid=os.getpid(), ended=False, start=1)
    write_record(tmp_path / f"q.{os.getpid()}.sheaf", {}, pid=os.getpid(), start=2, began=9)
    assert str(state(path)) == "ended by signal, _exit or exec"
    write_record(tmp_path / f"q.{os.getpid()}.1.sheaf", {}, pid=os.getpid(), start=1, began=7)
    assert str(state(path)) == "replaced by exec of q"


def test_a_record_of_an_earlier_boot_is_of_an_ended_process(tmp_path: Path) -> None:
    start = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    own = {"pid": os.getpid(), "ended": False, "start": start}
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert state(write_record(tmp_path / "a.sheaf", {}, **own, boot=boot)).name == "replaced"  # type: ignore[arg-type]
    assert state(write_record(tmp_path / "b.sheaf", {}, **own, boot="earlier")).name == "gone"  # type: ignore[arg-type]


def test_a_copy_of_a_record_is_named_as_one(library: str, tmp_path: Path) -> None:
    process = begin(library, tmp_path, FOREVER)
    own = next(record.find(str(process.pid)))
    copy = tmp_path / "copy.sheaf"
    shutil.copyfile(own, copy)
    assert (state(own).name, state(copy).name) == ("running", "copy")
    own.unlink()
    assert state(copy).name == "copy"
    stop(process)
    assert state(copy).name == "gone"


def test_a_process_whose_maps_may_not_be_read_counts_as_running(
    library: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def denied(pid: int) -> str:
        raise SheafError(f"/proc/{pid}/maps: Permission denied")

    process = begin(library, tmp_path, FOREVER)
    own = next(record.find(str(process.pid)))
    monkeypatch.setattr(record, "maps", denied)
    assert state(own).name == "running"
    stop(process)
    assert state(own).name == "gone"


# ---- containers ----


def test_a_process_that_cannot_be_seen_is_neither_running_nor_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    head = record.read_head(write_record(tmp_path / "p.7.sheaf", {}, pid=7, ended=False, start=1, namespace=12345))
    states = States()
    for own, expected in ((0xEFFFFFFC, "gone"), (777, "unknown")):
        monkeypatch.setattr(namespaces, "own", lambda own=own: own)
        assert states._find(head).name == expected


def test_a_process_in_another_namespace_is_found(sheaf: Run, library: str, tmp_path: Path) -> None:
    unshare = ["unshare", "--pid", "--fork", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip("this system does not permit PID namespaces")
    process = begin(library, tmp_path, FOREVER, *unshare)
    try:
        (own,) = (path for path in tmp_path.iterdir() if path.name.startswith("python"))
        assert record.read_head(own).pid < 100
        assert state(own).name == "running"
        sheaf("records", "--prune", "--keep", "0", str(tmp_path))
        assert own.exists()
    finally:
        for child in record._children(process.pid):
            os.kill(child, 9)
        stop(process)


def test_the_time_for_many_records_is_linear(tmp_path: Path) -> None:
    one = write_record(tmp_path / "p.1.sheaf", {}, ended=False, start=1, pid=1).read_bytes()
    for i in range(2, 3000):
        (tmp_path / f"p.{i}.sheaf").write_bytes(one)
    begun = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "sheaf", "records", tmp_path],
        stdout=subprocess.DEVNULL,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "cli")},
    )
    assert time.monotonic() - begun < 10  # 0.5 s on an idle machine; a directory read for each record takes minutes


# ---- the size of a record ----


def test_a_record_has_room_for_the_online_cpus_only(library: str, tmp_path: Path) -> None:
    cpus = int(re.split("[-,]", Path("/sys/devices/system/cpu/online").read_text().strip())[-1]) + 1
    nodes = len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or 1
    begin(library, tmp_path, "import os; print('ready', flush=True); os.fork() and os.wait()").communicate()
    files = list(tmp_path.iterdir())
    assert len(files) == 2
    for path in files:
        assert path.stat().st_size <= 65536 + nodes * 32768 * (2 + cpus)
        found = record.read(path)
        assert (
            sum(
                sum(part.derived()[f"{where}_bytes"] for where in ("in_use", "in_sheaves", "in_barns", "in_slabs"))
                for part in found.parts
            )
            == found.process["slab_bytes"]
        )


def test_a_limit_of_the_file_size_is_no_signal(library: str, tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))

    done = subprocess.run(
        ["ls", "-d", "/"],
        capture_output=True,
        text=True,
        preexec_fn=limit,
        env={**os.environ, "LD_PRELOAD": library, "SHEAF_RECORD": str(tmp_path)},
    )
    assert (done.returncode, done.stdout) == (0, "/\n")
    assert done.stderr.startswith(f"sheaf: no record in {tmp_path}: File too large; ")
    assert names(tmp_path) == set()
