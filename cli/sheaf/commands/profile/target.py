"""The record that a user means by a PID, the name of a program, or a file."""

from __future__ import annotations

from pathlib import Path

from sheaf.errors import SheafError
from sheaf.records import record


def find(target: str) -> Path:
    """
    The record of a running process, by its number or by the name of its program, or a record file. Raises SheafError if there
    is none, or if several processes on Sheaf have the name.
    """
    paths = list(record.find(target))
    if len(paths) > 1:
        raise SheafError(f"{target}: the directory has {len(paths)} records; name one of them", 2)
    return paths[0]
