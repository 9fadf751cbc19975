"""Measure a server on a contestant with its load generator, which runs on glibc."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sheaf.commands.bench.contestants import Contestant
from sheaf.commands.bench.runs import Result
from sheaf.commands.bench.whole import Command
from sheaf.errors import SheafError
from sheaf.system import proc

START_S = 60


@dataclass(frozen=True)
class Server:
    """The command of a server, and the commands that test whether it is ready, generate load, and stop it."""

    command: Command
    ready: tuple[str, ...]
    load: tuple[str, ...]
    stop: tuple[str, ...]
    rate: str  # pattern that finds the operations per second in the output of the load generator


@dataclass(frozen=True)
class _Used:
    minor_faults: int
    user_us: float
    system_us: float


def _used(pid: int) -> _Used:
    now = proc.stat(pid)
    if now is None:
        raise ProcessLookupError(pid)
    tick = 1e6 / os.sysconf("SC_CLK_TCK")
    return _Used(now.minor_faults, now.user_ticks * tick, now.system_ticks * tick)


def _peak_kib(pid: int) -> int:
    return (proc.kib(proc.status(pid), "VmHWM") or 0) >> 10


def _client(server: Server, words: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        env=dict(server.command.environment),
        cwd=server.command.directory,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=timeout_s,
        stdin=subprocess.DEVNULL,
    )


def _wait_until_ready(server: Server, process: subprocess.Popen[bytes]) -> None:
    """Raises SheafError if the server ends or is not ready after START_S seconds."""
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        if process.poll() is not None:
            raise SheafError(f"the server ended at startup with status {process.returncode}")
        if _client(server, server.ready, START_S).returncode == 0:
            return
        time.sleep(0.05)
    raise SheafError(f"the server was not ready after {START_S} s")


def _prove(process: subprocess.Popen[bytes], contestant: Contestant) -> None:
    """Raise SheafError unless the server has the contestant's object mapped."""
    if contestant.path and str(contestant.path.resolve()) not in Path(f"/proc/{process.pid}/maps").read_text():
        raise SheafError(f"{contestant.path} was not loaded into the server; it may be static or clear its environment")


def _measure(server: Server, process: subprocess.Popen[bytes], timeout_s: float) -> Result:
    """Run the load generator once; CPU time, memory and faults are those of the server."""
    before, begun = _used(process.pid), time.monotonic()
    done = _client(server, server.load, timeout_s)
    wall_us = (time.monotonic() - begun) * 1e6
    after = _used(process.pid)
    rate = re.search(server.rate, done.stdout)
    if done.returncode != 0 or rate is None:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise SheafError(f"the load generator failed: {said[-1] if said else done.returncode}")
    ns = 1e9 / float(rate[1])
    return {
        "ops": 1,
        "ns_per_op_min": ns,
        "ns_per_op_median": ns,
        "peak_rss_kib": _peak_kib(process.pid),
        "minor_faults": after.minor_faults - before.minor_faults,
        "wall_us": wall_us,
        "user_us": after.user_us - before.user_us,
        "system_us": after.system_us - before.system_us,
    }


def run_server(server: Server, contestant: Contestant, timeout_s: float) -> Result:
    """Start the server, measure it under load, and stop it. Raises SheafError."""
    environment = {**server.command.environment, **server.command.variables(contestant)}
    process = subprocess.Popen(
        server.command.words,
        env=environment,
        cwd=server.command.directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        _wait_until_ready(server, process)
        _prove(process, contestant)
        result = _measure(server, process, timeout_s)
        _client(server, server.stop, START_S)
        process.wait(START_S)
        return result
    except subprocess.TimeoutExpired as error:
        raise SheafError(f"took more than {error.timeout:g} s") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
