"""A server over records that the test writes, and clients for it."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from conftest import write_record
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from sheaf.commands.serve import app, guard
from sheaf.commands.serve.machine import Limits, Machine
from sheaf.commands.serve.state import Server
from starlette.testclient import TestClient

TOKEN = "correct horse battery staple".replace(" ", "-")


def process_start(pid: int) -> int:
    """Field 22 of /proc/PID/stat."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


class Fake:
    """
    A record that the test process has mapped, so that it counts as that of a running process. Several of them differ by the
    time at which they began.
    """

    _numbers = itertools.count(1)

    def __init__(
        self, directory: Path, program: str = "server", began: int | None = None, mapped: bool = True, **counters: int
    ) -> None:
        self.number = next(self._numbers)
        self.path = directory / f"{program}.{os.getpid()}.{self.number}.sheaf"
        self.began = began if began is not None else self.number
        self.counters: dict[str, dict[str, int]] = {"malloc-64": {"slabs": 1, "objects": 1024, "free_in_slabs": 1000, **counters}}
        self.values: dict[str, int] = {}
        self._map: mmap.mmap | None = None
        self._write(ended=not mapped)
        if mapped:
            with open(self.path, "r+b") as file:
                self._map = mmap.mmap(file.fileno(), 4096)

    def _write(self, ended: bool) -> None:
        temporary = self.path.with_suffix(".new")
        write_record(
            temporary,
            self.counters,
            pid=os.getpid(),
            ended=ended,
            values=dict(self.values),
            start=process_start(os.getpid()),
            namespace=os.stat("/proc/self/ns/pid").st_ino,
            began=self.began,
            boot=Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        )
        raw = temporary.read_bytes()
        temporary.unlink()
        if self.path.exists():
            with open(self.path, "r+b") as file:  # in place, as the process itself writes
                file.write(raw)
        else:
            self.path.write_bytes(raw)

    def count(self, cache: str = "malloc-64", **counters: int) -> None:
        """Set counters and gauges of a cache."""
        self.counters.setdefault(cache, {}).update(counters)
        self._write(False)

    def set(self, **values: int) -> None:
        """Set values of the process. Their names must not change after the first scan."""
        self.values.update(values)
        self._write(False)

    def end(self, remove: bool = False) -> None:
        """End the process; its record stays unless it is removed."""
        self._write(True)
        if self._map:
            self._map.close()
        self._map = None
        if remove:
            self.path.unlink()


def make_server(directory: Path, *, limits: Limits | None = None, max_age: float = 0.0, **policy: Any) -> Server:
    """A server that shows only the records in a directory, and scans for each request."""
    machine = Machine([directory], limits or Limits(caches=100), discover=False)
    machine.started_ns = 1000  # records that began later and have ended are those of processes that came and went
    policy = {"hosts": frozenset({"testserver", "localhost", "127.0.0.1"}), **policy}
    return Server(machine, guard.Policy(**policy), "1.2.3", interval=3600.0, max_age=max_age)


@contextlib.contextmanager
def client_of(server: Server) -> Iterator[TestClient]:
    """A client. Errors inside the server fail the test."""
    with TestClient(app.make(server), base_url="http://testserver") as client:
        yield client


OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scrape(client: TestClient) -> Samples:
    """All samples of /metrics, parsed by prometheus-client."""
    answer = client.get("/metrics", headers={"Accept": OPENMETRICS})
    assert answer.status_code == 200, answer.text
    found: Samples = {}
    for family in text_string_to_metric_families(answer.text):  # type: ignore[no-untyped-call]
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found, f"twice: {key}"
            found[key] = sample.value
    return found


def value(samples: Samples, name: str, **labels: str) -> float:
    """The sum of the samples of this name that have these labels."""
    matching = [one for (found, have), one in samples.items() if found == name and labels.items() <= dict(have).items()]
    assert matching, f"no sample {name} with {labels}; there are {sorted({found for found, _ in samples})}"
    return sum(matching)


def now_ns() -> int:
    """A time at which a record may begin so that it counts as that of a process that came and went."""
    return time.time_ns()


def command() -> list[str]:
    """The start of a command line of `sheaf`."""
    return [sys.executable, "-m", "sheaf"]
