"""What the command lines of several subcommands have in common: arguments and options, and explanations in their help."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from sheaf.errors import SheafError
from sheaf.system.process import on_sheaf
from sheaf.system.progress import TIMEOUT

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_AGE = re.compile(r"(\d{1,9})([smhdw])")


def age_seconds(option: str, value: str) -> int:
    """The seconds of an age that an option has as its value. Raises SheafError if it is none."""
    found = _AGE.fullmatch(value)
    if not found:
        raise SheafError(f"{option} {value}: not an age; give a number and s, m, h, d or w, such as 12h or 7d", 2)
    return int(found[1]) * SECONDS[found[2]]


Terms = Sequence[tuple[str, str]]


class Explained(click.Command):
    """A command with `sections` below its options: a heading each, and terms with their meanings."""

    def __init__(self, *args: Any, sections: Iterable[tuple[str, Terms]], **more: Any) -> None:
        super().__init__(*args, **more)
        self._sections = list(sections)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The sections."""
        for heading, terms in self._sections:
            with formatter.section(heading):
                formatter.write_dl(terms)


def completions(incomplete: str) -> list[CompletionItem]:
    """Numbers and names of processes on Sheaf that begin with `incomplete`, described by program or number."""
    running = on_sheaf()
    by_name: dict[str, list[int]] = {}
    for one in running:
        by_name.setdefault(one.program, []).append(one.pid)
    items = [CompletionItem(str(one.pid), help=one.program) for one in running]
    items += [CompletionItem(name, help=f"process {pids[0]}") for name, pids in sorted(by_name.items()) if len(pids) == 1]
    return [item for item in items if item.value.startswith(incomplete)]


class TargetArgument(click.ParamType):  # type: ignore[type-arg]
    """The type of an argument that names a file, a directory or a process. Its value is the word as it was written."""

    name = "target"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The word itself."""
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Processes on Sheaf, and files by the shell's own means."""
        return [*completions(incomplete), CompletionItem(incomplete, type="file")]


class _PathArgument(click.ParamType):  # type: ignore[type-arg]
    """A name that shells complete as a file or a directory. click.Path would check and report it in its own words."""

    def __init__(self, name: str, kind: str) -> None:
        self.name, self._kind = name, kind

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """By the shell's own means."""
        return [CompletionItem(incomplete, type=self._kind)]


FILE, DIRECTORY = _PathArgument("file", "file"), _PathArgument("directory", "dir")


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "": 1.0}


def _seconds(_: click.Context, __: click.Parameter, value: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)(ms|s|m)?", value)
    if not found or not float(found[1]):
        raise SheafError(f"--timeout {value}: not a time; give a number of seconds such as 5 or 0.5", 2)
    return float(found[1]) * _UNITS[found[2] or ""]


target_argument = click.argument("target", metavar="PID|NAME|FILE", type=TargetArgument())
timeout_option = click.option(
    "--timeout",
    metavar="SECONDS",
    default=f"{TIMEOUT:g}",
    show_default=True,
    callback=_seconds,
    help="Time to wait for the answer, in seconds.",
)
