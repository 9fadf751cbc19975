"""One self-contained HTML page with a flame graph for each view, which flame.js draws."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

from sheaf.commands.profile.symbols import Symbolizer, shortened
from sheaf.commands.profile.table import with_error
from sheaf.commands.profile.tree import Node, tree
from sheaf.commands.profile.views import RELIABLE, Profile

_SMALLEST = 1 / 5000  # share of the total; smaller nodes are less than a pixel wide
_LARGEST = 900_000  # bytes of data; with more, larger nodes are left out
_LONGEST = 300  # characters of a name


class _Functions:
    """The functions of a page, each of which appears once: name, full name, place and module."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, str, str]] = []
        self._numbers: dict[tuple[str, str], int] = {}

    def number(self, node: Node) -> int:
        """The number of a node's function; the root has none."""
        frame = node.frame
        if frame is None:
            return -1
        key = frame.function, frame.module
        if key not in self._numbers:
            self._numbers[key] = len(self.rows)
            name, whole = shortened(frame.function)[:_LONGEST], frame.function[:_LONGEST]
            place = f"{frame.place} (inlined)" if frame.place and frame.inlined else frame.place
            self.rows.append((name, whole if whole != name else "", place, frame.module))
        return self._numbers[key]


def packed(node: Node, least: float, functions: _Functions) -> list[Any]:
    """A node as the page has it: the number of its function, its value and error, and the nodes below, the largest first."""
    below = [packed(one, least, functions) for one in node.largest(least)]
    return [functions.number(node), round(node.value), round(node.error), *([below] if below else [])]


def _script_text(value: Any) -> str:
    """JSON that may stand in a <script> element."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _view(profile: Profile, root: Node, smallest: float, functions: _Functions) -> dict[str, Any]:
    value, error = profile.total()
    unit, notes = profile.columns[profile.main].unit, list(profile.notes)
    if any(row.values[profile.main] < 0 for row in profile.rows):
        notes.append("Stacks that shrank are not drawn.")
    return {
        "view": profile.view,
        "title": f"{profile.title}: {with_error(value, error, unit)}",
        "unit": unit,
        "tree": packed(root, max(0.5, smallest * root.value), functions),
        "notes": notes,
    }


def _data(profiles: Sequence[Profile], symbolizer: Symbolizer, chosen: str) -> str:
    """The data of the page, without functions that are too small to be seen, or for which there is no room."""
    trees = [tree(profile, symbolizer) for profile in profiles]
    smallest, text = _SMALLEST, ""
    while not text or (len(text) > _LARGEST and smallest < 1):
        functions = _Functions()
        views = [_view(profile, root, smallest, functions) for profile, root in zip(profiles, trees, strict=True)]
        text = _script_text(
            {"views": views, "functions": functions.rows, "chosen": chosen, "notes": symbolizer.notes, "reliable": RELIABLE}
        )
        smallest *= 2
    return text


def dump(profiles: Sequence[Profile], symbolizer: Symbolizer, chosen: str) -> bytes:
    """The page, with `chosen` as the view that it shows first."""
    snapshot = profiles[0].snapshot
    name = html.escape(f"{snapshot.who}" if snapshot.pid else snapshot.program)
    files = resources.files("sheaf.commands.profile")
    template = files.joinpath("page.html").read_text(encoding="utf-8")
    script = files.joinpath("flame.js").read_text(encoding="utf-8").replace("export function", "function")
    parts = {"@NAME@": name, "@FLAME@": script, "@DATA@": _data(profiles, symbolizer, chosen)}
    for mark, text in parts.items():
        template = template.replace(mark, text, 1) if mark != "@NAME@" else template.replace(mark, text)
    return template.encode("utf-8", "replace")
