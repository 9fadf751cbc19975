"""Fixtures that run the command, and records with known contents."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# A shell ignores these signals in background jobs, and the programs under test would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "cli"))
COUNTERS = ["alloc_fastpath", "alloc_slowpath", "free_fastpath", "free_slowpath", "sheaf_refill", "sheaf_flush", "barn_get"]
GAUGES = ["slabs", "objects", "free_in_slabs", "barn_objects", "inherited"]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def sheaf() -> Run:
    """A function that runs `sheaf ARGS` and returns the completed process."""

    def run(*args: str, **more: object) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONPATH": str(ROOT / "cli"), **more.pop("env", {})}  # type: ignore[dict-item]
        return subprocess.run([sys.executable, "-m", "sheaf", *args], capture_output=True, text=True, env=env, timeout=60,
                              **more)  # type: ignore[call-overload, no-any-return]

    return run


@pytest.fixture
def library() -> str:
    """The path of the preloaded object. Tests that need it are skipped if SHEAF_LIBRARY is not set."""
    path = os.environ.get("SHEAF_LIBRARY")
    if not path:
        pytest.skip("SHEAF_LIBRARY does not name the preloaded object")
    return path


def write_record(path: Path, caches: dict[str, dict[str, int]], pid: int = 99999999, state: int = 2, slot: int = 0,
                 values: dict[str, int] | None = None, peak: int = 1 << 20) -> Path:  # fmt: skip
    """
    Write a record in which one slot was used. `caches` has counters and gauges by name for each cache, `values` those of the
    process.
    """
    process = {"slab_bytes": 65536 * len(caches), "large_bytes": 0, **(values or {})}
    names = b"".join(name.encode() + b"\0" for name in [*COUNTERS, *GAUGES, *process])
    caches_at, slots_at = 16384, 65536
    stride, entry = 128, 32 + 32 + 24 * 8
    header = struct.pack("<8sIIQ8I4QIIQQ4IQ16s32s128s128s", b"SHEAFREC", 1, 512, 0, len(COUNTERS), stride, len(GAUGES),
                         len(process), 16, entry, slot + 1, 16 * stride, 4096, 8192, caches_at, slots_at, pid, 1, 5, 6, 1, state,
                         1024, 4096, peak, b"rseq mm_cid", b"0.1.0", path.stem.split(".")[0].encode(), b"kernel")
    data = bytearray(slots_at + (slot + 1) * 16 * stride)
    data[: len(header)] = header
    data[4096 : 4096 + len(names)] = names
    struct.pack_into(f"<{len(process)}Q", data, 8192, *process.values())
    for i, (name, values) in enumerate(caches.items()):
        gauges = [values.get(gauge, 0) for gauge in GAUGES] + [0] * (24 - len(GAUGES))
        struct.pack_into("<32s8I24Q", data, caches_at + i * entry, name.encode(), i, 64, 64, 16, 65536, 1024, 253, 1, *gauges)
        struct.pack_into(f"<{len(COUNTERS)}Q", data, slots_at + (slot * 16 + i) * stride, *(values.get(c, 0) for c in COUNTERS))
    path.write_bytes(bytes(data))
    return path


def as_nobody(function: Callable[[], str]) -> str:
    """The result of `function` in a process of an unprivileged user."""
    if os.geteuid() != 0:
        return function()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            os.write(writer, function().encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        said = file.read()
    os.waitpid(pid, 0)
    return said
