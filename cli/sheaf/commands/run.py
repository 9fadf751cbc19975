"""`sheaf run`: run a program on Sheaf."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
import tempfile
from pathlib import Path
from typing import TextIO

import click
from click.shell_completion import CompletionItem

from sheaf.commands import debuglog
from sheaf.commands.arguments import DIRECTORY, FILE
from sheaf.errors import SheafError, printable
from sheaf.records import record
from sheaf.rendering import leakdocument, leakreport, sizes, table
from sheaf.rendering.columns import Column
from sheaf.rendering.memorytext import processes_json
from sheaf.system import child, debugspec, options, preload
from sheaf.system.program import libc, locate, obstacle, steps_aside

FORMS = ("table", "json")
_RECORD_BYTES = 1 << 17  # about what the record of a small program takes
_LARGEST_LOG = 64 << 20  # bytes of leak reports
_ALONE = {"--stats": "--stats=table", "--profile": "--profile=512K"}
_SIZE = re.compile(r"(\d{1,12})([KMGkmg]?)(?:iB|B)?")


class _Setting(click.ParamType):  # type: ignore[type-arg]  # not generic in older click
    """NAME=VALUE."""

    name = "setting"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from sheaf.commands import completion  # needed only here

        return completion.of_option(incomplete)


class _Checks(click.ParamType):  # type: ignore[type-arg]
    """LETTERS[,CACHE...]."""

    name = "checks"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from sheaf.commands import completion

        return completion.of_debug(incomplete)


def _complete_command(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """A program first, then its arguments, of which files are known."""
    return [CompletionItem(incomplete, type="file" if ctx.params.get("command") else "program")]


def _command(program: Path, args: tuple[str, ...], environment: dict[str, str], alone: bool) -> child.Command:
    """The command to execute; with `alone`, children of the program do not run on Sheaf. Changes `environment`."""
    if alone:
        argv = preload.through_loader(program, args, environment)
        return child.Command(args[0], argv[0], argv, environment)
    preload.set_up(environment, libc(program))
    return child.Command(args[0], str(program), list(args), environment)


def _directory(name: str) -> str:
    """Create the directory of --record if necessary, but not those above it; returns its absolute path."""
    if not name:
        raise SheafError("--record: the name is empty; name a writable directory", 125)
    above = os.path.dirname(os.path.abspath(name))
    try:
        os.mkdir(name)
        _say(f"sheaf: --record {printable(name)}: created the directory")
    except FileExistsError:
        if not os.path.isdir(name):
            raise SheafError(f"--record {name}: not a directory; name a writable directory", 125) from None
    except FileNotFoundError as error:
        raise SheafError(f"--record {name}: there is no directory {above}; create it, or check the name", 125) from error
    except OSError as error:
        raise SheafError(f"--record {name}: {error.strerror}; name a writable directory", 125) from error
    if not os.access(name, os.W_OK | os.X_OK):
        raise SheafError(f"--record {name}: the directory is not writable; name a writable directory", 125)
    return str(Path(name).resolve())


def _program(name: str, stats: str | None) -> Path:
    """The file of the program. A missing program named like a format of --stats is reported as a mistyped option."""
    try:
        return locate(name)
    except SheafError as error:
        if stats and name in FORMS:  # "--stats json" instead of "--stats=json"
            raise SheafError(f"{name}: no such program; to choose the format, write --stats={name}", 127) from error
        raise


def _debugged(spec: str, option: str = "--debug") -> str:
    """Check a value of --debug. A name that is only like that of a cache of malloc is worth a warning."""
    warning = debugspec.check(spec, option)
    if warning:
        _say(f"sheaf: {warning}")
    return spec


def _explains_reports(environment: dict[str, str]) -> bool:
    """Whether reports are printed here, with source positions, instead of by the program: if they go to no file of the user's."""
    return not environment.get("SHEAF_DEBUG_LOG") and debuglog.useful(environment.get("SHEAF_DEBUG", ""))


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # a closed standard error must not change the exit status
        click.echo(text, err=True)


def _open(name: str, option: str = "--stats-file") -> TextIO:
    """Open the file of an option before the program starts, so that a wrong name is an error at once."""
    try:
        return open(name, "w", encoding="utf-8", errors="backslashreplace")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise SheafError(f"{option} {name}: {why}; name a file that can be written", 125) from error


def _why_no_record(directory: str) -> str:
    """The reason why a run left no record, and what to do."""
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(bytes(_RECORD_BYTES))
            file.flush()
    except OSError as error:
        return f"no record can be written to {directory}: {error.strerror}; name a writable directory with --record"
    return "no process wrote a record: Sheaf was not loaded, no memory was allocated, or the reason is printed above"


def _sampled(rate: str, output: str | None) -> str:
    """Check --profile and --profile-output; returns the rate in bytes."""
    found = _SIZE.fullmatch(rate)
    number = int(found[1]) << 10 * " KMG".index(found[2].upper() or " ") if found else 0
    if not number:
        raise SheafError(f"--profile={rate}: not a number of bytes; give a size such as 512K", 125)
    from sheaf.commands.profile import at_exit  # slow to import, and only --profile needs it

    at_exit.check(output)
    return str(number)


def _write_profiles(made: list[Path], output: str | None) -> None:
    from sheaf.commands.profile import at_exit

    at_exit.report(made, output, table.terminal_width(sys.stderr), _say)


def _report(directory: str, made: list[Path], form: str | None, file: TextIO | None) -> None:
    """Print the caches of the records that were created during the run, in the format `form`, to the file if there is one."""
    records = []
    for path in made:
        try:
            records.append(record.read(path))
        except SheafError as error:
            _say(f"sheaf: {error.message}")
    if not records:
        _say(f"sheaf: no counters: {_why_no_record(directory)}")
        return
    text = _json(records) if form == "json" else _text(records, table.terminal_width(file or sys.stderr))
    if file is None:
        _say(text)
        return
    try:
        click.echo(text, file)
        file.close()
    except OSError as error:
        with contextlib.suppress(OSError):  # reports the error again, and closes the file
            file.close()
        _say(f"sheaf: --stats-file {file.name}: {error.strerror}; the counters are not written")


def _rows(records: list[record.Record]) -> list[table.Row]:
    return sorted(table.cache_rows(record.merge(records)), key=lambda row: -row["memory_bytes"])


def _json(records: list[record.Record]) -> str:
    return table.machine(_rows(records), processes_json(records), "json")


# What ran is over: what it did comes first, and what is left follows.
_COLUMNS: table.Columns = (
    Column("name", "NAME", -13),
    Column("object_size_bytes", "SIZE", 6),
    Column("allocated", "ALLOCS", 7),
    Column("freed", "FREES", 7),
    Column("in_use", "IN USE", 7),
    Column("slabs", "SLABS", 5),
    Column("memory_bytes", "MEMORY", 6, sizes.memory),
    Column("fast_share", "FAST", 6, table.fast),
)


def _counted(row: table.Row) -> table.Row:
    """A row with all allocations and frees, by whatever path."""
    allocated = sum(row.get(f"alloc_{path}", 0) for path in ("fastpath", "slowpath", "prefilled"))
    freed = sum(row.get(name, 0) for name in ("free_fastpath", "free_slowpath", "free_rcu_done"))
    return {**row, "allocated": allocated, "freed": freed}


def _large(records: list[record.Record]) -> list[table.Row]:
    """The rows of large blocks with their allocations and frees."""
    first, *rest = table.large_rows(records)
    counts = {
        name: sum(one.process.get(counter, 0) for one in records)
        for name, counter in (("allocated", "large_alloc"), ("freed", "large_free"))
    }
    return [{**first, **counts}, *rest]


def _text(records: list[record.Record], width: int) -> str:
    names = ", ".join(f"{r.program} ({r.pid})" for r in records[:5]) + (", ..." if len(records) > 5 else "")
    plural = "process" if len(records) == 1 else "processes"
    heading = f"sheaf: {len(records)} {plural}: {names}; {records[0].mode}"
    peak = max(one.peak_rss for one in records)  # 0 if all were killed
    if peak:
        heading += f"; {'peak' if len(records) == 1 else 'highest peak'} {sizes.size(peak)}"
    rows = [*map(_counted, _rows(records)), *_large(records)]
    return heading + "\n" + table.text([*rows, table.totals(rows)], _COLUMNS, width)


# ---- --leaks ----


def _leak_settings(environment: dict[str, str], stacks: bool) -> None:
    """Set the options of the object for --leaks and --stacks. Raises SheafError if other options contradict them."""
    chosen = environment.setdefault("SHEAF_LEAKS", "1")
    if chosen != "1":
        raise SheafError(f"--leaks: SHEAF_LEAKS={chosen} is set as well; leave one of them out", 125)
    if stacks and "SHEAF_DEBUG" in environment:
        raise SheafError(f"--stacks: debug={environment['SHEAF_DEBUG']} is set as well; leave --stacks out and add U to it", 125)
    if stacks:
        environment["SHEAF_DEBUG"] = "U"


def _only_with_leaks(given: dict[str, bool]) -> None:
    for name, is_given in given.items():
        if is_given:
            raise SheafError(f"{name}: has no effect without --leaks; add --leaks", 125)


def _log(environment: dict[str, str], stack: contextlib.ExitStack) -> tuple[Path, int]:
    """The file to which processes append their reports, and its size before the run. It is temporary unless the user names it."""
    if not environment.get("SHEAF_DEBUG_LOG"):
        private = tempfile.TemporaryDirectory(prefix="sheaf-", ignore_cleanup_errors=True)
        environment["SHEAF_DEBUG_LOG"] = str(Path(stack.enter_context(private)) / "leaks")
    path = Path(environment["SHEAF_DEBUG_LOG"]).absolute()
    try:
        return path, path.stat().st_size
    except OSError:
        return path, 0


def _leak_lines(log: Path, start: int) -> list[str]:
    """What was appended to the log."""
    try:
        with open(os.open(log, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # does not wait for a FIFO
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise SheafError(f"{log}: is not a regular file any more; the leak report is lost", 125)
            file.seek(start)
            lines = file.read(_LARGEST_LOG).decode(errors="replace").splitlines()
            if file.read(1):
                lines.append(f"sheaf: {log}: only its first {_LARGEST_LOG >> 20} MiB were read")
    except FileNotFoundError:
        lines = []
    except OSError as error:
        raise SheafError(f"{log}: {error.strerror}; the leak report is lost", 125) from error
    return lines


def _leak_report(lines: list[str], patterns: list[str], file: TextIO | None) -> bool:
    """
    Print the reports in these lines, or write all of them to the file, as JSON if its name says so. Returns whether anything
    was lost that is not suppressed.
    """
    if file is None:
        result = leakreport.text(lines, patterns)
        _say("\n".join(result.lines))
        return result.lost.blocks > 0
    if file.name.endswith(".json"):
        text, lost = leakdocument.text(lines, patterns)
    else:
        result = leakreport.text(lines, patterns, None)
        text, lost = "\n".join(result.lines) + "\n", result.lost
    try:
        with file:
            file.write(text)
        _say(f"sheaf: {lost} lost; the report is in {printable(file.name)}")
    except OSError as error:
        _say(f"sheaf: --leak-output {printable(file.name)}: {error.strerror}; the report is not written; {lost} lost")
    return lost.blocks > 0


class _Run(click.Command):
    """
    Accepts --stats without a value, which means --stats=table, and --profile, which means the default rate. The next word is
    never taken as their value.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        i = 0
        while i < len(args) and args[i].startswith("-") and args[i] != "--":
            args[i] = _ALONE.get(args[i], args[i])
            i += (
                2
                if args[i]
                in (
                    "--option",
                    "--record",
                    "--debug",
                    "--stats-file",
                    "--profile-output",
                    "--suppress",
                    "--leak-status",
                    "--leak-output",
                )
                else 1
            )
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The options of sheaf run, but not after the name of the program, to which options belong then."""
        return [CompletionItem(incomplete, type="file")] if ctx.params.get("command") else super().shell_complete(ctx, incomplete)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write("\nOptions of the allocator, for --option or as SHEAF_<NAME> in the environment:\n")
        formatter.write(options.help_text() + "\n")


@click.command(cls=_Run, options_metavar="[OPTIONS] [--]", context_settings={"allow_interspersed_args": False})
@click.option(
    "--option",
    "settings",
    multiple=True,
    type=_Setting(),
    metavar="NAME=VALUE",
    help="Set an option of the allocator (listed below).",
)
@click.option(
    "--debug",
    "debug",
    type=_Checks(),
    metavar="LETTERS[,CACHE...]",
    help="Detect memory errors: letters of F Z P U T A, such as FZPU. Same as --option debug=...",
)
@click.option(
    "--record",
    "directory",
    type=DIRECTORY,
    metavar="DIR",
    help="Record the counters of each process in DIR/<program>.<pid>.sheaf, readable at any time, even after SIGKILL. "
    "DIR is created if the directory above it exists.",
)
@click.option(
    "--stats",
    type=click.Choice(FORMS),
    metavar="[=table|json]",
    help="Print the caches of the program and its children to standard error when it ends.",
)
@click.option(
    "--stats-file",
    "stats_file",
    type=FILE,
    metavar="FILE",
    help="Write the caches to FILE instead of standard error, which the program uses as well; implies --stats.",
)
@click.option(
    "--profile",
    metavar="[=BYTES]",
    help="Sample one allocation for each BYTES allocated, on average, with its call stack, and write a profile of each "
    "process when it ends. Without BYTES, 512K.",
)
@click.option(
    "--profile-output",
    "profile_output",
    type=FILE,
    metavar="FILE",
    help="Write the profile to FILE, in the format of its suffix (see sheaf-profile); implies --profile. Profiles of "
    "several processes go to a directory, FILE.profiles.  [default: PROGRAM.PID.pb.gz]",
)
@click.option(
    "--leaks",
    "find_leaks",
    is_flag=True,
    help="Report at exit the blocks that nothing refers to any more, of each process that exits normally.",
)
@click.option(
    "--stacks",
    is_flag=True,
    help="With --leaks, remember the call stack of each allocation; takes some 15 times the CPU time and up to twice the memory.",
)
@click.option(
    "--suppress",
    "suppressions",
    type=FILE,
    multiple=True,
    metavar="FILE",
    help="With --leaks, omit blocks whose stack matches a line leak:PATTERN of FILE; see docs/leaks.md.",
)
@click.option(
    "--leak-status",
    type=click.IntRange(0, 255),
    metavar="N",
    help="With --leaks, exit with status N if anything is lost that is not suppressed.",
)
@click.option(
    "--leak-output",
    type=FILE,
    metavar="FILE",
    help="With --leaks, write the report with all blocks to FILE instead of standard error, as JSON if the name ends with .json.",
)
@click.option("--no-children", is_flag=True, help="Run only the program itself on Sheaf, not its children.")
@click.option("--force", is_flag=True, help="Run the program even if Sheaf cannot be preloaded into it.")
@click.argument(
    "command", nargs=-1, required=True, type=click.UNPROCESSED, shell_complete=_complete_command, metavar="PROGRAM [ARGS]..."
)
def run(
    settings: tuple[str, ...],
    debug: str | None,
    directory: str | None,
    stats: str | None,
    stats_file: str | None,
    profile: str | None,
    profile_output: str | None,
    find_leaks: bool,
    stacks: bool,
    suppressions: tuple[str, ...],
    leak_status: int | None,
    leak_output: str | None,
    no_children: bool,
    force: bool,
    command: tuple[str, ...],
) -> None:
    """Run a program on Sheaf.

    \b
    Examples:
      sheaf run python3 -c 'print("hello")'
      sheaf run --stats -- sort big.txt
      sheaf run --debug FZPU -- ./crashes
      sheaf run --leaks --stacks --suppress known.txt -- ./server
      sheaf run --record /tmp/records --option decay=200 -- redis-server
      sheaf run --profile-output heap.html -- ./server

    Input, output, terminal, signals and exit status are those of the program. Exit status 125 means that sheaf itself
    failed, 126 that the program cannot be executed, 127 that it was not found. Objects in an existing LD_PRELOAD are loaded
    after Sheaf's; with --no-children they are loaded into the program only.
    """
    program = _program(command[0], stats)
    why = obstacle(program)
    if why and not force:
        raise SheafError(f"{command[0]}: cannot run on Sheaf: {why.reason}; {why.advice} (--force runs it anyway)", 125)
    environment = dict(os.environ)
    for setting in settings:
        name, value = options.parse(setting)
        environment[name] = _debugged(value, "--option debug") if name == "SHEAF_DEBUG" and value else value
    if debug is not None:
        environment["SHEAF_DEBUG"] = _debugged(debug)
    if directory is not None:
        environment["SHEAF_RECORD"] = _directory(directory)
    if stats_file is not None:
        stats = stats or "table"
    profiled = profile is not None or profile_output is not None
    if profiled:
        environment["SHEAF_PROFILE"] = _sampled(profile or _ALONE["--profile"].partition("=")[2], profile_output)
    patterns = [pattern for name in suppressions for pattern in leakreport.read_suppressions(name)]
    if find_leaks:
        _leak_settings(environment, stacks)
    else:
        _only_with_leaks(
            {
                "--stacks": stacks,
                "--suppress": bool(suppressions),
                "--leak-status": leak_status is not None,
                "--leak-output": leak_output is not None,
            }
        )
    recorded = bool(stats) or profiled
    own = ""
    if recorded or find_leaks or environment.get("SHEAF_RECORD") or environment.get("SHEAF_DEBUG"):
        own = steps_aside(program)
    if own:
        _say(
            f"sheaf: {command[0]}: it defines {own} itself, so Sheaf steps aside and measures nothing of it; build it without "
            "its allocator"
        )
    reported = _explains_reports(environment) and not find_leaks
    if not recorded and not find_leaks and not reported:
        child.execute(_command(program, command, environment, no_children))
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(_open(stats_file)) if stats_file is not None else None
        log = _log(environment, stack) if find_leaks else None
        if reported:
            environment["SHEAF_DEBUG_LOG"] = str(stack.enter_context(debuglog.Reports(_say)).path)
        leak_file = stack.enter_context(_open(leak_output, "--leak-output")) if leak_output is not None else None
        if recorded and not environment.get("SHEAF_RECORD"):
            private = tempfile.TemporaryDirectory(prefix="sheaf-", ignore_cleanup_errors=True)
            environment["SHEAF_RECORD"] = stack.enter_context(private)
        records = environment.get("SHEAF_RECORD", "")
        before = set(Path(records).glob("*.sheaf")) if recorded else set()
        status = child.run(_command(program, command, environment, no_children))
        made = sorted(set(Path(records).glob("*.sheaf")) - before) if recorded else []
        explained = own and not made  # by the line above
        if profiled and not explained:
            _write_profiles(made, profile_output)
        if stats and not explained:
            _report(records, made, stats, file)
        if log and _leak_report(_leak_lines(*log), patterns, leak_file) and leak_status is not None:
            status = leak_status
    child.end_as(status)
