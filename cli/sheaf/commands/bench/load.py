"""Measure the load by other processes during a measurement."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path


def _busy_seconds() -> float:
    """CPU seconds used on this machine since boot, including steal time."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq, steal = (int(field) for field in fields[:8])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    """CPU seconds used by this process and its ended children."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


class LoadMeter:
    """Measures the load by other processes since its creation, in CPUs: 1.0 means one busy CPU."""

    def __init__(self) -> None:
        self._start = (time.monotonic(), _busy_seconds(), _own_seconds())

    def other_cpus(self) -> float:
        """The average load since creation. The kernel counts in ticks, so the result is useless for a few milliseconds."""
        wall, busy, own = self._start
        elapsed = time.monotonic() - wall
        others = (_busy_seconds() - busy) - (_own_seconds() - own)
        return max(0.0, others - 2 / os.sysconf("SC_CLK_TCK")) / elapsed if elapsed > 0 else 0.0


def wait_for_quiet(limit: float, most_s: float) -> None:
    """Wait until other processes use at most `limit` CPUs, but no longer than `most_s` seconds."""
    end = time.monotonic() + most_s
    while time.monotonic() < end:
        meter = LoadMeter()
        time.sleep(min(0.5, most_s))
        if meter.other_cpus() <= limit:
            return
