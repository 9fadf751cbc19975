"""Damaged and hostile files: changes to the bytes of real ones, and a check of how the command answers to them."""

from __future__ import annotations

import functools
import random
import re
import resource
import signal
import struct
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from click import ClickException
from click.testing import CliRunner
from prometheus_client import openmetrics
from sheaf.__main__ import main
from sheaf.commands.serve.machine import Limits, Machine
from sheaf.commands.serve.metrics import Metrics

MEMORY = 2 << 30  # bytes of address space beyond those that the process has
PATIENCE = 120  # seconds; the readers take less than one
_FIELD = re.compile(r"\w+ (\w+) (\w+)(?:\[(\d+)\])?")
CODES = {"uint32_t": "<I", "uint64_t": "<Q"}


class Hangs(BaseException):
    """A reader does not end. No handler of errors catches it."""


@contextmanager
def bounded() -> Iterator[None]:
    """Bound memory and time, so that a reader that takes too much of them fails the test and not the machine."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)

    def end(*_: int | FrameType | None) -> None:
        raise Hangs

    before = signal.signal(signal.SIGALRM, end)
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, hard))
    signal.alarm(PATIENCE)
    try:
        yield
    finally:
        signal.alarm(0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGALRM, before)


def answer(*args: str) -> int:
    """Run the command in this process. It must end with a result, or with one line and a status; returns the status."""
    options: dict[str, Any] = {"mix_stderr": False} if _MIXES else {}
    found = CliRunner(**options).invoke(main, args, standalone_mode=False)
    error = found.exception
    if isinstance(error, ClickException):
        assert "\n" not in error.format_message()
        assert error.format_message()
        return error.exit_code
    if error is not None and not (isinstance(error, SystemExit) and isinstance(error.code, int)):
        raise AssertionError(f"sheaf {' '.join(args)}: {error!r}") from error
    return found.exit_code


_MIXES = "mix_stderr" in CliRunner.__init__.__annotations__


def ask_all(directory: Path, path: Path) -> None:
    """All commands that read records, for one of a directory."""
    answer("stats", str(path))
    answer("stats", "--all", "--by", "slot", "--format", "csv", str(directory))
    answer("stats", "--by", "node", "--format", "json", str(path))
    answer("records", str(directory))
    answer("records", "--format", "json", "--keep", "0", str(directory))
    answer("top", "--batch", "-n", "1", "--ended", str(directory))
    answer("top", "--json", "-n", "1", "--ended", str(directory))
    answer("dump", str(path))
    answer("trim", str(path))
    answer("profile", "--format", "json", str(path))
    answer("leaks", str(path))
    scrape(directory)


def scrape(directory: Path) -> bytes:
    """What `sheaf serve` answers to Prometheus."""
    machine = Machine([directory], Limits(caches=100), discover=False)
    machine.started_ns = 0  # what ended records count is shown as well
    machine.scan()
    text: bytes = openmetrics.exposition.generate_latest(  # type: ignore[no-untyped-call]
        Metrics(machine, "0", False).registry()
    )
    return text


# ---- changes ----


def numbers(size: int) -> list[int]:
    """Values at which readers may stumble, for a file of this size."""
    near = [size - 8, size - 1, size, size + 1]
    powers = [
        power + more
        for power in (1 << 15, 1 << 16, 1 << 24, 1 << 31, 1 << 32, 1 << 60, 1 << 62, 1 << 63, 1 << 64)
        for more in (-1, 0)
    ]
    return [0, 1, 2, 7, 8, 4095, *near, *powers]


def sealed(data: bytes) -> bytes:
    """The record with right checksums of its header and text, and of its entries."""
    if len(data) < 24:
        return data
    changed = bytearray(data)
    places = entry_places(data)
    if places:
        first, count, stride, checksum = places
        for at in range(first, min(first + count * stride, len(changed) - checksum - 4), stride):
            if any(changed[at : at + checksum]):
                struct.pack_into("<I", changed, at + checksum, zlib.crc32(changed[at : at + checksum]))
    (size,) = struct.unpack_from("<I", changed, 16)
    struct.pack_into("<I", changed, 12, zlib.crc32(changed[16:size]))
    return bytes(changed)


def fields(data: bytes, kind: str = "header") -> dict[str, tuple[int, str]]:
    """The offset and the type of each field of the header or of an entry, as the text of the record has them."""
    size, text_at = struct.unpack_from("<II", data, 16)
    return _fields(data[text_at:size], kind)


@functools.lru_cache(maxsize=100)
def _fields(text: bytes, kind: str) -> dict[str, tuple[int, str]]:
    found, at = {}, 0
    for line in text.decode("ascii", "replace").splitlines():
        match = _FIELD.fullmatch(line) if line.startswith(f"{kind} ") else None
        if match:
            found[match[2]] = at, match[1]
            at += int(match[3] or 1) * {"char": 1, "uint32_t": 4, "uint64_t": 8}[match[1]]
    return found


def entry_places(data: bytes) -> tuple[int, int, int, int] | None:
    """The offset, number and distance of entries, and the offset of the checksum in each; None if they are damaged."""
    try:
        known = fields(data)
        first, count, stride = (
            struct.unpack_from(CODES[known[name][1]], data, known[name][0])[0]
            for name in ("caches_offset", "cache_max", "cache_stride")
        )
        return (first, min(count, 64), stride, fields(data, "entry")["checksum"][0]) if first < len(data) and stride else None
    except (KeyError, OverflowError, struct.error):
        return None


def with_field(data: bytes, name: str, value: int) -> bytes:
    """The record with a number of the header replaced."""
    at, kind = fields(data)[name]
    changed = bytearray(data)
    struct.pack_into(CODES[kind], changed, at, value & (1 << 8 * struct.calcsize(CODES[kind])) - 1)
    return sealed(bytes(changed))


def with_text(data: bytes, lines: Sequence[str]) -> bytes:
    """The record with another text, which may be longer; what lies behind it moves to where there is room."""
    size, text_at = struct.unpack_from("<II", data, 16)
    text = "".join(f"{line}\n" for line in lines).encode("ascii", "replace")
    changed = bytearray(data)
    if text_at + len(text) > size:
        room = max(size, min(8192, text_at + len(text)))
        text = text[: room - text_at]
        size = room
    changed[text_at:size] = text.ljust(size - text_at, b"\n")
    struct.pack_into("<I", changed, 16, size)
    return sealed(bytes(changed))


def text_of(data: bytes) -> list[str]:
    """The lines of the text of a record."""
    size, text_at = struct.unpack_from("<II", data, 16)
    return data[text_at:size].decode("ascii").splitlines()


def flipped(data: bytes, draw: random.Random) -> bytes:
    """Some bits changed."""
    changed = bytearray(data)
    for _ in range(draw.randint(1, 8) if changed else 0):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def overwritten(data: bytes, draw: random.Random) -> bytes:
    """Some numbers replaced."""
    changed = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        code = draw.choice(["<I", "<Q", "<H"])
        at = draw.randrange(max(1, len(changed) - 8)) & ~(struct.calcsize(code) - 1)
        value = draw.choice([*numbers(len(data)), draw.getrandbits(64)]) & (1 << 8 * struct.calcsize(code)) - 1
        if at + 8 <= len(changed):
            struct.pack_into(code, changed, at, value)
    return bytes(changed)


def shortened(data: bytes, draw: random.Random) -> bytes:
    """The start of the file."""
    at = draw.choice([draw.randrange(len(data) + 1), draw.randrange(len(data) + 1) & ~4095, draw.randrange(64)])
    return data[:at]


def repeated(data: bytes, draw: random.Random) -> bytes:
    """Two files in one, or a part of the file elsewhere."""
    if draw.random() < 0.3 or not data:
        return data + data
    start, length, to = draw.randrange(len(data)), draw.choice([8, 64, 512, 4096]), draw.randrange(len(data))
    part = data[start : start + length]
    return data[:to] + part + data[to + len(part) :]


def any_text(data: bytes, draw: random.Random) -> bytes:
    """A record whose text has lines that are missing, twice there, in another order or changed."""
    lines = text_of(data)
    for _ in range(draw.randint(1, 5)):
        at = draw.randrange(len(lines))
        choice = draw.randrange(7)
        if choice == 0:
            del lines[at]
        elif choice == 1:
            lines.insert(draw.randrange(len(lines)), lines[at])
        elif choice == 2:
            draw.shuffle(lines)
        elif choice == 3:
            count = draw.choice(["0", "1", "8", "4096", "65536", "99999", "4294967296", "9" * 30])
            lines[at] = re.sub(r"\[\d+\]", "", lines[at]) + f"[{count}]"
        elif choice == 4:
            lines[at] = re.sub(r"char|uint32_t|uint64_t", draw.choice(["char", "uint32_t", "uint64_t"]), lines[at])
        elif choice == 5:
            lines[at] = "".join(draw.choice("abc _=+*[]()0123456789.\x1b") for _ in range(draw.randrange(30)))
        else:
            lines[at] = " ".join([*lines[at].split(" "), draw.choice(["* size", "- size", "= size", "* in_use * in_use", "+"])])
    return with_text(data, lines)


Change = Callable[[bytes, random.Random], bytes]
CHANGES: tuple[Change, ...] = (flipped, overwritten, shortened, repeated)


def hostile_record(data: bytes, draw: random.Random) -> bytes:
    """A record with some changes. Its checksums are mostly right, as somebody who means harm would make them."""
    for _ in range(draw.randint(1, 3)):
        choice = draw.randrange(6)
        try:
            if choice == 0:
                data = with_field(
                    data,
                    draw.choice([name for name, (_, kind) in fields(data).items() if kind in CODES]),
                    draw.choice([*numbers(len(data)), draw.getrandbits(64)]),
                )
            elif choice == 1:
                data = any_text(data, draw)
            else:
                data = CHANGES[choice - 2](data, draw)
        except (LookupError, OverflowError, ValueError, struct.error):  # it is no record any more
            break
    return sealed(data) if draw.random() < 0.8 else data


def changed(data: bytes, draw: random.Random) -> bytes:
    """Any file with some changes."""
    for _ in range(draw.randint(1, 3)):
        if data:
            data = draw.choice(CHANGES)(data, draw)
    return data


def write(path: Path, data: bytes, hole: int = 0) -> Path:
    """Write a file with a hole of some bytes at its end."""
    with path.open("wb") as file:
        file.write(data)
        file.truncate(len(data) + hole)
    return path


def explore(test: Callable[[int], Any]) -> None:
    """Run a test for the seeds FIRST to LAST that the command line names; prints the seeds that fail."""
    for seed in range(int(sys.argv[1]), int(sys.argv[2])):
        if seed % 10_000 == 0:
            print(seed, flush=True)
        try:
            with bounded():
                test(seed)
        except (Exception, Hangs) as error:
            print(seed, repr(error)[:300], flush=True)
