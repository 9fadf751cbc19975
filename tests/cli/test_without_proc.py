"""The command where a sandbox hides /proc."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from conftest import ROOT
from sheaf.commands.doctor import mode as doctor_mode
from sheaf.commands.doctor.finding import future

HIDE = 'mount -t tmpfs none /proc && exec "$@"'


def hidden(*args: str) -> subprocess.CompletedProcess[str]:
    """Runs `sheaf ARGS` with an empty /proc. Skips the test where that cannot be made."""
    unshare = ("unshare", "-m", "sh", "-c", HIDE, "-")
    if subprocess.run((*unshare, "true"), capture_output=True, check=False).returncode:
        pytest.skip("no file systems can be mounted here")
    env = {**os.environ, "PYTHONPATH": str(ROOT / "cli")}
    command = (*unshare, sys.executable, "-m", "sheaf", *args)
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)


def test_doctor_expects_the_same_mode(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's features are read from libc, and the trial needs no /proc."""
    monkeypatch.setenv("TMPDIR", "/nowhere")
    usual = doctor_mode.expected(doctor_mode.grounds(future(), True)).name
    done = hidden("doctor", "--json")
    assert (done.stderr, json.loads(done.stdout)["mode"]["name"]) == ("", usual)


@pytest.mark.parametrize("target", ["1", "sh", "/tmp/program.1.sheaf"])
def test_requests_say_why_they_fail(target: str) -> None:
    """Without /proc a process that runs would be taken for one that has ended."""
    done = hidden("trim", target)
    assert done.returncode != 0
    assert done.stderr == (
        f"sheaf: {target}: /proc cannot be read here, so no process can be asked; run sheaf outside of the sandbox\n"
    )
