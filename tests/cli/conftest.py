"""Fixtures that run the command, and records with known contents."""

from __future__ import annotations

import os
import re
import signal
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

# A shell ignores the first two in background jobs, and nohup the third. The programs under test would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "cli"))
COUNTERS = ["alloc_fastpath", "alloc_slowpath", "free_fastpath", "free_slowpath", "sheaf_refill", "sheaf_flush", "barn_get"]
GAUGES = ["slabs", "objects", "free_in_slabs", "barn_objects", "inherited"]
Run = Callable[..., subprocess.CompletedProcess[str]]
T = TypeVar("T")


def until(what: Callable[[], T]) -> T:
    """The first true result of a function. Fails only where the test would hang."""
    deadline = time.monotonic() + 300
    while not (found := what()):
        assert time.monotonic() < deadline, "nothing happened in 300 seconds"
        time.sleep(0.05)
    return found


@pytest.fixture
def sheaf() -> Run:
    """A function that runs `sheaf ARGS` and returns the completed process."""

    def run(*args: str, **more: Any) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONPATH": str(ROOT / "cli"), **more.pop("env", {})}
        return subprocess.run([sys.executable, "-m", "sheaf", *args], capture_output=True, text=True, env=env, timeout=60, **more)

    return run


@pytest.fixture
def library() -> str:
    """The path of the preloaded object. Tests that need it are skipped if SHEAF_LIBRARY is not set."""
    path = os.environ.get("SHEAF_LIBRARY")
    if not path:
        pytest.skip("SHEAF_LIBRARY does not name the preloaded object")
    return path


def sums() -> list[str]:
    """The lines of sums in the text of a record, as the library writes them."""
    table, lines = (ROOT / "lib/cache/slot/counters.def").read_text(), []
    for group, kind in (("COUNTER", "cache"), ("CACHE", "cache"), ("PROCESS", "process")):
        part = table.split(f"#ifdef SHEAF_{group}_SUMS\n")[1].split("#endif")[0]
        lines += [f"{kind} {name} = {formula}" for name, formula in re.findall(r"^X\((\w+),\s+([^,]*),", part, re.M)]
    return lines


def write_record(
    path: Path,
    caches: dict[str, dict[str, int]],
    pid: int = 99999999,
    ended: bool = True,
    slot: int = 0,
    values: dict[str, int] | None = None,
    peak: int = 1 << 20,
    later: bool = False,
    start: int = 0,
    namespace: int = 0,
    boot: str = "",
    began: int = 5,
    profile: bytes = b"",
    profile_size: int = 0,
) -> Path:
    """
    Write a record in which one slot was used. `caches` has counters and gauges by name for each cache, `values` those of the
    process; `start`, `namespace` and `boot` identify it, and it began to write at `began`. `profile` is the content of its
    profile area, which may be shorter than `profile_size`; the control area and its window come before it. With `later` it
    has more fields, and those of the header in another order, as a later library may write them.
    """
    process = {
        "slab_bytes": 65536 * len(caches),
        "large_bytes": 0,
        "end_time_ns": 6 if ended else 0,
        "peak_resident_bytes": peak,
        **(values or {}),
    }
    first, size, entry_at, slots_at = 16, 4096, 16384, 65536
    areas_at = slots_at + (slot + 1) * 16 * 128 + 4095 & ~4095
    profile_at = areas_at + 4096 + 65536
    fields: dict[str, tuple[str, int | bytes]] = {
        "values_offset": ("Q", 8192),
        "caches_offset": ("Q", entry_at),
        "slots_offset": ("Q", slots_at),
        "cache_max": ("I", 16),
        "cache_stride": ("I", 512),
        "slot_max": ("I", slot + 1),
        "slot_stride": ("I", 16 * 128),
        "counter_stride": ("I", 128),
        "fold_interval": ("I", 1024),
        "pid": ("I", pid),
        "parent_pid": ("I", 1),
        "start_time_ns": ("Q", began),
        "mode_name": ("16s", b"rseq mm_cid"),
        "sheaf_version": ("32s", b"0.1.0"),
        "program": ("128s", path.stem.split(".")[0].encode()),
        "kernel": ("128s", b"kernel"),
        "process_start": ("Q", start),
        "pid_namespace": ("Q", namespace),
        "boot_id": ("40s", boot.encode()),
        "control_offset": ("Q", areas_at),
        "window_offset": ("Q", areas_at + 4096),
        "profile_offset": ("Q", profile_at),
        "profile_size": ("Q", profile_size),
    }
    entry = {
        "name": "32s",
        "object_size": "I",
        "size": "I",
        "slab_size": "I",
        "capacity": "I",
        "flags": "I",
        "checksum": "I",
        "gauges": "24Q",
    }
    if not profile_size:
        fields.update({name: ("Q", 0) for name in ("control_offset", "window_offset", "profile_offset")})
    if later:
        fields = {"weather": ("16s", b"fine"), **dict(reversed(fields.items()))}
        entry = {"colour": "3I", **entry, "shape": "8s"}
    names = {"s": "char", "I": "uint32_t", "Q": "uint64_t"}

    def line(kind: str, name: str, code: str) -> str:
        return f"{kind} {names[code[-1]]} {name}" + (f"[{code[:-1]}]" if code[:-1] else "")

    lines = ["header char magic[8]"]
    lines += [f"header uint32_t {name}" for name in ("version", "checksum", "checked_size", "text_offset")]
    lines += [line("header", name, code) for name, (code, _) in fields.items()]
    lines += [line("entry", name, code) for name, code in entry.items()]
    lines += [f"counter {name}" for name in COUNTERS] + [f"gauge {name}" for name in GAUGES]
    lines += [f"value {name}" for name in process] + (["tide high"] if later else []) + sums()
    header = struct.pack("<" + "".join(code for code, _ in fields.values()), *(value for _, value in fields.values()))
    checked = struct.pack("<II", size, 24 + len(header)) + header + "".join(f"{one}\n" for one in lines).encode()
    checked = checked.ljust(size - first, b"\n")
    data = bytearray(slots_at + (slot + 1) * 16 * 128)
    data[:size] = struct.pack("<8sII", b"SHEAFREC", 2, zlib.crc32(checked)) + checked
    struct.pack_into(f"<{len(process)}Q", data, 8192, *process.values())
    for i, (name, numbers) in enumerate(caches.items()):
        gauges = [numbers.get(gauge, 0) for gauge in GAUGES] + [0] * (24 - len(GAUGES))
        value: dict[str, list[int] | list[bytes]] = {
            "name": [name.encode()],
            "object_size": [64],
            "size": [64],
            "slab_size": [65536],
            "capacity": [253],
            "flags": [1],
            "checksum": [0],
            "gauges": gauges,
            "colour": [7, 7, 7],
            "shape": [b"round"],
        }
        packed = struct.pack("<" + "".join(entry.values()), *(one for key in entry for one in value[key]))
        constant = struct.calcsize("<" + "".join(entry.values()).partition("II24Q")[0] + "I")
        packed = packed[:constant] + struct.pack("<I", zlib.crc32(packed[:constant])) + packed[constant + 4 :]
        data[entry_at + i * 512 : entry_at + i * 512 + len(packed)] = packed
        struct.pack_into(f"<{len(COUNTERS)}Q", data, slots_at + (slot * 16 + i) * 128, *(numbers.get(c, 0) for c in COUNTERS))
    path.write_bytes(bytes(data) + (bytes(profile_at - len(data)) + profile if profile_size else b""))
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


# Allocates once for each line that it reads, and answers.
WORK = (
    "import sys; keep = []; print('ready', flush=True)\n"
    "for line in sys.stdin: keep += [bytes(600) for _ in range(5000)]; print('done', flush=True)"
)


class Program:
    """Python on Sheaf, which allocates when it is told to."""

    def __init__(self, library: str, directory: Path, code: str = WORK) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "LD_PRELOAD": library, "SHEAF_RECORD": str(directory)},
        )
        self.pid = self.process.pid
        self.answer("ready")

    def answer(self, line: str) -> None:
        assert self.process.stdout
        assert self.process.stdout.readline() == line + "\n"

    def work(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.answer("done")

    def end(self) -> None:
        self.process.communicate()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


Start = Callable[..., Program]


@pytest.fixture
def start(library: str, tmp_path: Path) -> Iterator[Start]:
    """A function that starts a program on Sheaf with a record in tmp_path, or elsewhere."""
    started = []

    def begin(directory: Path = tmp_path, code: str = WORK) -> Program:
        started.append(Program(library, directory, code))
        return started[-1]

    yield begin
    for program in started:
        program.kill()
