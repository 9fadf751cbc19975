"""Find the mode in which a contestant runs on this machine, such as caches per CPU or per thread."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from sheaf.commands.bench.contestants import VERIFY_TIMEOUT_S, Contestant, fixed_environment
from sheaf.errors import SheafError
from sheaf.records import record

# Google's tcmalloc reports whether its caches are per CPU. It decides at the first allocation, which Python has made.
_PRINT_MODE = """
import ctypes
ask = getattr(ctypes.CDLL(None), "MallocExtension_Internal_GetPerCpuCachesActive", None)
if ask:
    ask.restype = ctypes.c_bool
    print("per-CPU" if ask() else "per-thread")
"""


def mode(contestant: Contestant) -> str:
    """The mode, such as "per-CPU" or "rseq mm_cid"; empty for an allocator with a single mode, or if it fails."""
    if contestant.path is None:
        return ""
    with tempfile.TemporaryDirectory(prefix="sheaf-bench-") as directory:
        environment = {**fixed_environment(), **contestant.environment(), "SHEAF_RECORD": directory}
        command = [sys.executable, "-I", "-S", "-c", _PRINT_MODE]
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, errors="replace", check=False, timeout=VERIFY_TIMEOUT_S
            )
            records = [record.read(path).mode for path in Path(directory).glob("*.sheaf")]
        except (subprocess.TimeoutExpired, SheafError):
            return ""
    return records[0] if records else done.stdout.strip()


def with_mode(contestant: Contestant) -> Contestant:
    """A copy of the contestant with its mode."""
    return replace(contestant, mode=mode(contestant))
