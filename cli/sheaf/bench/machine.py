"""What a reader of exported figures has to know about where they were taken."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from pathlib import Path


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _field(path: str, key: str) -> str:
    for line in _read(path).splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""


def machine() -> dict[str, str | int]:
    """Nothing in it names the host."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "cpu": _field("/proc/cpuinfo", "model name") or platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory": _field("/proc/meminfo", "MemTotal"),
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
        "huge_pages": _read("/sys/kernel/mm/transparent_hugepage/enabled"),
        "page_size": os.sysconf("SC_PAGE_SIZE"),
    }
