"""Profiles as text for a terminal: functions with flat and cumulative values, and the largest stacks."""

from __future__ import annotations

import math
import textwrap
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sheaf import table
from sheaf.profile.symbols import UNKNOWN, Symbolizer, is_library, shortened
from sheaf.profile.views import AGE_BANDS, Profile, Row, size_name, time_name

_ARROW = " < "
_SHORT_LIVED = ((0, "<1ms"), (10, "<1s"), (16, "<1min"), (22, "<1h"))  # columns of the table of lifetimes, and headings


def amount(value: float, unit: str) -> str:
    """A value in at most seven characters."""
    number = f"{value:.0f}" if unit == "count" and abs(value) < 100_000 else ""
    if not number:
        sign, size, suffix = "-" if value < 0 else "", abs(value), "B"
        units = "kMGTPE" if unit == "count" else "KMGTPE"
        for larger in units:
            if size < 999.5:
                break
            size, suffix = size / (1000 if unit == "count" else 1024), larger
        number = f"{sign}{size:.0f}{suffix}" if size >= 99.95 or suffix == "B" else f"{sign}{size:.1f}{suffix}"
    return number


def with_error(value: float, error: float | None, unit: str) -> str:
    """A value with its standard error; an error that rounds to nothing is left out."""
    shown = amount(value, unit)
    return f"{shown} ±{amount(error, unit)}" if error is not None and error >= 0.5 else shown


def _percent(value: float, total: float) -> str:
    return f"{100 * value / total:.1f}%" if total else "-"


@dataclass
class Line:
    """
    A function, by its shortened name: the values of stacks that end in it, apart from functions of standard libraries, and
    of all stacks that contain it; and their variances.
    """

    function: str
    flat: float = 0.0
    flat_variance: float = 0.0
    cumulative: float = 0.0
    cumulative_variance: float = 0.0


def functions(profile: Profile, symbolizer: Symbolizer) -> list[Line]:
    """All functions, those with the largest flat values first. A function that is twice in a stack counts once."""
    symbolizer.prepare(profile.pcs)
    lines: dict[str, Line] = {}
    for row in profile.rows:
        value, error = row.values[profile.main], row.errors[profile.main] or 0.0
        stack = names(row, symbolizer) or [UNKNOWN]
        for name in dict.fromkeys(stack):
            line = lines.setdefault(name, Line(name))
            line.cumulative += value
            line.cumulative_variance += error * error
        lines[stack[0]].flat += value
        lines[stack[0]].flat_variance += error * error
    return sorted(lines.values(), key=lambda line: (-abs(line.flat), -abs(line.cumulative), line.function))


def cut(text: str, width: int) -> str:
    """The text in at most `width` characters."""
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def _function_rows(profile: Profile, lines: Sequence[Line], width: int) -> list[str]:
    unit, total = profile.columns[profile.main].unit, profile.total()[0]
    # Order, heading, width, cell; a narrow terminal leaves out the columns with the highest order first.
    columns: list[tuple[int, str, int, Callable[[Line], str]]] = [
        (0, "FLAT", 7, lambda one: amount(one.flat, unit)), (3, "±", 6, lambda one: _error(one.flat_variance, unit)),
        (1, "FLAT%", 6, lambda one: _percent(one.flat, total)), (0, "CUM", 7, lambda one: amount(one.cumulative, unit)),
        (4, "±", 6, lambda one: _error(one.cumulative_variance, unit)),
        (2, "CUM%", 6, lambda one: _percent(one.cumulative, total)),
    ]  # fmt: skip
    while len(columns) > 1 and sum(size + 1 for _, _, size, _ in columns) + 20 > width:
        columns.remove(max(columns, key=lambda column: column[0]))
    room = width - sum(size + 1 for _, _, size, _ in columns)
    text = [" ".join([*(f"{head:>{size}}" for _, head, size, _ in columns), "FUNCTION"])]
    for line in lines:
        cells = [f"{cell(line):>{size}}" for _, _, size, cell in columns]
        text.append(" ".join([*cells, cut(line.function, room)]))
    return text


def _error(variance: float, unit: str) -> str:
    return amount(math.sqrt(variance), unit) if variance >= 0.25 else ""


def chain(names: Sequence[str], width: int) -> str:
    """Function names, the innermost first, in at most `width` characters; +N stands for N callers that do not fit."""
    text, left = "", len(names)
    for name in names:
        rest = f"{_ARROW}+{left - 1}" if left > 1 else ""
        added = (_ARROW if text else "") + name
        if text and len(text) + len(added) + len(rest) > width:
            return f"{text}{_ARROW}+{left}"
        text, left = text + added, left - 1
    return cut(text, width)


def names(row: Row, symbolizer: Symbolizer) -> list[str]:
    """
    The shortened names of the functions of a row, the innermost first. It begins with the first one that is not of a standard
    library, because that is the one whose author decided to allocate.
    """
    found = [shortened(frame.function) for frame in reversed(symbolizer.stack(row)[len(row.labels):])]
    begin = next((i for i, name in enumerate(found) if not is_library(name)), 0)
    return found[begin:]


def stack_rows(profile: Profile, symbolizer: Symbolizer, most: int, width: int) -> list[str]:
    """A line for each of the largest stacks: value, share, and functions with callers to the right."""
    unit, total = profile.columns[profile.main].unit, profile.total()[0]
    largest = sorted(profile.rows, key=lambda row: -abs(row.values[profile.main]))[:most]
    cells = [with_error(row.values[profile.main], row.errors[profile.main], unit) for row in largest]
    first, text = max(map(len, cells), default=0), []
    for row, cell in zip(largest, cells, strict=True):
        head = f"{cell:>{first}} {_percent(row.values[profile.main], total):>6} "
        head += "".join(f"{name}: " for name in row.labels)
        text.append(cut(head + chain(names(row, symbolizer), max(24, width - len(head))), width))
    if len(profile.rows) > len(largest):
        text.append(f"and {len(profile.rows) - len(largest)} smaller stacks")
    return text


def _label_rows(profile: Profile) -> list[str]:
    """A row for each group of stacks, in the order of ages."""
    unit, total = profile.columns[profile.main].unit, profile.total()[0]
    sums: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for row in profile.rows:
        sums[row.labels[0]][0] += row.values[profile.main]
        sums[row.labels[0]][1] += (row.errors[profile.main] or 0.0) ** 2
    text = [f"{'BYTES':>7} {'±':>6} {'SHARE':>6} AGE"]
    for name in sorted(sums, key=AGE_BANDS.index):
        value, variance = sums[name]
        text.append(f"{amount(value, unit):>7} {_error(variance, unit):>6} {_percent(value, total):>6} {name}")
    return text


def lifetime_rows(profile: Profile, width: int) -> list[str]:
    """A row for each size, and the share of frees in each range of lifetimes."""
    order = {time_name(column): column for column in range(64)}
    sizes: defaultdict[str, list[float]] = defaultdict(lambda: [0.0] * (len(_SHORT_LIVED) + 1))
    for row in profile.rows:
        column = order[row.labels[1]]
        place = next((i for i, (last, _) in enumerate(_SHORT_LIVED) if column <= last), len(_SHORT_LIVED))
        sizes[row.labels[0]][place] += row.values[0]
    heads = [*(head for _, head in _SHORT_LIVED), "longer"]
    text = [" ".join([f"{'SIZE':<15}", f"{'FREES':>7}", *(f"{head:>7}" for head in heads)])]
    for name in sorted(sizes, key=[size_name(row) for row in range(64)].index):
        cells = sizes[name]
        shares = [_percent(cell, sum(cells)) for cell in cells]
        text.append(" ".join([f"{name:<15}", f"{amount(sum(cells), 'count'):>7}", *(f"{one:>7}" for one in shares)]))
    return [line[:width] for line in text]


def heading(profile: Profile) -> str:
    """One line: the process, the total and how it was sampled."""
    snapshot, column = profile.snapshot, profile.columns[profile.main]
    value, error = profile.total()
    stacks = len({row.pcs for row in profile.rows})
    where = "" if profile.view == "lifetimes" else f" in {stacks} stack{'' if stacks == 1 else 's'}"
    return (f"{snapshot.who}: {profile.title}: {with_error(value, error, column.unit)}{where}, "
            f"one sample for each {table.size(profile.period)}")  # fmt: skip


def text(profile: Profile, symbolizer: Symbolizer, width: int, most: int = 20, stacks: int = 10) -> str:
    """The heading, notes, at most `most` functions and the largest stacks, in `width` columns, but not less than 20."""
    width = max(20, width)
    symbolizer.prepare(profile.pcs)
    sentences = (heading(profile), *profile.notes, *symbolizer.notes)
    wrapped = [line for one in sentences for line in textwrap.wrap(one, width)]
    if not profile.rows:
        return "\n".join([*wrapped, "No samples."])
    if profile.view == "lifetimes":
        return "\n".join([*wrapped, "", *lifetime_rows(profile, width)])
    parts = [[cut(line, width) for line in _label_rows(profile)]] if any(row.labels for row in profile.rows) else []
    if most:
        lines = functions(profile, symbolizer)
        parts.append(_function_rows(profile, lines[:most], width))
        if len(lines) > most:
            parts[-1].append(f"and {len(lines) - most} more functions")
    title = "Largest stacks, callers to the right (+N: N more):"
    parts.append([cut(title, width), *stack_rows(profile, symbolizer, stacks, width)])
    return "\n".join(wrapped) + "".join("\n\n" + "\n".join(part) for part in parts)
