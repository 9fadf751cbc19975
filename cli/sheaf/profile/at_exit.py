"""Profiles of the processes of `sheaf run --profile`, written when they have ended."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from sheaf.errors import SheafError, printable
from sheaf.profile import area, export, symbols, table
from sheaf.profile.area import NoProfile, Snapshot
from sheaf.profile.observe import Observed

_VIEW = "peak"  # what is live at the end says little of a program that frees its memory
_TABLES = 3  # processes of which stacks are printed
_STACKS = 10
_SUFFIX = ".pb.gz"


def check(output: str | None) -> None:
    """Raise SheafError if profiles cannot be written: a wrong suffix or directory is an error before the program starts."""
    if output is not None:
        export.format_of(output, None, 125, "--profile-output")
    directory = os.path.dirname(output or "") or "."
    if not os.access(directory, os.W_OK | os.X_OK) or (output is not None and os.path.isdir(output)):
        raise SheafError(f"--profile-output {output or directory}: cannot be written; name a file in a writable directory", 125)


def _snapshots(paths: Iterable[Path], say: Callable[[str], None]) -> list[Snapshot]:
    """The profiles that have samples, those with the largest peak first."""
    found = []
    for path in paths:
        try:
            snapshot = area.read_area(path)
        except NoProfile:
            continue
        except SheafError as error:
            say(f"sheaf: {error.message}")
            continue
        if snapshot.header.taken:
            found.append(snapshot)
    return sorted(found, key=lambda snapshot: (-snapshot.header.peak_bytes, snapshot.path))


def _name(snapshot: Snapshot, output: str | None, several: bool) -> str:
    """The file for a process. The record is named PROGRAM.PID.sheaf, or PROGRAM.PID.N.sheaf after an exec."""
    if output is None:
        return snapshot.path.stem + _SUFFIX
    if not several:
        return output
    suffix = export.suffix_of(output)
    return f"{output[: len(output) - len(suffix)]}.{snapshot.path.stem.removeprefix(f'{snapshot.program}.')}{suffix}"


def report(paths: Iterable[Path], output: str | None, width: int, say: Callable[[str], None]) -> None:
    """Write a profile of each process that has samples, and print the largest stacks of those with the largest peaks."""
    snapshots = _snapshots(paths, say)
    if not snapshots:
        say("sheaf: no profile: no process allocated enough to be sampled; sample more often, as in --profile=16K")
    form = export.format_of(output, None) if output is not None else "pprof"
    for i, snapshot in enumerate(snapshots):
        observed, name = Observed(snapshot), _name(snapshot, output, len(snapshots) > 1)
        profile = export.view(observed, _VIEW)
        try:
            with symbols.symbolizer(snapshot) as symbolizer:
                data = export.dump(observed, _VIEW, form, symbolizer)
                with export.Output(name, "--profile-output") as file:
                    file.write(data)
                say(f"sheaf: {table.heading(profile)}; written to {printable(name)}")
                if i < _TABLES:
                    say("\n".join(table.stack_rows(profile, symbolizer, _STACKS, width)))
        except SheafError as error:
            say(f"sheaf: {error.message}")
