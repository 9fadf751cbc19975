"""The programs whose heaps are profiled, and what is compared of each: one function for each program."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profilers import Figure, Jemalloc, Peer, Profiler, Sheaf
from running import TIMEOUT_S, Failed, Running, Truth

HERE = Path(__file__).resolve().parent
REDIS_RATE = 64 << 10
FILL = ["-q", "-t", "set,lpush,hset", "-n", "150000", "-r", "150000", "-d", "300", "-c", "20", "-P", "16"]


@dataclass(frozen=True)
class Measured:
    """One figure of one run. `whole` is what the program held in all, by which a deviation is negligible or not."""

    row: str
    truth: float
    figure: Figure
    whole: float


Subject = Callable[[Profiler, Path], Iterator[Measured]]


def churn(profiler: Profiler, directory: Path) -> Iterator[Measured]:
    """Two sites beside three threads that churn; churn.c."""
    program = profiler.programs / "accuracy-churn"
    with profiler.start([program], directory) as running:
        held = running.ready().held
        heap = profiler.live(program, running)
        for site, truth in held.items():
            yield Measured(f"churn: {site}", truth, heap.site(site), sum(held.values()))


def arrays(profiler: Profiler, directory: Path) -> Iterator[Measured]:
    """Arrays of numpy, by the function of numpy that allocates them, and by the Python function; arrays.py."""
    with profiler.start([sys.executable, HERE / "arrays.py"], directory) as running:
        truth = running.ready().held["site_array"]
        heap = profiler.live(sys.executable, running)
        yield Measured("numpy: 20 arrays", truth, heap.site("PyDataMem_UserNEW"), truth)
        if isinstance(profiler, Sheaf):
            yield Measured("numpy: Python function", truth, heap.site("site_array"), truth)


def _grown(truth: Truth, site: str, end_ns: int, duration_ns: int) -> int:
    return truth.at(site, end_ns) - truth.at(site, end_ns - duration_ns)


def leak(profiler: Profiler, directory: Path) -> Iterator[Measured]:
    """A leak beside churn: what is live, and what grew between two snapshots; leak.c."""
    program, site = profiler.programs / "accuracy-leak", "site_leak"
    with profiler.start([program], directory) as running:
        truth = running.ready()
        first = truth.held[site]
        yield Measured("leak: live", first, profiler.live(program, running).site(site), first)
        if isinstance(profiler, Sheaf):
            heap, leaks = profiler.growth(running)
            known = heap.document
            grown = _grown(truth, site, known["time_ns"], known["duration_ns"])
            yield Measured("leak: growth", grown, heap.site(site), truth.held[site])
            grown = _grown(truth, site, leaks["time_ns"], leaks["duration_ms"] * 1_000_000)
            yield Measured("leak: sheaf leaks --growth", grown, _suspected(leaks["rows"], site), truth.held[site])
        elif isinstance(profiler, Peer):
            figure = profiler.growth(program, running).site(site)
            yield Measured("leak: growth", truth.held[site] - first, figure, truth.held[site])


def _suspected(rows: list[dict[str, Any]], site: str) -> Figure:
    """The growth of a site in the list of `sheaf leaks --growth`."""
    return next(
        (
            Figure(row["growth_bytes"], row["growth_bytes_error"])
            for row in rows
            if any(frame["function"] == site for frame in row["frames"])
        ),
        Figure(0.0, 0.0),
    )


def peak(profiler: Profiler, directory: Path) -> Iterator[Measured]:
    """What lived when a C++ program held the most; peak.cpp."""
    program = profiler.programs / "accuracy-peak"
    if not isinstance(profiler, Sheaf | Jemalloc):
        return
    with profiler.start([program], directory, peak=True) as running:
        truth = running.ready().peak
        heap = profiler.peak(running) if isinstance(profiler, Sheaf) else profiler.peak(program, running)
        whole = sum(truth.values())
        for site, held in truth.items():
            yield Measured(f"peak: {site}", held, heap.site(site), whole)


def _redis(directory: Path, *words: str) -> str:
    done = subprocess.run(
        ["redis-cli", "-s", "s", *words], cwd=directory, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
    )
    return done.stdout if done.returncode == 0 else ""


def _filled(running: Running, directory: Path) -> int:
    """Fill the server, and return what it says that it uses, as its allocator counts it."""
    for _ in range(600):
        if "PONG" in _redis(directory, "ping"):
            break
        time.sleep(0.05)
    else:
        raise Failed("redis-server does not answer")
    subprocess.run(["redis-benchmark", "-s", "s", *FILL], cwd=directory, stdout=subprocess.DEVNULL, check=True, timeout=TIMEOUT_S)
    time.sleep(0.5)  # until it has freed what its clients had
    number = re.search(r"process_id:(\d+)", _redis(directory, "info", "server"))
    used = re.search(r"used_memory:(\d+)", _redis(directory, "info", "memory"))
    if not number or not used:
        raise Failed("redis-server does not say what it uses")
    running.truth.pid = int(number[1])
    return int(used[1])


def redis(profiler: Profiler, directory: Path) -> Iterator[Measured]:
    """
    A server with strings, a list and a hash: used_memory against the sum of all rows, and for Sheaf the largest stack against
    all live objects of its size class, which are counted. used_memory counts what blocks take up, and so both are compared in
    bytes taken up: those of Sheaf are the views `live` and `wasted`.
    """
    command = ["redis-server", "--port", "0", "--unixsocket", "s", "--save", "", "--appendonly", "no"]
    with profiler.start(command, directory, REDIS_RATE) as running:
        used = _filled(running, directory)
        if isinstance(profiler, Sheaf):
            heap, wasted = profiler.view(running, "--view", "live"), profiler.view(running, "--view", "wasted").total()
            live = heap.total()
            error = (live.error or 0.0) + (wasted.error or 0.0)
            yield Measured("redis: used_memory", used, Figure(live.bytes + wasted.bytes, error), used)
            counted, figure = _class(profiler, running, heap.largest())
            yield Measured("redis: largest stack", counted, figure, used)
        _redis(directory, "shutdown", "nosave")
        running.wait()
        if isinstance(profiler, Peer):
            yield Measured("redis: used_memory", used, profiler.live("redis-server", running).total(), used)


def _class(sheaf: Sheaf, running: Running, row: dict[str, list[float]]) -> tuple[float, Figure]:
    """The live bytes of the size class that a stack allocates from, by counters, and what its samples say of it."""
    objects, size = row["values"][:2]
    caches = [one for one in sheaf.ask("stats", str(running.truth.pid))["rows"] if re.match(r"(malloc|sampled)-\d", one["name"])]
    each = min(one["object_size_bytes"] for one in caches if one["object_size_bytes"] >= size / objects)
    count = sum(one["in_use"] for one in caches if one["object_size_bytes"] == each)
    return count * each, Figure(objects * each, (row["errors"][0] or 0.0) * each)


SUBJECTS: dict[str, Subject] = {"churn": churn, "numpy": arrays, "leak": leak, "peak": peak, "redis": redis}


def unavailable(name: str, build: Path) -> str:
    """Why a program cannot run here; empty if it can."""
    if name == "numpy":
        return "" if importlib.util.find_spec("numpy") else f"{sys.executable} has no numpy; run pip install numpy"
    if name == "redis":
        tools = ("redis-server", "redis-cli", "redis-benchmark")
        return "" if all(map(shutil.which, tools)) else "run apt install redis-server redis-tools"
    program = build / "bench" / "accuracy" / f"accuracy-{name}"
    return "" if program.exists() else f"{program} is missing; build it with ninja -C {build}"
