"""Made-up programs whose memory is known, and snapshots of what a sampler draws of it."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from areas import CLASSES, RATE, STRATA, room, stratum
from sheaf.commands.profile.area import SIZES, TIMES, Header, Sample, Snapshot, Stack, Stratum


@dataclass(frozen=True)
class Site:
    """
    A place in a program that allocates: sizes that it chooses from, the number of objects that are live, and of those that
    were freed again. Samples of it are drawn `thinned` times less often. `later` objects were not there at a first snapshot,
    and `gone` ones only then.
    """

    pcs: tuple[int, ...]
    sizes: Sequence[int]
    live: int
    freed: int = 0
    thinned: float = 1.0
    later: int = 0
    gone: int = 0
    early: int = 0  # objects that were allocated before sampling, and so are never drawn


@dataclass
class Truth:
    """What a stack really holds."""

    objects: int = 0
    bytes: int = 0


@dataclass
class _Object:
    site: Site
    size: int
    sample: Sample | None


@dataclass
class Program:
    """One run of a program: the snapshots at two moments, and the truth about what was live and allocated by stacks."""

    first: Snapshot
    second: Snapshot
    live: dict[tuple[int, ...], Truth] = field(default_factory=lambda: defaultdict(Truth))
    grown: dict[tuple[int, ...], Truth] = field(default_factory=lambda: defaultdict(Truth))
    allocated: dict[tuple[int, ...], Truth] = field(default_factory=lambda: defaultdict(Truth))


def chance(size: int, thinned: float, rate: int = RATE) -> float:
    """With which probability a request is drawn."""
    return 1.0 if size >= rate else -math.expm1(-size / (rate * thinned))


def _sums(samples: Iterable[Sample]) -> tuple[float, float, float]:
    every = list(samples)
    return (
        sum((one.weight for one in every), 0.0),
        sum((one.weight * one.size for one in every), 0.0),
        sum((one.weight**2 for one in every), 0.0),
    )


class _Drawing:
    """Draws objects and sums up what is drawn, as a process does it."""

    def __init__(self, sites: Sequence[Site], random: random.Random, rate: int) -> None:
        self.random, self.rate, self.sites = random, rate, sites
        self.stacks: dict[tuple[tuple[int, ...], int], int] = {}
        self.next = 0x1000

    def one(self, site: Site, drawn: bool = True) -> _Object:
        size, sample = self.random.choice(site.sizes), None
        p = chance(size, site.thinned, self.rate)
        if drawn and self.random.random() < p:
            at = self.stacks.setdefault((site.pcs, stratum(size, self.rate)), 256 * len(self.stacks))
            self.next += 16
            sample = Sample(self.next, size, room(size), 1 / p, 0, at, 1)
        return _Object(site, size, sample)

    def many(self, count: str, drawn: bool = True) -> list[_Object]:
        return [self.one(site, drawn) for site in self.sites for _ in range(getattr(site, count))]

    def snapshot(self, live: list[_Object], every: list[_Object], early: list[_Object]) -> Snapshot:
        samples = [one.sample for one in live if one.sample]
        taken = [one.sample for one in every if one.sample]
        stacks = {}
        for (pcs, number), at in self.stacks.items():
            mine, alive = [one for one in taken if one.stack == at], [one for one in samples if one.stack == at]
            if mine:
                wasted = sum(one.weight * (one.room - one.size) for one in alive)
                stacks[at] = Stack(pcs, number, *_sums(mine), *_sums(alive), wasted, *_sums(alive), len(mine), len(alive))
        counts = [[0] * 6 for _ in range(STRATA)]
        for i, part in enumerate((live, early, every)):
            for one in part:
                if i == 2 and one.size > CLASSES[-1]:
                    continue  # allocations of large blocks are not counted
                row = counts[stratum(one.size, self.rate)]
                row[2 * i] += 1
                row[2 * i + 1] += room(one.size)
        strata = [
            Stratum(size, count, taken_up, count, taken_up, *before, *alloc)
            for size, (count, taken_up, *rest) in zip((*CLASSES, 0, 0), counts, strict=True)
            for before, alloc in [(rest[:2], rest[2:])]
        ]
        bytes_ = sum(one.live_bytes for one in strata)
        header = Header(True, self.rate, 7, 60_000, len(taken), len(taken) - len(samples), 0, 0, 0, 60_000, bytes_, 30_000, 0)
        return Snapshot(
            Path("made"),
            "made",
            1,
            1,
            0,
            False,
            header,
            strata,
            stacks,
            samples,
            [],
            [[0.0] * TIMES for _ in range(SIZES)],
            60_000,
            True,
        )


def _add(truth: dict[tuple[int, ...], Truth], objects: Iterable[_Object], sign: int = 1) -> None:
    for one in objects:
        place = truth[one.site.pcs]
        place.objects += sign
        place.bytes += sign * one.size


def run(sites: Sequence[Site], seed: int, rate: int = RATE) -> Program:
    """One run of a program with these sites; other seeds draw other samples."""
    draw = _Drawing(sites, random.Random(seed), rate)
    kept, freed, early = draw.many("live"), draw.many("freed"), draw.many("early", drawn=False)
    gone, later = draw.many("gone"), draw.many("later")
    then = [*kept, *gone, *early]
    now = [*kept, *later, *early]
    made = Program(draw.snapshot(then, [*kept, *freed, *gone], early), draw.snapshot(now, [*kept, *freed, *gone, *later], early))
    made.second = replace(made.second, moment_ms=70_000)
    _add(made.live, [*kept, *later])
    _add(made.grown, later)
    _add(made.grown, gone, -1)
    _add(made.allocated, [*kept, *freed, *gone, *later])
    return made
