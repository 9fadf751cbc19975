"""Processes in another PID namespace, as in a container: every command finds them, and shows both of their numbers."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Run
from sheaf.errors import SheafError
from sheaf.records import control, record
from sheaf.records.state import States
from sheaf.system import namespaces

UNSHARE = shutil.which("unshare")
CODE = "import time; kept = [bytes(1000) for _ in range(5000)]; print('ready', flush=True); time.sleep(600)"


def _allowed() -> bool:
    command = ["unshare", "--pid", "--fork", "--mount-proc", "true"]
    return UNSHARE is not None and subprocess.run(command, capture_output=True).returncode == 0


pytestmark = pytest.mark.skipif(not _allowed(), reason="PID namespaces cannot be made here")


class Inside:
    """A process with a record in a PID namespace of its own, where its number is 1."""

    def __init__(self, library: str, directory: Path) -> None:
        directory.mkdir()
        command = [
            "unshare",
            "--pid",
            "--fork",
            "--mount-proc",
            "--kill-child",
            "env",
            f"LD_PRELOAD={library}",
            f"SHEAF_RECORD={directory}",
            sys.executable,
            "-c",
            CODE,
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        assert self.process.stdout.readline() == "ready\n"
        (self.path,) = (path for path in directory.iterdir() if path.name.startswith("python"))
        self.head = record.read_head(self.path)

    @property
    def pid(self) -> int:
        """Its number here."""
        assert self.head.here
        return self.head.here

    @property
    def who(self) -> str:
        return rf"\S+ \({self.pid}, 1 in its PID namespace\)"


@pytest.fixture
def inside(library: str, tmp_path: Path) -> Iterator[Inside]:
    one = Inside(library, tmp_path / "records")
    yield one
    one.process.kill()
    one.process.communicate()


def test_its_number_is_found(inside: Inside) -> None:
    assert inside.head.pid == 1
    assert namespaces.foreign(inside.head.pid_namespace)
    status = Path(f"/proc/{inside.pid}/status").read_text()
    assert re.search(r"^NSpid:\t.*\t1$", status, re.M)
    state = States().of(inside.head)
    assert (state.name, state.pid) == ("running", inside.pid)


def test_every_command_reaches_it(sheaf: Run, inside: Inside) -> None:
    for target in (str(inside.pid), str(inside.path)):
        assert re.match(rf"{inside.who}: returned .*\d [KM]iB before", sheaf("trim", target).stdout)
        assert re.match(inside.who, sheaf("dump", target).stdout.replace("\n  ", " "))
        assert re.match(rf"{inside.who}, running", sheaf("stats", target).stdout)
        assert sheaf("set", target, "decay=500").returncode == 0
        done = sheaf("profile", "--seconds", "0.2", target)
        assert re.match(inside.who, done.stdout), done
        done = sheaf("leaks", "--seconds", "0.2", target)
        assert re.match(inside.who, done.stdout.replace("\n", " ")), done
        assert "PID namespace), running" in sheaf("top", "--batch", "-n", "1", target).stdout
    assert f" running as {inside.pid}\n" in sheaf("records", str(inside.path.parent)).stdout


def test_json_has_both_numbers(sheaf: Run, inside: Inside) -> None:
    pid, path = str(inside.pid), str(inside.path)
    (one,) = json.loads(sheaf("stats", "--format", "json", path).stdout)["processes"]
    assert (one["pid"], one["host_pid"], one["memory"]["resident_bytes"] > 0) == (1, inside.pid, True)
    for command in (
        ["dump", "--json", pid],
        ["profile", "--format", "json", "--seconds", "0.1", pid],
        ["leaks", "--format", "json", "--seconds", "0.1", pid],
    ):
        out = json.loads(sheaf(*command).stdout)
        assert (out["pid"], out["host_pid"]) == (1, inside.pid), command
    found = json.loads(sheaf("records", "--format", "json", str(inside.path.parent)).stdout)["records"]
    assert {(one["pid"], one["host_pid"]) for one in found if one["path"] == path} == {(1, inside.pid)}
    (one,) = json.loads(sheaf("top", "--json", "-n", "1", pid).stdout)["processes"]
    assert (one["pid"], one["namespace_pid"]) == (inside.pid, 1)


def test_it_is_noticed_when_it_ends(inside: Inside) -> None:
    os.kill(inside.pid, 9)
    inside.process.wait()
    head = record.read_head(inside.path)
    time.sleep(0.3)  # a list of processes is used again for that long
    assert (head.here, States().of(head).name) == (None, "gone")
    with pytest.raises(SheafError, match="has ended by signal"), control.connect(str(inside.path)):
        pass
