"""Profiles that were saved to files, in each of the formats for other tools, and the difference between two of them."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sheaf.commands.profile.area import Header, Snapshot
from sheaf.commands.profile.symbols import UNKNOWN, Frame, Symbolizer
from sheaf.commands.profile.views import BEFORE, UNSAMPLED, Column, Profile, Row
from sheaf.errors import SheafError, printable

_LARGEST = 256 << 20  # bytes of a file, also when it is unpacked
_NAMES = (UNSAMPLED, BEFORE, UNKNOWN)  # frames that stand for rows without a stack
_DEEPEST = 4096  # frames


class _Damaged(Exception):
    """The file is no profile; the argument says why."""


@dataclass
class Saved:
    """
    A profile as a file has it: columns, and for each stack, the outermost frame first, a value and an error for each column.
    """

    title: str
    columns: list[Column]
    main: int
    rows: dict[tuple[Frame, ...], tuple[list[float], list[float | None]]] = field(default_factory=dict)

    def add(self, frames: Iterable[Frame], values: list[float], errors: list[float | None] | None = None) -> None:
        """Add a stack; one that is there already gets the sum."""
        key = tuple(frames)
        if len(values) != len(self.columns) or not all(map(math.isfinite, values)) or len(key) > _DEEPEST:
            raise _Damaged("a stack does not fit the columns")
        mine: list[float | None] = errors if errors is not None else [None for _ in values]
        if len(mine) != len(values) or any(one is not None and not (math.isfinite(one) and one >= 0) for one in mine):
            raise _Damaged("an error is no number")
        if key in self.rows:
            old, others = self.rows[key]
            values = [a + b for a, b in zip(old, values, strict=True)]
            mine = [None if a is None or b is None else math.hypot(a, b) for a, b in zip(others, mine, strict=True)]
        self.rows[key] = values, mine


def _frame(name: str, file: str = "") -> Frame:
    """A function of which lines and modules are left out: they differ between builds, and formats do not all have them."""
    return Frame(printable(name) or UNKNOWN, printable(file), 0, "", False)


def _text(value: Any) -> str:
    if value is not None and not isinstance(value, str):
        raise _Damaged("a name is no text")
    return value or ""


def _document(data: Mapping[str, Any]) -> Saved:
    columns = [Column(_text(one["name"]), _text(one["unit"]), _text(one["name"])) for one in data["columns"]]
    made = Saved(_text(data["title"]), columns, [column.name for column in columns].index(data["main"]))
    for row in data["rows"]:
        frames = [_frame(_text(one["function"]), _text(one["file"])) for one in reversed(row["frames"])]
        frames = [*map(_frame, row["labels"]), *frames]
        if not row["frames"] and len(row["labels"]) < 2:
            frames.append(_frame(row.get("name") or UNKNOWN))
        errors = row["errors"] if data["schema_version"] >= 2 else None  # they were standard errors
        made.add(frames, [float(value) for value in row["values"]], errors)
    return made


def _speedscope(data: Mapping[str, Any]) -> Saved:
    frames = [_frame(_text(one["name"]), _text(one.get("file"))) for one in data["shared"]["frames"]]
    profiles = data["profiles"]
    units = {"bytes": "bytes", "none": "count"}
    columns = [Column(_text(one["name"]), units.get(one["unit"], "count"), _text(one["name"])) for one in profiles]
    made = Saved(_text(data.get("name")), columns, int(data.get("activeProfileIndex") or 0))
    for i, one in enumerate(profiles):
        for stack, weight in zip(one["samples"], one["weights"], strict=True):
            if any(at < 0 for at in stack):
                raise _Damaged("a frame is missing")
            made.add([frames[at] for at in stack], [float(weight) if j == i else 0.0 for j in range(len(columns))])
    return made


def _pprof(raw: bytes) -> Saved:
    from google.protobuf.message import DecodeError  # takes time to import

    from sheaf.commands.profile import pprof

    message = pprof.message()()
    try:
        message.ParseFromString(raw)
    except DecodeError as error:
        raise _Damaged("it is no protocol buffer of pprof") from error
    text = message.string_table
    columns = [Column(text[one.type], text[one.unit], text[one.type]) for one in message.sample_type]
    names = [column.name for column in columns]
    shown = text[message.default_sample_type] if message.default_sample_type else names[-1]
    made = Saved(text[message.comment[0]] if message.comment else "", columns, names.index(shown))
    functions = {one.id: _frame(text[one.name], text[one.filename]) for one in message.function}
    modules = {one.id: Path(text[one.filename]).name for one in message.mapping}
    starts = {one.id: one.memory_start for one in message.mapping}

    def frames(location: Any) -> list[Frame]:
        if location.line:
            return [functions[line.function_id] for line in reversed(location.line)]
        module = modules.get(location.mapping_id)
        pc = location.address + 1  # as other formats name it
        return [_frame(f"{module}+{pc - starts[location.mapping_id]:#x}" if module else f"{pc:#x}")]

    locations = {one.id: frames(one) for one in message.location}
    for sample in message.sample:
        stack = [frame for at in reversed(sample.location_id) for frame in locations[at]]
        made.add(stack, [float(value) for value in sample.value])
    return made


def _collapsed(data: str) -> Saved:
    made = Saved("", [Column("value", "", "value")], 0)
    for line in data.splitlines():
        if line.strip():
            stack, _, value = line.rpartition(" ")
            if not stack:
                raise _Damaged("a line has no stack and number")
            made.add(map(_frame, stack.split(";")), [float(value)])
    return made


def _parse(raw: bytes) -> Saved:
    if raw[:2] == b"\x1f\x8b":
        unpacked = zlib.decompressobj(wbits=31)
        raw = unpacked.decompress(raw, _LARGEST)
        if not unpacked.eof:
            raise _Damaged("the compressed data is cut off or too large")
        return _pprof(raw)
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return _pprof(raw)
    if text.lstrip().startswith("{"):
        data = json.loads(text)
        return _speedscope(data) if "$schema" in data else _document(data)
    return _collapsed(text) if (text.strip() and text.isprintable()) or "\n" in text else _pprof(raw)


def load(path: str) -> Saved:
    """The profile in a file. Raises SheafError if it has none."""
    try:
        with open(path, "rb") as file:
            raw = file.read(_LARGEST + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise SheafError(f"{printable(path)}: {why}; name a saved profile") from error
    try:
        if len(raw) > _LARGEST:
            raise _Damaged("it is too large")
        made = _parse(raw)
        if not 0 <= made.main < len(made.columns):
            raise _Damaged("it has no values")
        return made
    except (
        _Damaged,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
        EOFError,
        zlib.error,
        gzip.BadGzipFile,
    ) as error:
        why = f" ({error})" if isinstance(error, _Damaged) else ""
        raise SheafError(
            f"{printable(path)}: not a saved profile{why}; name a file in one of the formats pprof, collapsed, "
            "speedscope and json"
        ) from error


class Names(Symbolizer):
    """A symbolizer for stacks whose functions are known by name: their addresses are made up."""

    def __init__(self) -> None:
        super().__init__(())
        self._numbers: dict[Frame, int] = {}

    def pc(self, frame: Frame) -> int:
        """The made-up address of a function."""
        number = self._numbers.setdefault(frame, len(self._numbers) + 1)
        self._frames[number] = (frame,)
        return number


def _column(old: Saved, new: Saved, wanted: str | None) -> tuple[int, int]:
    """The columns to compare: of the same name, or the only ones."""
    if wanted:
        for saved in (old, new):
            if wanted not in [column.name for column in saved.columns]:
                known = ", ".join(column.name for column in saved.columns)
                raise SheafError(f"--view: a saved profile has no {wanted}; it has {known}", 2)
        return next(i for i, column in enumerate(old.columns) if column.name == wanted), next(
            i for i, column in enumerate(new.columns) if column.name == wanted
        )
    a, b = old.columns[old.main], new.columns[new.main]
    if a.unit and b.unit and a.unit != b.unit:
        raise SheafError(
            f"--diff: one profile shows {a.name} in {a.unit}, the other {b.name} in {b.unit}; save the same view of both"
        )
    return old.main, new.main


def difference(old_path: str, new_path: str, wanted: str | None = None) -> tuple[Profile, Names]:
    """
    What a newer profile has more than an older one, by the functions of stacks; `wanted` is the name of a column. Errors are
    known only from JSON.
    """
    old, new = load(old_path), load(new_path)
    at, later = _column(old, new, wanted)
    unit = new.columns[later].unit or old.columns[at].unit or "bytes"  # collapsed stacks have no unit
    with_files = all(any(frame.file for frames in saved.rows for frame in frames) for saved in (old, new))
    sums: defaultdict[tuple[Frame, ...], list[float]] = defaultdict(lambda: [0.0, 0.0])
    known = True
    for saved, i, sign in ((old, at, -1), (new, later, 1)):
        for frames, (values, errors) in saved.rows.items():
            key = frames if with_files else tuple(_frame(frame.function) for frame in frames)
            error = errors[i]
            known = known and error is not None
            sums[key][0] += sign * values[i]
            sums[key][1] += (error or 0.0) ** 2
    names = Names()
    rows = []
    for frames, (value, square) in sums.items():
        name = frames[0].function if len(frames) == 1 and frames[0].function in _NAMES else ""
        pcs = () if name else tuple(names.pc(frame) for frame in reversed(frames))
        if value:
            rows.append(Row((), pcs, (value,), (math.sqrt(square) if known else None,), "" if name == UNKNOWN else name))
    rows.sort(key=lambda row: (-row.values[0], row.pcs))
    total = sum(row.values[0] for row in rows)
    error = math.sqrt(sum((row.errors[0] or 0.0) ** 2 for row in rows)) if known else None
    column = Column(f"{new.columns[later].name}_difference", unit, f"difference in {unit}")
    notes = () if known else ("The files have no errors; save profiles as .json to know what may be chance.",)
    title = f"{new.columns[later].name} less those of {Path(old_path).name}"
    return Profile("difference", title, (column,), rows, 0, 0, 0, 0, _nobody(Path(new_path)), ((total, error),), notes), names


def _nobody(path: Path) -> Snapshot:
    """A snapshot that has nothing but the name of a file."""
    header = Header(*(0 for _ in Header.__dataclass_fields__))  # type: ignore[arg-type]
    return Snapshot(path, path.name, 0, 0, 0, False, header, [], {}, [], [], [], 0, True)
