"""Whether a running process is on Sheaf, in which mode, and why not."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sheaf.commands.doctor.finding import Finding, Process, note, ok, problem
from sheaf.commands.doctor.program import _ALLOCATORS, Program, examine, read
from sheaf.commands.doctor.system import AT_SECURE
from sheaf.errors import SheafError
from sheaf.records import record
from sheaf.system import preload, proc
from sheaf.system.program import libc

_DELETED = " (deleted)"
_RAISED = "it was started with raised privileges, so the loader ignored LD_PRELOAD"


@dataclass
class Examined:
    """
    A process that was examined. `on_sheaf` is false where that is unknown; `record` is the record that it keeps, and
    `recorded_mode` the mode in it.
    """

    program: Path | None
    on_sheaf: bool
    recorded_mode: str | None
    libc_has_rseq: bool
    findings: list[Finding]
    record: Path | None = None


def _objects(maps: str) -> dict[str, tuple[int, int]]:
    """The mapped files, each with its device and inode as in the map."""
    return {one.path: (one.device, one.inode) for one in proc.mappings(maps)}


def _sheafs(objects: dict[str, tuple[int, int]]) -> str | None:
    """The path of Sheaf's object among the mapped files."""
    try:
        chosen = preload.library()
        status = chosen.stat()
        identity = status.st_dev, status.st_ino
    except (SheafError, OSError):
        identity = -1, -1
    for path, place in objects.items():
        if Path(path.removesuffix(_DELETED)).name == preload.LIBRARY or place == identity:
            return path
    return None


def _gone(pid: int, process: Process) -> Finding | None:
    """Why there is no program to examine."""
    state = process.status().get("State", "")
    if not state:
        return problem("process", f"{pid}: no such process", "name a running process or a program")
    if state.startswith(("Z", "X")):
        return problem("process", f"{pid} has ended and waits for its parent", "examine its program instead")
    if process.status().get("Kthread") == "1" or "VmSize" not in process.status():
        return problem("process", f"{pid} is a thread of the kernel", "name a process that runs a program")
    return None


def _kept(pid: int, process: Process) -> tuple[Path | None, str | None, list[Finding]]:
    """The record of a process on Sheaf and the mode in it, and a finding if it should keep a record and does not."""
    try:
        path = next(iter(record.find(f"{pid}")))
        return path, record.read(path).mode, []
    except SheafError:
        wanted = process.environment.get("SHEAF_RECORD")
    if not wanted:
        return None, None, []
    return (
        None,
        None,
        [
            note(
                "records",
                f"it keeps no record, although SHEAF_RECORD={wanted}",
                "check that it allocated memory, and its first lines of standard error",
            )
        ],
    )


def _loaded(objects: dict[str, tuple[int, int]], where: str) -> Iterator[Finding]:
    """For a process that has Sheaf's object."""
    if where.endswith(_DELETED):
        yield note(
            "process",
            f"it runs on Sheaf, on an object that was removed since ({where.removesuffix(_DELETED)})",
            "restart the process to use the present one",
        )
    else:
        yield ok("process", f"it runs on Sheaf ({where})")
    others = sorted({Path(path).name for path in objects if _ALLOCATORS.match(Path(path).name)})
    if others:
        yield note(
            "malloc",
            f"{', '.join(others)} is loaded as well, and Sheaf's malloc takes precedence",
            "ignore statistics and settings of that allocator",
        )


def _reason(process: Process) -> Finding:
    """Why a process whose program allows preloading is not on Sheaf."""
    if process.auxiliary(AT_SECURE):
        return problem("process", f"it does not run on Sheaf: {_RAISED}", "start it with the privileges that it needs")
    if process.overwritten:
        return problem(
            "process",
            "it does not run on Sheaf, and its program has overwritten the environment that would say why",
            "restart it with `sheaf run`",
        )
    if not process.environment:
        return problem("process", "it does not run on Sheaf, and its environment cannot be read", "run sheaf as root")
    named = next((name for name in re.split("[ :]+", process.environment.get("LD_PRELOAD", "")) if "sheaf" in name), None)
    if named is None:
        return problem("process", "it does not run on Sheaf: it was started without it", "restart it with `sheaf run`")
    named_files = map(process.path, preload.candidates(named, libc(process.proc / "exe")))
    if os.path.isabs(named) and not any(file.exists() for file in named_files):
        return problem(
            "process",
            f"it does not run on Sheaf: {named} does not exist where it runs",
            "copy the object there (into the image of a container), and restart the process",
        )
    return problem(
        "process",
        f"it does not run on Sheaf, although LD_PRELOAD names {named}",
        "look for a message of the loader in its first lines of standard error",
    )


def examine_process(pid: int, process: Process) -> Examined:
    """All findings on a running process and its program."""
    gone = _gone(pid, process)
    if gone:
        return Examined(None, False, None, False, [gone])
    try:
        objects = _objects(process.maps())
        path = Path(os.readlink(process.proc / "exe"))
    except OSError as error:
        who = "with CAP_SYS_PTRACE" if os.geteuid() == 0 else "as the user of the process or as root"
        return Examined(None, False, None, False, [problem("process", f"{pid}: {error.strerror}", f"run sheaf {who}")])
    program = read(process.proc / "exe")
    findings, rseq = _of_program(path, program, process)
    hindered = any(one.status == "problem" for one in findings)
    where = _sheafs(objects)
    if where is None:
        reason = problem("process", "it does not run on Sheaf, as its program does not allow it", "see below")
        return Examined(path, False, None, rseq, [reason if hindered else _reason(process), *findings])
    path_of_record, mode, kept = _kept(pid, process)
    loaded = list(_loaded(objects, where))
    if any(one.subject == "malloc" for one in loaded):
        findings = [one for one in findings if one.subject != "malloc" or one.status == "problem"]
    return Examined(path, True, mode, rseq, [*loaded, *findings, *kept], path_of_record)


def _of_program(path: Path, program: Program | Finding, process: Process) -> tuple[list[Finding], bool]:
    if isinstance(program, Finding):
        return [program], False
    program.findings = [ok("program", str(path))]
    findings, rseq = examine(program, process, ours=False)
    raised = bool(process.auxiliary(AT_SECURE))
    privileges = note("privileges", _RAISED, "see above") if raised else ok("privileges", "it was started without raised ones")
    return [*findings, privileges], rseq
