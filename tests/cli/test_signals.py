"""`sheaf run --stats` waits for its program and is transparent to signals, jobs and terminals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT
from terminal import PATIENCE, Terminal

# Prints each signal that it receives. USR2 ends it; USR1 makes it send the signal in argv[2] to its group or to itself.
PROGRAM = """
import os, signal, sys
handled = [getattr(signal, "SIG" + name) for name in ("HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "CONT", "ALRM", "RTMIN")]
signal.pthread_sigmask(signal.SIG_BLOCK, handled)
print("ready", os.getpid(), flush=True)
while True:
    number = signal.sigwait(handled)
    print("got", signal.Signals(number).name, flush=True)
    if number == signal.SIGUSR2:
        sys.exit(5)
    if number == signal.SIGUSR1 and sys.argv[1:]:
        os.kill(0 if sys.argv[1] == "group" else os.getpid(), int(sys.argv[2]))
"""
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "cli")}
RUN = [sys.executable, "-m", "sheaf", "run", "--stats", sys.executable, "-c", PROGRAM]
pytestmark = pytest.mark.usefixtures("library")


@pytest.fixture(autouse=True)
def no_test_hangs() -> Iterator[None]:
    """Make a test fail that waits for a signal in vain."""

    def fail(*_: object) -> None:
        raise AssertionError("hung")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(2 * PATIENCE)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


class Job:
    """`sheaf run` in a process group of its own, without a terminal."""

    def __init__(self, *args: str) -> None:
        self.process = subprocess.Popen(
            [*RUN, *args], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=ENVIRONMENT, process_group=0
        )
        self.pid = self.process.pid
        self.program = int(self.line().split()[1])

    def line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().rstrip("\n")

    def end(self) -> int:
        os.kill(self.pid, signal.SIGUSR2)
        assert self.line() == "got SIGUSR2"
        return self.process.wait(PATIENCE)


@pytest.fixture
def job() -> Iterator[Job]:
    """A running job."""
    job = Job()
    yield job
    stop(job)


def stop(job: Job) -> None:
    """Kill the job and its program if they still run."""
    if job.process.poll() is None:
        os.kill(job.program, signal.SIGKILL)
        job.process.kill()
        job.process.wait()


def pending(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1], 16) for line in lines if line.startswith("ShdPnd:"))


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def wait_for_stop(pid: int) -> None:
    while state_of(pid) != "T":
        pass


@pytest.mark.parametrize("name", ["HUP", "INT", "QUIT", "TERM", "USR1", "ALRM", "RTMIN"])
def test_a_signal_to_the_command_alone_reaches_the_program(job: Job, name: str) -> None:
    number = getattr(signal, f"SIG{name}")
    for _ in range(2):
        os.kill(job.pid, number)
        assert job.line() == f"got SIG{name}"
    assert job.end() == 5


def test_a_stop_stops_both_and_both_go_on(job: Job) -> None:
    for _ in range(2):
        os.kill(job.pid, signal.SIGTSTP)
        _, status = os.waitpid(job.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        assert os.WSTOPSIG(status) == signal.SIGTSTP
        assert state_of(job.program) == "T"
        os.kill(job.pid, signal.SIGCONT)
        assert job.line() == "got SIGCONT"
    assert job.end() == 5


def test_a_program_that_is_stopped_from_elsewhere_does_not_stop_the_command(job: Job) -> None:
    os.kill(job.program, signal.SIGSTOP)
    wait_for_stop(job.program)
    os.kill(job.pid, signal.SIGRTMIN)  # forwarded after the stop is seen, and pending in the program
    while not pending(job.program) >> signal.SIGRTMIN - 1 & 1:
        pass
    os.kill(job.program, signal.SIGCONT)
    assert [job.line(), job.line()] == ["got SIGCONT", "got SIGRTMIN"]
    assert job.end() == 5


def test_what_the_program_sends_to_its_group_does_not_come_back() -> None:
    job = Job("group", str(int(signal.SIGALRM)))
    try:
        os.kill(job.pid, signal.SIGUSR1)
        assert [job.line(), job.line()] == ["got SIGUSR1", "got SIGALRM"]
        os.kill(job.pid, signal.SIGTERM)
        assert job.line() == "got SIGTERM"  # a forwarded SIGALRM would come first
        assert job.end() == 5
    finally:
        stop(job)


@pytest.mark.parametrize("more", [[], ["--stats"]])
def test_the_program_starts_with_the_callers_signals(more: list[str]) -> None:
    show = ["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"]
    seen = []
    for argv in (show, [sys.executable, "-m", "sheaf", "run", *more, *show]):
        done = subprocess.run(
            ["sh", "-c", 'trap "" HUP USR1; exec "$@"', "sh", *argv], capture_output=True, text=True, env=ENVIRONMENT
        )
        blocked, ignored = (int(line.split()[1], 16) for line in done.stdout.splitlines())
        seen.append((blocked, ignored & ~(3 << 31)))  # glibc ignores two signals of its own in spawned processes
    assert seen[0] == seen[1] == (0, 1 << signal.SIGHUP - 1 | 1 << signal.SIGUSR1 - 1)


def test_ctrl_c_at_the_terminal_arrives_once() -> None:
    with Terminal(RUN, ENVIRONMENT) as terminal:
        terminal.expect("ready")
        os.kill(terminal.pid, signal.SIGSTOP)  # a wrongly forwarded signal would come after the first was handled
        terminal.type("\x03")
        terminal.expect("got SIGINT")
        terminal.type("\x1c")
        terminal.expect("got SIGQUIT")
        os.kill(terminal.pid, signal.SIGCONT)
        terminal.expect("got SIGCONT")
        os.kill(terminal.pid, signal.SIGUSR1)
        terminal.expect("got SIGUSR1")
        assert (terminal.seen.count("got SIGINT"), terminal.seen.count("got SIGQUIT")) == (1, 1)
        os.kill(terminal.pid, signal.SIGINT)
        terminal.expect("got SIGINT")
        os.kill(terminal.pid, signal.SIGUSR2)
        assert terminal.end() == 5
        assert "sheaf: 1 process" in terminal.seen


def test_ctrl_c_that_kills_the_program_still_prints_the_table() -> None:
    sleep = [*RUN[:5], "sh", "-c", "echo ready; exec sleep 1000"]
    with Terminal(sleep, ENVIRONMENT) as terminal:
        terminal.expect("ready")
        terminal.type("\x03")
        assert terminal.end() == -signal.SIGINT
        assert "sheaf: " in terminal.seen


@pytest.mark.parametrize("more", [[], ["--stats"]])
def test_the_terminal_is_the_programs(more: list[str]) -> None:
    code = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGWINCH])
print("terminals", *map(os.isatty, range(3)), flush=True)
print("size", *os.get_terminal_size(0), flush=True)
signal.sigwait([signal.SIGWINCH])
print("size", *os.get_terminal_size(0), flush=True)
print("typed", input(), flush=True)"""
    with Terminal([*RUN[:4], *more, sys.executable, "-c", code], ENVIRONMENT) as terminal:
        assert terminal.expect("terminals") == " True True True"
        assert terminal.expect("size") == " 0 0"
        terminal.resize(91, 33)
        assert terminal.expect("size") == " 91 33"
        terminal.type("words\n")
        assert terminal.expect("typed") == " words"
        assert terminal.end() == 0


@pytest.mark.parametrize("stop", [signal.SIGTSTP, signal.SIGSTOP])
def test_a_shell_sees_the_job_stop_and_brings_it_back(tmp_path: Path, stop: signal.Signals) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    bash = ["bash", "--norc", "--noprofile", "--noediting", "-i"]
    with Terminal(bash, {**ENVIRONMENT, "PS1": "", "PATH": os.environ["PATH"]}) as terminal:
        terminal.type("stty -echo\n")
        terminal.type(f"{sys.executable} -m sheaf run --stats {sys.executable} {script} self {int(stop)}\n")
        program = int(terminal.expect("ready"))
        for _ in range(2):
            if stop == signal.SIGTSTP:
                terminal.type("\x1a")  # ^Z
            else:
                os.kill(program, signal.SIGUSR1)  # like `suspend` of a shell
            terminal.expect("Stopped")
            wait_for_stop(program)
            terminal.type("fg\n")
            terminal.expect("got SIGCONT")
        os.kill(program, signal.SIGUSR2)
        terminal.expect("sheaf: 1 process")
        terminal.type('echo "status $?"\n')
        assert terminal.expect("status") == " 5"
        terminal.type("exit\n")
        terminal.end()


def test_a_shell_as_the_program_controls_its_own_jobs() -> None:
    bash = ["bash", "--norc", "--noprofile", "--noediting", "-i"]
    with Terminal([*RUN[:5], *bash], {**ENVIRONMENT, "PS1": "at the prompt\\n"}) as terminal:
        terminal.expect("at the prompt")
        terminal.type("cat\n")
        terminal.expect("cat")
        terminal.type("words\n")
        terminal.expect("words\nwords")  # echo of the terminal, then output of cat
        terminal.type("\x1a")
        terminal.expect("Stopped")
        terminal.expect("at the prompt")
        terminal.type("fg\n")
        terminal.expect("fg\ncat")
        terminal.type("more\n")
        terminal.expect("more\nmore")
        terminal.type("\x03")
        terminal.expect("at the prompt")
        terminal.type("echo sta''tus $?\n")
        assert terminal.expect("status") == " 130"
        terminal.type("exit 3\n")
        assert terminal.end() == 3
        assert "sheaf: " in terminal.seen
