"""Check what an export holds before it is used: anybody may have written the file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sheaf.commands.bench.runs import KEYS

_LARGEST = 1e18  # of a measure; products and quotients of such numbers fit a float
_LONGEST = 10_000  # characters of a text
_MOST = 100_000  # contestants, tests, rounds and moments


def _check(right: bool) -> None:
    if not right:
        raise ValueError


def _text(value: Any) -> None:
    _check(isinstance(value, str) and len(value) <= _LONGEST and not any(ord(one) < 32 or ord(one) == 127 for one in value))
    value.encode()  # no surrogates, which cannot be printed


def _number(value: Any) -> None:
    _check(isinstance(value, int | float) and -_LARGEST <= value <= _LARGEST)  # false for NaN as well


def _scalar(value: Any) -> None:
    if isinstance(value, str):
        _text(value)
    elif value is not None:
        _number(value)


def _each(values: Any, check: Callable[[Any], None]) -> None:
    _check(isinstance(values, list) and len(values) <= _MOST)
    for value in values:
        check(value)


def _mapping(values: Any, check: Callable[[Any], None]) -> None:
    _check(isinstance(values, dict) and len(values) <= _MOST)
    for name, value in values.items():
        _text(name)
        check(value)


def _contestant(row: Any) -> None:
    for name in ("name", "version"):
        _text(row[name])
    _check(bool(row["name"]))
    _text(row.get("mode", ""))
    _text(row["path"] or "")
    _mapping(row["variables"], _text)


def _moment(point: Any) -> None:
    _text(point["moment"])
    for name in ("ms", "rss_kib", "live_kib"):
        _number(point.get(name, 0))
    _number(point["rss_kib"])


def _run(run: Any) -> None:
    for key in KEYS:
        _number(run[key])
    _scalar(run.get("timing"))
    _each(run.get("memory", []), _moment)


def _marked(runs: Sequence[Mapping[str, Any]]) -> None:
    """The moments that the first run names are found by their place in the other runs."""
    if not all(run.get("memory") for run in runs):
        return
    last = max((i for i, point in enumerate(runs[0]["memory"]) if point["moment"]), default=-1)
    _check(all(len(run["memory"]) > last for run in runs))


def _test(row: Any) -> None:
    _text(row["test"])
    _text(row["what"])
    _each(row["suites"], _text)
    _mapping(row["runs"], lambda runs: _each(runs, _run))
    _mapping(row["failures"], _text)
    for name in ("repeated", "disturbed", "in_means"):
        _number(row[name])
    _each(row["other_cpus"], _number)
    for runs in row["runs"].values():
        _marked(runs)
    _check(len({len(runs) for runs in row["runs"].values() if runs}) <= 1)


def check(found: Any) -> None:
    """Raise ValueError, KeyError, TypeError or AttributeError unless the parsed file is an export."""
    _each(found["command"], _text)
    _mapping(found["machine"], _scalar)
    _each(found["contestants"], _contestant)
    _check(bool(found["contestants"]))
    _each(found["tests"], _test)
    _scalar(found.get("seed"))
