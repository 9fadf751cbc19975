"""Statistics over the runs of one figure, and their table."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from subjects import Measured

NEGLIGIBLE = 1 / 1000  # of what the program holds: deviations up to this are none
SMALL = 1 / 100  # of what the program holds, below which a relative deviation says nothing
CLOSE = 0.15
HEADINGS = ("what", "profiler", "truth", "least", "median", "most", "±", "in ±", "in ±/2", "in 15%")


@dataclass(frozen=True)
class Summary:
    """One row of the table. Bytes are medians over the runs; shares are None where they are not known."""

    row: str
    profiler: str
    runs: int
    truth: float
    least: float
    median: float
    most: float
    error: float | None
    within: int | None
    within_half: int | None
    close: int | None


def _within(runs: Sequence[Measured], part: float) -> int | None:
    """In how many runs the truth lies within this part of the error; None if the profiler says no error."""
    if any(one.figure.error is None for one in runs):
        return None
    return sum(abs(one.figure.bytes - one.truth) <= part * (one.figure.error or 0.0) + NEGLIGIBLE * one.whole for one in runs)


def summary(profiler: str, runs: Sequence[Measured]) -> Summary:
    """The statistics of the runs of one figure."""
    values = [one.figure.bytes for one in runs]
    errors = [one.figure.error for one in runs if one.figure.error is not None]
    relative = all(one.truth >= SMALL * one.whole for one in runs)
    return Summary(
        runs[0].row,
        profiler,
        len(runs),
        statistics.median(one.truth for one in runs),
        min(values),
        statistics.median(values),
        max(values),
        statistics.median(errors) if errors else None,
        _within(runs, 1),
        _within(runs, 0.5),
        sum(abs(one.figure.bytes - one.truth) <= CLOSE * one.truth for one in runs) if relative else None,
    )


def _mb(value: float | None) -> str:
    if value is None:
        return "-"
    number = value / 1e6
    return f"{number:.0f}" if abs(number) >= 1000 else f"{number:.1f}" if abs(number) >= 100 else f"{number:.2f}"


def _share(part: int | None, runs: int) -> str:
    return "-" if part is None else f"{part}/{runs}"


def _cells(one: Summary) -> tuple[str, ...]:
    shares = (_share(part, one.runs) for part in (one.within, one.within_half, one.close))
    return one.row, one.profiler, *map(_mb, (one.truth, one.least, one.median, one.most, one.error)), *shares


def table(summaries: Iterable[Summary]) -> str:
    """The table as text, in MB of 10^6 bytes."""
    lines = [HEADINGS, *map(_cells, summaries)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )
