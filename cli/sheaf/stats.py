"""`sheaf stats`: the counters of a record, a running process, or a directory of records."""

from __future__ import annotations

from collections.abc import Sequence

import click

from sheaf import record, table
from sheaf.errors import SheafError
from sheaf.record import Cache, Record
from sheaf.table import Row

_SLOT_COLUMNS = (
    ("name", "SLOT", 10), ("alloc_fastpath", "ALLOC", 8), ("alloc_slowpath", "SLOW", 7), ("free_fastpath", "FREE", 8),
    ("free_slowpath", "SLOW", 7), ("sheaf_refill", "REFILL", 7), ("sheaf_flush", "FLUSH", 7), ("barn_get", "GETS", 6),
    ("barn_put", "PUTS", 6),
)
_BARN_COLUMNS = (
    ("name", "NAME", 13), ("object_size_bytes", "SIZE", 6), ("barn_gets", "GETS", 7), ("barn_get_fails", "FAILS", 7),
    ("barn_puts", "PUTS", 7), ("barn_put_fails", "FAILS", 7),
)


def _load(targets: Sequence[str]) -> list[Record]:
    """Of a directory, a file that cannot be read is named and left out; one that was named itself is an error."""
    records = []
    for target in targets:
        paths = list(record.find(target))
        for path in paths:
            try:
                records.append(record.read(path))
            except SheafError as error:
                if len(paths) == 1:
                    raise
                error.show()
    return records


def _cache_rows(records: list[Record], everything: bool) -> list[Row]:
    caches = record.merge(records)
    return [table.cache_row(cache, tuple(_counters(cache))) for cache in caches.values()
            if everything or cache.memory or cache.slots]


def _counters(cache: Cache) -> list[str]:
    return list(dict.fromkeys(name for counters in cache.slots.values() for name in counters))


def _rows(records: list[Record], by: str, everything: bool) -> list[Row]:
    if by == "slot":
        return table.slot_rows(record.merge(records))
    rows = _cache_rows(records, everything)
    if by == "node":  # one memory node so far: everything is on it
        return [{**table.totals(rows), "name": "node 0"}]
    return rows


def _sorted(rows: list[Row], key: str | None, by: str) -> list[Row]:
    if key is None:
        key = "memory_bytes" if by == "cache" else "name"
    known = list(dict.fromkeys(name for row in rows for name in row))
    if rows and key not in known:
        raise SheafError(f"--sort {key}: there is no such column; choose of {', '.join(known)}", 2)
    if key == "name":
        return sorted(rows, key=lambda row: (row.get("slot", 0), str(row["name"])))
    return sorted(rows, key=lambda row: row.get(key) or 0, reverse=True)


def _difference(before: list[Row], after: list[Row]) -> list[Row]:
    """What changed from one to the other, for each cache of either."""
    old = {row["name"]: row for row in before}
    rows = []
    for row in after:
        base = old.pop(row["name"], {})
        rows.append({name: value - base.get(name, 0) if isinstance(value, int) and name != "object_size_bytes" else value
                     for name, value in row.items()})
    for row in old.values():
        rows.append({name: -value if isinstance(value, int) and name != "object_size_bytes" else value
                     for name, value in row.items()})
    return [row for row in rows
            if any(value for name, value in row.items() if isinstance(value, int) and name != "object_size_bytes")]


def _heading(records: list[Record], rows: list[Row]) -> str:
    lines = []
    for r in records:
        state = "ended" if r.state == record.ENDED else "running" if r.alive else "gone without an end"
        own = r.process.get("slab_bytes", 0) + r.process.get("large_bytes", 0) + r.process.get("outside_bytes", 0)
        resident = f"{table.short(r.resident)}B" if r.resident else "unknown"
        warm = table.short(r.process.get("warm_bytes", 0))
        lines.append(f"{r.program[:24]} ({r.pid}), {state}, {r.mode}")
        lines.append(f"  resident {resident}; slabs and large blocks {table.short(own)}B, free but warm {warm}B")
    return "\n".join(line[:80] for line in lines)


def _print_table(records: list[Record], rows: list[Row], by: str) -> None:
    click.echo(_heading(records, rows))
    if by == "slot":
        click.echo(table.text([*rows, table.totals(rows)], _SLOT_COLUMNS))
        return
    total = table.totals(rows)
    if by == "cache" and rows:
        fast = sum(row.get("alloc_fastpath", 0) + row.get("free_fastpath", 0) for row in rows)
        slow = sum(row.get("alloc_slowpath", 0) + row.get("free_slowpath", 0) for row in rows)
        total["fast_share"] = fast / (fast + slow) if fast + slow else None
    click.echo(table.text([*rows, total]))
    if by == "cache":
        click.echo("\n" + table.text([*rows, total], _BARN_COLUMNS))


@click.command()
@click.argument("targets", nargs=-1, required=True, metavar="FILE|PID|DIR...")
@click.option("--format", "form", type=click.Choice(["table", "json", "jsonl", "csv"]), default="table", show_default=True)
@click.option("--by", type=click.Choice(["cache", "slot", "node"]), default="cache", show_default=True)
@click.option("--sort", "key", metavar="COLUMN", help="Largest first by a column of the machine formats, or by name.")
@click.option("--diff", is_flag=True, help="Of two records A and B: what B has more than A.")
@click.option("--all", "everything", is_flag=True, help="Show caches that were never used, too.")
def stats(targets: tuple[str, ...], form: str, by: str, key: str | None, diff: bool, everything: bool) -> None:
    """Show the caches of a record FILE, of a running process, or of all records in DIR.

    \b
    Examples:
      sheaf stats /tmp/records
      sheaf stats --format json 4711
      sheaf stats --diff before.sheaf after.sheaf
    """
    if diff:
        if len(targets) != 2:
            raise SheafError("--diff: wants two records, the earlier one first", 2)
        before, records = _load(targets[:1]), _load(targets[1:])
        rows = _difference(_rows(before, by, everything), _rows(records, by, everything))
    else:
        records = _load(targets)
        rows = _rows(records, by, everything)
    rows = _sorted(rows, key, by)
    if form == "table":
        _print_table(records, rows, by)
    else:
        click.echo(table.machine(rows, records, form))
