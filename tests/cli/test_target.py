"""Which process or record a word means, by one rule in all commands; and `sheaf stats` without a word."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Run, write_record
from sheaf.errors import SheafError
from sheaf.records import record
from sheaf.system import process

NAME = f"n{os.getpid()}"
CODE = "import time; kept = [bytes(1000) for _ in range(3000)]; print('ready', flush=True); time.sleep(600)"
COMMANDS = (
    ["stats"],
    ["trim"],
    ["dump"],
    ["top", "--batch", "-n", "1"],
    ["set"],
    ["profile", "--seconds", "0.1"],
    ["leaks", "--seconds", "0.1"],
)


class Named:
    """A process that is called NAME, with the arguments `words`, and keeps a record."""

    def __init__(self, library: str, directory: Path, *words: str) -> None:
        directory.mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            [NAME, "-c", CODE, *words],
            executable=sys.executable,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "LD_PRELOAD": library, "SHEAF_RECORD": str(directory)},
        )
        assert self.process.stdout
        assert self.process.stdout.readline() == "ready\n"
        self.pid = self.process.pid

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def named(library: str, tmp_path: Path) -> Iterator[Named]:
    one = Named(library, tmp_path / "records", "--role=worker")
    yield one
    one.kill()


def ask(sheaf: Run, command: list[str], target: str, where: Path) -> subprocess.CompletedProcess[str]:
    return sheaf(*command, target, *(["decay=1000"] if command == ["set"] else []), cwd=where)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_file_of_the_name_is_no_record(sheaf: Run, named: Named, tmp_path: Path, command: list[str]) -> None:
    where = tmp_path / "here"
    for beside in ("nothing", "file", "empty directory", "directory"):
        shutil.rmtree(where, ignore_errors=True)
        where.mkdir()
        if beside == "file":
            (where / NAME).write_text("#!/bin/sh\n")
        elif beside != "nothing":
            (where / NAME).mkdir()
            if beside == "directory":
                (where / NAME / "notes").write_text("none")
        done = ask(sheaf, command, NAME, where)
        assert (done.returncode, done.stderr) == (0, ""), (beside, done)
        assert str(named.pid) in done.stdout
        (where / str(named.pid)).write_text("no record")
        assert str(named.pid) in ask(sheaf, command, str(named.pid), where).stdout


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_path_is_never_a_process(sheaf: Run, named: Named, tmp_path: Path, command: list[str]) -> None:
    for target in (f"./{NAME}", f"{NAME}.sheaf"):
        done = ask(sheaf, command, target, tmp_path)
        assert done.returncode == 1
        assert "No such file or directory" in done.stderr, done


def test_records_and_their_directories_precede_a_process(named: Named, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = tmp_path / "here"
    where.mkdir()
    monkeypatch.chdir(where)
    write_record(where / f"{NAME}.sheaf", {}).rename(where / NAME)
    assert list(record.find(NAME)) == [Path(NAME)]
    (where / NAME).unlink()
    (where / NAME).mkdir()
    path = write_record(where / NAME / "p.1.sheaf", {})
    assert list(record.find(NAME)) == [path.relative_to(where)]
    with pytest.raises(SheafError, match="the directory has no records"):
        list(record.find(str(tmp_path / "here")))


def test_what_is_neither(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("text")
    assert list(record.find("file")) == [Path("file")]  # of which the reader says what is wrong
    with pytest.raises(SheafError, match="nosuchprogram: no process of this name runs on Sheaf"):
        list(record.find("nosuchprogram"))


# ---- the running processes ----


def test_stats_without_arguments_shows_what_runs(sheaf: Run, library: str, named: Named, tmp_path: Path) -> None:
    other = Named(library, tmp_path / "records", "--role=writer")
    try:
        done = sheaf("stats", env={"COLUMNS": "4000"})
    finally:
        other.kill()
    assert done.returncode == 0
    size = r" +[\d.]+[KMG]"
    for one, role in ((named, "worker"), (other, "writer")):
        assert re.search(rf"^ *{one.pid}{size}{size}{size} {NAME} -c import time; .* --role={role}$", done.stdout, re.M), done
    program = os.path.basename(os.path.realpath(sys.executable))
    found = re.search(rf"^ *(\d+){size}{size}{size} {program}|^ *(\d+){size}{size}{size} python$", done.stdout, re.M)
    assert found and int(found[1] or found[2]) >= 2
    assert max(map(len, sheaf("stats", env={"COLUMNS": "60"}).stdout.splitlines())) <= 60


def test_the_rows_of_all_that_run(sheaf: Run, named: Named) -> None:
    out = json.loads(sheaf("stats", "--format", "json").stdout)
    assert named.pid in {one["pid"] for one in out["processes"]}
    assert "malloc-1152" in {row["name"] for row in out["rows"]}


def test_a_title_is_the_command(named: Named) -> None:
    assert process.command(named.pid).startswith(f"{NAME} -c import time;")
    assert process.command(999999999) == ""
