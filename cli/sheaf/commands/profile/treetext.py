"""A profile as a tree of functions for a terminal, callers above those that they call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sheaf.commands.profile.chains import cut
from sheaf.commands.profile.symbols import Symbolizer, shortened
from sheaf.commands.profile.table import amount, marked
from sheaf.commands.profile.tree import Node, tree
from sheaf.commands.profile.views import Profile

_ARROW = " > "
LINES = 40


@dataclass
class _Line:
    """A node with the only functions below it, as long as nothing else is there."""

    names: list[str]
    node: Node
    below: list[_Line]

    @property
    def order(self) -> float:
        """How large the branch is."""
        return abs(self.node.value)


def _line(node: Node) -> _Line:
    names = [shortened(node.frame.function) if node.frame else "all"]
    while node.frame and len(node.below) == 1 and (only := next(iter(node.below.values()))).value == node.value:
        node = only
        assert node.frame
        names.append(shortened(node.frame.function))
    return _Line(names, node, sorted(map(_line, node.below.values()), key=lambda one: -one.order))


def _all(line: _Line) -> Iterator[_Line]:
    yield line
    for one in line.below:
        yield from _all(one)


def _joined(names: list[str], width: int) -> str:
    """The first names and the last one, with the number of those that do not fit between them."""
    whole = _ARROW.join(names)
    if len(whole) <= width or len(names) < 3:
        return cut(whole, width)
    for kept in range(len(names) - 2, 0, -1):
        text = _ARROW.join([*names[:kept], f"+{len(names) - kept - 1}", names[-1]])
        if len(text) <= width:
            return text
    return cut(_ARROW.join([f"+{len(names) - 1}", names[-1]]), width)


def text(profile: Profile, symbolizer: Symbolizer, width: int, limit: int, more: tuple[str, ...]) -> list[str]:
    """At most `limit` lines of functions, those with the largest values, below a heading."""
    unit = profile.columns[profile.main].unit
    root = _line(tree(profile, symbolizer, shrinking=True, fold=more))
    every = sorted(_all(root), key=lambda one: -one.order)
    shown, total = set(map(id, every[:limit])), root.node.value
    lines = [f"{unit.upper():>7} {'±':>6} {'SHARE':>6} FUNCTION, CALLED ONES BELOW AND TO THE RIGHT"]

    def draw(one: _Line, before: str, mark: str) -> None:
        error = amount(one.node.error, unit) if one.node.error >= 0.5 else ""
        share = f"{100 * one.node.value / total:.1f}%" if total else "-"
        head = f"{amount(one.node.value, unit):>7} {error:>6} {share:>6} {before}{mark}"
        names = [marked(one.names[0], one.node.value, one.node.error), *one.names[1:]]
        lines.append(cut(head + _joined(names, max(16, width - len(head))), width))
        below = [child for child in one.below if id(child) in shown]
        for child in below:
            last = child is below[-1]
            draw(child, before + {"": "", "├ ": "│ ", "└ ": "  "}[mark], "└ " if last else "├ ")

    draw(root, "", "")
    if len(every) > limit:
        lines.append(f"and {len(every) - limit} smaller branches; --limit N shows more")
    return [cut(line, width) for line in lines]
