"""`sheaf run`: a program on Sheaf."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType

import click

from sheaf import options, record, table
from sheaf.errors import SheafError
from sheaf.program import locate, obstacle

LIBRARY = "libsheaf-preload.so"
_PASSED_ON = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGCONT", "SIGWINCH")


def library() -> Path:
    """The preloaded object: $SHEAF_LIBRARY, the package's own, a build tree's, or an installed one."""
    chosen = os.environ.get("SHEAF_LIBRARY")
    here = Path(__file__).resolve().parent
    places = [here / LIBRARY, here.parents[1] / "build" / "preload" / LIBRARY]
    places += sorted(Path("/usr").glob(f"lib/*/{LIBRARY}")) + sorted(Path("/usr/local").glob(f"lib/**/{LIBRARY}"))
    if chosen:
        places = [Path(chosen)]
    for place in places:
        if place.is_file():
            return place.resolve()
    where = chosen or str(here)
    raise SheafError(f"{LIBRARY} not found in {where}; reinstall Sheaf or set SHEAF_LIBRARY to the object", 125)


def _preload(first: Path, rest: str | None) -> str:
    return f"{first} {rest}" if rest else str(first)


def _loader() -> str:
    """The dynamic loader, which can preload for one program without telling its children."""
    names = {"x86_64": "/lib64/ld-linux-x86-64.so.2", "aarch64": "/lib/ld-linux-aarch64.so.1"}
    loader = names.get(os.uname().machine, "")
    if not os.path.exists(loader):
        raise SheafError("--no-children: the dynamic loader was not found; run without it", 125)
    return loader


def _command(program: Path, args: tuple[str, ...], environment: dict[str, str], children: bool) -> list[str]:
    if children:
        environment["LD_PRELOAD"] = _preload(library(), environment.get("LD_PRELOAD"))
        return [str(program), *args[1:]]
    with open(program, "rb") as file:
        if file.read(2) == b"#!":
            raise SheafError(f"--no-children {args[0]}: is a script; name its interpreter before it", 125)
    return [_loader(), "--preload", str(library()), "--argv0", args[0], str(program), *args[1:]]


def _execute(argv: list[str], name: str, program: Path, environment: dict[str, str]) -> None:
    sys.stdout.flush()
    for word in ("SIGPIPE", "SIGXFSZ"):  # Python ignores them, and exec would pass that on
        signal.signal(getattr(signal, word), signal.SIG_DFL)
    try:
        os.execve(argv[0], [name, *argv[1:]] if argv[0] == str(program) else argv, environment)
    except OSError as error:
        raise SheafError(f"{name}: {error.strerror}; the system cannot execute it", 126) from error


def _wait(argv: list[str], name: str, program: Path, environment: dict[str, str]) -> int:
    """Run and wait. INT and QUIT of the terminal reach the program by themselves; other signals are passed on."""
    shown = [name, *argv[1:]] if argv[0] == str(program) else argv
    child: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def pass_on(number: int, _: FrameType | None) -> None:
        if child is None:
            early.append(number)
        else:
            child.send_signal(number)

    for word in _PASSED_ON:
        signal.signal(getattr(signal, word), pass_on)
    for word in ("SIGINT", "SIGQUIT"):
        if signal.getsignal(getattr(signal, word)) is not signal.SIG_IGN:
            signal.signal(getattr(signal, word), lambda *_: None)
    try:
        child = subprocess.Popen(shown, executable=argv[0], env=environment)
    except OSError as error:
        raise SheafError(f"{name}: {error.strerror}; the system cannot execute it", 126) from error
    for number in early:
        child.send_signal(number)
    return child.wait()


def _end_as(status: int) -> None:
    """End the way the program did; by its signal, without a core of ours."""
    sys.stdout.flush()
    sys.stderr.flush()
    if status >= 0:
        os._exit(status)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(-status, signal.SIG_DFL) if -status not in (signal.SIGKILL, signal.SIGSTOP) else None
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [-status])
    os.kill(os.getpid(), -status)
    os._exit(128 - status)


def _report(directory: str, before: set[Path], form: str) -> None:
    """What the records say that came to be during the run."""
    try:
        records = [record.read(path) for path in record.find(directory) if path not in before]
    except SheafError as error:
        click.echo(f"sheaf: no counters: {error.message}", err=True)
        return
    if not records:
        click.echo("sheaf: no counters: the program never allocated, or its environment was cleared", err=True)
        return
    rows = [table.cache_row(c) for c in record.merge(records).values() if c.memory or c.slots]
    rows.sort(key=lambda row: -row["memory_bytes"])
    if form == "json":
        click.echo(table.machine(rows, records, "json"), err=True)
        return
    names = ", ".join(f"{r.program} ({r.pid})" for r in records[:5]) + (", ..." if len(records) > 5 else "")
    plural = "process" if len(records) == 1 else "processes"
    click.echo(f"sheaf: {len(records)} {plural}: {names}; {records[0].mode}", err=True)
    click.echo(table.text([*rows, table.totals(rows)]), err=True)


class _Run(click.Command):
    """`--stats` alone means the table; the word after it is the program's, never its value."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        i = 0
        while i < len(args) and args[i].startswith("-") and args[i] != "--":
            if args[i] == "--stats":
                args[i] = "--stats=table"
            i += 2 if args[i] in ("--option", "--record") else 1
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write("\nOptions for --option, or as SHEAF_<NAME> in the environment:\n" + options.help_text() + "\n")


@click.command(cls=_Run, context_settings={"allow_interspersed_args": False})
@click.option("--option", "settings", multiple=True, metavar="NAME=VALUE", help="Set an option of the allocator; see below.")
@click.option("--record", "directory", metavar="DIR", help="Keep every process's counters in DIR/<program>.<pid>.sheaf.")
@click.option("--stats", type=click.Choice(["table", "json"]),
              help="Print the per-cache table to standard error at the end; --stats=json for JSON.")
@click.option("--no-children", is_flag=True, help="Only the program itself runs on Sheaf, not what it starts.")
@click.option("--force", is_flag=True, help="Run even a program that Sheaf cannot serve.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(settings: tuple[str, ...], directory: str | None, stats: str | None, no_children: bool, force: bool,
        command: tuple[str, ...]) -> None:
    """Run COMMAND on Sheaf.

    \b
    Examples:
      sheaf run python3 -c 'print("hello")'
      sheaf run --stats -- sort big.txt
      sheaf run --record /tmp/records --option decay=200 -- redis-server

    Its input, output and exit status are the program's; 125 is an error of ours, 126 a program that cannot be
    executed, 127 one that was not found. An LD_PRELOAD that is already set is kept, behind ours.
    """
    program = locate(command[0])
    why = obstacle(program)
    if why and not force:
        raise SheafError(f"{command[0]}: cannot run on Sheaf: {why.reason}; {why.advice} (--force runs it all the same)", 125)
    environment = dict(os.environ)
    environment.update(options.parse(setting) for setting in settings)
    if directory:
        try:
            os.makedirs(directory, exist_ok=True)
        except OSError as error:
            raise SheafError(f"--record {directory}: {error.strerror}; name a directory that can be written to", 125) from error
        environment["SHEAF_RECORD"] = str(Path(directory).resolve())
    private = tempfile.mkdtemp(prefix="sheaf-") if stats and not environment.get("SHEAF_RECORD") else None
    if private:
        environment["SHEAF_RECORD"] = private
    argv = _command(program, command, environment, not no_children)
    if not stats:
        _execute(argv, command[0], program, environment)
        return
    before = set(Path(environment["SHEAF_RECORD"]).glob("*.sheaf"))
    try:
        status = _wait(argv, command[0], program, environment)
        _report(environment["SHEAF_RECORD"], before, stats)
    finally:
        if private:
            shutil.rmtree(private, ignore_errors=True)
    _end_as(status)

