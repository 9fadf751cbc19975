"""The condensed results of a run, from which pages are made: medians for each test and contestant, and the machine."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from sheaf.commands.bench.contestants import Contestant
from sheaf.commands.bench.figures import Ratio
from sheaf.commands.bench.machine import Machine, cpu_line
from sheaf.commands.bench.report import Findings, Mean, Moments, Row, findings
from sheaf.commands.bench.runs import Outcome
from sheaf.commands.bench.text import render, render_page
from sheaf.errors import SheafError

KIND, SCHEMA_VERSION = "sheaf benchmark page", 2
_DIGITS = 7
_IN_THE_LINE = (
    "cpu",
    "microarchitecture",
    "cpu_family",
    "cpu_model",
    "cpu_stepping",
    "cpu_implementer",
    "cpu_part",
    "mhz",
    "store_forward_cycles",
    "store_forward_computed_cycles",
)


@dataclass(frozen=True)
class Facts:
    """One run on one machine."""

    command: list[str]
    machine: Machine
    contestants: list[Contestant]
    findings: Findings
    plots: list[str] = field(default_factory=list)  # paths relative to the page
    remarks: list[str] = field(default_factory=list)  # written by hand into the JSON file


def facts_of(
    command: list[str], machine: Machine, contestants: list[Contestant], outcomes: Sequence[Outcome], plots: Sequence[str] = ()
) -> Facts:
    """The facts of a finished run."""
    return Facts(command, machine, contestants, findings(outcomes, contestants), list(plots))


def describe(contestant: Contestant) -> str:
    """Version, variables and mode."""
    variables = [f"{name}={value}" for name, value in contestant.variables.items()]
    modes = [f"mode {contestant.mode}"] if contestant.mode else []
    return ", ".join([contestant.version or "as built", *variables, *modes])


def machine_lines(machine: Mapping[str, str | int | float]) -> list[str]:
    """The CPU on one line, and each other fact on a line of its own."""
    others = [f"{name.replace('_', ' ')}: {value}" for name, value in machine.items() if value != "" and name not in _IN_THE_LINE]
    return ([f"cpu: {cpu_line(machine)}"] if "cpu" in machine else []) + others


def cpu_name(machine: Mapping[str, str | int | float]) -> str:
    """The microarchitecture, or the vendor's name of the CPU if it is unknown."""
    known = str(machine.get("microarchitecture", "unknown"))
    return known if known != "unknown" else str(machine.get("cpu", "unknown CPU"))


def _assembled(facts: Facts, purpose: Sequence[str], figures: str) -> str:
    versions = [f"- {contestant.name}: {describe(contestant)}" for contestant in facts.contestants]
    head = [f"# Benchmark results: {cpu_name(facts.machine)}", *purpose, "    " + shlex.join(facts.command), *facts.remarks]
    where = ["## Machine", "\n".join(f"- {line}" for line in machine_lines(facts.machine)), "## Contestants", "\n".join(versions)]
    pictures = ["## Plots", "\n\n".join(f"![{Path(plot).stem}]({plot})" for plot in facts.plots)] if facts.plots else []
    return "\n\n".join([*head, *where, "## Figures", figures, *pictures])


def to_markdown(facts: Facts) -> str:
    """The report of one run: command, machine, contestants, then the results, with a line for each test and contestant."""
    purpose = """\
This page is for readers who want every figure of one run of `sheaf bench`: it has the command, the machine, the allocators,
and the results of each test. `docs/benchmark.md` explains the columns and the method."""
    return _assembled(facts, [purpose], render(facts.findings, facts.contestants, markdown=True))


def to_page(facts: Facts, figures: str) -> str:
    """The page of one run, with a line for each test; `figures` is the name of the JSON file beside it, which has all figures."""
    purpose = f"""\
This page is for readers who want the results of one run of `sheaf bench`: it has the command, the machine, the allocators,
and time and peak memory of each test. [{figures}]({figures}) has the intervals of all ratios, CPU times and page faults too.
`docs/benchmark.md` explains the columns and the method."""
    return _assembled(facts, [purpose], render_page(facts.findings, facts.contestants))


# ---- the JSON file of a page ----


def _short(value: Any) -> Any:
    """A value with the digits that the tables need; a ratio becomes the list [value, low, high, count]."""
    if isinstance(value, Ratio):
        return [_short(value.value), _short(value.low), _short(value.high), value.count]
    if isinstance(value, list):
        return [_short(element) for element in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


# What the rows of one line have in common: all contestants of a test, or of a suite in the means.
_SHARED: dict[type[Row] | type[Mean] | type[Moments], tuple[str, ...]] = {
    Row: ("suite", "test", "fastest", "leanest", "timed", "least_resting"),
    Mean: ("suite", "tests"),
    Moments: ("suite", "test"),
}


def _values(row: Row | Mean | Moments, names: Sequence[str]) -> list[Any]:
    return [_short(getattr(row, name)) for name in names]


def _table(kind: type[Row] | type[Mean] | type[Moments], rows: Sequence[Row | Mean | Moments]) -> str:
    """A line with the names of the fields, then one for each test: the shared values, and those of each contestant by name."""
    shared = _SHARED[kind]
    own = [name for name in kind.__dataclass_fields__ if name not in (*shared, "contestant")]
    lines: list[list[Any]] = [[*shared, own]]
    for values, members in groupby(rows, key=lambda row: _values(row, shared)):
        lines.append([*values, {row.contestant: _values(row, own) for row in members}])
    return "[\n" + ",\n".join("  " + json.dumps(line) for line in lines) + "\n ]"


def to_json(facts: Facts) -> str:
    """
    The facts as JSON, with one line for each test, so that two versions can be compared with diff. In each table the first line
    names the values that the contestants share and, in a list, those of each contestant.
    """
    contestants = [{"name": c.name, "version": c.version, "mode": c.mode, "variables": c.variables} for c in facts.contestants]
    parts = {
        "kind": json.dumps(KIND),
        "schema_version": json.dumps(SCHEMA_VERSION),
        "command": json.dumps(facts.command),
        "machine": json.dumps(facts.machine),
        "contestants": json.dumps(contestants),
        "remarks": json.dumps(facts.remarks),
        "plots": json.dumps(facts.plots),
        "notes": json.dumps(facts.findings.notes),
        "means": _table(Mean, facts.findings.means),
        "moments": _table(Moments, facts.findings.moments),
        "rows": _table(Row, facts.findings.rows),
    }
    return "{\n" + ",\n".join(f' "{name}": {text}' for name, text in parts.items()) + "\n}\n"


def _dicts(table: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    *shared, own = table[0]
    return [
        dict(zip(shared, line, strict=True)) | {"contestant": contestant} | dict(zip(own, values, strict=True))
        for *line, found in table[1:]
        for contestant, values in found.items()
    ]


def _row(cells: dict[str, Any]) -> Row:
    for name in ("time_ratio", "memory_ratio", "rest_ratio"):
        cells[name] = Ratio(*cells[name]) if cells.get(name) else None
    return Row(**cells)


def from_json(text: str, name: str) -> Facts:
    """Read the output of to_json(). `name` is the file name for messages. Raises SheafError."""
    try:
        found = json.loads(text)
        if found["kind"] != KIND or found["schema_version"] != SCHEMA_VERSION:
            expected = f"(expected {SCHEMA_VERSION})"
            raise SheafError(f"{name}: unknown schema version {found['schema_version']} {expected}; write the page again")
        contestants = [Contestant(c["name"], None, c["variables"], c["version"], c["mode"]) for c in found["contestants"]]
        shown = Findings(
            [_row(cells) for cells in _dicts(found["rows"])],
            [Moments(**cells) for cells in _dicts(found["moments"])],
            [Mean(**cells) for cells in _dicts(found["means"])],
            found["notes"],
        )
        return Facts(found["command"], found["machine"], contestants, shown, found["plots"], found["remarks"])
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        raise SheafError(f"{name}: not the figures of a page; use a file written by `sheaf bench --page`") from None
