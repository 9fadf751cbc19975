"""Read from an ELF file what decides whether a shared object can be preloaded into it."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

MACHINES = {"x86_64": 62, "aarch64": 183}  # e_machine by the name in uname(2)
_LOAD, _DYNAMIC, _INTERP = 1, 2, 3
_DT_NEEDED, _DT_STRTAB, _DT_STRSZ = 1, 5, 10
_LARGEST = 64 << 20  # bytes; a longer table counts as damage


class Damaged(Exception):
    """The headers of the file contradict each other or point outside it."""


@dataclass
class Image:
    """`interpreted` means dynamically linked. `strings` is the dynamic string table, with all symbols used or defined."""

    bits: int
    machine: int
    interpreted: bool = False
    needed: list[str] = field(default_factory=list)
    strings: frozenset[str] = frozenset()


@dataclass
class _Segment:
    kind: int
    offset: int
    address: int
    size: int


def _at(file: BinaryIO, offset: int, size: int) -> bytes:
    """`size` bytes at `offset`; raises Damaged if the file does not have them."""
    if offset < 0 or offset >= 1 << 62 or not 0 <= size <= _LARGEST:
        raise Damaged
    file.seek(offset)
    raw = file.read(size)
    if len(raw) < size:
        raise Damaged
    return raw


def _segments(file: BinaryIO, head: bytes, order: str) -> list[_Segment]:
    offset, = struct.unpack_from(order + "Q", head, 32)
    size, count = struct.unpack_from(order + "HH", head, 54)
    if size < 56:
        raise Damaged
    table = _at(file, offset, size * count)
    segments = []
    for i in range(count):
        kind, _, at, address, _, length = struct.unpack_from(order + "IIQQQQ", table, i * size)
        segments.append(_Segment(kind, at, address, length))
    return segments


def _offset_of(address: int, segments: list[_Segment]) -> int:
    """The file offset of a virtual address; raises Damaged if no segment contains it."""
    for segment in segments:
        if segment.kind == _LOAD and segment.address <= address < segment.address + segment.size:
            return address - segment.address + segment.offset
    raise Damaged


def _read_dynamic(file: BinaryIO, segments: list[_Segment], order: str, image: Image) -> None:
    dynamic = next((s for s in segments if s.kind == _DYNAMIC), None)
    if dynamic is None:
        return
    raw = _at(file, dynamic.offset, dynamic.size - dynamic.size % 16)
    entries = list(struct.iter_unpack(order + "QQ", raw))
    values = dict(entries)
    if _DT_STRTAB not in values or _DT_STRSZ not in values:
        return
    strings = _at(file, _offset_of(values[_DT_STRTAB], segments), values[_DT_STRSZ])
    image.strings = frozenset(word.decode("utf-8", "replace") for word in strings.split(b"\0"))
    for tag, value in entries:
        if tag == _DT_NEEDED:
            image.needed.append(strings[value:].split(b"\0", 1)[0].decode("utf-8", "replace"))


def read(path: Path) -> Image | None:
    """Read the headers of a file; None if it is not ELF. Raises Damaged, or OSError if it cannot be read."""
    with path.open("rb") as file:
        head = file.read(64)
        if head[:4] != b"\x7fELF" or len(head) < 52:
            return None
        order = ">" if head[5] == 2 else "<"
        image = Image(64 if head[4] == 2 else 32, struct.unpack_from(order + "H", head, 18)[0])
        if image.bits == 64 and len(head) == 64:
            segments = _segments(file, head, order)
            image.interpreted = any(s.kind == _INTERP for s in segments)
            _read_dynamic(file, segments, order, image)
        return image
