"""Facts about the machine, for readers of exported results."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from sheaf.commands.bench.contestants import fixed_environment
from sheaf.commands.bench.cpus import microarchitecture
from sheaf.commands.bench.native import captured
from sheaf.errors import SheafError

Machine = dict[str, str | int | float]
MEASURED = ("mhz", "store_forward_cycles", "store_forward_computed_cycles")
_PROGRAM_S = 30


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _fields(path: str) -> dict[str, str]:
    """The first value of each key in a file of KEY: VALUE lines; in /proc/cpuinfo it belongs to the first CPU."""
    found: dict[str, str] = {}
    for line in _read(path).splitlines():
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name.strip(), value.strip())
    return found


def _cpu(cpu: Mapping[str, str]) -> Machine:
    """The fields that identify the CPU, without those that the kernel does not report."""
    keys = {
        "cpu_family": "cpu family",
        "cpu_model": "model",
        "cpu_stepping": "stepping",
        "cpu_implementer": "CPU implementer",
        "cpu_part": "CPU part",
    }
    known: Machine = {name: cpu[key] for name, key in keys.items() if key in cpu}
    return {"microarchitecture": microarchitecture(cpu) or "unknown", **known}


def measured(program: Path) -> Machine:
    """The output of bench-machine; empty if it was not built or fails, as on another architecture."""
    if not program.is_file():
        return {}
    try:
        found = json.loads(captured([str(program)], fixed_environment(), _PROGRAM_S))
        return {key: float(found[key]) for key in MEASURED}
    except (SheafError, ValueError, KeyError, TypeError):
        return {}


def machine(program: Path | None = None) -> Machine:
    """All facts about this machine, without its host name. `program` is bench-machine."""
    cpu, memory = _fields("/proc/cpuinfo"), _fields("/proc/meminfo")
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "cpu": cpu.get("model name") or platform.machine(),
        **_cpu(cpu),
        **(measured(program) if program else {}),
        "cpus": len(os.sched_getaffinity(0)),
        "memory": memory.get("MemTotal", ""),
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
        "huge_pages": _read("/sys/kernel/mm/transparent_hugepage/enabled"),
        "page_size": os.sysconf("SC_PAGE_SIZE"),
    }


def cpu_line(found: Mapping[str, str | int | float]) -> str:
    """The CPU on one line, such as "AMD EPYC, Zen 5 (family 26, model 2, stepping 1), 4.1 GHz under load"."""
    names = {
        "cpu_family": "family",
        "cpu_model": "model",
        "cpu_stepping": "stepping",
        "cpu_implementer": "implementer",
        "cpu_part": "part",
    }
    numbers = ", ".join(f"{name} {found[key]}" for key, name in names.items() if key in found)
    known = str(found.get("microarchitecture", ""))
    parts = [", ".join(part for part in (str(found.get("cpu", "unknown CPU")), known) if part not in ("", "unknown"))]
    parts += [f"({numbers})"] if numbers else []
    said = " ".join(parts)
    if "mhz" in found:
        said += f", {float(found['mhz']) / 1000:.2f} GHz under load"
    if "store_forward_cycles" in found:
        said += (
            f"; from a store to a dependent load {found['store_forward_cycles']} cycles through one register, "
            f"{found['store_forward_computed_cycles']} through computed addresses"
        )
    return said
