"""The mode in which a process on Sheaf works: expected from the system, and tried in a process of its own."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sheaf.commands.doctor.finding import Finding, Process, note, ok, problem
from sheaf.commands.doctor.system import AT_RSEQ_FEATURE_SIZE, FEATURES_WITH_MM_CID, RSEQ, kernel_version
from sheaf.errors import SheafError
from sheaf.records import record
from sheaf.rendering.sizes import size
from sheaf.system import elf, preload
from sheaf.system.program import libc

# The names are those that records have.
MM_CID, CPU_ID, OWN, LOCK = "rseq mm_cid", "rseq cpu_id", "rseq own", "lock"
_MEANING = {
    MM_CID: "slots are numbered by mm_cid",
    CPU_ID: "slots are numbered by CPU",
    OWN: "Sheaf registers each thread for restartable sequences",
    LOCK: "a few shared slots have locks, which is slower",
}
_SOURCES = {"expected": "expected", "trial": "found by a trial", "record": "from its record"}
_FEW_SLOTS, _SLOT_BYTES, _SLOTS_SHARE = 8, 96 << 10, 8  # lib/memory/space/space.c: affordable_slots()
_CPU_BITS = 8192  # the maximum of x86-64 kernels
_GETAFFINITY = {"x86_64": 204, "aarch64": 122}  # the numbers of the system calls
_MEMBARRIER = {"x86_64": 324, "aarch64": 283}
_EXPEDITED_RSEQ = 1 << 7  # of the commands that it knows
_RSEQ = {"x86_64": 334, "aarch64": 293}
# The trial prints what membarrier knows, and the error of an rseq call without an area: EINVAL where the system has rseq.
_TRIAL = """import ctypes
libc = ctypes.CDLL(None, use_errno=True)
print(libc.syscall({}, 0, 0, 0))
libc.syscall({}, 0, 0, 0, 0)
print(ctypes.get_errno())
"""
_CHOICES = ("SHEAF_RSEQ", "SHEAF_SLOTS", "SHEAF_NUMA", "SHEAF_NODES", "SHEAF_REGION")  # the options that decide the mode
_PATIENCE = 20  # seconds


@dataclass(frozen=True)
class Mode:
    """
    A mode, the reason for it (empty if unknown), and what would give a faster one (empty if nothing). `source` says how it is
    known: expected, trial or record.
    """

    name: str
    why: str
    advice: str = ""
    source: str = "expected"


@dataclass(frozen=True)
class Grounds:
    """What decides the mode; `space_needed` is the least RLIMIT_AS in bytes under which each CPU has a slot, 0 if it is met."""

    machine: str
    kernel: tuple[int, int]
    features: int  # bytes of the kernel's struct rseq
    libc_has_rseq: bool
    nodes: int
    space_needed: int
    environment: Mapping[str, str]


def _count(path: str) -> int:
    """The number of members of a list such as 0-3,8; 1 if it cannot be read."""
    try:
        parts = [part.split("-") for part in Path(path).read_text().strip().split(",")]
        return sum(int(part[-1]) - int(part[0]) + 1 for part in parts)
    except (OSError, ValueError):
        return 1


def _slots() -> int:
    """The slots that Sheaf plans: as many as the CPU masks of the kernel have bits. libc's wrapper does not return that."""
    import ctypes  # slow to import, and only needed under RLIMIT_AS

    mask = ctypes.create_string_buffer(_CPU_BITS // 8)
    width = ctypes.CDLL(None).syscall(_GETAFFINITY.get(os.uname().machine, -1), 0, len(mask), mask)
    return int(width) * 8 if width > 0 else _CPU_BITS


def _space_needed(limit: int | None) -> int:
    """The least RLIMIT_AS in bytes under which each CPU has a slot; 0 if `limit`, the present one, allows that."""
    if limit is None:
        return 0
    slots = _slots()
    needed = slots * _SLOT_BYTES * _SLOTS_SHARE
    return needed if slots > _FEW_SLOTS and limit < needed else 0


def grounds(process: Process, libc_has_rseq: bool) -> Grounds:
    """What decides the mode of a process."""
    return Grounds(
        os.uname().machine,
        kernel_version(),
        process.auxiliary(AT_RSEQ_FEATURE_SIZE),
        libc_has_rseq,
        _count("/sys/devices/system/node/has_memory"),
        _space_needed(process.limit("Max address space")),
        process.environment,
    )


def _locked(given: Grounds) -> Mode | None:
    """The mode with locks if nothing else is possible."""
    if given.environment.get("SHEAF_RSEQ") == "off":
        return Mode(LOCK, "SHEAF_RSEQ=off", "unset SHEAF_RSEQ")
    if given.machine not in elf.MACHINES:
        return Mode(LOCK, f"Sheaf has no restartable sequences for {given.machine}")
    if given.kernel < RSEQ:
        return Mode(LOCK, "the kernel has no restartable sequences", "use Linux 4.18 or later")
    if not given.libc_has_rseq and given.environment.get("SHEAF_RSEQ") == "libc":
        return Mode(LOCK, "the C library registers none, and SHEAF_RSEQ=libc forbids that to Sheaf", "unset SHEAF_RSEQ")
    if given.space_needed:
        return Mode(
            LOCK,
            "RLIMIT_AS leaves no address space for a slot of each CPU",
            f"raise the limit to {size(given.space_needed)} (ulimit -v {given.space_needed >> 10}) or remove it",
        )
    return None


def expected(given: Grounds) -> Mode:
    """The mode that follows from the system and the environment, if no sandbox interferes."""
    locked = _locked(given)
    if locked:
        return locked
    if re.search(r"(^|:)glibc\.pthread\.rseq=0(:|$)", given.environment.get("GLIBC_TUNABLES", "")):
        if given.environment.get("SHEAF_RSEQ") == "libc":
            advice = "remove glibc.pthread.rseq=0 from GLIBC_TUNABLES"
            return Mode(LOCK, "GLIBC_TUNABLES forbids the registration by libc, and SHEAF_RSEQ=libc that by Sheaf", advice)
        return Mode(OWN, "GLIBC_TUNABLES forbids the registration by libc")
    if not given.libc_has_rseq:
        return Mode(OWN, "the C library registers none")
    slots = given.environment.get("SHEAF_SLOTS")
    if slots == "cpu_id":
        return Mode(CPU_ID, "SHEAF_SLOTS=cpu_id")
    simulated = given.environment.get("SHEAF_NODES", "0") != "0"
    if slots != "mm_cid" and (given.nodes > 1 or simulated) and given.environment.get("SHEAF_NUMA") != "off":
        return Mode(CPU_ID, "there are several memory nodes")
    if given.features < FEATURES_WITH_MM_CID:
        return Mode(CPU_ID, "the kernel provides no mm_cid", "use Linux 6.3 or later if threads are fewer than CPUs")
    return Mode(MM_CID, "the kernel provides mm_cid, and libc registers its threads")


def known(name: str, source: str, guess: Mode) -> Mode:
    """The mode that a trial or a record shows, with the reason for it if it is the expected one."""
    if name == guess.name:
        return Mode(name, guess.why, guess.advice, source)
    if name == LOCK:
        return Mode(name, "the system refuses restartable sequences", "permit rseq in the seccomp filter or sandbox", source)
    return Mode(name, "", "", source)


def finding(mode: Mode) -> Finding:
    """The mode as a line. Preloading works in each."""
    what = f"{mode.name} ({_SOURCES[mode.source]}): {_MEANING.get(mode.name, 'unknown to this command')}"
    what += f", because {mode.why}" if mode.why else ""
    return note("mode", what, mode.advice) if mode.advice else ok("mode", what)


@dataclass(frozen=True)
class Trial:
    """A process on Sheaf that did nothing else: its mode, if its record or a refused system call shows it, and what it found."""

    mode: str | None
    findings: list[Finding]


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].replace(";", ",") if lines else "it printed nothing"


def _mode_in(directory: str) -> str | None:
    try:
        return next((record.read(path).mode for path in sorted(Path(directory).glob("*.sheaf"))), None)
    except SheafError:
        return None


def _answers(done: subprocess.CompletedProcess[str]) -> tuple[str, str]:
    """What membarrier knows, and the error of rseq; empty if the trial did not come to that."""
    lines = [*done.stdout.split(), "", ""]
    return lines[0], lines[1]


def _refused(done: subprocess.CompletedProcess[str]) -> bool:
    """Whether the system refuses rseq. It is asked where no record says in which mode the trial was."""
    return _answers(done)[1] in (str(errno.ENOSYS), str(errno.EPERM), str(errno.EACCES))


def _judge(done: subprocess.CompletedProcess[str]) -> list[Finding]:
    """What the end of the trial says."""
    if done.returncode == -signal.SIGSYS:
        return [
            problem(
                "seccomp",
                "a filter killed a trial process on Sheaf",
                "let the filter refuse system calls with an error, or permit those that docs/production.md lists",
            )
        ]
    if "cannot be preloaded" in done.stderr:
        line = next(line for line in done.stderr.splitlines() if "cannot be preloaded" in line)
        return [
            problem(
                "library",
                f"the loader refused it: {line.replace(';', ',')}",
                "set SHEAF_LIBRARY to an object that this user can read and execute",
            )
        ]
    if done.returncode:
        ended = f"by signal {-done.returncode}" if done.returncode < 0 else f"with status {done.returncode}"
        return [
            problem(
                "trial",
                f"a trial process on Sheaf ended {ended}: {_last_line(done.stderr)}",
                "raise the limits above, or report this",
            )
        ]
    known, _ = _answers(done)
    if known.lstrip("-").isdigit() and (int(known) < 0 or not int(known) & _EXPEDITED_RSEQ):
        return [
            note(
                "membarrier",
                "membarrier is not permitted, so memory in the sheaves of other CPUs stays there",
                "use Linux 5.10 or later, or permit membarrier in the sandbox",
            )
        ]
    return []


def attempt() -> Trial:
    """
    Run a process on Sheaf under the limits and sandbox of this one, with the options that decide the mode. It runs Python,
    so there is no result without an object for Python's C library.
    """
    try:
        library = preload.listable(preload.library(libc(Path(sys.executable))))
    except SheafError:
        return Trial(None, [])
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SHEAF_") or name in _CHOICES}
    environment["LD_PRELOAD"] = library
    code = _TRIAL.format(*(table.get(os.uname().machine, -1) for table in (_MEMBARRIER, _RSEQ)))
    try:
        with tempfile.TemporaryDirectory(prefix="sheaf-", ignore_cleanup_errors=True) as directory:
            environment["SHEAF_RECORD"] = directory
            done = subprocess.run(
                [sys.executable, "-I", "-S", "-c", code],
                env=environment,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=_PATIENCE,
            )
            mode = _mode_in(directory)
    except (OSError, subprocess.TimeoutExpired) as error:
        why = f"took more than {_PATIENCE} s" if isinstance(error, subprocess.TimeoutExpired) else error.strerror
        return Trial(None, [note("trial", f"no process could be tried: {why}", "try the program with SHEAF_STATS=1")])
    return Trial(mode or (LOCK if _refused(done) else None), _judge(done))
