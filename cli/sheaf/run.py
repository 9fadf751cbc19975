"""`sheaf run`: a program on Sheaf."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from pathlib import Path

import click

from sheaf import child, options, preload, record, table
from sheaf.errors import SheafError
from sheaf.memory import processes_json
from sheaf.program import locate, obstacle

FORMS = ("table", "json")
_PART = "([FZPUTAfzputa]*|-)(,[^,;]+)*"
_DEBUG = re.compile(f"{_PART}(;{_PART})*")


def _command(program: Path, args: tuple[str, ...], environment: dict[str, str], alone: bool) -> child.Command:
    if alone:
        argv = preload.through_loader(program, args, environment)
        return child.Command(args[0], argv[0], argv, environment)
    preload.set_up(environment)
    return child.Command(args[0], str(program), list(args), environment)


def _directory(name: str) -> str:
    if not name:
        raise SheafError("--record: an empty name; name a directory that can be written to", 125)
    try:
        os.makedirs(name, exist_ok=True)
    except OSError as error:
        raise SheafError(f"--record {name}: {error.strerror}; name a directory that can be written to", 125) from error
    if not os.access(name, os.W_OK | os.X_OK):
        raise SheafError(f"--record {name}: may not be written to; name a directory that can be", 125)
    return str(Path(name).resolve())


def _program(name: str, stats: str | None) -> Path:
    try:
        return locate(name)
    except SheafError as error:
        if stats and name in FORMS:  # the next word after an option without a value
            raise SheafError(f"{name}: no such program; for the form of --stats write --stats={name}", 127) from error
        raise


def _debugged(spec: str) -> str:
    if not spec or not _DEBUG.fullmatch(spec):
        raise SheafError(f"--debug {spec}: wants letters of F Z P U T A or -, then caches, as in FZPU or FZ,malloc-64", 125)
    return spec


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads; the status is still the program's
        click.echo(text, err=True)


def _report(directory: str, before: set[Path], form: str) -> None:
    """What the records say that came to be during the run."""
    records = []
    for path in sorted(set(Path(directory).glob("*.sheaf")) - before):
        try:
            records.append(record.read(path))
        except SheafError as error:
            _say(f"sheaf: {error.message}")
    if not records:
        _say("sheaf: no counters: the program never allocated, or its environment was cleared")
        return
    rows = sorted(table.cache_rows(record.merge(records)), key=lambda row: -row["memory_bytes"])
    if form == "json":
        _say(table.machine(rows, processes_json(records), "json"))
        return
    names = ", ".join(f"{r.program} ({r.pid})" for r in records[:5]) + (", ..." if len(records) > 5 else "")
    plural = "process" if len(records) == 1 else "processes"
    _say(f"sheaf: {len(records)} {plural}: {names}; {records[0].mode}")
    _say(table.text([*rows, table.totals(rows)]))


class _Run(click.Command):
    """`--stats` alone means the table; the word after it is the program's, never its value."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        i = 0
        while i < len(args) and args[i].startswith("-") and args[i] != "--":
            if args[i] == "--stats":
                args[i] = "--stats=table"
            i += 2 if args[i] in ("--option", "--record", "--debug") else 1
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write("\nOptions for --option, or as SHEAF_<NAME> in the environment:\n" + options.help_text() + "\n")


@click.command(cls=_Run, options_metavar="[OPTIONS] [--]", context_settings={"allow_interspersed_args": False})
@click.option("--option", "settings", multiple=True, metavar="NAME=VALUE", help="Set an option of the allocator; see below.")
@click.option("--debug", "debug", metavar="LETTERS[,CACHE...]",
              help="Find memory that is misused: letters of F Z P U T A, such as FZPU. The same as --option debug=...")
@click.option("--record", "directory", metavar="DIR",
              help="Keep each process's counters in DIR/<program>.<pid>.sheaf, to be read at any moment and after a SIGKILL.")
@click.option("--stats", type=click.Choice(FORMS), metavar="[=table|json]",
              help="Print the caches of the program and its children to standard error at the end.")
@click.option("--no-children", is_flag=True, help="Only the program itself runs on Sheaf, not what it starts.")
@click.option("--force", is_flag=True, help="Run even a program that Sheaf cannot serve.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="PROGRAM [ARGS]...")
def run(settings: tuple[str, ...], debug: str | None, directory: str | None, stats: str | None, no_children: bool,
        force: bool, command: tuple[str, ...]) -> None:
    """Run a program on Sheaf.

    \b
    Examples:
      sheaf run python3 -c 'print("hello")'
      sheaf run --stats -- sort big.txt
      sheaf run --debug FZPU -- ./crashes
      sheaf run --record /tmp/records --option decay=200 -- redis-server

    Its input, output, terminal, signals and exit status are the program's own. 125 is an error of ours, 126 a program
    that cannot be executed, 127 one that was not found. An LD_PRELOAD that is already set is kept, behind ours; with
    --no-children it, too, is for the program alone.
    """
    program = _program(command[0], stats)
    why = obstacle(program)
    if why and not force:
        raise SheafError(f"{command[0]}: cannot run on Sheaf: {why.reason}; {why.advice} (--force runs it all the same)", 125)
    environment = dict(os.environ)
    environment.update(options.parse(setting) for setting in settings)
    if debug is not None:
        environment["SHEAF_DEBUG"] = _debugged(debug)
    if directory is not None:
        environment["SHEAF_RECORD"] = _directory(directory)
    if not stats:
        child.execute(_command(program, command, environment, no_children))
    with contextlib.ExitStack() as stack:
        if not environment.get("SHEAF_RECORD"):
            private = tempfile.TemporaryDirectory(prefix="sheaf-", ignore_cleanup_errors=True)
            environment["SHEAF_RECORD"] = stack.enter_context(private)
        records = environment["SHEAF_RECORD"]
        before = set(Path(records).glob("*.sheaf"))
        status = child.run(_command(program, command, environment, no_children))
        _report(records, before, stats or "table")
    child.end_as(status)
