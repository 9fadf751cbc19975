"""The map of a process's memory in characters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sheaf.records.spanmap import KINDS, SLAB, SLICE_BYTES, Span
from sheaf.rendering import sizes

LEGEND = [
    ("0 to 9", "slabs, by tenths of their objects that are out: in use, or in sheaves and barns"),
    ("#", "slabs of which all objects are out"),
    ("L", "large blocks"),
    ("-", "free memory that may be resident"),
    (".", "free memory that was returned to the system"),
    ("x", "span caches, guards, and spans that are about to change"),
    ("space", "no memory"),
]
_SYMBOLS = " .-?Lx"
_OFFSET = 12  # columns before the map


def _symbol(kind: int, fill: float) -> str:
    if kind != SLAB:
        return _SYMBOLS[kind]
    return "#" if fill >= 1 else str(int(10 * fill))


def _groups(found: Sequence[Span], size: int) -> Iterator[str]:
    """A character for each `size` slices: that of the kind that most of them have; for slabs with their mean fill."""
    kinds, fills, room = [0] * len(KINDS), 0.0, size
    for span in found:
        left = span.slices
        while left:
            now = min(left, room)
            kinds[span.kind] += now
            if span.kind == SLAB:
                fills += now * (span.fill if span.fill is not None else 1.0)
            left, room = left - now, room - now
            if not room:
                kind = max(range(len(kinds)), key=lambda k: (kinds[k], k))
                yield _symbol(kind, fills / kinds[SLAB] if kinds[SLAB] else 0.0)
                kinds, fills, room = [0] * len(KINDS), 0.0, size
    if any(kinds):
        kind = max(range(len(kinds)), key=lambda k: (kinds[k], k))
        yield _symbol(kind, fills / kinds[SLAB] if kinds[SLAB] else 0.0)


def group_size(slices: int, width: int, rows: int) -> int:
    """The least power of two of slices for which a character each fits into so many rows."""
    size = 1
    while -(-slices // size) > width * rows:
        size *= 2
    return size


def text(found: Sequence[Span], width: int, rows: int = 32) -> list[str]:
    """The map as lines: each begins with the offset of its first slice in the region. Rows without memory are left out."""
    slices = sum(span.slices for span in found)
    columns = max(16, (width - _OFFSET) // 16 * 16)
    size = group_size(slices, columns, rows)
    symbols = "".join(_groups(found, size))
    lines = [f"each character stands for {sizes.exact(size * SLICE_BYTES)} of the region"]
    skipped = False
    for at in range(0, len(symbols), columns):
        row = symbols[at : at + columns]
        if not row.strip():
            skipped = True
            continue
        if skipped:
            lines.append(f"{'...':>{_OFFSET - 2}}")
        skipped = False
        lines.append(f"{sizes.exact(at * size * SLICE_BYTES):>{_OFFSET - 2}}  {row}".rstrip())
    return lines
