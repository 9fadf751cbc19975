"""Commands whose help ends with explanations of words in their output."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import click

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
