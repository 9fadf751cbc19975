"""The stacks of a profile that a user asks for."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import click

from sheaf.commands.profile.symbols import Symbolizer, shortened
from sheaf.commands.profile.views import Profile, Row, combined
from sheaf.errors import SheafError


@dataclass(frozen=True)
class Choice:
    """What to show of a profile, and how a terminal shows it."""

    focus: re.Pattern[str] | None = None  # in functions, files and modules, of which one has to match
    ignore: re.Pattern[str] | None = None  # in those of which none may match
    fold: tuple[str, ...] = ()  # patterns of more wrappers
    limit: int | None = None  # functions, stacks, or lines of a tree
    tree: bool = False
    long: bool = False  # stacks on several lines


def pattern(_: click.Context, parameter: click.Parameter, value: str | None) -> re.Pattern[str] | None:
    """A regular expression of the user, for click. Raises SheafError if it is none."""
    try:
        return None if value is None else re.compile(value)
    except (re.error, OverflowError, RecursionError) as error:
        raise SheafError(
            f"--{parameter.name} {value}: not a regular expression ({error}); put a backslash before special characters", 2
        ) from error


def selected(profile: Profile, symbolizer: Symbolizer, choice: Choice) -> Profile:
    """The profile with only those stacks that the choice asks for, whose sums are the totals then."""
    focus, ignore = choice.focus, choice.ignore
    if not focus and not ignore:
        return profile
    symbolizer.prepare(profile.pcs)

    def wanted(row: Row) -> bool:
        texts = [
            text
            for frame in symbolizer.stack(row)
            for text in (frame.function, shortened(frame.function), frame.file, frame.module)
            if text
        ]
        return (not focus or any(map(focus.search, texts))) and not (ignore and any(map(ignore.search, texts)))

    rows = [row for row in profile.rows if wanted(row)]
    sums = tuple(
        (sum(row.values[i] for row in rows), combined(row.errors[i] for row in rows)) for i in range(len(profile.columns))
    )
    words = [f"--{name} {one.pattern}" for name, one in (("focus", focus), ("ignore", ignore)) if one]
    note = f"{len(rows)} of {len(profile.rows)} stacks are shown ({' '.join(words)})."
    return replace(profile, rows=rows, sums=sums, notes=(note, *profile.notes))
