"""The `sheaf` command: loads only the requested subcommand and reports every failure on one line."""

from __future__ import annotations

import difflib
import gc
import importlib
import os
import signal
import sys
from dataclasses import dataclass
from importlib import util

import click

from sheaf.errors import SheafError, usage_line
from sheaf.system import extras, streams
from sheaf.system.streams import own_failure


@dataclass(frozen=True)
class _Entry:
    """A subcommand. Its module is imported on use, so that `run` starts fast and does not need the others' dependencies."""

    module: str
    help: str
    misuse: int = 2  # the exit status of usage errors


_COMMANDS = {
    "run": _Entry("sheaf.commands.run", "Run a program on Sheaf.", 125),  # the status that env(1) uses
    "stats": _Entry("sheaf.commands.stats", "Show the caches of running and finished programs."),
    "top": _Entry("sheaf.commands.top", "Show processes and their caches, live."),
    "records": _Entry("sheaf.commands.records", "List records, and remove those of ended processes."),
    "trim": _Entry("sheaf.commands.trim", "Make a running process return its free memory to the system."),
    "set": _Entry("sheaf.commands.set", "Change an option of the allocator in a running process."),
    "dump": _Entry("sheaf.commands.dump", "Show the slabs of a running process and a map of its memory."),
    "doctor": _Entry("sheaf.commands.doctor.command", "Say whether a program will run on Sheaf, in which mode, and why."),
    "profile": _Entry("sheaf.commands.profile.command", "Show where the memory of a process was allocated."),
    "leaks": _Entry("sheaf.commands.leaks.command", "Show what a running process has lost, or which stacks grow."),
    "serve": _Entry("sheaf.commands.serve", "Serve metrics, profiles and a live page over HTTP."),
    "unit": _Entry("sheaf.commands.unit", "Run a systemd service on Sheaf."),
    "report": _Entry("sheaf.commands.report", "Add source files and lines to debugging reports."),
    "bench": _Entry("sheaf.commands.bench", "Compare the time and memory of Sheaf and other allocators."),
    "completion": _Entry("sheaf.commands.completion", "Print a script that completes sheaf's command line in a shell."),
}


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from importlib import metadata  # slow to import, and `run` does not need it

    try:
        click.echo(f"sheaf {metadata.version('sheaf')}")
    except metadata.PackageNotFoundError:
        click.echo("sheaf, from a source tree")
    ctx.exit()


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, entry in _COMMANDS.items() if util.find_spec(entry.module)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = _COMMANDS.get(cmd_name)
        if entry is None or not util.find_spec(entry.module):
            return None
        try:
            command = getattr(importlib.import_module(entry.module), cmd_name)
        except ModuleNotFoundError as error:
            module = error.name or cmd_name
            advice = "reinstall Sheaf" if module.partition(".")[0] == "sheaf" else f"run {extras.install_module(module)}"
            raise SheafError(f"{cmd_name}: the Python module {module} is missing; {advice}") from error
        assert isinstance(command, click.Command)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        # A shell that completes gets no messages.
        if args and self.get_command(ctx, args[0]) is None and not ctx.resilient_parsing:
            known = self.list_commands(ctx)
            near = difflib.get_close_matches(args[0], known, 1)
            hint = f"did you mean {near[0]}?" if near else f"the commands are {', '.join(known)}"
            raise click.UsageError(f"{args[0]}: no such command; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _COMMANDS[name].help) for name in self.list_commands(ctx)])


@click.group(
    cls=_Commands, no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version and exit.")
def main() -> None:
    """Run programs on Sheaf's malloc and show what its caches do.

    \b
    Examples:
      sheaf run --stats -- python3 script.py
      sheaf run --record /tmp/records -- redis-server
      sheaf stats /tmp/records
    """


def _fail(error: click.ClickException) -> int:
    """Print the error on one line and return the exit status."""
    if not isinstance(error, click.UsageError):
        error.show()
        return error.exit_code
    command = next((word for word in sys.argv[1:] if not word.startswith("-")), None)  # some errors lack a context
    command = command if command in _COMMANDS else None
    click.echo(usage_line(error, command), err=True)
    return _COMMANDS[command].misuse if command else 2


def _call() -> int:
    if len(sys.argv) == 1 and "_SHEAF_COMPLETE" not in os.environ:  # a shell sets it to request completions
        click.echo(main.get_help(main.make_context("sheaf", [])), err=True)
        return 2
    if "_SHEAF_COMPLETE" in os.environ:
        from sheaf.commands import completion

        completion.register()
    stdout = sys.stdout
    try:
        status = main(prog_name="sheaf", standalone_mode=False)
    except click.ClickException as error:
        return _fail(error)
    except BrokenPipeError:
        raise
    except OSError as error:  # such as no directory for temporary files
        named = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
        return _fail(SheafError(f"{named}{error.strerror or error}; change that and try again", own_failure()))
    except MemoryError:
        return _fail(SheafError("no memory is left; raise the limit of memory and try again", own_failure()))
    except click.Abort:  # Ctrl-C: end by SIGINT, so that a calling script stops as well
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except SystemExit as end:
        if sys.stdout is not stdout:  # click replaces stdout and exits on EPIPE
            raise BrokenPipeError from end
        raise
    try:
        sys.stdout.flush()
    except SheafError as error:
        return _fail(error)
    return status if isinstance(status, int) else 0


def entry() -> None:
    """Entry point of the installed command. On a closed pipe it exits silently with status 141, like a shell."""
    streams.prepare()
    gc.set_threshold(100_000)  # thousands of records are no garbage, and looking for some in them took a tenth of the time
    try:
        status = _call()
    except BrokenPipeError:
        streams.give_up()
        status = 141
    sys.exit(status)


if __name__ == "__main__":
    entry()
