"""`sheaf doctor` says in which mode a program runs, and why."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Run
from sheaf.commands.doctor import mode as doctor_mode
from sheaf.commands.doctor.finding import SELF, Finding, future
from sheaf.commands.doctor.mode import Grounds


@pytest.fixture
def no_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes the variables that decide the mode from the environment."""
    for name in ("GLIBC_TUNABLES", *(name for name in os.environ if name.startswith("SHEAF_") and name != "SHEAF_LIBRARY")):
        monkeypatch.delenv(name, raising=False)


USUAL = Grounds("x86_64", (6, 18), 32, True, 1, 0, {})


@pytest.mark.parametrize(
    ("given", "mode"),
    [
        (USUAL, doctor_mode.MM_CID),
        (replace(USUAL, features=20), doctor_mode.CPU_ID),
        (replace(USUAL, nodes=2), doctor_mode.CPU_ID),
        (replace(USUAL, nodes=2, environment={"SHEAF_NUMA": "off"}), doctor_mode.MM_CID),
        (replace(USUAL, nodes=2, environment={"SHEAF_SLOTS": "mm_cid"}), doctor_mode.MM_CID),
        (replace(USUAL, environment={"SHEAF_SLOTS": "cpu_id"}), doctor_mode.CPU_ID),
        (replace(USUAL, environment={"GLIBC_TUNABLES": "glibc.malloc.check=0:glibc.pthread.rseq=0"}), doctor_mode.OWN),
        (replace(USUAL, environment={"GLIBC_TUNABLES": "glibc.pthread.rseq=0", "SHEAF_RSEQ": "libc"}), doctor_mode.LOCK),
        (replace(USUAL, environment={"SHEAF_RSEQ": "off"}), doctor_mode.LOCK),
        (replace(USUAL, machine="riscv64"), doctor_mode.LOCK),
        (replace(USUAL, kernel=(4, 17)), doctor_mode.LOCK),
        (replace(USUAL, libc_has_rseq=False), doctor_mode.OWN),
        (replace(USUAL, libc_has_rseq=False, environment={"SHEAF_RSEQ": "libc"}), doctor_mode.LOCK),
        (replace(USUAL, space_needed=192 << 20), doctor_mode.LOCK),
    ],
)
def test_expected_modes(given: Grounds, mode: str) -> None:
    assert doctor_mode.expected(given).name == mode


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"SHEAF_RSEQ": "off"},
        {"SHEAF_SLOTS": "cpu_id"},
        {"SHEAF_NODES": "2"},
        {"GLIBC_TUNABLES": "glibc.pthread.rseq=0"},
        {"GLIBC_TUNABLES": "glibc.pthread.rseq=0", "SHEAF_RSEQ": "libc"},
    ],
)
def test_a_trial_has_the_expected_mode(
    library: str, monkeypatch: pytest.MonkeyPatch, no_options: None, environment: dict[str, str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    trial = doctor_mode.attempt()
    assert [one for one in trial.findings if one.status == "problem"] == []
    if "Seccomp:\t0" in (SELF / "status").read_text():
        assert trial.mode == doctor_mode.expected(doctor_mode.grounds(future(), True)).name


def test_what_trials_say() -> None:
    def judge(status: int, stdout: str = "", stderr: str = "") -> list[Finding]:
        return doctor_mode._judge(subprocess.CompletedProcess([], status, stdout, stderr))

    assert judge(0, "1023\n") == []
    assert [one.subject for one in judge(0, "-1\n")] == ["membarrier"]
    assert [one.subject for one in judge(-signal.SIGSYS)] == ["seccomp"]
    assert [one.subject for one in judge(0, "1023", "ERROR: ld.so: x cannot be preloaded (y): ignored.")] == ["library"]
    assert "by signal 6: no memory" in judge(-6, "", "first\nno memory\n")[0].what
    guess = doctor_mode.expected(USUAL)
    refused = doctor_mode.known(doctor_mode.LOCK, "trial", guess)
    assert "refuses restartable sequences" in doctor_mode.finding(refused).what


@pytest.mark.parametrize(("rule", "mode"), [("rseq=ENOSYS", doctor_mode.LOCK), ("rseq", doctor_mode.LOCK), ("membarrier", None)])
def test_a_sandbox_without_records(library: str, no_options: None, rule: str, mode: str | None) -> None:
    """The mode is found where the sandbox refuses records as well, as gVisor does."""
    deny = Path(library).parents[1] / "tests/environment/deny"
    if not deny.exists():
        pytest.skip("tests/environment/deny is not built")
    command = (str(deny), rule, "madvise=EINVAL", "--", sys.executable, "-m", "sheaf", "doctor", "--json")
    env = {**os.environ, "PYTHONPATH": str(ROOT / "cli")}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)
    if "no filter can be installed" in done.stderr:
        pytest.skip("no filter can be installed here")
    answer = json.loads(done.stdout)
    usual = doctor_mode.expected(doctor_mode.grounds(future(), True)).name
    assert answer["mode"]["name"] == (mode or usual)
    assert answer["mode"]["source"] == ("trial" if mode else "expected")


def test_a_limit_of_address_space_that_leaves_only_locks(sheaf: Run, library: str, no_options: None) -> None:
    """The least limit without locks, which follows from the width of the kernel's CPU masks, is named and is exact."""

    def examine(limit: int | None) -> dict[str, Any]:
        def apply() -> None:
            if limit is not None:
                resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))

        done = sheaf("doctor", "--json", "true", preexec_fn=apply)
        answer: dict[str, Any] = json.loads(done.stdout)
        assert (done.returncode, answer["ok"]) == (0, True)
        return answer

    usual = examine(None)["mode"]["name"]
    least = doctor_mode._space_needed(1)
    if usual == doctor_mode.LOCK or least < 64 << 20:
        pytest.skip("slots have locks here under any limit, or under none that Python can run under")
    answer = examine(least - 4096)
    found = next(one for one in answer["findings"] if one["subject"] == "mode")
    assert found["status"] == "note"
    assert f"(ulimit -v {least >> 10})" in found["advice"]
    assert (answer["mode"]["name"], answer["mode"]["source"]) == (doctor_mode.LOCK, "trial")
    assert answer["mode"]["why"].startswith("RLIMIT_AS")
    assert examine(least)["mode"]["name"] == usual
