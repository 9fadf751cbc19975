"""A profile as a tree of functions, callers above those that they call."""

from __future__ import annotations

from collections.abc import Sequence

from sheaf.commands.profile.symbols import Frame, Symbolizer
from sheaf.commands.profile.table import names
from sheaf.commands.profile.views import Errors, Profile, reliable

_DEEPEST = 100  # frames; deeper ones count in their callers


class Node:
    """A function in one context; the root has no frame. `value` includes what it calls, and `error` is that of the value."""

    __slots__ = ("below", "error", "frame", "value")

    def __init__(self, frame: Frame | None) -> None:
        self.frame, self.value, self.error = frame, 0.0, 0.0
        self.below: dict[tuple[str, str], Node] = {}

    @property
    def unreliable(self) -> bool:
        """Whether the value says nothing."""
        return not reliable(self.value, self.error)

    def _add(self, frames: Sequence[Frame], value: float, squares: float) -> None:
        """Add a stack, the outermost frame first. Until all are added, `error` is a sum of squares."""
        node = self
        for frame in (None, *frames[:_DEEPEST]):
            if frame is not None:
                node = node.below.setdefault((frame.function, frame.module), Node(frame))
            node.value += value
            node.error += squares

    def largest(self, least: float) -> list[Node]:
        """The functions below this one with at least this value, the largest first."""
        return sorted((node for node in self.below.values() if abs(node.value) >= least), key=lambda node: -abs(node.value))


def tree(profile: Profile, symbolizer: Symbolizer, shrinking: bool = False, fold: tuple[str, ...] | None = None) -> Node:
    """
    The main values of all stacks; those below 0, which have no width in a picture, only if `shrinking`. With `fold`, wrappers
    of allocators are left out, these and those that are known.
    """
    symbolizer.prepare(profile.pcs)
    root, errors = Node(None), Errors(profile)
    for row in profile.rows:
        value = row.values[profile.main]
        if value > 0 or shrinking:
            frames = symbolizer.stack(row)
            if fold is not None:
                frames = frames[: len(row.labels) + len(names(row, symbolizer, fold))]
            root._add(frames, value, (row.errors[profile.main] or 0.0) ** 2)
    waiting = [root]
    while waiting:
        node = waiting.pop()
        node.error = errors.of(node.error)
        waiting.extend(node.below.values())
    if shrinking or all(row.values[profile.main] >= 0 for row in profile.rows):
        root.error = errors.of_all
    return root
