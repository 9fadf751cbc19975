"""Profile areas with known contents, as sheaf/profile.h defines them."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from conftest import write_record

RATE = 512 << 10
HEADER, STACKS_AT, SAMPLES_AT, MODULES_AT, LIFETIMES_AT = 208, 4096, 65536, 196608, 262144
SIZE = LIFETIMES_AT + 16 * 24 * 8
START_NS = 1_700_000_000_000_000_000


def weight(size: int, rate: int = RATE) -> float:
    """The number of allocations of this size that a sample stands for."""
    return 1 / -math.expm1(-size / rate)


@dataclass
class One:
    """A sample: a block that was allocated by a stack, and freed unless it is live."""

    pcs: tuple[int, ...]
    size: int
    time_ms: int = 0
    live: bool = True
    room: int = 0  # 0: as much as the size
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
    header: dict[str, int | float] = field(default_factory=dict)  # replaces computed values

    def stacks(self) -> tuple[bytes, dict[tuple[int, ...], int]]:
        """The table of stacks, and the offset of each."""
        raw, at = b"", {}
        for pcs in dict.fromkeys([(), *(one.pcs for one in self.samples)]):
            at[pcs] = len(raw)
            mine = [one for one in self.samples if one.pcs == pcs]
            alive, peak = [one for one in mine if one.live], [one for one in mine if one.peak]
            wasted = sum(weight(one.size, self.rate) * max(0, one.room - one.size) for one in alive)
            numbers = (*sums(mine, self.rate), *sums(alive, self.rate), wasted, *sums(peak, self.rate)[:2])
            raw += struct.pack("<2IQ9d3Q", 112 + 8 * len(pcs), len(pcs), 1, *numbers, self.epoch, len(mine), len(alive))
            raw += struct.pack(f"<{len(pcs)}Q", *pcs)
        return raw, at

    def pack(self) -> bytes:
        """The area as a process would have written it."""
        stacks, at = self.stacks()
        alive = [one for one in self.samples if one.live]
        samples = b"".join(struct.pack("<3Qd4I", 0x1000 + 16 * i, one.size, one.room or one.size, weight(one.size, self.rate),
                                       one.time_ms, at[one.pcs], 1, 0) for i, one in enumerate(self.samples) if one.live)
        modules = b"".join(struct.pack("<3Q32sI300s", start, end, bias, build_id, len(build_id), path.encode())
                           for start, end, bias, build_id, path in self.modules)
        live, alloc = sums(alive, self.rate), sums(self.samples, self.rate)
        values: dict[str, int | float] = {
            "version": 1, "on": self.on, "sequence": 8, "rate": self.rate, "start_ns": self.start_ns, "now_ms": self.now_ms,
            "taken": len(self.samples), "freed": len(self.samples) - len(alive), "lost_stacks": 0, "lost_samples": 0, "slowed": 0,
            "live_count": live[0], "live_bytes": live[1], "live_variance": live[2], "alloc_count": alloc[0],
            "alloc_bytes": alloc[1], "peak_bytes": sums([one for one in self.samples if one.peak], self.rate)[1],
            "peak_ms": 30_000, "peak_epoch": 7, "pid_of_parent": 0, "stacks_at": STACKS_AT,
            "stacks_bytes": SAMPLES_AT - STACKS_AT, "stacks_used": len(stacks), "stacks_count": len(at),
            "samples_at": SAMPLES_AT, "samples_max": (MODULES_AT - SAMPLES_AT) // 48, "samples_used": len(alive),
            "modules_at": MODULES_AT, "modules_max": 64, "modules_used": len(self.modules), "lifetimes_at": LIFETIMES_AT,
            "unused": 0,
        }  # fmt: skip
        values.update(self.header)
        data = bytearray(SIZE)
        data[:HEADER] = struct.pack("<8s2I9Q6d3Q12I", b"SHEAFPRO", *values.values())
        for offset, raw in ((STACKS_AT, stacks), (SAMPLES_AT, samples), (MODULES_AT, modules)):
            data[offset : offset + len(raw)] = raw
        for (row, column), count in self.lifetimes.items():
            struct.pack_into("<d", data, LIFETIMES_AT + 8 * (row * 24 + column), count)
        return bytes(data)

    def write(self, path: Path, pid: int = 99999999) -> Path:
        """A record with this area."""
        return write_record(path, {}, pid=pid, profile=self.pack(), profile_size=SIZE)


def sums(samples: Iterable[One], rate: int = RATE) -> tuple[float, float, float]:
    """Estimated count and bytes of these samples, and the variance of the bytes."""
    pairs = [(weight(one.size, rate), one.size) for one in samples]
    return sum(w for w, _ in pairs), sum(w * y for w, y in pairs), sum(w * (w - 1) * y * y for w, y in pairs)
