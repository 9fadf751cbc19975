"""What a stack may hold in strata where none of its objects was drawn.

A stack whose sizes vary has objects in several strata, and in some of them it may have no sample: where it had one earlier,
or between the smallest and the largest size that was drawn.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

from sheaf.commands.profile.area import Snapshot
from sheaf.commands.profile.drawn import NOTHING_SEEN, Drawn, weighed

Errors = tuple[float, float]  # of objects and of bytes


class Unseen:
    """
    For the snapshots of one process: how many objects, and how many bytes, a stack may have in strata where it was not drawn.
    `counted` are the objects and bytes of each stratum, which are the most that it may have there.
    """

    def __init__(self, snapshot: Snapshot, counted: Iterable[Errors]) -> None:
        self._known: defaultdict[tuple[int, ...], set[int]] = defaultdict(set)
        sums: defaultdict[int, Drawn] = defaultdict(Drawn)
        for stack in snapshot.stacks.values():
            if stack.alloc_count:
                self._known[stack.pcs].add(stack.stratum)
                sums[stack.stratum] += weighed(stack.alloc_count, stack.alloc_square)
        rate = max(1, snapshot.header.rate)
        self._limits: list[Errors] = []
        for i, (stratum, most) in enumerate(zip(snapshot.strata, counted, strict=True)):
            if stratum.size:
                unit = sums[i].step if i in sums else 1 / -math.expm1(-min(stratum.size / rate, 500.0))
                limit = NOTHING_SEEN * unit, NOTHING_SEEN * unit * stratum.size
            else:  # large blocks: each sample stands for about as many bytes
                limit = NOTHING_SEEN, NOTHING_SEEN * rate
            always = i == len(snapshot.strata) - 1
            self._limits.append((0.0, 0.0) if always else (min(limit[0], most[0]), min(limit[1], most[1])))

    def errors(self, pcs: tuple[int, ...], drawn: set[int]) -> Errors:
        """The error that a stack with samples in these strata has for others."""
        if not pcs:
            return 0.0, 0.0
        others = (self._known[pcs] | set(range(min(drawn), max(drawn)))) - drawn
        objects = max((self._limits[i][0] for i in others), default=0.0)
        return objects, max((self._limits[i][1] for i in others), default=0.0)
