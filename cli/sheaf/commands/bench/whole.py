"""Measure whole commands: hyperfine measures time, GNU time peak memory and page faults of the process tree."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sheaf.commands.bench.contestants import Contestant
from sheaf.commands.bench.runs import Result
from sheaf.errors import SheafError

TIME = "/usr/bin/time"
_MALLOCS = ("libjemalloc", "libtcmalloc", "libmimalloc", "libsnmalloc", "libscudo", "librpmalloc")


@dataclass(frozen=True)
class Command:
    """A command with its environment and directory."""

    words: tuple[str, ...]
    environment: Mapping[str, str]
    directory: Path
    brings_malloc: bool = field(default=False)

    def variables(self, contestant: Contestant) -> dict[str, str]:
        """
        The variables for runs with a contestant. For glibc, libc is preloaded into programs that are linked with another
        allocator.
        """
        chosen = contestant.environment()
        if contestant.path is None and self.brings_malloc:
            chosen["LD_PRELOAD"] = "libc.so.6"
        return chosen


def require_tools() -> None:
    """Raise SheafError if hyperfine or GNU time is missing."""
    if shutil.which("hyperfine") is None:
        raise SheafError("hyperfine: not found; run apt install hyperfine, which measures the time of commands")
    if not os.access(TIME, os.X_OK):
        raise SheafError(f"{TIME}: not found; run apt install time, which measures the memory of commands")


def brings_malloc(program: Path) -> bool:
    """Whether a program is linked with an allocator."""
    done = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False)
    return any(name in done.stdout for name in _MALLOCS)


def run_group(words: Sequence[str], environment: Mapping[str, str], directory: Path, timeout_s: float) -> tuple[int, str]:
    """
    Run a command; returns its status and standard error. After a timeout its process group is killed and SheafError is
    raised.
    """
    with subprocess.Popen(
        words,
        env=dict(environment),
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            said = process.communicate(timeout=timeout_s)[1]
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise SheafError(f"took more than {timeout_s:g} s") from None
            raise
    return process.returncode, said


def _failure(said: str) -> str:
    """The reason for the failure of a run, from the standard error of hyperfine."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    reason = next((line for line in lines if line.startswith("Error:")), lines[-1] if lines else "hyperfine failed")
    status = re.search(r"non-zero exit code:? (\d+)", reason)
    if status:
        return f"the command ended with status {status[1]}; run it by hand to see why"
    return reason.removeprefix("Error: ")


def run_whole(command: Command, contestant: Contestant, timeout_s: float) -> Result:
    """Run a command once with a contestant, whose variables are set for the command but not for hyperfine and time."""
    with tempfile.TemporaryDirectory(prefix="sheaf-bench-") as scratch:
        times, used = Path(scratch) / "hyperfine.json", Path(scratch) / "time"
        settings = [f"{name}={value}" for name, value in command.variables(contestant).items()]
        inner = [TIME, "-o", str(used), "-f", "%M %R %F", "env", *settings, *command.words]
        words = ["hyperfine", "-N", "--style", "none", "--runs", "1", "--export-json", str(times), shlex.join(inner)]
        status, said = run_group(words, command.environment, command.directory, timeout_s)
        if status != 0:
            raise SheafError(_failure(said))
        found = json.loads(times.read_text())["results"][0]
        peak, minor, major = (int(word) for word in used.read_text().split()[-3:])
    ns = found["times"][0] * 1e9
    return {
        "ops": 1,
        "ns_per_op_min": ns,
        "ns_per_op_median": ns,
        "peak_rss_kib": peak,
        "minor_faults": minor,
        "major_faults": major,
        "wall_us": ns / 1000,
        "user_us": found["user"] * 1e6,
        "system_us": found["system"] * 1e6,
    }
