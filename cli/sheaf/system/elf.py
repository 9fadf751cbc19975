"""Read from an ELF file what decides whether a shared object can be preloaded into it."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

MACHINES = {"x86_64": 62, "aarch64": 183}  # e_machine by the name in uname(2)
_LOAD, _DYNAMIC, _INTERP, _NOTE = 1, 2, 3, 4
_NT_GNU_BUILD_ID = 3
_DT_NEEDED, _DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ = 1, 4, 5, 6, 10
_DT_GNU_HASH, _DT_VERNEED, _DT_VERNEEDNUM = 0x6FFFFEF5, 0x6FFFFFFE, 0x6FFFFFFF
_SYMBOL = 24  # bytes of an entry of the symbol table
_WEAK_VERSION = 2  # the flag of a version that only weak references need
_LARGEST = 64 << 20  # bytes; a longer table counts as damage
_LARGEST_NOTES = 1 << 20  # bytes of all notes
_MOST_SYMBOLS = 1 << 20  # that are exported
_MOST_LIBRARIES = 4096  # and versions that are needed of them
_LONGEST = 4096  # bytes of a name


class Damaged(Exception):
    """The headers of the file contradict each other or point outside it."""


class Strings:
    """The strings of a dynamic string table, searched where they lie: a set of them takes ten times the memory."""

    def __init__(self, raw: bytes = b"") -> None:
        self._raw = raw

    def __contains__(self, name: str) -> bool:
        return b"\0%s\0" % name.encode() in self._raw

    def begin_with(self, start: str) -> Iterator[str]:
        """The strings that begin with a text."""
        found = re.finditer(rb"\0(%s[^\0]{0,%d})" % (re.escape(start.encode()), _LONGEST), self._raw)
        return (one[1].decode("utf-8", "replace") for one in found)


@dataclass
class Image:
    """
    `appimage` means that a file system with the program follows. `interpreted` means dynamically linked; `loader` is then the
    path of the dynamic loader. `strings` is the dynamic string table, with all symbols used or defined. `sections` has the
    names of the sections of a static program; it is empty if their table was removed.
    """

    bits: int
    machine: int
    appimage: bool = False
    interpreted: bool = False
    loader: str = ""
    needed: list[str] = field(default_factory=list)
    strings: Strings = field(default_factory=Strings)
    sections: frozenset[str] = frozenset()


@dataclass
class _Segment:
    kind: int
    offset: int
    address: int
    size: int


def _at(file: BinaryIO, offset: int, size: int) -> bytes:
    """`size` bytes at `offset`; raises Damaged if the file does not have them."""
    if not 0 <= size <= _LARGEST or offset + size > os.fstat(file.fileno()).st_size:  # before memory is taken for it
        raise Damaged
    file.seek(offset)
    raw = file.read(size)
    if len(raw) < size:
        raise Damaged
    return raw


def libc(image: Image) -> str:
    """The C library that a program or a library is linked with: "musl" or "glibc"; empty if the file names neither."""
    loader = os.path.basename(image.loader)
    if "linker" in loader:  # Android's; its libc has the name of musl's
        return ""
    if loader.startswith("ld-musl") or any(name == "libc.so" or name.startswith("libc.musl-") for name in image.needed):
        return "musl"
    return "glibc" if loader.startswith("ld-linux") or "libc.so.6" in image.needed else ""


def _text(raw: bytes, at: int = 0) -> str:
    """The text at an offset up to the next NUL."""
    return raw[at : at + _LONGEST].split(b"\0", 1)[0].decode("utf-8", "replace")


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file. Does not wait for the writer of a FIFO. Raises Damaged if it is no regular file."""
    with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise Damaged
        yield file


def _segments(file: BinaryIO, head: bytes, order: str) -> list[_Segment]:
    (offset,) = struct.unpack_from(order + "Q", head, 32)
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
    image.strings = Strings(strings)
    for tag, value in entries:
        if tag == _DT_NEEDED:
            image.needed.append(_text(strings, value))
            if len(image.needed) > _MOST_LIBRARIES:
                raise Damaged


def _sections(file: BinaryIO, head: bytes, order: str) -> frozenset[str]:
    """The names of the sections, which nothing needs to run the program: damage means that there are none."""
    (offset,) = struct.unpack_from(order + "Q", head, 40)
    size, count, names = struct.unpack_from(order + "HHH", head, 58)
    if size < 64 or names >= count:
        return frozenset()
    try:
        table = _at(file, offset, size * count)
        at, length = struct.unpack_from(order + "QQ", table, names * size + 24)
        strings = _at(file, at, length)
    except Damaged:
        return frozenset()
    places = [struct.unpack_from(order + "I", table, i * size)[0] for i in range(count)]
    return frozenset(_text(strings, place) for place in places)


def _order(head: bytes) -> str:
    """The byte order of the file with this head, as the struct module writes it."""
    return ">" if head[5] == 2 else "<"


def _is_64_bit(head: bytes) -> bool:
    return head[:5] == b"\x7fELF\2" and len(head) == 64


def has_symbol_table(path: Path) -> bool:
    """
    Whether a 64-bit ELF file has a symbol table beside the dynamic one. Without it, tools name functions that are not exported
    after the exported one before them.
    """
    try:
        with opened(path) as file:
            head = file.read(64)
            return _is_64_bit(head) and ".symtab" in _sections(file, head, _order(head))
    except (OSError, Damaged):
        return False


def read(path: Path) -> Image | None:
    """Read the headers of a file; None if it is not ELF. Raises Damaged, or OSError if it cannot be read."""
    with opened(path) as file:
        head = file.read(64)
        if head[:4] != b"\x7fELF" or len(head) < 52:
            return None
        order = _order(head)
        image = Image(64 if head[4] == 2 else 32, struct.unpack_from(order + "H", head, 18)[0], head[8:10] == b"AI")
        if image.bits == 64 and len(head) == 64:
            segments = _segments(file, head, order)
            image.interpreted = any(s.kind == _INTERP for s in segments)
            image.loader = next((_text(_at(file, s.offset, min(s.size, _LONGEST))) for s in segments if s.kind == _INTERP), "")
            if not image.interpreted:
                image.sections = _sections(file, head, order)
            _read_dynamic(file, segments, order, image)
        return image


# ---- what only `sheaf doctor` needs: reading it would delay `sheaf run` ----


@dataclass
class Details:
    """
    `defined` has the dynamic symbols that the file itself defines, `versions` the symbol versions that it needs from
    libraries (except for weak references), `notes` the owners of its notes.
    """

    defined: frozenset[str]
    versions: frozenset[str]
    notes: frozenset[str]


def _symbol_count(file: BinaryIO, values: dict[int, int], segments: list[_Segment], order: str) -> int:
    """The number of dynamic symbols. Only the hash tables tell it."""
    if _DT_HASH in values:
        return int(struct.unpack(order + "2I", _at(file, _offset_of(values[_DT_HASH], segments), 8))[1])
    if _DT_GNU_HASH not in values:
        return 0
    start = _offset_of(values[_DT_GNU_HASH], segments)
    buckets, first, bloom, _ = struct.unpack(order + "4I", _at(file, start, 16))
    start += 16 + 8 * bloom
    if buckets > _MOST_SYMBOLS:
        raise Damaged
    last = max(struct.unpack(f"{order}{buckets}I", _at(file, start, 4 * buckets)), default=0)
    if last < first:
        return int(first)
    start += 4 * (buckets - first)
    length = os.fstat(file.fileno()).st_size
    while last < _MOST_SYMBOLS:
        at = start + 4 * last
        words = struct.iter_unpack(order + "I", _at(file, at, max(4, min(1 << 12, length - at) & ~3)))
        for (word,) in words:
            last += 1
            if word & 1:  # the last of a chain has bit 0 set
                return int(last)
    raise Damaged


def _needed_versions(
    file: BinaryIO, values: dict[int, int], segments: list[_Segment], order: str, strings: bytes
) -> frozenset[str]:
    versions, left = set(), _MOST_LIBRARIES
    entry = _offset_of(values[_DT_VERNEED], segments)
    for _ in range(values.get(_DT_VERNEEDNUM, 0)):
        _, count, _, aux, following = struct.unpack(order + "HHIII", _at(file, entry, 16))
        at = entry + aux
        for _ in range(count):
            left -= 1
            if left < 0:
                raise Damaged
            _, flags, _, name, step = struct.unpack(order + "IHHII", _at(file, at, 16))
            if not flags & _WEAK_VERSION:
                versions.add(_text(strings, name))
            if not step:
                break
            at += step
        left -= 1
        if not following or left < 0:
            break
        entry += following
    return frozenset(versions)


def _begin(file: BinaryIO) -> tuple[str, list[_Segment]]:
    """The byte order and the segments of a 64-bit ELF file; raises Damaged if it is none."""
    head = file.read(64)
    if not _is_64_bit(head):
        raise Damaged
    order = _order(head)
    return order, _segments(file, head, order)


def _notes(file: BinaryIO, segments: list[_Segment], order: str) -> Iterator[tuple[bytes, int, bytes]]:
    """The owner, the type and the description of each note. The owner ends with a NUL."""
    left = _LARGEST_NOTES
    for segment in segments:
        if segment.kind != _NOTE:
            continue
        raw, at = _at(file, segment.offset, segment.size), 0
        left -= max(len(raw), 64)
        if left < 0:
            raise Damaged
        while at + 12 <= len(raw):
            name, size, kind = struct.unpack_from(order + "3I", raw, at)
            start = at + 12 + (name + 3 & ~3)
            yield raw[at + 12 : at + 12 + name], kind, raw[start : start + size]
            at = start + (size + 3 & ~3)


def details(path: Path) -> Details:
    """More of a 64-bit ELF file. Raises Damaged if it is none, and OSError if it cannot be read."""
    with opened(path) as file:
        order, segments = _begin(file)
        notes = frozenset(_text(owner) for owner, _, _ in _notes(file, segments, order))
        dynamic = next((s for s in segments if s.kind == _DYNAMIC), None)
        raw = _at(file, dynamic.offset, dynamic.size - dynamic.size % 16) if dynamic else b""
        values: dict[int, int] = dict(struct.iter_unpack(order + "QQ", raw))
        if not values.keys() >= {_DT_STRTAB, _DT_STRSZ, _DT_SYMTAB}:
            return Details(frozenset(), frozenset(), notes)
        strings = _at(file, _offset_of(values[_DT_STRTAB], segments), values[_DT_STRSZ])
        count = min(_symbol_count(file, values, segments, order), _MOST_SYMBOLS)
        table = _at(file, _offset_of(values[_DT_SYMTAB], segments), count * _SYMBOL)
        names = (name for name, _, _, section, _, _ in struct.iter_unpack(order + "IBBHQQ", table) if section)
        defined = frozenset(_text(strings, name) for name in names)
        versions = _needed_versions(file, values, segments, order, strings) if _DT_VERNEED in values else frozenset()
        return Details(defined, versions, notes)


def note(path: Path, owner: bytes, kind: int) -> bytes:
    """The text of a note of a 64-bit ELF file; empty if it has none. Raises Damaged if it is no ELF file, and OSError."""
    with opened(path) as file:
        order, segments = _begin(file)
        return next((text for *one, text in _notes(file, segments, order) if one == [owner, kind]), b"")


def build_id(path: Path) -> bytes:
    """The build id of a 64-bit ELF file; empty if it has none. Raises Damaged if it is no ELF file, and OSError."""
    return note(path, b"GNU\0", _NT_GNU_BUILD_ID)
