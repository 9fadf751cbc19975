"""`sheaf dump`: the slabs of a running process, and a map of its memory."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from sheaf.commands import arguments, dump_page
from sheaf.commands.arguments import FILE, Explained
from sheaf.errors import SheafError
from sheaf.records import control, record, spanmap
from sheaf.records.record import Record
from sheaf.records.spanmap import KINDS, SLAB, SLICE_BYTES, Slabs, Span
from sheaf.rendering import memorymap, sizes, table
from sheaf.rendering.columns import Column, cells, fitting, headings

_COLUMNS = [
    Column(heading, heading, width, str)
    for heading, width in zip(
        ("NAME", "SIZE", "SLABS", "MEMORY", "OUT", "EMPTY", "<25%", "<50%", "<75%", "<100%", "FULL"),
        (-14, 6, 6, 7, 5, 6, 5, 5, 5, 6, 5),
        strict=True,
    )
]
EXPLAINED = [
    ("SIZE", "bytes of an object, as requested at the cache's creation"),
    ("SLABS, MEMORY", "number of slabs, and their size in bytes"),
    ("OUT", "percentage of the objects of the slabs that are out of them: in use, or in sheaves and barns"),
    ("EMPTY to FULL", "number of slabs of which no object is out, less than 25% are, and so on to all"),
]


def _percent(part: int, whole: int) -> str:
    return f"{100 * part // whole}%" if whole else "-"


def _row(slabs: Slabs) -> list[str]:
    found = [slabs.cache.name, str(slabs.cache.object_size), sizes.short(slabs.slabs), sizes.memory(slabs.slices * SLICE_BYTES)]
    found.append(_percent(slabs.out, slabs.objects))
    return found + [sizes.short(count) if count else "" for count in slabs.fills]


def _caches(slabs: Sequence[Slabs], width: int) -> list[str]:
    """The table, whose last columns are left out where the terminal is narrow."""
    fit = fitting(_COLUMNS, width, [one.name for one in _COLUMNS[:1:-1]])
    names = [one.name for one in _COLUMNS]
    rows = (dict(zip(names, _row(one), strict=True)) for one in slabs)
    return [" ".join(line).rstrip() for line in (headings(fit), *(cells(row, fit) for row in rows))]


def _summary(who: str, found: Sequence[Span]) -> str:
    slices = spanmap.slices_by_kind(found)
    shown = {kind: sizes.size(slices[kind] * SLICE_BYTES) for kind in KINDS}
    parts = [f"slabs {shown['slab']}", f"large blocks {shown['large']}", f"free {shown['free']}", f"returned {shown['returned']}"]
    if slices["other"]:
        parts.append(f"other {shown['other']}")
    return f"{who}: " + ", ".join(parts)


def _text(who: str, found: Sequence[Span], slabs: Sequence[Slabs], width: int) -> str:
    legend = [
        line
        for symbol, meaning in memorymap.LEGEND
        for line in textwrap.wrap(meaning, max(width, 40), initial_indent=f"  {symbol:<7} ", subsequent_indent=" " * 10)
    ]
    summary = textwrap.wrap(_summary(who, found), max(width, 20), subsequent_indent="  ")
    return "\n".join([*summary, "", *_caches(slabs, width), "", *memorymap.text(found, width), "", *legend])


def _json(read: Record, found: Sequence[Span], slabs: Sequence[Slabs]) -> dict[str, Any]:
    def span_json(span: Span) -> dict[str, Any]:
        row: dict[str, Any] = {"first": span.first, "slices": span.slices, "kind": KINDS[span.kind]}
        if span.kind == SLAB:
            row |= {"cache": span.cache or None, "objects": span.objects, "out": span.out}
        return row

    return {
        "schema_version": table.SCHEMA_VERSION,
        "pid": read.pid,
        "host_pid": read.here,
        "program": read.program,
        "slice_bytes": SLICE_BYTES,
        "slices": spanmap.slices_by_kind(found),
        "caches": [
            {
                "name": one.cache.name,
                "object_size_bytes": one.cache.object_size,
                "slabs": one.slabs,
                "memory_bytes": one.slices * SLICE_BYTES,
                "objects": one.objects,
                "out": one.out,
                "slabs_by_fill": dict(zip(spanmap.FILLS, one.fills, strict=True)),
            }
            for one in slabs
        ],
        "spans": [span_json(span) for span in found if span.kind != spanmap.UNMAPPED],
    }


def _file(_: click.Context, __: click.Parameter, value: str | None) -> Path | None:
    path = Path(value) if value is not None else None
    if path is None:
        return None
    if path.suffix.lower() != ".html":
        raise SheafError(f"--output {value}: not a page; give a name that ends with .html", 2)
    return path


@click.command(cls=Explained, sections=[("Columns", EXPLAINED), ("The map", memorymap.LEGEND)])
@arguments.target_argument
@click.option(
    "--output",
    "page",
    metavar="FILE.html",
    callback=_file,
    type=FILE,
    help="Write the map to an HTML page, which shows each slab under the pointer.",
)
@click.option("--json", "as_json", is_flag=True, help="Print caches and all spans of the region as JSON.")
@arguments.timeout_option
def dump(target: str, page: Path | None, as_json: bool, timeout: float) -> None:
    """Show the slabs of a running process by cache and fullness, and a map of its memory.

    The map shows where free memory lies between slabs and large blocks, and how full slabs are, and so why memory cannot be
    returned. The process must keep a record (SHEAF_RECORD). It answers at once, by its helper thread, and continues to run
    while it is read, so some slabs may be shown as they were a moment earlier.

    \b
    Examples:
      sheaf dump 4711
      sheaf dump --output map.html redis-server
      sheaf dump --json 4711
    """
    with control.connect(target, timeout) as process:
        process.ask(control.FOLD)
        words = spanmap.read(process)
        read = record.read(process.head.path)
        found = spanmap.spans(words, read)
        slabs = spanmap.by_cache(found, read)
        who = process.who
    if page:
        dump_page.write(page, who, found)
        click.echo(f"wrote {page}", err=as_json)
    if as_json:
        click.echo(json.dumps(_json(read, found, slabs)))
    elif not page:
        click.echo(_text(who, found, slabs, table.terminal_width(sys.stdout)))
