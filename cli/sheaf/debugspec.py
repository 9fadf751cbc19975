"""The values of --debug: which checks for which caches."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from sheaf.errors import SheafError

_PART = "([FZPUTAfzputa]*|-)(,[^,;]+)*"
_SPEC = re.compile(f"{_PART}(;{_PART})*")
_CLASS = re.compile("malloc-([0-9]+)")
LARGE = "malloc-large"
_LARGEST = 32768  # bytes of the largest size class
_NEAR = 0.8  # similarity from which a name is taken for a mistyped one
LETTERS = {
    "FZPU": "all checks, with call stacks", "FZP": "all checks, without call stacks", "F": "neighbours of freed objects",
    "Z": "red zones", "P": "poison", "U": "call stacks of the last allocation and free", "T": "a line for each operation",
    "A": "allocations fail as SHEAF_FAIL says", "-": "no checks, for FZPU;-,malloc-8",
}  # fmt: skip


def class_sizes() -> Iterator[int]:
    """The size classes of malloc in bytes: eight for each power of two, and below 128 the multiples of 16, and 8."""
    yield 8
    yield from range(16, 129, 16)
    size = 128
    while size < _LARGEST:
        yield from (size + i * size // 8 for i in range(1, 9))
        size *= 2


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
        size = int(number[1])
        return next((f"malloc-{one}" for one in class_sizes() if one >= size), LARGE)
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
