"""The columns of tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sheaf.rendering import sizes


def plain(value: Any) -> str:
    """A number in at most six characters, or a text as it is."""
    return sizes.short(value) if isinstance(value, int) else str(value)


@dataclass(frozen=True)
class Column:
    """
    A column: the name of its cell, heading, width, how a cell is shown, the key that sorts by it, and its meaning.
    Cells are right-aligned, with a negative width left-aligned and cut.
    """

    name: str
    heading: str
    width: int
    show: Callable[[Any], str] = plain
    key: str = ""
    meaning: str = ""


def cells(row: Mapping[str, Any], columns: Sequence[Column]) -> list[str]:
    """The text of each cell, as wide as its column."""
    found = []
    for one in columns:
        value = row.get(one.name)
        shown = "-" if value is None else one.show(value)
        found.append(shown[: -one.width].ljust(-one.width) if one.width < 0 else shown.rjust(one.width))
    return found


def headings(columns: Sequence[Column]) -> list[str]:
    """The headings, as wide as their columns."""
    return [one.heading[: -one.width].ljust(-one.width) if one.width < 0 else one.heading.rjust(one.width) for one in columns]


def fitting(columns: Sequence[Column], width: int, least: Sequence[str]) -> list[Column]:
    """The columns that fit, without those in `least` that do not, the first of which is left out first."""
    fit, order = list(columns), [one for name in least for one in columns if one.name == name]
    while order and sum(abs(one.width) + 1 for one in fit) - 1 > width:
        fit.remove(order.pop(0))
    return fit
