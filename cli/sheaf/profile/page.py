"""One self-contained HTML page with a flame graph for each view, drawn by plotly."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

from sheaf.profile import symbols
from sheaf.profile.symbols import Frame, Symbolizer, shortened
from sheaf.profile.table import cut, with_error
from sheaf.profile.views import Profile

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_SMALLEST = 1 / 5000  # share of the total; smaller nodes are less than a pixel wide and become one
_DEEPEST = 100  # frames; deeper ones count in their callers
_LONGEST = 60  # characters of a label; plotly hides labels that do not fit
_PALETTE = ("#4c78a8", "#f58518", "#e45756", "#72b7b2", "#54a24b", "#b79a20", "#b279a2", "#ff9da6", "#9d755d", "#7f7f8a")


class _Node:
    """A function in one context. `value` includes the callees."""

    __slots__ = ("below", "error", "frame", "value")

    def __init__(self, frame: Frame | None) -> None:
        self.frame, self.value, self.error = frame, 0, 0.0  # whole numbers: plotly.js refuses sums that exceed their total
        self.below: dict[tuple[str, str], _Node] = {}

    def add(self, frames: Sequence[Frame], value: int, error: float | None) -> None:
        """Add a stack, the outermost frame first."""
        node = self
        for frame in (None, *frames[:_DEEPEST]):
            if frame is not None:
                node = node.below.setdefault((frame.function, frame.module), _Node(frame))
            node.value += value
            node.error += (error or 0.0) ** 2


def _tree(profile: Profile, symbolizer: Symbolizer) -> _Node:
    """All stacks with a positive value: what shrinks has no width."""
    root = _Node(None)
    for row in profile.rows:
        if (value := round(row.values[profile.main])) > 0:
            root.add(symbolizer.stack(row), value, row.errors[profile.main])
    return root


def _colour(node: _Node) -> str:
    """One colour for each module, the same in all pages."""
    frame = node.frame
    if frame is None or not (frame.module or frame.file):
        return "#8a8a94"
    name = (frame.module or frame.file).rsplit("/", 1)[-1]
    return _PALETTE[sum(map(ord, name)) % len(_PALETTE)]


def _hover(node: _Node, unit: str, total: float) -> str:
    frame = node.frame
    lines = [with_error(node.value, node.error**0.5, unit) + f" ({100 * node.value / total:.2f}%)"]
    if frame is not None:
        lines += [frame.function if len(frame.function) <= 300 else frame.function[:299] + "…"]
        lines += [f"{frame.place} (inlined)" if frame.inlined else frame.place] if frame.place else []
        lines += [frame.module] if frame.module else []
    return "<br>".join(html.escape(line, quote=False) for line in lines)


def _columns(profile: Profile, symbolizer: Symbolizer) -> dict[str, list[Any]]:
    """The attributes of the icicle: parents before children, those of one parent by size."""
    root = _tree(profile, symbolizer)
    columns: dict[str, list[Any]] = {name: [] for name in ("ids", "parents", "labels", "values", "colours", "hover", "names")}
    waiting = [(root, "", "0")]
    while waiting:
        node, parent, key = waiting.pop()
        label = cut(shortened(node.frame.function), _LONGEST) if node.frame else profile.title
        # plotly.js takes tags and entities in texts as markup, and so C++ names have to be escaped.
        cells = {"ids": key, "parents": parent, "labels": html.escape(label, quote=False), "values": node.value,
                 "colours": _colour(node), "hover": _hover(node, profile.columns[profile.main].unit, root.value or 1),
                 "names": " ".join((node.frame.function, node.frame.file, node.frame.module)) if node.frame else ""}  # fmt: skip
        for name, cell in cells.items():
            columns[name].append(cell)
        large = [one for one in node.below.values() if one.value >= _SMALLEST * root.value]
        for i, one in enumerate(sorted(large, key=lambda one: one.value)):  # the last one is the next
            waiting.append((one, key, f"{key}.{i}"))
    return columns


def flame_figure(profile: Profile, symbolizer: Symbolizer | None = None) -> Figure:
    """
    The profile as an icicle: callers on top, width by the main column. A click on a function zooms in; hovering shows
    values with standard errors, the file and the line. `customdata` has the full names, for a search.
    """
    import plotly.graph_objects as go  # takes a second to import

    found = symbolizer or symbols.symbolizer(profile.snapshot)
    found.prepare(profile.pcs)
    columns = _columns(profile, found)
    if symbolizer is None:
        found.close()
    trace = go.Icicle(
        ids=columns["ids"], parents=columns["parents"], labels=columns["labels"], values=columns["values"],
        branchvalues="total", hovertext=columns["hover"], hoverinfo="text", customdata=columns["names"], sort=False,
        tiling={"orientation": "v", "pad": 1}, textposition="middle left", pathbar={"visible": True, "thickness": 22},
        marker={"colors": columns["colours"], "line": {"width": 0}}, root={"color": "#8a8a94"},
    )  # fmt: skip
    layout = {
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8}, "paper_bgcolor": "rgba(0,0,0,0)",
        "uniformtext": {"minsize": 11, "mode": "hide"}, "hoverlabel": {"align": "left", "namelength": -1},
    }  # fmt: skip
    return go.Figure(trace, layout)


def _script_text(value: Any) -> str:
    """JSON that may stand in a <script> element."""
    return json.dumps(value).replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _view(profile: Profile, symbolizer: Symbolizer) -> dict[str, Any]:
    figure = flame_figure(profile, symbolizer)
    value, error = profile.total()
    unit, notes = profile.columns[profile.main].unit, list(profile.notes)
    if any(row.values[profile.main] < 0 for row in profile.rows):
        notes.append("Stacks that shrank are not drawn.")
    return {"view": profile.view, "title": f"{profile.title}: {with_error(value, error, unit)}", "unit": unit,
            "figure": json.loads(figure.to_json()), "notes": notes}  # fmt: skip


def dump(profiles: Sequence[Profile], symbolizer: Symbolizer, chosen: str) -> bytes:
    """The page, with `chosen` as the view that it shows first."""
    from plotly.offline import get_plotlyjs

    for profile in profiles:
        symbolizer.prepare(profile.pcs)
    drawn = [_view(profile, symbolizer) for profile in profiles]
    snapshot = profiles[0].snapshot
    name = html.escape(f"{snapshot.who}")
    data = {"views": drawn, "chosen": chosen, "notes": symbolizer.notes, "rate": profiles[0].period}
    template = resources.files("sheaf.profile").joinpath("page.html").read_text(encoding="utf-8")
    parts = {"@NAME@": name, "@DATA@": _script_text(data), "@PLOTLY@": get_plotlyjs()}
    for mark, text in parts.items():
        template = template.replace(mark, text, 1) if mark != "@NAME@" else template.replace(mark, text)
    return template.encode("utf-8", "replace")
