"""The values of --debug: which checks for which caches."""

from __future__ import annotations

import difflib
import re
import struct

from sheaf.errors import SheafError
from sheaf.system import elf, preload

_PART = "([FZPUTAfzputa]*|-)(,[^,;]+)*"
_SPEC = re.compile(f"{_PART}(;{_PART})*")
_CLASS = re.compile("malloc-([0-9]+)")
LARGE = "malloc-large"
_NOTE = b"Sheaf\0", 1  # owner and type of the note in the preloaded object (preload/classes.c)
_NEAR = 0.8  # similarity from which a name is taken for a mistyped one
LETTERS = {
    "FZPU": "all checks, with call stacks",
    "FZP": "all checks, without call stacks",
    "F": "neighbours of freed objects",
    "Z": "red zones",
    "P": "poison",
    "U": "call stacks of the last allocation and free",
    "T": "a line for each operation",
    "A": "allocations fail as SHEAF_FAIL says",
    "-": "no checks, for FZPU;-,malloc-8",
}


def class_sizes() -> list[int]:
    """The size classes of malloc in bytes, ascending, as the preloaded object says; none if it cannot be read."""
    try:
        note = elf.note(preload.library(), *_NOTE)
    except (SheafError, OSError, elf.Damaged):
        return []  # `sheaf run` reports it when it needs the object
    return [size for (size,) in struct.iter_unpack("<H", note[: len(note) & ~1])]


def cache_names() -> list[str]:
    """The names of malloc's caches."""
    return [*(f"malloc-{size}" for size in class_sizes()), LARGE]


def _nearest(name: str) -> str | None:
    """The cache of malloc that is most like a name, unless it is one of them."""
    names = cache_names()
    if name in names or "*" in name or "?" in name:
        return None
    number = _CLASS.fullmatch(name)
    if number:
        size, sizes = int(number[1]), class_sizes()
        return next((f"malloc-{one}" for one in sizes if one >= size), LARGE) if sizes else None
    return next(iter(difflib.get_close_matches(name, names, 1, _NEAR)), None)


def check(spec: str, option: str = "--debug") -> str | None:
    """
    Check a value of --debug. Raises SheafError if its syntax is wrong, or if it names a size class of malloc that does not
    exist. Returns a warning if a name is only like that of a cache of malloc: a program may have a cache of that name.
    """
    if not spec or not _SPEC.fullmatch(spec):
        advice = "give letters of F Z P U T A or -, then caches, such as FZPU or FZ,malloc-64"
        raise SheafError(f"{option} {spec}: no such checks; {advice}", 125)
    for part in spec.split(";"):
        for name in part.split(",")[1:]:
            near = _nearest(name)
            if near and _CLASS.fullmatch(name):
                raise SheafError(f"{option} {spec}: malloc has no cache {name}; did you mean {near}?", 125)
            if near:
                return f"{option} {spec}: malloc has no cache {name}, only {near}; correct it unless the program has {name}"
    return None
