"""/debug/pprof/symbol: names of addresses, for which pprof asks where a profile has none.

The question has no process, only addresses. They are looked up in the modules of the profiles that were given last; as the
address spaces of processes are laid out at random, hardly two of them have code at the same place.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace

from sheaf.commands.profile import symbols
from sheaf.commands.profile.area import Snapshot
from sheaf.errors import printable

_KEPT = 32  # processes whose modules are remembered
MOST_BYTES = 4 << 20  # of a question
_ADDRESS = re.compile(r"0x([0-9a-fA-F]{1,16})")


class Given:
    """The modules of the processes whose profiles were given last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._snapshots: dict[tuple[int, int], Snapshot] = {}  # the latest last

    def remember(self, snapshot: Snapshot) -> None:
        """Keep the modules of a profile that is given to a client."""
        key = snapshot.pid, snapshot.began_ns
        with self._lock:
            self._snapshots.pop(key, None)
            self._snapshots[key] = replace(snapshot, stacks={}, samples=[])
            while len(self._snapshots) > _KEPT:
                del self._snapshots[next(iter(self._snapshots))]

    def names(self, addresses: Iterable[int]) -> Mapping[int, str]:
        """
        The functions at these addresses of a profile, in the order of the question; module+offset where a module has no
        symbols. Addresses in no module are left out.
        """
        with self._lock:
            snapshots = list(reversed(self._snapshots.values()))
        wanted = list(dict.fromkeys(addresses))
        found: dict[int, str] = {}
        for snapshot in snapshots:
            with symbols.symbolizer(snapshot) as symbolizer:
                pcs = [address + 1 for address in wanted if address not in found and symbolizer.module(address + 1)]
                symbolizer.prepare(pcs)  # an address in a profile lies in the call, one byte before the return address
                found.update((pc - 1, symbolizer.frames(pc)[-1].function) for pc in pcs)
        return {address: found[address] for address in wanted if address in found}


def answer(given: Given, question: str) -> str:
    """The answer to addresses with + between them: a line ADDRESS TAB NAME for each that is known."""
    names = given.names(int(one, 16) for one in _ADDRESS.findall(question))
    return "".join(f"{address:#x}\t{printable(name)}\n" for address, name in names.items())
