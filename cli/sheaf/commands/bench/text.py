"""Write a report as text for a terminal or as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sheaf.commands.bench.contestants import Contestant
from sheaf.commands.bench.figures import ENOUGH, Ratio
from sheaf.commands.bench.report import AT_REST, REST, Findings, Mean, Moments, Row, base_of, losses, subject_of, verdicts

LOSSES = "More than 1.05 times the time, or 1.2 times the memory, of the best peer"
Table = Callable[[Sequence[str], Sequence[Sequence[str]], int], str]


def format_ns(ns: float) -> str:
    """A time with about three significant digits and a suitable unit."""
    for limit, divisor, unit in ((1e3, 1, "ns"), (1e6, 1e3, "us"), (1e9, 1e6, "ms")):
        if ns < limit:
            return f"{ns / divisor:.{1 if ns / divisor < 100 else 0}f} {unit}"
    return f"{ns / 1e9:.2f} s"


def format_kib(kib: float) -> str:
    """Memory in MiB."""
    mib = kib / 1024
    return f"{mib:.{2 if mib < 10 else 1 if mib < 100 else 0}f}"


def format_ratio(ratio: Ratio | None) -> str:
    """A ratio with its interval: "0.90 0.85..0.95"; "tie 0.90..1.10" for a tie; "0.90 ?" with too few rounds."""
    if ratio is None:
        return "-"
    if ratio.count < ENOUGH:
        return f"{ratio.value:.2f} ?"
    kind = "tie" if ratio.tie else f"{ratio.value:.2f}"
    return f"{kind} {ratio.low:.2f}..{ratio.high:.2f}"


def text_table(headings: Sequence[str], lines: Sequence[Sequence[str]], left: int) -> str:
    """A plain table. The first `left` columns are left-aligned, the others right-aligned; a repeated first cell is blank."""
    widths = [max(len(line[i]) for line in [headings, *lines]) for i in range(len(headings))]
    shown, previous = [], ""
    for line in [headings, *lines]:
        padded = enumerate(zip(line, widths, strict=True))
        cells = [cell.ljust(width) if i < left else cell.rjust(width) for i, (cell, width) in padded]
        if line[0] == previous:
            cells[0] = " " * widths[0]
        previous = line[0]
        shown.append("  ".join(cells).rstrip())
    return "\n".join(shown)


def markdown_table(headings: Sequence[str], lines: Sequence[Sequence[str]], left: int) -> str:
    """A table in GitHub's Markdown, aligned like text_table()."""
    rules = ["---" if i < left else "--:" for i in range(len(headings))]
    return "\n".join(f"| {' | '.join(line)} |" for line in [headings, rules, *lines])


def headings(subject: str) -> tuple[str, ...]:
    """
    The headings of the main table. A ratio below 1 means that the subject needs less than the allocator of the row; in its
    own row the subject is compared with the best peer.
    """
    ratio = f"{subject}/this"
    return ("test", "allocator", "time/op", "spread", ratio, "CPU ms", "peak MiB", f"{ratio} memory", "faults")


def _cells(row: Row) -> list[str]:
    return [
        row.test,
        row.contestant,
        format_ns(row.ns_per_op),
        f"{row.spread * 100:.0f}%",
        format_ratio(row.time_ratio),
        f"{row.cpu_us / 1000:.0f}",
        format_kib(row.peak_rss_kib),
        "-" if row.memory_ratio is None else f"{row.memory_ratio.value:.2f}",
        f"{row.minor_faults:.0f}",
    ]


def memory_tables(found: Sequence[Moments]) -> dict[str, tuple[list[str], list[list[str]]]]:
    """Headings and cells of the tables of resident memory, in MiB, by test."""
    tables: dict[str, tuple[list[str], list[list[str]]]] = {}
    for moments in found:
        _, lines = tables.setdefault(moments.test, (["allocator", *moments.names], []))
        lines.append([moments.contestant, *map(format_kib, moments.kib)])
    return tables


def _kib_cells(here: Moments, kib: Sequence[float], names: Sequence[str]) -> list[str]:
    at = dict(zip(here.names, kib, strict=True))
    return [format_kib(at[name]) if name in at else "-" for name in names]


def _ratio_cells(row: Row) -> list[str]:
    return ["-" if ratio is None else f"{ratio.value:.2f}" for ratio in (row.memory_ratio, row.rest_ratio)]


def rest_tables(found: Findings, subject: str) -> dict[str, tuple[list[str], list[list[str]]]]:
    """
    The tables of memory at rest by kind of test: a line for each test and allocator, and one with the live memory, which is
    the lower bound.
    """
    rows = {(row.test, row.contestant): row for row in found.rows if row.suite == REST}
    kinds: dict[str, list[Moments]] = {}
    for moments in found.moments:
        if (moments.test, moments.contestant) in rows:
            kinds.setdefault(moments.test.partition("-")[0], []).append(moments)
    tables: dict[str, tuple[list[str], list[list[str]]]] = {}
    for kind, members in kinds.items():
        names = max((moments.names for moments in members), key=lambda names: len(names))
        lines: list[list[str]] = []
        for place, moments in enumerate(members):
            row = rows[moments.test, moments.contestant]
            lines.append([row.test, row.contestant, *_kib_cells(moments, moments.kib, names), *_ratio_cells(row)])
            if moments.live_kib and (place + 1 == len(members) or members[place + 1].test != moments.test):
                lines.append([row.test, "(live)", *_kib_cells(moments, moments.live_kib, names), "", ""])
        heads = ["test", "allocator", *names, f"{subject}/this peak", f"{subject}/this {AT_REST}"]
        if not any(rows[moments.test, moments.contestant].rest_ratio for moments in members):
            heads, lines = heads[:-1], [line[:-1] for line in lines]
        tables[kind] = (heads, lines)
    return tables


def means_table(found: Sequence[Mean], table: Table) -> str:
    """The geometric means of each suite and allocator; the column for memory at rest exists only if a suite has it."""

    def cell(value: float | None) -> str:
        return "-" if value is None else f"{value:.3f}"

    at_rest = any(m.rest is not None for m in found)
    cells = [
        [m.suite, m.contestant, str(m.tests), cell(m.time), cell(m.memory), cell(m.cpu), *([cell(m.rest)] if at_rest else [])]
        for m in found
    ]
    heads = ["suite", "allocator", "tests", "time", "peak memory", "CPU time", *(["at rest"] if at_rest else [])]
    return table(heads, cells, 2)


def render_contestants(contestants: Sequence[Contestant]) -> str:
    """A table with name, version, mode and file of each contestant."""
    cells = [[c.name, c.version or "as built", c.mode or "-", str(c.path or "-")] for c in contestants]
    return text_table(("allocator", "version", "mode", "file"), cells, 4)


def render(found: Findings, contestants: Sequence[Contestant], markdown: bool) -> str:
    """A whole report, with a line for each test and contestant."""
    subject = subject_of(contestants)
    rows = [row for row in found.rows if row.timed]
    table: Table = markdown_table if markdown else text_table
    parts = [table(headings(subject), [_cells(row) for row in rows], 2)] if rows else []
    return "\n\n".join(parts + _others(found, contestants, markdown))


def _by_test(rows: Sequence[Row], names: Sequence[str], subject: str, cell: Callable[[Row], str], ratio: str) -> str:
    """A table of one measure: a line for each test, a column for each contestant, and the subject's ratio to the best peer."""
    tests: dict[str, dict[str, Row]] = {}
    for row in rows:
        tests.setdefault(row.test, {})[row.contestant] = row
    lines = []
    for test, found in tests.items():
        own = found.get(subject)
        cells = [cell(found[name]) if name in found else "-" for name in names]
        lines.append([test, *cells, format_ratio(getattr(own, ratio)) if own else "-"])
    return markdown_table(("test", *names, f"{subject}/best peer"), lines, 1)


def render_page(found: Findings, contestants: Sequence[Contestant]) -> str:
    """The results of a page in Markdown, with a line for each test."""
    subject, names = subject_of(contestants), [contestant.name for contestant in contestants]
    rows = [row for row in found.rows if row.timed]
    parts = []
    if rows:
        time = _by_test(rows, names, subject, lambda row: f"{format_ns(row.ns_per_op)} {row.spread * 100:.0f}%", "time_ratio")
        memory = _by_test(rows, names, subject, lambda row: format_kib(row.peak_rss_kib), "memory_ratio")
        parts = [f"### Time for one operation, and its spread\n\n{time}", f"### Peak MiB\n\n{memory}"]
    return "\n\n".join(parts + _others(found, contestants, markdown=True))


def _others(found: Findings, contestants: Sequence[Contestant], markdown: bool) -> list[str]:
    """The parts of a report after the figures of each test."""
    table: Table = markdown_table if markdown else text_table
    bullet, title = ("- ", "## ") if markdown else ("  ", "")
    subject = subject_of(contestants)
    parts = []
    for kind, (heads, lines) in rest_tables(found, subject).items():
        parts.append(f"{title}Resident MiB at rest, {kind}\n\n" + table(heads, lines, 2))
    others = [moments for moments in found.moments if moments.suite != REST]
    for test, (heads, lines) in memory_tables(others).items():
        parts.append(f"{title}Resident MiB, {test}\n\n" + table(heads, lines, 1))
    if found.means:
        base = base_of([contestant.name for contestant in contestants])
        parts.append(f"{title}Geometric means relative to {base}\n\n" + means_table(found.means, table))
    lists = (("Summary", verdicts(found.means, contestants)), (LOSSES, losses(found.rows, subject)), ("Notes", found.notes))
    for name, lines_ in lists:
        if lines_:
            parts.append(f"{title}{name}\n" + ("\n" if markdown else "") + "\n".join(bullet + line for line in lines_))
    return parts
