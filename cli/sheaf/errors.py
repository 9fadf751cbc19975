"""The one way in which commands fail: a line that says what, where, and what to do."""

from __future__ import annotations

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
