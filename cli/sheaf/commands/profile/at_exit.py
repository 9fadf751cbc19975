"""Profiles of the processes of `sheaf run --profile`, written when they have ended."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from sheaf.commands.profile import area, export, symbols, table
from sheaf.commands.profile.area import NoProfile, Snapshot
from sheaf.commands.profile.observe import Observed
from sheaf.errors import SheafError, printable

_VIEW = "peak"  # what is live at the end says little of a program that frees its memory
_TABLES = 3  # processes of which stacks are printed
_STACKS = 10
_SUFFIX = ".pb.gz"
_DIRECTORY = ".profiles"  # the suffix of the directory for several processes


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


def _directory(snapshots: Sequence[Snapshot], output: str | None) -> str:
    """Create the directory for the profiles of several processes; returns its name. Raises SheafError."""
    first = min(snapshots, key=lambda snapshot: (snapshot.began_ns, snapshot.pid))
    name = (output.removesuffix(export.suffix_of(output)) if output else first.path.stem) + _DIRECTORY
    try:
        os.makedirs(name, exist_ok=True)
    except OSError as error:
        raise SheafError(f"{name}: {error.strerror}; name another file with --profile-output") from error
    return name


def _names(snapshots: Sequence[Snapshot], output: str | None) -> list[str]:
    """
    The file for each process: `output` or the current directory for one process, a directory of their own for several. A
    record is named PROGRAM.PID.sheaf, or PROGRAM.PID.N.sheaf after an exec.
    """
    suffix = export.suffix_of(output) if output else _SUFFIX
    if len(snapshots) == 1:
        return [output or snapshots[0].path.stem + suffix]
    directory = _directory(snapshots, output) if snapshots else ""
    return [os.path.join(directory, snapshot.path.stem + suffix) for snapshot in snapshots]


def report(paths: Iterable[Path], output: str | None, width: int, say: Callable[[str], None]) -> None:
    """Write a profile of each process that has samples, and print the largest stacks of those with the largest peaks."""
    snapshots = _snapshots(paths, say)
    if not snapshots:
        say("sheaf: no profile: no process allocated enough to be sampled; sample more often, as in --profile=16K")
    form = export.format_of(output, None) if output is not None else "pprof"
    try:
        names = _names(snapshots, output)
    except SheafError as error:
        say(f"sheaf: {error.message}")
        return
    for i, (snapshot, name) in enumerate(zip(snapshots, names, strict=True)):
        observed = Observed(snapshot)
        profile = export.view(observed, _VIEW)
        try:
            with symbols.symbolizer(snapshot) as symbolizer:
                data = export.dump(observed, _VIEW, form, symbolizer)
                with export.Output(name, "--profile-output") as file:
                    file.write(data)
                if i < _TABLES:
                    say(f"sheaf: {table.heading(profile)}; written to {printable(name)}")
                    say("\n".join(table.stack_rows(profile, symbolizer, _STACKS, width)))
        except SheafError as error:
            say(f"sheaf: {error.message}")
    if len(snapshots) > _TABLES:
        say(f"sheaf: {len(snapshots) - _TABLES} more processes have a profile in {printable(os.path.dirname(names[0]))}/")
