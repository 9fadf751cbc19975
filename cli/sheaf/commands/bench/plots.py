"""Plots of a report as SVG and PNG: time and memory of every test, scaling with threads, memory over time."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot

from sheaf.commands.bench.contestants import PLAIN, SUBJECT
from sheaf.commands.bench.exports import Report
from sheaf.commands.bench.report import MEMORY, REST, SUITES, TIME, series
from sheaf.commands.bench.runs import Outcome, Result
from sheaf.errors import SheafError

# The test without a number belongs to one thread.
_FAMILY = re.compile(r"(producer-consumer|table|server|lifetimes)(?:-(\d+))?")
_COLOURS = ("#7f7f7f", "#1f77b4", "#2ca02c", "#9467bd", "#8c564b", "#e377c2", "#bcbd22", "#17becf")
_OURS = "#d62728"
_COLUMNS = 3
FREED = "freed"  # the moment after the last free of a burst


def _colours(report: Report) -> dict[str, str]:
    others = iter(_COLOURS * len(report.contestants))
    return {c.name: _OURS if c.name == SUBJECT else next(others) for c in report.contestants}


def compact(svg: str) -> str:
    """A picture with one line for each chart and legend, instead of thousands, so that it does not drown a diff."""
    joined = re.sub(r"\s*\n\s*", " ", svg.strip()).replace("> <", "><")
    return re.sub(r'(?=<g id="(?:axes|legend)_)', "\n", joined) + "\n"


def _save(figure: Any, directory: Path, name: str) -> list[Path]:
    figure.tight_layout()
    picture, image = (directory / f"{name}.{kind}" for kind in ("svg", "png"))
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    picture.write_text(compact(text.getvalue()))
    figure.savefig(image, dpi=110)
    pyplot.close(figure)
    return [picture, image]


def _relative(report: Report, directory: Path, suite: str, key: str, label: str) -> list[Path]:
    """Plot one measure of a suite: a row for each test, a mark for each allocator, on a logarithmic axis where glibc is 1."""
    base = PLAIN if any(c.name == PLAIN for c in report.contestants) else report.contestants[0].name
    outcomes = [o for o in report.outcomes if o.suites and o.suites[0] == suite and o.runs.get(base) and (o.timed or key != TIME)]
    if not outcomes:
        return []
    colours = _colours(report)
    figure, axes = pyplot.subplots(figsize=(9, 1.3 + 0.24 * len(outcomes)))
    for name, colour in colours.items():
        known = [(y, o) for y, o in enumerate(outcomes) if o.runs.get(name)]
        x = [median(series(o.runs[name], key)) / median(series(o.runs[base], key)) for _, o in known]
        ours = name == SUBJECT
        axes.plot(
            x,
            [y for y, _ in known],
            "D" if ours else "o",
            color=colour,
            label=name,
            markersize=7 if ours else 5,
            alpha=1 if ours else 0.75,
            zorder=3 if ours else 2,
        )
    axes.set_yticks(range(len(outcomes)), [o.test for o in outcomes], fontsize=8)
    axes.set_ylim(len(outcomes) - 0.4, -0.6)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axes.grid(True, axis="both", alpha=0.3)
    axes.set_xlabel(f"{label} relative to {base}; lower is better")
    axes.set_title(suite, loc="left")
    figure.legend(loc="upper right", ncols=len(colours), fontsize=8, frameon=False)
    return _save(figure, directory, f"{suite}-{'time' if key == TIME else 'memory'}")


def families(outcomes: Sequence[Outcome]) -> dict[str, list[tuple[int, Outcome]]]:
    """Groups of tests that differ only in the number of threads, with that number."""
    found: dict[str, list[tuple[int, Outcome]]] = {}
    for outcome in outcomes:
        match = _FAMILY.fullmatch(outcome.test)
        if match:
            found.setdefault(match[1], []).append((int(match[2] or 1), outcome))
    return {name: sorted(members, key=lambda m: m[0]) for name, members in found.items() if len(members) > 1}


def _grid(count: int) -> tuple[Any, list[Any]]:
    """A figure with `count` charts, and the charts."""
    rows = math.ceil(count / _COLUMNS)
    figure, axes = pyplot.subplots(rows, min(count, _COLUMNS), figsize=(4.2 * min(count, _COLUMNS), 3.2 * rows), squeeze=False)
    flat = list(axes.flat)
    for unused in flat[count:]:
        unused.axis("off")
    return figure, flat


def _scaling(report: Report, directory: Path) -> list[Path]:
    """Plot throughput over the number of threads, a chart for each family."""
    found = families(report.outcomes)
    if not found:
        return []
    figure, axes = _grid(len(found))
    for place, (family, members) in zip(axes, found.items(), strict=False):
        for name, colour in _colours(report).items():
            points = [(n, 1e3 / median(series(o.runs[name], TIME))) for n, o in members if o.runs.get(name)]
            place.plot([n for n, _ in points], [rate for _, rate in points], "o-", color=colour, label=name)
        place.set_xscale("log", base=2)
        place.set_xticks([n for n, _ in members], [str(n) for n, _ in members])
        place.set_ylim(bottom=0)
        place.set_title(family, fontsize=10)
        place.set_xlabel("pairs of threads" if family == "producer-consumer" else "threads")
        place.set_ylabel("million operations per second")
        place.grid(True, alpha=0.3)
    axes[0].legend(fontsize=8)
    return _save(figure, directory, "scaling")


def _seconds(run: Result) -> list[float]:
    """The times of the points in seconds since the start, or for a burst since the last free, which aligns the curves."""
    freed = [point["ms"] for point in run["memory"] if point["moment"] == FREED]
    start = freed[0] if freed and run.get("timing") == "none" else 0
    return [(point["ms"] - start) / 1000 for point in run["memory"]]


def _draw_floor(place: Any, run: Result) -> None:
    """Draw the live memory, if the test reports it."""
    if all("live_kib" in point for point in run["memory"]):
        live = [point["live_kib"] / 1024 for point in run["memory"]]
        place.fill_between(_seconds(run), live, color="#000000", alpha=0.08, linewidth=0, label="live")


def _memory_over_time(report: Report, directory: Path, rest: bool) -> list[Path]:
    """Plot resident memory over time, a chart for each test: tests of the suite rest, or all others."""
    shown = [
        o
        for o in report.outcomes
        if any(run.get("memory") for runs in o.runs.values() for run in runs) and (o.suites[:1] == (REST,)) is rest
    ]
    if not shown:
        return []
    figure, axes = _grid(len(shown))
    for place, outcome in zip(axes, shown, strict=False):
        for name, colour in _colours(report).items():
            runs = [run for run in outcome.runs.get(name, []) if run.get("memory")]
            if not runs:
                continue
            points = range(min(len(run["memory"]) for run in runs))
            times = [_seconds(run) for run in runs]
            seconds = [median(time[i] for time in times) for i in points]
            mib = [median(run["memory"][i]["rss_kib"] for run in runs) / 1024 for i in points]
            place.plot(seconds, mib, ".-", color=colour, label=name)
        if rest:
            _draw_floor(place, next(run for runs in outcome.runs.values() for run in runs))
        place.set_ylim(bottom=0)
        place.set_title(outcome.test, fontsize=10)
        place.set_xlabel("seconds since the last free" if not outcome.timed else "seconds")
        place.set_ylabel("resident MiB")
        place.grid(True, alpha=0.3)
    axes[0].legend(fontsize=8)
    return _save(figure, directory, "rest-over-time" if rest else "memory-over-time")


def draw(report: Report, directory: Path) -> list[Path]:
    """Draw all plots for which the report has figures; returns the files. Raises SheafError if they cannot be written."""
    files: list[Path] = []
    matplotlib.rcParams["svg.hashsalt"] = "sheaf"  # equal figures give equal files
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for suite in SUITES:
            files += _relative(report, directory, suite, TIME, "time")
            files += _relative(report, directory, suite, MEMORY, "peak resident memory")
        files += _scaling(report, directory)
        files += _memory_over_time(report, directory, rest=False)
        files += _memory_over_time(report, directory, rest=True)
    except OSError as error:
        raise SheafError(f"--plot {directory}: {error.strerror}; choose another directory") from None
    return files
