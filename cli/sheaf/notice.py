"""Say what a command waits for, if that takes long."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import click

_LONG = 1.0  # seconds


class Notice:
    """One line on standard error, if that is a terminal, about a wait that has taken longer than a second."""

    def __init__(self) -> None:
        self._due = time.monotonic() + _LONG
        self._open = sys.stderr is not None and sys.stderr.isatty()

    def look(self, text: Callable[[], str]) -> None:
        """Print the line if it is due and was not printed before."""
        if self._open and time.monotonic() >= self._due:
            self._open = False
            click.echo(text(), err=True)
