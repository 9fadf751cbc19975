"""Take snapshots of a process, for some time, with sampling switched on for that time if it is off."""

from __future__ import annotations

import contextlib
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import click

from sheaf.commands.profile import area, switch
from sheaf.commands.profile.area import NoProfile, Snapshot
from sheaf.errors import SheafError
from sheaf.records import record
from sheaf.rendering import sizes

RATE = 512 << 10
SECONDS = 10.0
_SIZE = re.compile(r"(\d{1,12})([KMGkmg]?)(?:iB|B)?")
_LARGEST = 1 << 39  # bytes; a request has 40 bits for the rate
_STEP = 0.1  # seconds between looks at whether the process still runs
_SHORT = 2.0  # seconds of waiting that need no progress bar


def given_rate(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    """The value of --rate in bytes, for click. Raises SheafError if it is none."""
    if value is None:
        return None
    found = _SIZE.fullmatch(value)
    number = int(found[1]) << 10 * " KMG".index(found[2].upper() or " ") if found else 0
    if not 1 <= number <= _LARGEST:
        raise SheafError(f"--rate {value}: not a number of bytes; give a size such as 512K", 2)
    return number


@dataclass
class Observed:
    """One or two snapshots, and sentences about how they came about."""

    snapshot: Snapshot
    first: Snapshot | None = None
    notes: list[str] = field(default_factory=list)


class _Ended(Exception):
    """A signal asked this command to end."""


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into an exception, so that sampling is switched off before this command ends by them."""
    received: list[int] = []

    def end(number: int, _: FrameType | None) -> None:
        received.append(number)
        raise _Ended

    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) == signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, end)
    try:
        yield
    except _Ended:
        signal.signal(received[0], signal.SIG_DFL)
        signal.raise_signal(received[0])
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def wait(seconds: float, going_on: Callable[[], bool]) -> bool:
    """
    Wait, with a progress bar if it takes long and standard error is a terminal. Returns early if `going_on` returns false
    or the user presses Ctrl-C; returns whether all of the time has passed.
    """
    start = time.monotonic()
    shows = seconds > _SHORT and sys.stderr is not None and sys.stderr.isatty()
    bar = click.progressbar(length=round(seconds * 10), label="sampling", file=sys.stderr, width=0) if shows else None
    try:
        with bar or contextlib.nullcontext():
            while (passed := time.monotonic() - start) < seconds:
                if not going_on():
                    return False
                time.sleep(min(_STEP, seconds - passed))
                if bar:
                    bar.update(min(bar.length or 0, round((time.monotonic() - start) * 10)) - bar.pos)
    except KeyboardInterrupt:
        return False
    return True


def _alive(path: Path) -> Callable[[], bool]:
    head = record.read_head(path)

    def check() -> bool:
        pid = head.here
        return (
            record.read_head(path).end_time_ns == 0
            and pid is not None
            and Path(f"/proc/{pid}").exists()
            and (not record.is_zombie(pid))
        )

    return check


def _read(path: Path) -> Snapshot | None:
    try:
        return area.read_area(path)
    except NoProfile as error:
        if not error.room:
            raise
        return None


class Observer:
    """
    A process while it is observed. As a context manager it switches sampling off at the end if it switched it on. `rate` is
    that of the user, or None; the process has to answer within `timeout` seconds.
    """

    def __init__(self, path: Path, rate: int | None, timeout: float) -> None:
        self.path, self.notes = path, list[str]()
        self._rate, self._timeout, self._switched = rate, timeout, False
        self.alive = record.read_head(path).alive
        self.earlier = _read(path)  # before sampling is switched on

    def __enter__(self) -> Observer:
        return self

    def __exit__(self, *_: object) -> None:
        running = _alive(self.path)
        if self._switched and running():
            try:
                switch.sample(self.path, 0, self._timeout)
            except SheafError:
                if running():
                    raise

    @property
    def on(self) -> bool:
        """Whether the process was sampled before this command came."""
        return self.alive and self.earlier is not None and self.earlier.header.on

    def start(self) -> None:
        """Switch sampling on if it is off."""
        if self.on:
            assert self.earlier
            if self._rate not in (None, self.earlier.header.rate):
                every = sizes.size(self.earlier.header.rate)
                self.notes.append(f"The process was sampled already, every {every}; --rate has no effect.")
            return
        self._switched = True
        switch.sample(self.path, self._rate or RATE, self._timeout)
        known = (
            "allocations between an earlier profile and this moment are not known"
            if self.earlier
            else ("only allocations since then are known")
        )
        self.notes.append(f"Sampling was switched on by this command: {known}.")

    def wait(self, seconds: float) -> bool:
        """Wait, or until the process ends or the user presses Ctrl-C. Returns whether all of the time has passed."""
        start = time.monotonic()
        if wait(seconds, _alive(self.path)):
            return True
        self.notes.append(f"Stopped after {time.monotonic() - start:.1f} of {seconds:g} s.")
        return False

    def snapshot(self) -> Snapshot:
        """The profile now. Raises SheafError if there is none."""
        if _alive(self.path)():
            switch.refresh(self.path)
        return area.read_area(self.path)


def ended(path: Path, snapshot: Snapshot | None, seconds: float | None) -> Observed:
    """What the record of an ended process holds."""
    if seconds is not None:
        raise SheafError(f"{path}: the process has ended; leave --seconds out", 2)
    return Observed(snapshot or area.read_area(path))


def observe(path: Path, seconds: float | None, rate: int | None, two: bool, timeout: float) -> Observed:
    """
    The profile of a process: what it holds if it has ended; at once, or over `seconds`, if it is sampled; otherwise after
    sampling it for `seconds`. `two` asks for two snapshots in any case.
    """
    with terminable(), Observer(path, rate, timeout) as observer:
        if not observer.alive:
            return ended(path, observer.earlier, seconds)
        was_on = observer.on
        observer.start()
        if was_on and seconds is None and not two:
            return Observed(observer.snapshot(), notes=observer.notes)
        # What was sampled before this command came is told from what it sees only by a first snapshot.
        first = observer.snapshot() if was_on or two or observer.earlier else None
        observer.wait(SECONDS if seconds is None else seconds)
        return Observed(observer.snapshot(), first, observer.notes)
