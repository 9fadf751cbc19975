"""Processes named by number or program."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from conftest import Run
from sheaf.commands.arguments import TargetArgument
from sheaf.errors import SheafError
from sheaf.system import process

Start = Callable[..., int]


@pytest.fixture
def start(library: str, tmp_path: Path) -> Iterator[Start]:
    """A function that runs a copy of cat under some name, on Sheaf or not, until the test ends; returns its number."""
    started = []

    def begin(name: str, on_sheaf: bool = True) -> int:
        program = tmp_path / name
        if not program.exists():
            shutil.copy("/bin/cat", program)
        env = {**os.environ, "LD_PRELOAD": library if on_sheaf else "", "SHEAF_RECORD": str(tmp_path)}
        child = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        started.append(child)
        assert child.stdin
        assert child.stdout
        child.stdin.write(b"x")
        child.stdin.flush()
        assert child.stdout.read(1) == b"x"
        return child.pid

    yield begin
    for child in started:
        child.communicate()


def test_a_unique_name(sheaf: Run, start: Start) -> None:
    name = f"cat-{os.getpid()}-with-a-long-name"
    pid = start(name)
    start(name, on_sheaf=False)
    assert process.resolve(name) == process.number(name) == process.number(str(pid)) == pid
    assert process.resolve(name[:15]) == pid  # the name that the kernel keeps
    assert json.loads(sheaf("stats", "--format", "json", name).stdout)["processes"][0]["pid"] == pid
    target = json.loads(sheaf("doctor", "--json", name).stdout)["target"]
    assert (target["kind"], target["pid"]) == ("process", pid)


def test_an_ambiguous_name_lists_the_candidates(sheaf: Run, start: Start) -> None:
    name = f"two-{os.getpid()}"
    pids = sorted([start(name), start(name)])
    said = f"sheaf: {name}: 2 processes on Sheaf have this name: {pids[0]}, {pids[1]}; give one of these numbers\n"
    for command in ("stats", "doctor"):
        done = sheaf(command, name)
        assert (done.stderr, done.returncode) == (said, 1)


def test_names_of_no_process(sheaf: Run, start: Start, tmp_path: Path) -> None:
    name = f"near-{os.getpid()}"
    start(name)
    with pytest.raises(SheafError, match=f"^{name}s: no process of this name runs on Sheaf; did you mean {name}\\?$"):
        process.number(f"{name}s")
    for word in ("", "99999999", "no-such-program-at-all", str(tmp_path / name)):
        with pytest.raises(SheafError, match=r"^[^\n]*; [^\n]*$"):
            process.number(word)
    done = sheaf("stats", "no-such-program-at-all")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)


def test_a_file_that_is_no_record_takes_no_precedence(sheaf: Run, start: Start, tmp_path: Path) -> None:
    name = f"file-{os.getpid()}"
    pid = start(name)
    assert f" ({pid}), running, " in sheaf("stats", name, cwd=tmp_path).stdout
    assert sheaf("stats", f"./{name}", cwd=tmp_path).stderr.startswith(f"sheaf: {name}: not a Sheaf record; ")


def test_the_type_of_an_argument(start: Start) -> None:
    name = f"argument-{os.getpid()}"
    pid = start(name)

    @click.command()
    @click.argument("one", type=TargetArgument())
    def command(one: str) -> None: ...

    items = TargetArgument().shell_complete(click.Context(command), command.params[0], name[:10])
    assert [(item.value, item.help) for item in items if item.type == "plain"] == [(name, f"process {pid}")]
    assert len([item for item in items if item.type == "file"]) == 1
    items = TargetArgument().shell_complete(click.Context(command), command.params[0], str(pid))
    assert (str(pid), name) in [(item.value, item.help) for item in items]
