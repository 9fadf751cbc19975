"""Profiles as text for a terminal: functions with flat and cumulative values, and the largest stacks."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sheaf.commands.profile.chains import Call, chains, cut
from sheaf.commands.profile.fold import folded
from sheaf.commands.profile.symbols import UNKNOWN, Symbolizer, shortened
from sheaf.commands.profile.views import AGE_BANDS, Errors, Profile, Row, reliable, size_name, time_name
from sheaf.errors import printable
from sheaf.rendering import sizes

UNRELIABLE = "unreliable:"  # before the name of a stack or function
_FUNCTIONS, _STACKS = 20, 10
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
    """A value with its error; an error that rounds to nothing is left out."""
    shown = amount(value, unit)
    return f"{shown} ±{amount(error, unit)}" if error is not None and error >= 0.5 else shown


def marked(name: str, value: float, error: float | None) -> str:
    """A name, with a word before it if the figure beside it is unreliable."""
    return name if reliable(value, error) else f"{UNRELIABLE} {name}"


def _percent(value: float, total: float) -> str:
    return f"{100 * value / total:.1f}%" if total else "-"


@dataclass
class Line:
    """
    A function, by its shortened name: the values of stacks that end in it, apart from functions of standard libraries, and
    of all stacks that contain it; and their errors.
    """

    function: str
    flat: float = 0.0
    flat_error: float = 0.0
    cumulative: float = 0.0
    cumulative_error: float = 0.0

    @property
    def name(self) -> str:
        """The function, with a word before it if one of its figures is unreliable."""
        value, error = (self.flat, self.flat_error) if self.flat else (self.cumulative, self.cumulative_error)
        return marked(self.function, value, error)


def functions(profile: Profile, symbolizer: Symbolizer, more: tuple[str, ...] = ()) -> list[Line]:
    """All functions, those with the largest flat values first. A function that is twice in a stack counts once."""
    symbolizer.prepare(profile.pcs)
    lines: dict[str, Line] = {}
    for row in profile.rows:
        value, error = row.values[profile.main], row.errors[profile.main] or 0.0
        stack = names(row, symbolizer, more) or [UNKNOWN]
        for name in dict.fromkeys(stack):
            line = lines.setdefault(name, Line(name))
            line.cumulative += value
            line.cumulative_error += error * error
        lines[stack[0]].flat += value
        lines[stack[0]].flat_error += error * error
    errors = Errors(profile)
    for line in lines.values():
        line.flat_error, line.cumulative_error = errors.of(line.flat_error), errors.of(line.cumulative_error)
    return sorted(lines.values(), key=lambda line: (-abs(line.flat), -abs(line.cumulative), line.function))


def _function_rows(profile: Profile, lines: Sequence[Line], width: int) -> list[str]:
    unit, total = profile.columns[profile.main].unit, profile.total()[0]
    # Order, heading, width, cell; a narrow terminal leaves out the columns with the highest order first.
    columns: list[tuple[int, str, int, Callable[[Line], str]]] = [
        (0, "FLAT", 7, lambda one: amount(one.flat, unit)),
        (3, "±", 6, lambda one: _error(one.flat_error, unit)),
        (1, "FLAT%", 6, lambda one: _percent(one.flat, total)),
        (0, "CUM", 7, lambda one: amount(one.cumulative, unit)),
        (4, "±", 6, lambda one: _error(one.cumulative_error, unit)),
        (2, "CUM%", 6, lambda one: _percent(one.cumulative, total)),
    ]
    while len(columns) > 1 and sum(size + 1 for _, _, size, _ in columns) + 20 > width:
        columns.remove(max(columns, key=lambda column: column[0]))
    room = width - sum(size + 1 for _, _, size, _ in columns)
    text = [" ".join([*(f"{head:>{size}}" for _, head, size, _ in columns), "FUNCTION"])]
    for line in lines:
        cells = [f"{cell(line):>{size}}" for _, _, size, cell in columns]
        text.append(" ".join([*cells, cut(line.name, room)]))
    return text


def _error(error: float, unit: str) -> str:
    return amount(error, unit) if error >= 0.5 else ""


def names(row: Row, symbolizer: Symbolizer, more: tuple[str, ...] = ()) -> list[str]:
    """
    The shortened names of the functions of a row, the innermost first. It begins with the first one that is neither of a
    standard library nor a wrapper of an allocator (`more` are such ones), because its author decided to allocate.
    """
    return folded([shortened(frame.function) for frame in reversed(symbolizer.calls(row))], more)


def calls(row: Row, symbolizer: Symbolizer, more: tuple[str, ...] = ()) -> list[Call]:
    """The functions of a row, as names() has them, with the lines or addresses from which they call."""
    found = []
    for pc in symbolizer.shown(row.pcs):
        frames, module = symbolizer.frames(pc), symbolizer.module(pc)
        address = f"+{pc - module.bias if module else pc:#x}"
        found += [Call(shortened(one.function), f":{one.line}" if one.line else address if one.known else "") for one in frames]
    kept = names(row, symbolizer, more)
    return found[-len(kept) :] if found else [Call(name) for name in kept]


def stack_rows(profile: Profile, symbolizer: Symbolizer, most: int, width: int, more: tuple[str, ...] = ()) -> list[str]:
    """A line for each of the largest stacks: value, share, and functions with callers to the right."""
    unit, total = profile.columns[profile.main].unit, profile.total()[0]
    largest = sorted(profile.rows, key=lambda row: -abs(row.values[profile.main]))[:most]
    cells = [with_error(row.values[profile.main], row.errors[profile.main], unit) for row in largest]
    first, heads = max(map(len, cells), default=0), []
    for row, cell in zip(largest, cells, strict=True):
        head = f"{cell:>{first}} {_percent(row.values[profile.main], total):>6} "
        head += f"{UNRELIABLE} " if profile.unreliable(row) else ""
        heads.append(head + "".join(f"{name}: " for name in row.labels))
    stacks = [calls(row, symbolizer, more) for row in largest]
    ends = chains(stacks, [max(24, width - len(head)) for head in heads])
    text = [cut(head + end, width) for head, end in zip(heads, ends, strict=True)]
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
    errors = Errors(profile)
    for name in sorted(sums, key=AGE_BANDS.index):
        value, error = sums[name][0], errors.of(sums[name][1])
        text.append(f"{amount(value, unit):>7} {_error(error, unit):>6} {_percent(value, total):>6} {marked(name, value, error)}")
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
    stacks = len({row.pcs for row in profile.rows if not row.name})
    where = "" if profile.view == "lifetimes" else f" in {stacks} stack{'' if stacks == 1 else 's'}"
    who = str(snapshot.who) if snapshot.pid else printable(snapshot.program)
    rate = f", one sample for each {sizes.size(profile.period)}" if profile.period else ""
    return f"{who}: {profile.title}: {with_error(value, error, column.unit)}{where}{rate}"


def _long(row: Row, symbolizer: Symbolizer, width: int, more: tuple[str, ...]) -> list[str]:
    """The functions of a row, the innermost first, with files and lines, each on a line of its own."""
    frames = list(reversed(symbolizer.calls(row)))
    frames = frames[len(frames) - len(names(row, symbolizer, more)) :]
    return [cut(f"    {shortened(frame.function)}{' ' if frame.place else ''}{frame.place}", width) for frame in frames]


def long_rows(profile: Profile, symbolizer: Symbolizer, most: int, width: int, more: tuple[str, ...] = ()) -> list[str]:
    """The largest stacks, each on several lines."""
    unit, total = profile.columns[profile.main].unit, profile.total()[0]
    lines = []
    for row in sorted(profile.rows, key=lambda row: -abs(row.values[profile.main]))[:most]:
        value, error = row.values[profile.main], row.errors[profile.main]
        head = f"{with_error(value, error, unit)} {_percent(value, total)}{'' if reliable(value, error) else ' unreliable'}"
        lines += [cut("".join(f"{label}: " for label in row.labels) + head, width), *_long(row, symbolizer, width, more)]
    if len(profile.rows) > most:
        lines.append(f"and {len(profile.rows) - most} smaller stacks")
    return lines


def sentences(profile: Profile, symbolizer: Symbolizer, width: int) -> list[str]:
    """The heading and all notes, in lines of at most `width` characters."""
    every = (heading(profile), *profile.notes, *symbolizer.notes)
    return [line for one in every for line in textwrap.wrap(one, width)]


def text(
    profile: Profile, symbolizer: Symbolizer, width: int, limit: int | None = None, more: tuple[str, ...] = (), long: bool = False
) -> str:
    """
    The heading, notes, at most 20 functions and the 10 largest stacks, or `limit` of each, in `width` columns, but not less
    than 20. With `long`, only stacks are shown, on several lines each.
    """
    width = max(20, width)
    symbolizer.prepare(profile.pcs)
    wrapped = sentences(profile, symbolizer, width)
    if not profile.rows:
        return "\n".join([*wrapped, "No difference." if profile.view == "difference" else "No samples."])
    if profile.view == "lifetimes":
        return "\n".join([*wrapped, "", *lifetime_rows(profile, width)])
    if long:
        return "\n".join([*wrapped, "", *long_rows(profile, symbolizer, limit or _STACKS, width, more)])
    parts = [[cut(line, width) for line in _label_rows(profile)]] if any(row.labels for row in profile.rows) else []
    lines, most = functions(profile, symbolizer, more), limit or _FUNCTIONS
    parts.append(_function_rows(profile, lines[:most], width))
    if len(lines) > most:
        parts[-1].append(f"and {len(lines) - most} more functions")
    title = "Largest stacks, callers to the right (+N: N more):"
    parts.append([cut(title, width), *stack_rows(profile, symbolizer, limit or _STACKS, width, more)])
    return "\n".join(wrapped) + "".join("\n\n" + "\n".join(part) for part in parts)
