"""Pages of results: one for each CPU model, with its figures as JSON, and a summary that begins with the losses."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from sheaf.commands.bench.exports import Report
from sheaf.commands.bench.facts import KIND, Facts, cpu_name, facts_of, from_json, to_json, to_page
from sheaf.commands.bench.machine import cpu_line
from sheaf.commands.bench.report import losses, subject_of, verdicts
from sheaf.commands.bench.text import markdown_table, means_table
from sheaf.errors import SheafError

SUMMARY = "README.md"
_HEAD = """# Benchmark results

This page is for everybody who wants to know how fast Sheaf is and how much memory it takes: it lists the tests that Sheaf
loses, the means over all tests, and the pages with all figures. It is made by `docs/results/write.py`; do not edit it.

## Where Sheaf loses

All tests in which Sheaf takes more than 1.05 times the time or 1.2 times the memory of the best peer, the worst first.
"(a tie)" marks a ratio that is statistically indistinguishable from 1."""
_TAIL = """Each page shows one run on one CPU model. The JSON file of the same name has the medians for each test and allocator,
from which `docs/results/write.py` writes the pages and this summary. `docs/benchmark.md` explains the columns and the method;
[seeds.md](seeds.md) has the kernel's own benchmarks."""


def check_file(path: Path) -> None:
    """Raise SheafError, before the measurement, for a page that could not be written after it."""
    if path.suffix != ".md" or path.name == SUMMARY:
        raise SheafError(f"--page {path}: must end with .md and cannot be {SUMMARY}; name the page after the CPU", 2)
    if not path.resolve().parent.is_dir():
        raise SheafError(f"--page {path}: no such directory {path.parent}; create it first", 2)


def _read(path: Path) -> Facts | None:
    """The facts in a file; None if it is other JSON."""
    text = path.read_text()
    return from_json(text, str(path)) if f'"{KIND}"' in text[:200] else None


def read_all(directory: Path) -> dict[str, Facts]:
    """The facts of all pages in a directory, by name of the page, the latest run first."""
    found = {path.stem: facts for path in sorted(directory.glob("*.json")) if (facts := _read(path))}
    return dict(sorted(found.items(), key=lambda item: str(item[1].machine.get("date", "")), reverse=True))


def _title(name: str, facts: Facts) -> str:
    return f"### {cpu_name(facts.machine)}, {str(facts.machine.get('date', ''))[:10]}: [{name}.md]({name}.md)"


def _losses(facts: Facts) -> str:
    lines = losses(facts.findings.rows, subject_of(facts.contestants))
    return "\n".join(f"- {line}" for line in lines) or "None."


def _means(facts: Facts) -> str:
    said = "\n".join(f"- {line}" for line in verdicts(facts.findings.means, facts.contestants))
    return "\n\n".join(part for part in (said, means_table(facts.findings.means, markdown_table)) if part)


def summary(pages: dict[str, Facts]) -> str:
    """The summary of all pages: losses, geometric means, list of pages."""
    parts = [_HEAD]
    for name, facts in pages.items():
        parts += [_title(name, facts), _losses(facts)]
    parts += ["## Geometric means", "Relative to glibc, over the tests of a suite that every allocator finished."]
    for name, facts in pages.items():
        parts += [_title(name, facts), _means(facts)]
    cells = [
        [f"[{name}.md]({name}.md)", cpu_line(facts.machine), ", ".join(c.name for c in facts.contestants)]
        for name, facts in pages.items()
    ]
    parts += ["## Pages", markdown_table(("page", "CPU", "allocators"), cells, 3), _TAIL]
    return "\n\n".join(parts) + "\n"


def write_all(directory: Path) -> list[Path]:
    """Write all pages and the summary from the figures in a directory; returns the written files."""
    pages = read_all(directory)
    texts = {f"{name}.md": to_page(facts, f"{name}.json") + "\n" for name, facts in pages.items()} | {SUMMARY: summary(pages)}
    for name, text in texts.items():
        (directory / name).write_text(text)
    return [directory / name for name in texts]


def _plots(path: Path, report: Report) -> list[str]:
    """Draw plots into a directory with the name of the page; returns relative paths, none without matplotlib."""
    if find_spec("matplotlib") is None:
        return []
    from sheaf.commands.bench.plots import draw  # importing matplotlib takes a second

    drawn: Sequence[Path] = draw(report, path.with_suffix(""))
    for plot in drawn:
        if plot.suffix != ".svg":
            plot.unlink()
    return [os.path.relpath(plot, path.parent) for plot in drawn if plot.suffix == ".svg"]


def write(path: Path, report: Report) -> None:
    """Write the page of one run with figures and plots, and the summary of all pages in its directory."""
    try:
        facts = facts_of(report.command, report.machine, report.contestants, report.outcomes, _plots(path, report))
        path.with_suffix(".json").write_text(to_json(facts))
        write_all(path.parent)
    except OSError as error:
        raise SheafError(f"--page {path}: {error.strerror}; choose another file") from None
