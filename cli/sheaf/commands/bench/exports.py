"""Write results to files: all runs as JSON, the rows as CSV, the report as Markdown. JSON can be read back."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from sheaf.commands.bench.checked import check
from sheaf.commands.bench.contestants import Contestant
from sheaf.commands.bench.facts import facts_of, to_markdown
from sheaf.commands.bench.machine import Machine
from sheaf.commands.bench.report import means, rows_of
from sheaf.commands.bench.runs import Outcome
from sheaf.errors import SheafError

SCHEMA_VERSION = 2
_LARGEST = 256 << 20  # bytes of an export that is read
KINDS = (".json", ".csv", ".md")
_OUTCOME_FIELDS = tuple(Outcome.__dataclass_fields__)


@dataclass(frozen=True)
class Report:
    """All results of one run of `sheaf bench`."""

    command: list[str]
    machine: Machine
    contestants: list[Contestant]
    outcomes: list[Outcome]
    seed: int | None = None  # of the order of the contestants; None in older exports


def check_file(path: Path) -> None:
    """Raise SheafError, before the measurement, for an export that could not be written after it."""
    if path.suffix not in KINDS:
        raise SheafError(f"--export {path}: unknown kind of file; the name must end with one of {', '.join(KINDS)}", 2)
    if not path.resolve().parent.is_dir():
        raise SheafError(f"--export {path}: no such directory {path.parent}; create it first", 2)


def _shown(path: Path) -> str:
    """The path, relative if it lies below the working directory, so that an export does not reveal the user's directories."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def to_json(report: Report) -> str:
    """The report as JSON. Within one schema version fields may be added, but none is removed."""
    found = {
        "schema_version": SCHEMA_VERSION,
        "command": report.command,
        "machine": report.machine,
        "seed": report.seed,
        "contestants": [
            {
                "name": contestant.name,
                "path": _shown(contestant.path) if contestant.path else None,
                "version": contestant.version,
                "variables": contestant.variables,
                "mode": contestant.mode,
            }
            for contestant in report.contestants
        ],
        "tests": [
            {**asdict(outcome), "rows": [asdict(row) for row in rows_of(outcome, report.contestants)]}
            for outcome in report.outcomes
        ],
        "means": [asdict(mean) for mean in means(report.outcomes, report.contestants)],
    }
    return json.dumps(found, indent=1)


def to_csv(report: Report) -> str:
    """The rows as CSV: a line for each test and contestant; each ratio takes the columns value, low and high."""
    out = io.StringIO()
    ratios = ("time_ratio", "memory_ratio", "rest_ratio")
    rows = [row for outcome in report.outcomes for row in rows_of(outcome, report.contestants)]
    writer = csv.writer(out, lineterminator="\n")
    plain = [name for name in (rows[0].__dataclass_fields__ if rows else ()) if name not in ratios]
    writer.writerow([*plain, *(f"{ratio}{part}" for ratio in ratios for part in ("", "_low", "_high"))])
    for row in rows:
        cells = [getattr(row, name) for name in plain]
        for name in ratios:
            ratio = getattr(row, name)
            cells += [ratio.value, ratio.low, ratio.high] if ratio else ["", "", ""]
        writer.writerow(cells)
    return out.getvalue().rstrip("\n")


def write(path: Path, report: Report, plots: Sequence[Path] = ()) -> None:
    """Write the report in the format of the file's suffix."""
    shown = [os.path.relpath(plot, path.parent) for plot in plots if plot.suffix == ".svg"]
    facts = facts_of(report.command, report.machine, report.contestants, report.outcomes, shown)
    made = to_markdown(facts) if path.suffix == ".md" else to_csv(report) if path.suffix == ".csv" else to_json(report)
    try:
        path.write_text(made + "\n")
    except OSError as error:
        raise SheafError(f"--export {path}: {error.strerror}; choose another file") from None


def _contestant(row: dict[str, Any]) -> Contestant:
    path = Path(row["path"]) if row["path"] else None
    return Contestant(row["name"], path, row["variables"], row["version"], row.get("mode", ""))


def _outcome(row: dict[str, Any]) -> Outcome:
    known = {name: row[name] for name in _OUTCOME_FIELDS}
    return Outcome(**{**known, "suites": tuple(known["suites"])})


def _rename_gperftools(report: Report) -> None:
    """Rename the tcmalloc of gperftools in older exports; the name now stands for Google's tcmalloc."""
    old, new = "tcmalloc", "gperftools"
    place = next((i for i, c in enumerate(report.contestants) if c.name == old and c.path and "_minimal" in c.path.name), None)
    if place is None:
        return
    report.contestants[place] = replace(report.contestants[place], name=new)
    for outcome in report.outcomes:
        for found in (outcome.runs, outcome.failures):
            renamed = {new if name == old else name: value for name, value in found.items()}
            found.clear()
            found.update(renamed)  # type: ignore[arg-type]


def _parsed(path: Path) -> Any:
    with path.open("rb") as file:
        raw = file.read(_LARGEST + 1)
    if len(raw) > _LARGEST:
        raise ValueError
    return json.loads(raw)


def read(path: Path) -> Report:
    """Read a file that to_json() wrote. Raises SheafError."""
    try:
        found = _parsed(path)
        if found["schema_version"] != SCHEMA_VERSION:
            expected = f"(expected {SCHEMA_VERSION})"
            version = str(found["schema_version"])[:20]
            raise SheafError(f"{path}: unknown schema version {version} {expected}; run the benchmark again")
        check(found)
        contestants = [_contestant(row) for row in found["contestants"]]
        outcomes = [_outcome(row) for row in found["tests"]]
        report = Report(found["command"], found["machine"], contestants, outcomes, found.get("seed"))
        _rename_gperftools(report)
        return report
    except OSError as error:
        raise SheafError(f"{path}: {error.strerror}; name a file written by --export FILE.json", 2) from None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise SheafError(f"{path}: not an export; name a file written by --export FILE.json", 2) from None
