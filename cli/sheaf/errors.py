"""Errors of commands: one line that names the thing, says what happened to it, and says what to do."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import click

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def printable(text: str) -> str:
    """
    The text on one line: undecodable bytes of a file name, which Python keeps as surrogates, and control characters become
    escapes such as \\xff.
    """
    decoded = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", decoded)


class SheafError(click.ClickException):
    """A failure of sheaf itself. `status` is the exit status: `run` uses 125 to 127 like env(1), other commands 1 and 2."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(printable(message))
        self.status = status

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        """The exit status that click uses."""
        return self.status

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the message, by default to standard error."""
        click.echo(f"sheaf: {self.message}", file=file, err=file is None)


def by_reason(failures: Sequence[tuple[Path, str]], where: str | Path) -> list[str]:
    """
    One message for each reason for which files of the directory `where` could not be used, from the files and their messages
    "FILE: REASON; ADVICE". Files are counted where several have the same reason.
    """
    files: dict[str, list[Path]] = {}
    for path, message in failures:
        files.setdefault(message.removeprefix(f"{printable(str(path))}: "), []).append(path)
    return [f"{files[why][0] if len(files[why]) == 1 else f'{where}: {len(files[why])} files'}: {why}" for why in files]


def _options(error: click.UsageError) -> list[str]:
    """The long options of the command in which the error occurred."""
    if error.ctx is None:
        return []
    return [word for param in error.ctx.command.get_params(error.ctx) for word in param.opts if word.startswith("--")]


def _parameter(param: click.Parameter | None) -> str:
    """The name of a parameter as its user writes it."""
    if param is None:
        return ""
    return next((word for word in param.opts if word.startswith("-")), param.metavar or (param.name or "").upper())


def usage_line(error: click.UsageError, command: str | None) -> str:
    """The message for a wrong command line, on one line: what is wrong, and the closest match or where to look."""
    name = f"sheaf {command}" if command else "sheaf"
    see = f"see `{name} --help`"
    if isinstance(error, click.NoSuchOption):
        near = difflib.get_close_matches(error.option_name, _options(error), 1)
        return printable(f"{name}: {error.option_name}: no such option; ") + (f"did you mean {near[0]}?" if near else see)
    if isinstance(error, click.MissingParameter):
        return f"{name}: {_parameter(error.param)} is missing; {see}"
    text = printable(" ".join(error.message.split()).rstrip("."))
    text = re.sub(r"^Option '(.*?)' ", r"\1 ", text)
    if isinstance(error, click.BadParameter) and error.param is not None:
        return f"{name}: {_parameter(error.param)}: {text}; {see}"
    return f"{name}: {text}" + ("" if ";" in text else f"; {see}")
