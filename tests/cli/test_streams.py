"""Every command ends with one line and the right status where its standard streams are closed or cannot be written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, Start, write_record

# Allocates all the time, so that it answers requests and has samples.
BUSY = """
import time
kept = [bytes(1000) for _ in range(10000)]
print("ready", flush=True)
while True:
    kept.append(bytes(100_000))
    del kept[-5000:-1]
    time.sleep(0.005)
"""
COMMANDS = [
    "--help",
    "--version",
    "stats --help",
    "stats RECORD",
    "stats --format json RECORD",
    "stats PID",
    "top --batch -n 1 DIR",
    "top --json -n 2 --interval 0.1 PID",
    "records DIR",
    "records --format json DIR",
    "trim PID",
    "set PID decay=200",
    "dump PID",
    "dump --json PID",
    "doctor true",
    "doctor --json true",
    "doctor PID",
    "profile RECORD",
    "profile --format pprof RECORD",
    "profile --format html PID",
    "leaks RECORD",
    "unit redis-server",
    "report RECORD",
    "bench --list-peers",
    "completion bash",
]
FAILURES = {  # what stands behind the command in a shell, the status, and what is said
    "full": (">/dev/full", 1, "sheaf: standard output: No space left on device; write to another file\n"),
    "closed": (">&-", 1, "sheaf: standard output is closed; redirect it to a file, or to /dev/null\n"),
    "unread": (">&3", 141, ""),
    "silent": (">/dev/full 2>/dev/full", 1, ""),
    "mute": (">&- 2>&-", 1, ""),
}


def started(words: list[str], streams: str, unread: int) -> subprocess.Popen[str]:
    """A command with its streams; the file descriptor 3 is a pipe that nobody reads."""
    line = f'exec 3>&{unread} {unread}>&-; exec "$@" {streams}'
    return subprocess.Popen(
        ["bash", "-c", line, "bash", sys.executable, "-m", "sheaf", *words],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        pass_fds=[unread],
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "cli")},
    )


@pytest.fixture
def unread() -> int:
    """The end of a pipe for writing. Nobody reads it."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def test_results_that_cannot_be_written(start: Start, tmp_path: Path, unread: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHEAF_PROFILE", "4096")
    program = start(code=BUSY)
    (record,) = tmp_path.glob("*.sheaf")
    names = {"RECORD": str(record), "DIR": str(tmp_path), "PID": str(program.pid)}
    for command in COMMANDS:
        words = [names.get(word, word) for word in command.split()]
        running = {kind: started(words, streams, unread) for kind, (streams, _, _) in FAILURES.items()}
        for kind, process in running.items():
            said = process.communicate()[1]
            assert (command, kind, process.returncode, said) == (command, kind, *FAILURES[kind][1:])


@pytest.mark.parametrize(
    ("streams", "said"),
    [
        ("2>/dev/full", ""),
        ("2>&-", ""),
        ("2>&3", ""),
        (">&-", "sheaf: {}: No such file or directory; name a .sheaf file made with `sheaf run --record DIR` or SHEAF_RECORD\n"),
    ],
)
def test_errors_keep_their_status(unread: int, streams: str, said: str) -> None:
    for words, status in (["stats", "/no/such/file"], 1), (["run", "/no/such/program"], 127), (["stats", "--by"], 2):
        process = started(words, streams, unread)
        line = process.communicate()[1]
        assert process.returncode == status
        assert line == said.format(words[-1]) if words[0] == "stats" and status == 1 else len(line.splitlines()) == bool(said)


def test_warnings_that_cannot_be_written(tmp_path: Path) -> None:
    """A lost warning does not end the command."""
    write_record(tmp_path / "work.1.sheaf", {})
    (tmp_path / "empty.1.sheaf").touch()
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "cli")}
    words = [sys.executable, "-m", "sheaf", "stats", str(tmp_path)]
    done = subprocess.run(["sh", "-c", '"$@" 2>/dev/full', "sh", *words], capture_output=True, text=True, env=environment)
    assert done.returncode == 0
    assert done.stdout.startswith("work (99999999), ended")
