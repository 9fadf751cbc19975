"""The map of `sheaf dump` as an HTML page: a field for each slice, row by row from the start of the region."""

from __future__ import annotations

import html
import itertools
import json
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from sheaf.errors import SheafError
from sheaf.records import spanmap
from sheaf.records.spanmap import FREE, KINDS, LARGE, OTHER, RETURNED, SLAB, SLICE_BYTES, UNMAPPED, Span
from sheaf.rendering import memorymap

_COLOURS = {UNMAPPED: "#ffffff", RETURNED: "#e4e4e4", FREE: "#e377c2", LARGE: "#5b5f97", OTHER: "#b08968"}
_SLAB_COLOURS = ("#d7191c", "#f07c4a", "#fec980", "#c7e8ad", "#80bfab", "#2b83ba")  # from nearly empty to full
_NAMES = {
    UNMAPPED: "no memory",
    RETURNED: "returned to the system",
    FREE: "free",
    LARGE: "large block",
    OTHER: "span cache, guard or changing",
}
_STEPS = len(_SLAB_COLOURS)
_COLUMNS = (64, 128, 256, 512, 1024)
_MOST_FIELDS = 1 << 20  # of the page; larger regions are drawn by groups of slices


def _step(span: Span) -> int:
    fill = span.fill if span.fill is not None else 1.0
    return min(_STEPS - 1, int(fill * (_STEPS - 1)))


def _colour(span: Span) -> str:
    return _SLAB_COLOURS[_step(span)] if span.kind == SLAB else _COLOURS[span.kind]


def _columns(slices: int) -> int:
    """The least width that makes the map about as high as wide."""
    return next((columns for columns in _COLUMNS if columns * columns >= slices), _COLUMNS[-1])


def _legend() -> list[tuple[str, str]]:
    """Colours and their meanings."""
    slabs = [(colour, f"slab, {_share(i)} of its objects out") for i, colour in enumerate(_SLAB_COLOURS)]
    return slabs + [(_COLOURS[kind], _NAMES[kind]) for kind in (LARGE, FREE, RETURNED, OTHER)]


def _share(step: int) -> str:
    share = 100 // (_STEPS - 1)
    return "all" if step == _STEPS - 1 else f"{step * share} to {(step + 1) * share}%"


def _fields(found: Sequence[Span], size: int) -> list[Span]:
    """The span that the first slice of each group of `size` slices lies in."""
    fields: list[Span] = []
    for span in found:
        fields += [span] * len(range(-(-span.first // size) * size, span.first + span.slices, size))
    return fields


def _place(first: int) -> str:
    return f"{first * SLICE_BYTES / (1 << 20):g} MiB"


def _said(span: Span) -> str:
    """What the page shows under the pointer."""
    where = f"{_place(span.first)}, {span.slices * SLICE_BYTES >> 10} KiB"
    if span.kind != SLAB:
        return f"{_NAMES[span.kind]} at {where}"
    objects = f"{span.out} of {span.objects} objects out" if span.objects else f"{span.out} objects out"
    return f"slab of {span.cache or 'a cache that is not in the record'}, {objects}, at {where}"


def _page(path: Path, title: str, fields: Sequence[Span], size: int) -> None:
    colours = [*_COLOURS.values(), *_SLAB_COLOURS]
    groups = [list(group) for _, group in itertools.groupby(fields, key=id)]
    spans = [(len(group), colours.index(_colour(group[0])), _said(group[0])) for group in groups]
    data = {"columns": _columns(len(fields)), "colours": colours, "spans": spans, "legend": _legend()}
    template = resources.files("sheaf.commands").joinpath("dump.html").read_text(encoding="utf-8")
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    named = html.escape(f"{title} (slices of {size * SLICE_BYTES >> 10} KiB)")
    path.write_text(template.replace("@TITLE@", named).replace("@DATA@", text, 1), encoding="utf-8")


def write(path: Path, who: str, found: Sequence[Span]) -> None:
    """Write the page. Raises SheafError if the file cannot be written."""
    slices = sum(span.slices for span in found)
    size = memorymap.group_size(slices, 1024, _MOST_FIELDS // 1024)
    fields = _fields(_trimmed(found), size)
    counts = spanmap.slices_by_kind(found)
    title = f"{who}: " + ", ".join(
        f"{_NAMES.get(kind, KINDS[kind])} {counts[KINDS[kind]] * SLICE_BYTES / (1 << 20):.1f} MiB"
        for kind in (SLAB, LARGE, FREE, RETURNED)
    )
    try:
        _page(path, title, fields, size)
    except OSError as error:
        raise SheafError(f"{path}: {error.strerror}; name a file that can be written") from error


def _trimmed(found: Sequence[Span]) -> Sequence[Span]:
    """Without the slices at the end that have no memory."""
    last = max((i for i, span in enumerate(found) if span.kind != UNMAPPED), default=-1)
    return found[: last + 1]
