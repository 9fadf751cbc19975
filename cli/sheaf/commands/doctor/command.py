"""`sheaf doctor`: say before a program runs whether it will run on Sheaf, in which mode, and why."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import asdict, dataclass, field
from typing import Any

import click
from click.shell_completion import CompletionItem

from sheaf.commands.arguments import DIRECTORY, completions
from sheaf.commands.doctor import mode as doctor_mode
from sheaf.commands.doctor.finding import Finding, future, ok, problem, running
from sheaf.commands.doctor.mode import Mode
from sheaf.commands.doctor.process import examine_process
from sheaf.commands.doctor.program import examine, find
from sheaf.commands.doctor.system import system
from sheaf.errors import SheafError, printable
from sheaf.system import elf, preload
from sheaf.system.process import resolve

SCHEMA_VERSION = 1
_COLOURS = {"ok": "green", "note": "yellow", "problem": "red"}
_PID = re.compile("[0-9]{1,9}")
EXPLAINED = [
    ("ok", "Nothing is to be done."),
    ("note", "The program runs on Sheaf, but slower, only in part, or with a restriction that the line names."),
    ("problem", "The program does not run on Sheaf, crashes there, or keeps no record although it should."),
]


@dataclass
class Report:
    """What was examined: `kind` is program, process or system. `mode` is None where the program does not run on Sheaf."""

    kind: str
    name: str | None
    path: str | None = None
    interpreter: str | None = None
    pid: int | None = None
    mode: Mode | None = None
    findings: list[Finding] = field(default_factory=list)

    @property
    def hindered(self) -> bool:
        """Whether there is a problem."""
        return any(finding.status == "problem" for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """The report as docs/doctor.md describes it."""
        target = {"kind": self.kind, "name": self.name, "path": self.path, "interpreter": self.interpreter, "pid": self.pid}
        return {
            "schema_version": SCHEMA_VERSION,
            "target": target,
            "ok": not self.hindered,
            "mode": asdict(self.mode) if self.mode else None,
            "findings": [asdict(one) for one in self.findings],
        }


def _library(libc: str) -> Finding:
    """Whether there is an object to preload into programs with a C library, or into any if `libc` is empty."""
    try:
        path = preload.library(libc)
        if os.statvfs(path).f_flag & os.ST_NOEXEC:
            return problem("library", f"{path} is on a file system that is mounted noexec", "install it on another one")
        with path.open("rb"):
            pass
    except SheafError as error:
        what, _, advice = error.message.rpartition("; ")
        return problem("library", what, advice)
    except OSError as error:
        return problem("library", f"{path}: {error.strerror}", "make it readable")
    return ok("library", str(path))


def _decide_mode(report: Report, rseq: bool) -> None:
    """Find the mode of a program that is yet to run, by a trial if possible, unless there is a problem."""
    if report.hindered:
        return
    mode = doctor_mode.expected(doctor_mode.grounds(future(), rseq))
    trial = doctor_mode.attempt()
    report.findings += trial.findings
    if trial.mode and (trial.mode == mode.name or rseq):  # with another C library the trial would mislead
        mode = doctor_mode.known(trial.mode, "trial", mode)
    if not report.hindered:
        report.mode = mode
        report.findings.append(doctor_mode.finding(mode))


def _of_program(command: str | None, directory: str | None) -> Report:
    process, rseq, libc = future(), True, ""
    report = Report("program" if command is not None else "system", command)
    if command is not None:
        found = find(command)
        if isinstance(found, Finding):
            report.findings.append(found)
        else:
            report.path = str(found.path)
            report.interpreter = str(found.target) if found.target != found.path else None
            findings, rseq = examine(found, process)
            libc = elf.libc(found.image) if found.image else ""
            report.findings += findings
    report.findings.append(_library(libc))
    report.findings += system(process, directory or process.environment.get("SHEAF_RECORD"))
    _decide_mode(report, rseq)
    return report


def _of_process(pid: int, directory: str | None) -> Report:
    process = running(pid)
    examined = examine_process(pid, process)
    report = Report("process", str(pid), str(examined.program) if examined.program else None, pid=pid)
    report.findings = examined.findings
    if examined.program is None:
        return report
    kept = None if directory else examined.record
    report.findings += system(process, directory or process.environment.get("SHEAF_RECORD"), kept)
    if examined.on_sheaf:
        report.mode = doctor_mode.expected(doctor_mode.grounds(process, examined.libc_has_rseq))
        if examined.recorded_mode:
            report.mode = doctor_mode.known(examined.recorded_mode, "record", report.mode)
        report.findings.append(doctor_mode.finding(report.mode))
    return report


def _line(finding: Finding, colour: bool) -> str:
    advice = f"; {finding.advice}" if finding.advice else ""
    status = f"{finding.status:<7}"
    shown = click.style(status, fg=_COLOURS[finding.status]) if colour else status
    return f"{shown}  {printable(finding.subject)}: {printable(finding.what)}{printable(advice)}"


def _examine(target: str | None, directory: str | None) -> Report:
    if target and _PID.fullmatch(target) and not os.path.exists(target):
        return _of_process(int(target), directory)
    if target and not os.path.lexists(target) and shutil.which(target) is None:
        pid = resolve(target)
        if pid is not None:
            return _of_process(pid, directory)
    return _of_program(target, directory)


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [*completions(incomplete), CompletionItem(incomplete, type="program")]


@click.command(options_metavar="[OPTIONS]")
@click.option(
    "--record",
    "directory",
    type=DIRECTORY,
    metavar="DIR",
    help="Check this directory of records instead of that in SHEAF_RECORD.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.argument("target", required=False, shell_complete=_complete, metavar="[PROGRAM|PID|NAME]")
def doctor(directory: str | None, as_json: bool, target: str | None) -> int:
    """Say whether a program will run on Sheaf, in which mode, and why.

    \b
    Examples:
      sheaf doctor redis-server
      sheaf doctor --record /var/lib/sheaf/redis redis-server
      sheaf doctor $(pidof redis-server)

    Each finding is a line "STATUS  SUBJECT: WHAT; ADVICE". The status is ok, note or problem. PROGRAM is not run. For a
    process that runs, the findings say whether it is on Sheaf, and why not otherwise. A NAME that is no program means the
    process on Sheaf that has it. Without an argument only the system is examined.
    """
    report = _examine(target, directory)
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=2))
    else:
        colour = "NO_COLOR" not in os.environ
        for finding in report.findings:
            click.echo(_line(finding, colour))
    return int(report.hindered)
