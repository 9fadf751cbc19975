"""The one way in which commands fail: a line that says what, where, and what to do."""

from __future__ import annotations

import difflib
import re
from typing import IO, Any

import click


class SheafError(click.ClickException):
    """An error of ours; `status` becomes the exit status (125 from `run`, as `env` has it)."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        """What click exits with."""
        return self.status

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"sheaf: {self.message}", file=file, err=file is None)


def _options(error: click.UsageError) -> list[str]:
    if error.ctx is None:
        return []
    return [word for param in error.ctx.command.get_params(error.ctx) for word in param.opts if word.startswith("--")]


def _parameter(param: click.Parameter | None) -> str:
    if param is None:
        return ""
    return next((word for word in param.opts if word.startswith("-")), param.metavar or (param.name or "").upper())


def usage_line(error: click.UsageError, command: str | None) -> str:
    """A wrong command line in one line: what is wrong, and the nearest thing that is right."""
    name = f"sheaf {command}" if command else "sheaf"
    see = f"see `{name} --help`"
    if isinstance(error, click.NoSuchOption):
        near = difflib.get_close_matches(error.option_name, _options(error), 1)
        return f"{name}: {error.option_name}: no such option; " + (f"did you mean {near[0]}?" if near else see)
    if isinstance(error, click.MissingParameter):
        return f"{name}: {_parameter(error.param)} is missing; {see}"
    text = " ".join(error.message.split()).rstrip(".")
    text = re.sub(r"^Option '(.*?)' ", r"\1 ", text)
    if isinstance(error, click.BadParameter) and error.param is not None:
        return f"{name}: {_parameter(error.param)}: {text}; {see}"
    return f"{name}: {text}" + ("" if ";" in text else f"; {see}")
