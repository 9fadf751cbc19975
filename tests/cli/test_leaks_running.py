"""`sheaf leaks PID`: what is lost in a running process, and that the process is not harmed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import ROOT, Run, as_nobody, until
from sheaf.commands.leaks import scan as leakscan
from sheaf.errors import SheafError
from sheaf.system import headroom, proc, ptrace

SOURCE = Path(__file__).with_name("lossy_server.c")
CALLS = ["read", "nanosleep", "poll", "select", "pause", "futex", "epoll_wait", "SIGCHLD"]
LOST = [
    "sheaf: leak: 1048576 bytes in 1 block of malloc-large, lost",
    "sheaf: leak: 1024 bytes in 1 block of malloc-1024, lost, and 1024 bytes in 1 block through it",
    "sheaf: leak: 112 bytes in 1 block of malloc-112, lost",
]
SUM = "sheaf: lost 1 MiB in 3 blocks, 1 KiB in 1 block through them; still referenced: "
NOTHING = "sheaf: nothing lost; still referenced: "


def children(pid: int) -> list[int]:
    """The children of all threads of a process, also those that wait() does not find."""
    found: list[int] = []
    for tid in proc.tasks(pid):
        with contextlib.suppress(OSError):  # it has ended
            found += map(int, Path(f"/proc/{pid}/task/{tid}/children").read_text().split())
    return found


@dataclass
class Server:
    """The program of lossy_server.c."""

    process: subprocess.Popen[str]

    @property
    def pid(self) -> int:
        return self.process.pid

    def answer(self) -> tuple[int, dict[str, int], str]:
        """How many system calls and allocations it has begun, how many of each kind returned EINTR, and its children."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        said = re.fullmatch(r"rounds (\d+) interrupted((?: \d+){8}) child (-?\d+ .*)\n", self.process.stdout.readline())
        assert said
        return int(said[1]), dict(zip(CALLS, map(int, said[2].split()), strict=True)), said[3]

    def is_unharmed(self) -> None:
        """It answers, no thread is stopped or traced, and it has no child, not even for wait()."""
        _, interrupted, child = self.answer()
        assert child == "-1 none"
        assert not interrupted["SIGCHLD"]
        for tid in proc.tasks(self.pid):
            try:
                status = Path(f"/proc/{self.pid}/task/{tid}/status").read_text()
            except OSError:  # it has ended
                continue
            assert "\nTracerPid:\t0\n" in status
            assert "\nState:\tT" not in status
            assert "\nState:\tt" not in status
        until(lambda: not children(self.pid))


Begin = Callable[..., Server]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("lossy") / "server")
    subprocess.run(["cc", "-g", "-O1", "-fno-builtin", "-pthread", "-o", path, str(SOURCE)], check=True)
    return path


@pytest.fixture
def begin(library: str, program: str, tmp_path: Path) -> Iterator[Begin]:
    """A function that starts the program with a record in tmp_path and waits until it is ready."""
    servers: list[Server] = []

    def start(*words: str, before: tuple[str, ...] = (), **more: str) -> Server:
        env = {**os.environ, "LD_PRELOAD": library, "SHEAF_RECORD": str(tmp_path), **more}
        process = subprocess.Popen([*before, program, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        servers.append(Server(process))
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        return servers[-1]

    yield start
    for server in servers:
        server.process.kill()
        server.process.communicate()


def test_what_is_lost_is_found_and_nothing_else(sheaf: Run, begin: Begin) -> None:
    server = begin("lose", "keep", "calls")
    for _ in range(2):
        done = sheaf("leaks", str(server.pid))
        lines = done.stdout.splitlines()
        assert (done.returncode, done.stderr, lines[:3]) == (0, "", LOST)
        assert lines[3].startswith(SUM)
        assert lines[4].startswith("sheaf: no stacks are known; ")
        times = r"paused \d+ times: (\d+\.\d ms(, )?)+; copies of it were searched for \d+\.\d s"
        assert re.fullmatch(f"sheaf: the program was {times}", lines[5])
        assert len(lines) == 6
    server.is_unharmed()


def test_one_copy_suffices_if_nothing_is_lost(sheaf: Run, begin: Begin) -> None:
    """What only shared memory or the registers of a thread in a system call refer to is not lost."""
    first, last = sheaf("leaks", str(begin("keep", "calls").pid)).stdout.splitlines()
    assert first.startswith(NOTHING)
    assert "paused " in last


def test_busy_threads_lose_nothing(begin: Begin) -> None:
    """
    Fifty times, beside threads that allocate, free and end. Old contents of memory may hide what is lost, so it may be less
    than that; but nothing else is ever reported.
    """
    server = begin("lose", "churn", "spawn")
    rounds, _, _ = server.answer()
    for _ in range(50):
        found = leakscan.search(str(server.pid), 30)
        assert {line for line in found.lines if " lost" in line and "leak:" in line} <= set(LOST), found.lines
    assert server.answer()[0] > rounds
    server.is_unharmed()


def test_only_calls_that_the_kernel_cannot_restart_return_eintr(begin: Begin) -> None:
    server = begin("calls")
    pauses = sum(len(leakscan.search(str(server.pid), 30).pauses) for _ in range(10))
    assert pauses >= 10
    _, interrupted, _ = server.answer()
    assert {name for name, times in interrupted.items() if times} <= {"epoll_wait"}
    assert interrupted["epoll_wait"] <= pauses
    server.is_unharmed()


def test_a_thread_that_cannot_be_stopped(sheaf: Run, begin: Begin) -> None:
    """It waits for the child of vfork(), as long as that has not executed a program. Two copies are made."""
    server = begin("lose", "vfork", SHEAF_HELPER="1")
    until(lambda: any(") D" in Path(f"/proc/{server.pid}/task/{tid}/stat").read_text() for tid in proc.tasks(server.pid)))
    lines = sheaf("leaks", str(server.pid)).stdout.splitlines()
    assert set(LOST) <= set(lines)
    assert "sheaf: leaks: 1 thread could not be stopped; blocks that only their registers refer to count as lost" in lines
    for child in children(server.pid):
        os.kill(child, signal.SIGKILL)


def test_memory_that_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The least of what the control groups of a process have left, with what they can drop."""
    group = next(line.split(":")[2].lstrip("/") for line in Path("/proc/self/cgroup").read_text().splitlines())
    (tmp_path / group).mkdir(parents=True, exist_ok=True)
    monkeypatch.setattr(headroom, "_groups", lambda _: [(tmp_path / group, "memory.max", "memory.current")])
    stat = "anon 5\ninactive_file 50000\n"
    for name, content in (("memory.max", "1000000"), ("memory.current", "900000"), ("memory.stat", stat)):
        (tmp_path / group / name).write_text(content)
    assert headroom.left(os.getpid()) == 150000
    (tmp_path / group / "memory.max").write_text("max\n")
    assert (headroom.left(os.getpid()) or 0) > 1000000


def test_too_little_memory(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    server = begin("lose")
    monkeypatch.setattr(headroom, "left", lambda _: 1 << 20)
    with pytest.raises(SheafError, match=r"1 MiB of memory are left, and a copy may need 64 MiB; raise the limit"):
        leakscan.search(str(server.pid), 30)
    monkeypatch.setattr(headroom, "left", lambda pid: 1 << 20 if children(pid) else 1 << 40)
    monkeypatch.setattr(ptrace.Copy, "at_end", lambda _: False)
    with pytest.raises(SheafError, match="memory is short, so the search was ended"):
        leakscan.search(str(server.pid), 30)
    server.is_unharmed()


def test_json_and_files(sheaf: Run, begin: Begin, tmp_path: Path) -> None:
    server = begin("lose")
    document = json.loads(sheaf("leaks", "--json", str(server.pid)).stdout)
    assert (document["lost_blocks"], document["host_pid"]) == (4, server.pid)
    assert len(document["pauses_ms"]) >= 2
    assert document["search_ms"] > 0
    (process,) = document["processes"]
    groups = [(group["lost_bytes"], group["through_bytes"]) for group in process["groups"]]
    assert groups == [(1 << 20, 0), (1024, 1024), (112, 0)]
    for name in ("a.json", "a.txt"):
        done = sheaf("leaks", "--output", str(tmp_path / name), "--leak-status", "9", str(server.pid))
        assert (done.returncode, done.stderr) == (9, "")
        first, second = done.stdout.splitlines()
        assert first == f"sheaf: 1050736 bytes in 4 blocks lost; the report is in {tmp_path / name}"
        assert second.startswith("sheaf: the program was paused ")
    assert json.loads((tmp_path / "a.json").read_text())["lost_blocks"] == 4
    assert (tmp_path / "a.txt").read_text().splitlines()[:3] == LOST


def test_a_file_that_cannot_be_written_is_an_error_before_the_search(sheaf: Run, begin: Begin, tmp_path: Path) -> None:
    done = sheaf("leaks", "--output", str(tmp_path / "none/file"), str(begin("lose").pid))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith("No such file or directory; name a file that can be written\n")


@pytest.mark.skipif(not any(map(shutil.which, ("llvm-symbolizer", "addr2line"))), reason="nothing finds functions")
def test_stacks_and_suppressions(sheaf: Run, begin: Begin, tmp_path: Path) -> None:
    """With stacks the requested sizes are known, and the functions and lines are found."""
    server = begin("lose", SHEAF_DEBUG="U")
    lines = sheaf("leaks", str(server.pid)).stdout.splitlines()
    assert any(line.startswith("sheaf: leak: 100 bytes in 1 block of ") for line in lines)
    assert any(re.match(r"sheaf:     lose \(.*server\+0x[0-9a-f]+\) .*lossy_server\.c:\d+$", line) for line in lines), lines
    (tmp_path / "known").write_text("leak:^lose$\n")
    lines = sheaf("leaks", "--suppress", str(tmp_path / "known"), "--leak-status", "9", str(server.pid)).stdout.splitlines()
    assert not any("leak: " in line for line in lines)
    assert any(line.startswith("sheaf: suppressed: ") for line in lines)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_process_goes_on_when_the_command_is_killed(begin: Begin, number: signal.Signals) -> None:
    """At any moment: while threads are stopped, and while the copy is searched. The copy ends as well."""
    server = begin("churn", "calls", "fill", "50")
    for delay in range(6):
        command = subprocess.Popen(
            [sys.executable, "-m", "sheaf", "leaks", str(server.pid)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(ROOT / "cli")},
        )
        if delay % 2:  # while it traces the process
            until(
                lambda command=command: (
                    command.poll() is not None
                    or f"TracerPid:\t{command.pid}\n"  # type: ignore[misc]
                    in Path(f"/proc/{server.pid}/status").read_text()
                )
            )
        else:  # while there is a copy
            until(
                lambda command=command: (
                    command.poll() is not None  # type: ignore[misc]
                    or children(server.pid)
                )
            )
        command.send_signal(number)
        command.wait()
        server.is_unharmed()
    assert leakscan.search(str(server.pid), 30).lines[-1].startswith(NOTHING)


def test_a_stopped_process(sheaf: Run, begin: Begin) -> None:
    server = begin("lose")
    os.kill(server.pid, signal.SIGSTOP)
    until(lambda: ") T" in Path(f"/proc/{server.pid}/stat").read_text())
    done = sheaf("leaks", "--timeout", "0.2", str(server.pid))
    assert done.returncode == 1
    assert f"it is stopped; continue it with `kill -CONT {server.pid}`" in done.stderr
    assert ") T" in Path(f"/proc/{server.pid}/stat").read_text()
    os.kill(server.pid, signal.SIGCONT)
    server.is_unharmed()


def test_a_process_that_is_traced(sheaf: Run, begin: Begin) -> None:
    server = begin("lose")
    tracer = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"""
import sys
from sheaf.system import ptrace
ptrace._call(ptrace._SEIZE, {server.pid})
print('ready', flush=True)
sys.stdin.read()
""",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT / "cli")},
    )
    assert tracer.stdout
    tracer.stdout.readline()
    done = sheaf("leaks", str(server.pid))
    assert (done.returncode, done.stdout) == (1, "")
    assert f"process {tracer.pid} traces it already, as a debugger does; end that first, or use --growth" in done.stderr
    tracer.communicate()
    server.is_unharmed()
    assert sheaf("leaks", str(server.pid)).returncode == 0


def test_without_permission(begin: Begin, tmp_path: Path) -> None:
    """The record may be written to, but the process may not be traced."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    server = begin("lose")
    for path in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        path.chmod(0o755)

    def stop() -> str:
        try:
            with ptrace.stopped(server.pid, server.pid, "it", 10):
                return "stopped"
        except SheafError as error:
            return error.message

    why = r"it: (the system|kernel\.yama\.ptrace_scope=\d) forbids to stop .*; run sheaf as root.*--growth"
    assert re.fullmatch(why, as_nobody(stop))
    server.is_unharmed()


def test_without_a_helper_thread(sheaf: Run, begin: Begin) -> None:
    done = sheaf("leaks", "--timeout", "0.3", str(begin("churn", SHEAF_HELPER="0").pid))
    assert (done.returncode, done.stdout) == (1, "")
    assert "has no helper thread; start it with SHEAF_HELPER=1, or use --growth" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root and unshare")
def test_another_pid_namespace(sheaf: Run, begin: Begin) -> None:
    server = begin("lose", before=("unshare", "--pid", "--fork", "--mount-proc", "--kill-child"))
    (inner,) = until(lambda: children(server.pid))
    document = json.loads(sheaf("leaks", "--json", str(inner)).stdout)
    assert (document["lost_blocks"], document["host_pid"], document["processes"][0]["pid"]) == (4, inner, 1)


def test_a_process_at_its_limit_of_processes(sheaf: Run, begin: Begin) -> None:
    """The copy is refused, which is said in one line, and nothing is left behind."""
    if os.geteuid() == 0:
        pytest.skip("root has no such limit")
    server = begin("lose", before=("prlimit", "--nproc=1"))
    assert "the system refuses another process" in sheaf("leaks", str(server.pid)).stderr
    server.is_unharmed()


def test_options_that_do_not_go_together(sheaf: Run, begin: Begin) -> None:
    pid = str(begin("lose").pid)
    done = sheaf("leaks", "--growth", "--output", "file", pid)
    assert (done.returncode, done.stderr) == (2, "sheaf: --output: has no effect with --growth; leave one of them out\n")
    assert "stacks have old live memory" in sheaf("leaks", "--growth", "--seconds", "0.2", pid).stdout
