"""What `sheaf leaks` prints or writes of the lost blocks of a running process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TextIO

import click

from sheaf.commands.leaks import scan as leakscan
from sheaf.commands.leaks.scan import Found
from sheaf.errors import SheafError, printable
from sheaf.rendering import leakdocument, leakreport
from sheaf.rendering.leakreport import Advice, Amount

_ADVICE = Advice("--output FILE has all of them", "start the program with --profile or --debug U")
_NO_STACKS = "sheaf: no stacks are known; start the program with `sheaf run --profile`, or with --debug U for all blocks"


@dataclass(frozen=True)
class Options:
    """The options that apply to lost blocks only, and the format."""

    output: str | None
    suppressions: tuple[str, ...]
    status: int | None
    as_json: bool

    def must_be_unused(self) -> None:
        """Raises SheafError if one was given with --growth."""
        given = {"--output": self.output, "--suppress": self.suppressions, "--leak-status": self.status}
        for name, value in given.items():
            if value:
                raise SheafError(f"{name}: has no effect with --growth; leave one of them out", 2)


def _open(name: str) -> TextIO:
    """Open the file before the search, so that a wrong name is an error at once. What it contains stays until then."""
    try:
        return open(name, "a", encoding="utf-8", errors="backslashreplace")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise SheafError(f"--output {name}: {why}; name a file that can be written") from error


def _document(found: Found, patterns: list[str]) -> tuple[str, Amount]:
    more = {
        "host_pid": found.host_pid,
        "pauses_ms": [round(1000 * pause, 3) for pause in found.pauses],
        "search_ms": round(1000 * found.seconds, 3),
    }
    return leakdocument.text(found.lines, patterns, more)


def _text(found: Found, patterns: list[str], most: int | None) -> tuple[str, Amount]:
    result = leakreport.text(found.lines, patterns, most, _ADVICE)
    parsed = leakreport.parse(found.lines)
    groups = [group for process in parsed.processes for group in process.groups]
    if groups and not any(group.frames for group in groups):
        result.lines.append(_NO_STACKS)
    return "\n".join([*result.lines, found.cost]) + "\n", result.lost


def _write(file: TextIO, text: str) -> None:
    try:
        with file:
            if file.seekable():
                file.truncate(0)
            file.write(text)
    except OSError as error:
        raise SheafError(f"--output {file.name}: {error.strerror}; the report is not written") from error


def report(name: str, options: Options, timeout: float) -> int:
    """Search a process, and print or write the report. Returns the exit status."""
    patterns = [pattern for file in options.suppressions for pattern in leakreport.read_suppressions(file)]
    file = _open(options.output) if options.output else None
    found = leakscan.search(name, timeout)
    if options.as_json or (options.output or "").endswith(".json"):
        text, lost = _document(found, patterns)
    else:
        text, lost = _text(found, patterns, None if file else leakreport.SHOWN)
    if file:
        _write(file, text)
        click.echo(f"sheaf: {lost} lost; the report is in {printable(file.name)}")
        click.echo(found.cost)
    else:
        click.echo(text, nl=False)
    return options.status if options.status and lost.blocks else 0
