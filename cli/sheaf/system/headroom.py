"""How much memory a process could still take before the system or its control group runs out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")


def _number(path: Path) -> int | None:
    """The number in a file; None if there is none, as for `max`."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _reclaimable(path: Path) -> int:
    """Bytes of file contents that the group can drop at once."""
    try:
        found = re.search(r"^(?:total_)?inactive_file (\d+)$", path.read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0


def _groups(pid: int) -> Iterator[tuple[Path, str, str]]:
    """The directories of the control groups of a process, and the names of their files for the limit and for the use."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return
    for _, controllers, path in (line.split(":", 2) for line in lines):
        if controllers and "memory" not in controllers.split(","):
            continue
        mount = _GROUPS / "memory" if controllers else _GROUPS
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if controllers else ("memory.max", "memory.current")
        inner = Path(path.lstrip("/"))
        for group in (inner, *inner.parents):
            yield mount / group, *names


def left(pid: int) -> int | None:
    """Bytes until the machine or a control group of the process is full; None if nothing is known."""
    found = []
    try:
        available = re.search(r"^MemAvailable: +(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        available = None
    if available:
        found.append(int(available[1]) << 10)
    for group, limit_name, use_name in _groups(pid):
        limit, use = _number(group / limit_name), _number(group / use_name)
        if limit is not None and use is not None:
            found.append(limit - use + _reclaimable(group / "memory.stat"))
    return min(found, default=None)
