"""Switch sampling on and off in a running process, and bring its counts up to date."""

from __future__ import annotations

import contextlib
from pathlib import Path

from sheaf.errors import SheafError
from sheaf.records import control, layout
from sheaf.system.progress import TIMEOUT

_REFUSALS = {1: "all of its caches are debugged or hardened", 2: "it could not get memory", 3: "its Sheaf has no unwinder"}
_REASONS = {control.UNKNOWN: "its Sheaf has no profiles", control.RANGE: "the rate is out of range; give another --rate"}


def sample(path: Path, rate: int, timeout: float = TIMEOUT) -> None:
    """
    Make the process of a record take a sample for each `rate` bytes on average; 0 stops it. Raises SheafError if it refuses,
    has ended, or does not answer within `timeout` seconds.
    """
    reader = layout.Reader(path)
    with reader.file:
        end = reader.optional("profile_offset") + reader.optional("profile_size")
    with control.connect(str(path), timeout) as client:
        client.extend(end)
        answer = client.ask(control.PROFILE, value=rate)
    if answer.status == control.DONE:
        return
    if answer.status == control.NO_ROOM:
        raise SheafError(f"{path}: no room for a profile: the file system is full; free some MiB in it")
    refusal = _REFUSALS.get(answer.results[0], "its options forbid it")
    reason = refusal if answer.status == control.REFUSED else _REASONS.get(answer.status, f"status {answer.status}")
    raise SheafError(f"{client.who}: refuses to sample: {reason}")


_PATIENCE = 0.5  # seconds; a helper thread answers in milliseconds


def refresh(path: Path) -> None:
    """
    Let a running process count what it holds, which it does only now and then. Where it does not answer soon, because it
    sleeps and has no helper thread, its last counts have to do: they are at most some milliseconds older than its samples.
    """
    with contextlib.suppress(SheafError), control.connect(str(path), _PATIENCE) as client:
        client.ask(control.FOLD)
