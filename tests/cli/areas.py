"""Profile areas with known contents, as sheaf/profile.h defines them."""

from __future__ import annotations

import bisect
import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from conftest import write_record

RATE = 512 << 10
HEADER, STACKS_AT, SAMPLES_AT, MODULES_AT, LIFETIMES_AT = 200, 8192, 65536, 196608, 262144
SIZE = LIFETIMES_AT + 16 * 24 * 8
STRATA_AT, NAMES_AT = 512, 4096
CLASSES = (*range(16, 129, 16), *(step << power for power in range(5, 13) for step in (5, 6, 7, 8)))  # up to 32 KiB
STRATA = len(CLASSES) + 2
STACK, STRATUM = struct.Struct("<I2HQ10d3Q"), struct.Struct("<9Q")
START_NS = 1_700_000_000_000_000_000


def weight(size: int, rate: int = RATE) -> float:
    """The number of allocations of this size that a sample stands for."""
    return 1.0 if size >= rate else 1 / -math.expm1(-size / rate)


def stratum(size: int, rate: int = RATE) -> int:
    """The stratum of a request: its class, sampled blocks, or blocks that are always sampled."""
    at = bisect.bisect_left(CLASSES, size)
    return at if at < len(CLASSES) else STRATA - 1 if size >= rate else STRATA - 2


def room(size: int) -> int:
    """The bytes that a request takes up: its class, or as many as it asks for."""
    at = bisect.bisect_left(CLASSES, size)
    return CLASSES[at] if at < len(CLASSES) else size


@dataclass
class One:
    """A sample: a block that was allocated by a stack, and freed unless it is live."""

    pcs: tuple[int, ...]
    size: int
    time_ms: int = 0
    live: bool = True
    peak: bool = True  # live at the peak


@dataclass
class Area:
    """The contents of an area; everything that follows from the samples is computed from them."""

    samples: list[One]
    modules: list[tuple[int, int, int, bytes, str]] = field(default_factory=list)
    now_ms: int = 60_000
    rate: int = RATE
    on: int = 0
    start_ns: int = START_NS
    epoch: int = 7  # of the stacks; that of the area is 7
    lifetimes: dict[tuple[int, int], float] = field(default_factory=dict)
    header: dict[str, int] = field(default_factory=dict)  # replaces computed values
    names: Sequence[tuple[str, str]] = ()  # functions and files; the addresses of address() stand for them
    counted: Mapping[int, Sequence[int]] = field(default_factory=dict)  # of strata: all numbers after the size

    def stacks(self) -> tuple[bytes, dict[tuple[tuple[int, ...], int], int]]:
        """The table of stacks, and the offset of each in each of its strata."""
        raw, at = b"", {}
        for pcs, number in dict.fromkeys([((), 0), *((one.pcs, stratum(one.size, self.rate)) for one in self.samples)]):
            at[pcs, number] = len(raw)
            mine = [one for one in self.samples if one.pcs == pcs and stratum(one.size, self.rate) == number]
            alive, peak = [one for one in mine if one.live], [one for one in mine if one.peak]
            wasted = sum(weight(one.size, self.rate) * (room(one.size) - one.size) for one in alive)
            numbers = (*sums(mine, self.rate), *sums(alive, self.rate), wasted, *sums(peak, self.rate))
            raw += STACK.pack(STACK.size + 8 * len(pcs), len(pcs), number, 1, *numbers, self.epoch, len(mine), len(alive))
            raw += struct.pack(f"<{len(pcs)}Q", *pcs)
        return raw, at

    def table_of_names(self) -> bytes:
        """The table of names, whose first one has no text."""
        table = b""
        for function, file in [("", ""), *self.names] if self.names else []:
            text = function.encode() + file.encode()
            raw = struct.pack("<2H", len(function.encode()), len(file.encode())) + text
            raw += bytes(-len(raw) % 8)
            table += struct.pack("<2I", 8 + len(raw), 7) + raw
        return table

    def address(self, which: int, line: int) -> int:
        """The address that stands for a line of a function."""
        part = Area([], names=self.names[:which]).table_of_names() if which else struct.pack("<2I2H4x", 16, 7, 0, 0)
        return 1 << 63 | len(part) // 8 << 24 | line

    def strata(self) -> bytes:
        """The table of strata."""
        sizes = (*CLASSES, 0, 0)
        return b"".join(STRATUM.pack(size, *self.counted.get(i, (0,) * 8)) for i, size in enumerate(sizes))

    def pack(self) -> bytes:
        """The area as a process would have written it."""
        (stacks, at), names = self.stacks(), self.table_of_names()
        alive = [one for one in self.samples if one.live]
        samples = b"".join(
            struct.pack(
                "<3Qd4I",
                0x1000 + 16 * i,
                one.size,
                room(one.size),
                weight(one.size, self.rate),
                one.time_ms,
                at[one.pcs, stratum(one.size, self.rate)],
                1,
                0,
            )
            for i, one in enumerate(self.samples)
            if one.live
        )
        modules = b"".join(
            struct.pack("<3Q32sI300s", start, end, bias, build_id, len(build_id), path.encode())
            for start, end, bias, build_id, path in self.modules
        )
        peak = sum(numbers[3] for numbers in self.counted.values())
        peak = peak or round(sums([one for one in self.samples if one.peak], self.rate)[1])
        values: dict[str, int] = {
            "version": 2,
            "on": self.on,
            "sequence": 8,
            "rate": self.rate,
            "start_ns": self.start_ns,
            "now_ms": self.now_ms,
            "taken": len(self.samples),
            "freed": len(self.samples) - len(alive),
            "lost_stacks": 0,
            "lost_samples": 0,
            "slowed": 0,
            "strata_ms": self.now_ms,
            "peak_bytes": peak,
            "peak_ms": 30_000,
            "peak_epoch": 7,
            "pid_of_parent": 0,
            "stacks_at": STACKS_AT,
            "stacks_bytes": SAMPLES_AT - STACKS_AT,
            "stacks_used": len(stacks),
            "stacks_count": len(at),
            "samples_at": SAMPLES_AT,
            "samples_max": (MODULES_AT - SAMPLES_AT) // 48,
            "samples_used": len(alive),
            "modules_at": MODULES_AT,
            "modules_max": 64,
            "modules_used": len(self.modules),
            "lifetimes_at": LIFETIMES_AT,
            "strata_at": STRATA_AT,
            "strata": STRATA,
            "names_at": NAMES_AT,
            "names_bytes": STACKS_AT - NAMES_AT,
            "names_used": len(names),
            "names_lost": 0,
            "strata_old": 0,
        }
        values.update(self.header)
        data = bytearray(SIZE)
        data[:HEADER] = struct.pack("<8s2I14Q18I", b"SHEAFPRO", *values.values())
        for offset, raw in (
            (STRATA_AT, self.strata()),
            (STACKS_AT, stacks),
            (SAMPLES_AT, samples),
            (MODULES_AT, modules),
            (NAMES_AT, names),
        ):
            data[offset : offset + len(raw)] = raw
        for (row, column), count in self.lifetimes.items():
            struct.pack_into("<d", data, LIFETIMES_AT + 8 * (row * 24 + column), count)
        return bytes(data)

    def write(self, path: Path, pid: int = 99999999) -> Path:
        """A record with this area."""
        return write_record(path, {}, pid=pid, profile=self.pack(), profile_size=SIZE)


def sums(samples: Iterable[One], rate: int = RATE) -> tuple[float, float, float]:
    """Sums of weights, of weighed bytes and of squared weights."""
    pairs = [(weight(one.size, rate), one.size) for one in samples]
    return sum(w for w, _ in pairs), sum(w * y for w, y in pairs), sum(w * w for w, _ in pairs)
