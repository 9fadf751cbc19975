"""What the endpoints share: the machine, its history, and the task that keeps both up to date."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field

from starlette.requests import Request

from sheaf.commands.serve.guard import Policy
from sheaf.commands.serve.history import History
from sheaf.commands.serve.machine import Machine, Snapshot

LOG = logging.getLogger("sheaf.serve")


@dataclass
class Server:
    """
    The state of one server. `interval` is the time between two scans in seconds; an answer is never older than `max_age`
    seconds.
    """

    machine: Machine
    policy: Policy
    version: str
    interval: float = 5.0
    max_age: float = 1.0
    history: History = field(default_factory=History)
    _scanned: float = field(default=float("-inf"))
    _began: float = field(default_factory=time.monotonic)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def stalled(self) -> bool:
        """Whether scans fail or hang: the last one is long ago."""
        return time.monotonic() - max(self._scanned, self._began) > 6 * self.interval + 60

    def scan(self) -> Snapshot:
        """Scan now, and add a point to the history."""
        snapshot = self.machine.scan()
        with self.machine.lock:
            self.history.add(snapshot.time_ns / 1e9, self.machine.accounts, snapshot.processes)
        self._scanned = time.monotonic()
        return snapshot

    async def fresh(self) -> Snapshot:
        """A snapshot that is not older than max_age. Requests at the same time share one scan."""
        async with self._turn:
            if time.monotonic() - self._scanned >= self.max_age:
                return await asyncio.to_thread(self.scan)
            return self.machine.snapshot

    async def watch(self) -> None:
        """Scan every `interval` seconds, until the task is cancelled."""
        while True:
            try:
                async with self._turn:
                    await asyncio.to_thread(self.scan)
            except Exception:
                LOG.exception("sheaf: the scan of processes failed; the next one follows in %g s", self.interval)
            await asyncio.sleep(self.interval)


def server_of(request: Request) -> Server:
    """The server that handles a request."""
    server = request.app.state.server
    assert isinstance(server, Server)
    return server
