"""The record that a user means by a PID, the name of a program, or a file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from sheaf import layout, process, record
from sheaf.errors import SheafError


def _is_record(name: str) -> bool:
    """Whether a file begins like a record. The name of a program is often that of a file as well."""
    try:
        if not stat.S_ISREG(os.stat(name).st_mode):
            return False
        with open(name, "rb") as file:
            return file.read(len(layout.MAGIC)) == layout.MAGIC
    except (OSError, ValueError):
        return False


def find(target: str) -> Path:
    """
    The record of a running process, by its number or by the name of its program, or a record file. A record or directory of
    that name takes precedence. Raises SheafError if there is none, or if several processes on Sheaf have the name.
    """
    could_be_name = bool(target) and os.sep not in target and not target.isdecimal() and not target.endswith(".sheaf")
    if could_be_name and not os.path.isdir(target) and not _is_record(target):
        target = str(process.number(target))
    paths = list(record.find(target))
    if len(paths) > 1:
        raise SheafError(f"{target}: the directory has {len(paths)} records; name one of them", 2)
    return paths[0]
