"""The record that a user means by a PID, the name of a program, or a file."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from sheaf import layout, record
from sheaf.errors import SheafError


def _running(name: str) -> Iterator[tuple[int, Path]]:
    """The processes of a program that keep a record, with their records."""
    for entry in os.listdir("/proc"):
        if not entry.isdecimal():
            continue
        pid = int(entry)
        try:
            files = record.mapped(pid, record.maps(pid))
            path = next((place for file in files for place in file.places if record.same(place, file)), None)
            if path and record.read_head(path).program == name:
                yield pid, path
        except SheafError:  # of another user, or no record
            continue


def _is_record(name: str) -> bool:
    """Whether a file begins like a record. The name of a program is often that of a file as well."""
    try:
        if not stat.S_ISREG(os.stat(name).st_mode):
            return False
        with open(name, "rb") as file:
            return file.read(len(layout.MAGIC)) == layout.MAGIC
    except OSError:
        return False


def find(target: str) -> Path:
    """
    The record of a running process, by its number or by the name of its program, or a record file. A record of that name
    takes precedence. Raises SheafError if there is none, or if several processes run the program.
    """
    if target.isdecimal() or os.sep in target or target.endswith(".sheaf") or not target or _is_record(target):
        paths = list(record.find(target))
        if len(paths) > 1:
            raise SheafError(f"{target}: the directory has {len(paths)} records; name one of them", 2)
        return paths[0]
    found = list(_running(target))
    if not found:
        raise SheafError(f"{target}: no process of this name keeps a record that you may read; start it with "
                         "`sheaf run --record DIR`, or name a PID or a record")  # fmt: skip
    if len(found) > 1:
        numbers = ", ".join(str(pid) for pid, _ in sorted(found))
        raise SheafError(f"{target}: {len(found)} processes run it: {numbers}; name one by its PID", 2)
    return found[0][1]
