"""
Many records and many processes: makes them, and says how long the commands take for them.

    PYTHONPATH=cli SHEAF_LIBRARY=... python tests/cli/many.py [--records N] [--live N] [DIR]

The records of ended processes are copies of a real one, with other numbers and checksums. The running processes are real.
"""

from __future__ import annotations

import argparse
import os
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "cli"))

from sheaf.records import layout  # noqa: E402
from sheaf.records.watch import Watch  # noqa: E402

_FIRST_PID = 5_000_000  # above the largest number of a process
_PAGE = 4096


@contextmanager
def sleepers(count: int, directory: Path, library: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes on Sheaf that wait, each with a record in the directory."""
    env = {**os.environ, "LD_PRELOAD": library, "SHEAF_RECORD": str(directory)}
    started = [subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) for _ in range(count)]
    try:
        for one in started:  # each has its record when it answers
            assert one.stdin
            assert one.stdout
            one.stdin.write(b"x")
            one.stdin.flush()
            one.stdout.read(1)
        yield started
    finally:
        for one in started:
            one.kill()
        for one in started:
            one.communicate()


def copies(source: Path, directory: Path, count: int) -> None:
    """Records of ended processes, which are copies of `source`; holes stay holes."""
    reader = layout.Reader(source)
    with reader.file:
        at = reader.text.header.offsets["pid"]
        end = reader.layout.values_offset + 8 * reader.text.places.values["end_time_ns"]
        start = reader.number("start_time_ns")
    data = bytearray(source.read_bytes())
    (size,) = struct.unpack_from("<I", data, 16)
    pages = [page for page in range(0, len(data), _PAGE) if any(data[page : page + _PAGE])]
    for number in range(count):
        struct.pack_into("<I", data, at, _FIRST_PID + number)
        struct.pack_into("<Q", data, end, start + number + 1)
        struct.pack_into("<I", data, 12, zlib.crc32(data[16:size]))
        with open(directory / f"cat.{_FIRST_PID + number}.sheaf", "wb", 0) as file:
            file.truncate(len(data))
            for page in pages:
                os.pwrite(file.fileno(), data[page : page + _PAGE], page)


def _processor() -> float:
    """The CPU time of this process and of those that it waited for."""
    return sum(os.times()[:4])


def _timed(what: str, work: Callable[[], object]) -> None:
    wall, processor = time.monotonic(), _processor()
    work()
    print(f"{what:<60} {time.monotonic() - wall:6.2f} s, {_processor() - processor:6.2f} s of CPU time")


def _sheaf(*args: str) -> Callable[[], object]:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "cli")}
    return lambda: subprocess.run([sys.executable, "-m", "sheaf", *args], stdout=subprocess.DEVNULL, check=True, env=env)


def main() -> None:
    """Make the records and print the times."""
    parser = argparse.ArgumentParser(description="Say how long the commands take for many records and processes.")
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--live", type=int, default=500)
    parser.add_argument("directory", nargs="?")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=wanted.directory) as name:
        directory = Path(name)
        with sleepers(wanted.live, directory, os.environ["SHEAF_LIBRARY"]):
            copies(next(directory.iterdir()), directory, wanted.records - wanted.live)
            print(f"{wanted.records} records, {wanted.live} of running processes")
            _timed("sheaf stats DIR", _sheaf("stats", name))
            _timed("sheaf stats --format json DIR", _sheaf("stats", "--format", "json", name))
            _timed("sheaf records DIR", _sheaf("records", name))
            _timed("sheaf top --batch DIR", _sheaf("top", "--batch", "-n", "1", name))
            watch = Watch([directory])
            for what in ("first", "second", "third"):
                _timed(f"{what} refresh of a watch, with caches", lambda: watch.refresh(caches=True))
            watch = Watch([directory])
            for what in ("first", "second"):
                _timed(f"{what} refresh of a watch, without caches", lambda: watch.refresh())
            found = Watch(ended=False)
            for what in ("first", "second", "fifth"):
                _timed(f"{what} refresh of a watch over all processes, running only", lambda: found.refresh(caches=True))
                for _ in range(2 * (what == "second")):
                    found.refresh(caches=True)


if __name__ == "__main__":
    main()
