"""One HTML page with a flame graph for each view, drawn by plotly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sheaf.profile import symbols
from sheaf.profile.symbols import Symbolizer
from sheaf.profile.views import Profile

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def flame_figure(profile: Profile, symbolizer: Symbolizer | None = None) -> Figure:
    """The profile as an icicle: callers on top, width by the main column. Hovering shows values and standard errors."""
    import plotly.graph_objects as go  # slow to import

    found = symbolizer or symbols.symbolizer(profile.snapshot)
    found.prepare(profile.pcs)
    nodes: dict[tuple[str, ...], float] = {(): 0.0}
    for row in profile.rows:
        path: tuple[str, ...] = ()
        nodes[path] += row.values[profile.main]
        for frame in found.stack(row):
            path = (*path, frame.function)
            nodes[path] = nodes.get(path, 0.0) + row.values[profile.main]
    keys = list(nodes)
    trace = go.Icicle(ids=["\0".join(key) for key in keys], labels=[key[-1] if key else profile.title for key in keys],
                      parents=[("\0".join(key[:-1]) if len(key) > 1 else "root") if key else "" for key in keys],
                      values=list(nodes.values()), branchvalues="total")  # fmt: skip
    return go.Figure(trace)
