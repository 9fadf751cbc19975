"""What the kernel, the limits and the environment of a process mean for Sheaf."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sheaf.commands.doctor.finding import SELF, Finding, Process, note, ok, problem
from sheaf.errors import SheafError
from sheaf.rendering.sizes import size
from sheaf.system import options

START_BYTES = 40 << 20  # address space that Sheaf adds at the start (docs/production.md)
CHARGED_BYTES = 640 << 10  # what vm.overcommit_memory=2 charges a small process for Sheaf (docs/production.md)
GROUP_BYTES = 22 << 20  # a smaller control group is little for any program
RECORD_BYTES = 1 << 20  # room that the record of a usual program needs
MAPPINGS = 65530  # the kernel's default of vm.max_map_count
AT_RSEQ_FEATURE_SIZE = 27
AT_SECURE = 23
FEATURES_WITH_MM_CID = 28  # bytes of the kernel's struct rseq up to the end of mm_cid
RSEQ, MEMBARRIER, MM_CID = (4, 18), (5, 10), (6, 3)  # the Linux versions that have them

_HUGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_GROUPS = Path("/sys/fs/cgroup")


def kernel_version() -> tuple[int, int]:
    """The version of the running kernel; (0, 0) if it is unknown."""
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _setting(name: str) -> int | None:
    try:
        return int(Path("/proc/sys/vm", name).read_text())
    except (OSError, ValueError):
        return None


def kernel(version: tuple[int, int], features: int) -> Finding:
    """`features` is the size of the kernel's struct rseq that the auxiliary vector names."""
    name = f"Linux {os.uname().release}"
    if version < RSEQ:
        return note("kernel", f"{name} has no restartable sequences", "use Linux 4.18 or later for the fast paths")
    if version < MEMBARRIER:
        return note(
            "kernel",
            f"{name} cannot interrupt restartable sequences, so memory in the sheaves of other CPUs stays there",
            "use Linux 5.10 or later",
        )
    if features < FEATURES_WITH_MM_CID:
        return note(
            "kernel",
            f"{name} has restartable sequences without mm_cid, so each CPU keeps its own sheaves",
            "use Linux 6.3 or later if threads are fewer than CPUs",
        )
    return ok("kernel", f"{name} has restartable sequences with mm_cid")


def limits(process: Process) -> Iterator[Finding]:
    """RLIMIT_AS and RLIMIT_DATA. Sheaf adapts to small limits, so whether one suffices is left to the trial."""
    for subject, name, meaning in (
        ("address-space", "Max address space", f"of which Sheaf takes up to {size(START_BYTES)} at the start"),
        ("data", "Max data size", "which counts all writable memory of the process"),
    ):
        limit = process.limit(name)
        if limit is None:
            yield ok(subject, "not limited")
        else:
            yield note(
                subject, f"limited to {size(limit)}, {meaning}", "limit resident memory by a control group instead (MemoryMax=)"
            )


def _group_limits(process: Process) -> Iterator[tuple[int, Path]]:
    """The memory limits of the control groups of a process and of those above them."""
    for controllers, path in process.groups():
        if controllers and "memory" not in controllers.split(","):
            continue
        mounts = [_GROUPS / "memory"] if controllers else [_GROUPS, _GROUPS / "unified"]
        for mount in mounts:
            inner = Path(path.lstrip("/"))
            for group in (inner, *inner.parents):
                file = mount / group / ("memory.limit_in_bytes" if controllers else "memory.max")
                try:
                    yield int(file.read_text()), file.parent
                except (OSError, ValueError):
                    continue


def _machine_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")


def group(process: Process) -> Finding:
    """The lowest memory limit of a control group. Limits above the memory of the machine do not count."""
    limits = [pair for pair in _group_limits(process) if pair[0] < _machine_memory()]
    if not limits:
        return ok("cgroup", "no control group limits the memory")
    limit, where = min(limits)
    what = f"{where} limits the memory to {size(limit)}"
    if limit < GROUP_BYTES:
        return note("cgroup", f"{what}, which is little for any program on Sheaf", "raise the limit, or set SHEAF_MODE=tiny")
    return ok("cgroup", f"{what}; sheaves and free memory are kept small enough for it")


def huge_pages(process: Process) -> Finding:
    """Transparent huge pages."""
    try:
        mode = re.search(r"\[(\w+)\]", _HUGE.read_text())
    except OSError:
        mode = None
    if mode is None or mode[1] == "never":
        return ok("huge-pages", "switched off, so large heaps use small pages")
    if process.environment.get("SHEAF_HUGE") == "0":
        return ok("huge-pages", f"{mode[1]}; SHEAF_HUGE=0 switches them off for slabs")
    if mode[1] == "always":
        return note(
            "huge-pages",
            "always: the kernel may also use them for memory that Sheaf did not choose, so that resident memory grows",
            f"write madvise to {_HUGE} if memory matters more than time",
        )
    return ok("huge-pages", f"{mode[1]}: slabs use them where they grow beyond 16 MiB")


def _left_to_commit() -> int | None:
    """Bytes that the system still promises; None if that cannot be read."""
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return None
    found = {name: int(kib) << 10 for name, kib in re.findall(r"^(CommitLimit|Committed_AS): +(\d+) kB$", text, re.MULTILINE)}
    return found["CommitLimit"] - found["Committed_AS"] if len(found) == 2 else None


def overcommit(mode: int | None, left: int | None) -> Finding:
    """`mode` is vm.overcommit_memory, `left` the bytes that the system still promises under mode 2."""
    if mode != 2:
        return ok("overcommit", f"vm.overcommit_memory={mode}" if mode is not None else "unknown")
    what = f"vm.overcommit_memory=2; Sheaf is charged at least {size(CHARGED_BYTES)} in each process"
    if left is not None and left < CHARGED_BYTES:
        return note("overcommit", f"{what}, and {size(max(left, 0))} are left", "raise vm.overcommit_ratio")
    return ok("overcommit", what)


def mappings(most: int | None, environment_harden: str) -> Finding:
    """vm.max_map_count. Only some kinds of hardening need many mappings."""
    if most is None or most >= MAPPINGS:
        return ok("mappings", f"vm.max_map_count={most}" if most else "unknown")
    many = re.search("guard|quarantine", environment_harden)
    what = f"vm.max_map_count={most} is less than the usual {MAPPINGS}"
    what += f", and SHEAF_HARDEN={environment_harden} needs up to 16384" if many else ""
    return note("mappings", what, f"sysctl vm.max_map_count={MAPPINGS}")


def seccomp(process: Process) -> Finding:
    """Whether system calls are filtered. What a filter permits shows only in the mode."""
    mode = process.status().get("Seccomp", "0")
    if mode == "0":
        return ok("seccomp", "system calls are not filtered")
    if mode == "1":
        return problem("seccomp", "strict mode permits no system call that maps memory", "run it without strict mode")
    return note(
        "seccomp",
        "a filter restricts system calls",
        "permit those that docs/production.md lists: rseq, membarrier, madvise, mremap and others",
    )


def settings(process: Process) -> Iterator[Finding]:
    """Options in the environment that are unknown or wrong; one finding that all are right if there are none."""
    names = sorted(name for name in process.environment if name.startswith("SHEAF_") and name != "SHEAF_LIBRARY")
    wrong = 0
    for name in names:
        try:
            options.parse(f"{name.removeprefix('SHEAF_')}={process.environment[name]}")
        except SheafError as error:
            wrong += 1
            what, _, advice = error.message.partition("; ")
            yield note("options", what.replace("--option ", "in the environment, SHEAF_", 1), advice)
    if wrong:
        return
    none = "unknown, because the program has overwritten its environment" if process.overwritten else "none in the environment"
    yield ok("options", f"{', '.join(names)}" if names else none)


def records(process: Process, directory: str | None, kept: Path | None = None) -> Finding:
    """The directory of records; None if none was chosen. `kept` is the record that a running process has open."""
    if kept:
        return ok("records", f"it keeps {kept}")
    if not directory:
        reason = "and its environment was overwritten" if process.overwritten else "because SHEAF_RECORD is not set"
        return ok("records", f"none are kept, {reason}")
    make = "create it, as `sheaf run --record` does, or name another directory"
    path = process.path(directory) if os.path.isabs(directory) else process.proc / "cwd" / directory
    try:
        if not path.is_dir():
            reason = "not a directory" if path.exists() else "does not exist"
            return problem("records", f"{directory}: {reason}", make)
        file_system = os.statvfs(path)
        if process.proc == SELF:
            with tempfile.TemporaryFile(dir=path):
                pass
    except OSError as error:
        return problem("records", f"{directory}: {error.strerror}", "name a directory that the program may write to")
    free = file_system.f_bavail * file_system.f_frsize
    if free < RECORD_BYTES:
        return problem(
            "records",
            f"{directory}: {size(free)} are free, and a record needs up to {size(RECORD_BYTES)}",
            "delete old records, or name another directory",
        )
    limit = process.limit("Max file size")
    if limit is not None:
        return note(
            "records",
            f"{directory}: files are limited to {size(limit)}, which may be less than a record's size with holes",
            "raise the limit (ulimit -f) if no record appears",
        )
    return ok("records", f"{directory}: writable, {size(free)} are free")


def system(process: Process, directory: str | None, kept: Path | None = None) -> Iterator[Finding]:
    """All findings on the surroundings of a process."""
    yield kernel(kernel_version(), process.auxiliary(AT_RSEQ_FEATURE_SIZE))
    yield from limits(process)
    yield group(process)
    yield huge_pages(process)
    yield overcommit(_setting("overcommit_memory"), _left_to_commit())
    yield mappings(_setting("max_map_count"), process.environment.get("SHEAF_HARDEN", ""))
    yield seccomp(process)
    yield from settings(process)
    yield records(process, directory, kept)
