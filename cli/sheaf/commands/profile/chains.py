"""Call stacks on one line each, as far as they fit, so that two of them differ in what is shown."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

_ARROW = " < "
_MORE = re.compile(r" < \+\d+$")
_SHORTEST = 12  # characters of a name that is cut


def cut(text: str, width: int) -> str:
    """The text in at most `width` characters."""
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def _cut_name(name: str, width: int) -> str:
    """A name in at most `width` characters; of an address, the end says most."""
    return f"…{name[1 - width :]}" if "+0x" in name and len(name) > width else cut(name, width)


@dataclass(frozen=True)
class Call:
    """A function in a stack, and where in it the next one was called: a line or an address, if one is known."""

    name: str
    where: str = ""

    def __str__(self) -> str:
        return self.name + self.where


def chain(names: Sequence[str], width: int, shown: int = -1) -> str:
    """
    Names, the innermost first, in at most `width` characters; +N stands for N callers that do not fit. The name at the
    index `shown` is among those that are shown, after a gap if need be.
    """
    if len(_ARROW.join(names)) > width:
        most = max(_SHORTEST, (width - 3 * len(_ARROW)) // 3)
        names = [name if i == shown else _cut_name(name, most) for i, name in enumerate(names)]
    text, left = "", len(names)
    for i, name in enumerate(names):
        gap = (f"{_ARROW}+{shown - i - 1}" if shown > i + 1 else "") + (f"{_ARROW}{names[shown]}" if shown > i else "")
        after = left - 1 - (shown - i if shown > i else 0)
        rest = gap + (f"{_ARROW}+{after}" if after else "")
        added = (_ARROW if text else "") + name
        if text and len(text) + len(added) + len(rest) > width:
            if shown < i:
                return cut(f"{text}{_ARROW}+{left}", width)
            after = len(names) - 1 - shown
            gap = f"{_ARROW}+{shown - i}" if shown > i else ""
            return cut(f"{text}{gap}{_ARROW}{names[shown]}" + (f"{_ARROW}+{after}" if after else ""), width)
        text, left = text + added, left - 1
    return cut(text, width)


def _difference(stacks: Sequence[Sequence[Call]]) -> tuple[int, bool] | None:
    """Where stacks differ first, and whether they do so by name; None if they do not."""
    for depth in range(min(map(len, stacks))):
        if len({stack[depth].name for stack in stacks}) > 1:
            return depth, True
    for depth in range(min(map(len, stacks))):
        if len({stack[depth] for stack in stacks}) > 1:
            return depth, False
    return None


def chains(stacks: Sequence[Sequence[Call]], widths: Sequence[int]) -> list[str]:
    """
    A chain for each stack. Those that would look the same show the first function in which they differ, or the line or address
    from which it calls.
    """
    found = [chain([call.name for call in stack], width) for stack, width in zip(stacks, widths, strict=True)]
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for i, text in enumerate(found):
        groups[_MORE.sub("", text)].append(i)
    for alike in groups.values():
        where = _difference([stacks[i] for i in alike]) if len(alike) > 1 else None
        if where is None:
            continue
        depth, by_name = where
        for i in alike:
            names = [call.name if by_name or at != depth else str(call) for at, call in enumerate(stacks[i])]
            found[i] = chain(names, widths[i], depth)
    return found
