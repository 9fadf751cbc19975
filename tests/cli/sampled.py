"""A process that behaves like one on Sheaf: it maps its record and answers requests to sample and to trim.

Usage: sampled.py RECORD AREA... ; the areas are written one after the other: the first when sampling is switched on, the
next ones whenever a line comes on standard input. It prints a line for each change, and ends with its standard input.
"""

from __future__ import annotations

import mmap
import select
import struct
import sys
from pathlib import Path

FOLD, TRIM, PROFILE, REFUSED = 1, 2, 4, 4


def write(mapped: mmap.mmap, at: int, area: bytes) -> None:
    mapped[at : at + len(area)] = area


def main() -> None:
    path, areas = Path(sys.argv[1]), [Path(name).read_bytes() for name in sys.argv[2:]]
    control, at, refusal = (int(word) for word in sys.stdin.readline().split())
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        print("ready", flush=True)
        while True:
            ready, _, _ = select.select([sys.stdin], [], [], 0.01)
            if ready:
                if not sys.stdin.readline():
                    return
                write(mapped, at, areas.pop(0))
                print("written", flush=True)
            request, answer = struct.unpack_from("<2Q", mapped, control)
            if request in (0, answer):
                continue
            if request & 0xFF == FOLD:
                struct.pack_into("<Q", mapped, control + 16, 0)
                struct.pack_into("<Q", mapped, control + 8, request)
                continue
            if request & 0xFF == TRIM:
                struct.pack_into("<2Q", mapped, control + 16, 0, 8 << 20)
                struct.pack_into("<Q", mapped, control + 8, request)
                print("trim", flush=True)
                continue
            assert request & 0xFF == PROFILE
            rate = request >> 24
            if rate and not refusal:
                write(mapped, at, areas.pop(0))
            if not refusal:
                struct.pack_into("<I", mapped, at + 12, int(rate > 0))
            struct.pack_into("<2Q", mapped, control + 16, REFUSED if refusal else 0, refusal)
            struct.pack_into("<Q", mapped, control + 8, request)
            print(f"rate {rate}", flush=True)


main()
