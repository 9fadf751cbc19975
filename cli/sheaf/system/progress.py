"""Say on a terminal what a command waits for: a line about a wait, or a progress bar for work that takes long."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import click

DELAY = 2.0  # seconds of work before a bar appears
TIMEOUT = 5.0  # seconds that a command waits for an answer, unless its user says otherwise
_LONG = 1.0  # seconds of a wait before a line about it appears
_Item = TypeVar("_Item")


def shown(items: Sequence[_Item], label: str) -> Iterator[_Item]:
    """
    The items, one after another. If the loop over them takes longer than DELAY and standard error is a terminal, a progress
    bar is there until the loop ends.
    """
    begun = time.monotonic()
    if not items or sys.stderr is None or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield from items
        return
    for number, item in enumerate(items):
        if time.monotonic() - begun >= DELAY:
            yield from _with_bar(items, number, label)
            return
        yield item


def _with_bar(items: Sequence[_Item], done: int, label: str) -> Iterator[_Item]:
    with click.progressbar(length=len(items), label=label, file=sys.stderr) as bar:
        bar.update(done)
        for item in items[done:]:
            yield item
            bar.update(1)
    click.echo("\033[A\033[2K\r", nl=False, file=sys.stderr)  # erases the bar, which would stand between the output


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
