"""Read records: the files in which processes on Sheaf keep their counters.

sheaf/record.h describes the format. A record names its counters and has the sums over them, so this module also reads
records of a newer library that has more of them. A record may change while it is read: its values belong to slightly
different moments.
"""

from __future__ import annotations

import functools
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sheaf.errors import SheafError
from sheaf.records import cache, layout
from sheaf.records.cache import Cache, Merger
from sheaf.records.contents import Caches, Contents, Named, total
from sheaf.system import namespaces, proc, process

_FARTHEST = 1 << 40  # bytes, beyond which no record has a control area
FOUND_ENDED = 8 * 13  # bytes from the start of struct sheaf_control (sheaf/control.h)
_PID = re.compile("[0-9]{1,18}")


@dataclass
class Head:
    """The process of a record and its end. Times are in nanoseconds since the epoch."""

    path: Path
    pid: int
    parent_pid: int
    program: str
    mode: str
    start_time_ns: int
    fold_interval: int
    kernel: str
    version: str
    process_start: int  # in clock ticks since boot; 0 if unknown
    pid_namespace: int  # in which `pid` is a number; 0 if unknown
    boot_id: str  # empty if unknown
    end_time_ns: int  # 0 while the process runs, and if it did not close its record
    alive_time_ns: int  # when it last said that it is alive; 0 if unknown
    alive_interval_ns: int  # after which it says so again even if it sleeps; 0 if it does not
    found_ended_ns: int  # when `sheaf records --prune` first found that it had ended without closing its record; 0: never

    @functools.cached_property
    def here(self) -> int | None:
        """
        The number of the process as this command sees it, which differs from `pid` if the process is in another PID namespace.
        None unless the process is running and has this file mapped, at the first time that this is read.
        """
        if self.end_time_ns:
            return None
        candidates = namespaces.candidates(self.pid, self.pid_namespace, self.start_time_ns)
        return next((pid for pid in candidates if maps_file(pid, self.path)), None)

    @property
    def alive(self) -> bool:
        """Whether the process is running and has this file mapped."""
        return self.here is not None

    @property
    def who(self) -> str:
        """The process, for messages."""
        return label(self.program, self.pid, self.here)


@dataclass
class Record(Head):
    """The record of one process."""

    process: Named
    contents: Caches

    @property
    def parts(self) -> list[Cache]:
        """Each cache as it stands in the record."""
        return cache.parts(self.contents)

    @property
    def caches(self) -> dict[str, Cache]:
        """The caches by name, those of one name on several nodes added up."""
        return cache.by_name(self.parts)

    @functools.cached_property
    def cache_sums(self) -> Mapping[str, int]:
        """The sums that the record defines for a cache, added up over all caches."""
        text = self.contents.shape.text
        return Named(text.places.cache_sums, total(self.contents.sums(), len(text.cache_sums)))

    def forget_caches(self) -> None:
        """Drop the caches but not their sums, which takes less memory when thousands of records were read."""
        self.contents = Caches(self.contents.shape, (), {}) if self.cache_sums else self.contents

    @property
    def peak_rss(self) -> int:
        """The highest resident bytes of the process; 0 before its end."""
        return self.process.get("peak_resident_bytes", 0)

    def derived(self) -> dict[str, int]:
        """The sums over values of the process."""
        text = self.contents.shape.text
        return dict(zip(text.process_sums, text.process_sum(self.process.numbers)[0], strict=True))

    @property
    def resident(self) -> int:
        """Resident bytes: the current ones of a running process, otherwise the recorded peak, which is 0 if it was killed."""
        now = proc.stat(self.here) if self.here is not None else None
        if now:
            return now.resident
        return self.peak_rss


@dataclass
class Mapped:
    """A record in /proc/PID/maps: its device and inode, and the two paths under which this process may find it."""

    device: int
    inode: int
    places: tuple[Path, Path]


def maps(pid: int) -> str:
    """/proc/PID/maps; empty if the process has ended. Raises SheafError if reading is not permitted."""
    try:
        return Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape")
    except PermissionError as error:
        how = "with CAP_SYS_PTRACE" if os.geteuid() == 0 else "as the user of the process or as root"
        raise SheafError(f"/proc/{pid}/maps: {error.strerror}; run sheaf {how}, or name the record file") from error
    except OSError:
        return ""


def mapped(pid: int, text: str) -> list[Mapped]:
    """The records that a process has mapped, in the order of the text of its maps."""
    files = []
    for one in proc.mappings(text, ".sheaf"):
        places = Path(one.path), Path(f"/proc/{pid}/root{one.path}")  # the second one for a process in a container
        files.append(Mapped(one.device, one.inode, places))
    return files


def same(path: Path, file: Mapped) -> bool:
    """
    Whether a path leads to a mapped file. Some file systems report different devices in maps and in stat, so the paths of
    the mapping are compared as well.
    """
    try:
        status = path.stat()
    except OSError:
        return False
    if (status.st_dev, status.st_ino) == (file.device, file.inode):
        return True
    for place in file.places:
        try:
            if os.path.samestat(status, place.stat()):
                return True
        except OSError:
            continue
    return False


def maps_file(pid: int, path: Path) -> bool:
    """Whether a process has this file mapped. False if its maps may not be read."""
    try:
        return any(same(path, file) for file in mapped(pid, maps(pid)))
    except SheafError:
        return False


def label(program: str, pid: int, here: int | None) -> str:
    """A process for messages: its number as this command sees it, and the one in its PID namespace if that differs."""
    return f"{program} ({here}, {pid} in its PID namespace)" if here not in (None, pid) else f"{program} ({pid})"


def head(reader: layout.Reader) -> Head:
    """Which process an open record belongs to."""
    return Head(**_head(reader))


def _head(reader: layout.Reader) -> dict[str, Any]:
    number, string, optional = reader.number, reader.string, reader.optional
    return {
        "path": reader.path,
        "pid": number("pid"),
        "parent_pid": number("parent_pid"),
        "program": string("program"),
        "mode": string("mode_name"),
        "start_time_ns": number("start_time_ns"),
        "fold_interval": number("fold_interval"),
        "kernel": string("kernel"),
        "version": string("sheaf_version"),
        "process_start": optional("process_start"),
        "pid_namespace": optional("pid_namespace"),
        "boot_id": string("boot_id"),
        "end_time_ns": reader.value("end_time_ns"),
        "alive_time_ns": reader.value("alive_time_ns"),
        "alive_interval_ns": reader.value("alive_interval_ns"),
        "found_ended_ns": _found_ended(reader),
    }


def _found_ended(reader: layout.Reader) -> int:
    place = reader.optional("control_offset")
    try:
        return reader.numbers(place + FOUND_ENDED, 1)[0] if 0 < place < _FARTHEST else 0
    except SheafError:  # the file ends before
        return 0


def read_head(path: Path) -> Head:
    """Read which process a record belongs to, without its caches. SheafError says what is wrong with a file that is none."""
    reader = layout.Reader(path)
    with reader.file:
        return head(reader)


def read(path: Path) -> Record:
    """Read one record. SheafError says what is wrong with a file that is none."""
    reader = layout.Reader(path)
    with reader.file:
        fields = _head(reader)
        numbers = Contents(reader.file, path, reader.layout, reader)
        values = numbers.values()
        return Record(**fields, process=Named(reader.text.places.values, values), contents=numbers.caches())


def is_record(path: str) -> bool:
    """Whether a file begins like a record. The name of a program is often that of a file as well."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False
        with open(path, "rb") as file:
            return file.read(len(layout.MAGIC)) == layout.MAGIC
    except (OSError, ValueError):
        return False


def _has_records(path: str) -> bool:
    try:
        return any(name.endswith(".sheaf") for name in os.listdir(path))
    except (OSError, ValueError):
        return False


def is_path(target: str) -> bool:
    """
    Whether a word means a file or directory and not a process: one with a slash or the suffix .sheaf does, and the name of a
    record or of a directory of records. All commands follow this rule.
    """
    return (
        os.sep in target
        or target in (os.curdir, os.pardir)
        or target.endswith(".sheaf")
        or (is_record(target) or _has_records(target))
    )


def find(target: str) -> Iterator[Path]:
    """
    The record files for a FILE, a DIR, or the number or the program of a running process; is_path() says which. Raises
    SheafError if there are none, or if several processes have that name.
    """
    path = Path(target)
    if not target:
        raise SheafError("an empty name was given; name a running process, a record file or a directory")
    if _PID.fullmatch(target) and not is_path(target):
        yield _of_process(int(target))
    elif not is_path(target) and (pid := _named(target)) is not None:
        yield _of_process(pid)
    elif os.path.isdir(target):  # Path.is_dir() would raise PermissionError
        yield from _of_directory(path)
    else:
        yield path


def find_one(target: str) -> Path:
    """The same for one process or one record. Raises SheafError for a directory of several records."""
    paths = list(find(target))
    if len(paths) > 1:
        raise SheafError(f"{target}: the directory has {len(paths)} records; name one of them", 2)
    return paths[0]


def _named(target: str) -> int | None:
    """The process of this name; None if there is none but something else of this name, about which more can be said."""
    return process.resolve(target) if os.path.lexists(target) else process.number(target)


def _of_directory(path: Path) -> list[Path]:
    try:
        files = [path / name for name in sorted(os.listdir(path)) if name.endswith(".sheaf")]
    except OSError as error:
        advice = "name another directory" if os.geteuid() == 0 else "run sheaf as its owner or as root"
        raise SheafError(f"{path}: {error.strerror}; {advice}") from error
    if not files:
        raise SheafError(f"{path}: the directory has no records; run a program with `sheaf run --record {path} PROGRAM`")
    return files


def _of_process(pid: int) -> Path:
    """The record of a running process. Raises SheafError if it keeps none."""
    if not Path(f"/proc/{pid}").exists():
        raise SheafError(f"{pid}: no such process; name a running process, a record file or a directory")
    text = maps(pid)
    for file in mapped(pid, text):
        return next((place for place in file.places if same(place, file)), file.places[0])
    if "libsheaf-preload" in text:
        raise SheafError(f"{pid}: runs on Sheaf but keeps no record; start it with `sheaf run --record DIR`")
    if is_zombie(pid):
        raise SheafError(f"{pid}: has ended and waits for its parent (zombie); name its record file")
    child = next((child for child in _children(pid) if "libsheaf-preload" in maps(child)), None)
    if child:
        raise SheafError(f"{pid}: does not run on Sheaf, but its child {child} does; run `sheaf stats {child}`")
    raise SheafError(f"{pid}: does not run on Sheaf; start it with `sheaf run --record DIR`")


def is_zombie(pid: int) -> bool:
    """Whether the process has ended but was not waited for. Its maps are empty then."""
    found = proc.stat(pid)
    return found is not None and found.zombie


def _children(pid: int) -> list[int]:
    """The children of the main thread of a process; empty if the kernel does not list them."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def merge(records: Iterable[Record]) -> dict[str, Cache]:
    """The caches of several processes, those of the same name added up."""
    merger = Merger()
    for one in records:
        merger.add(one.contents)
    return merger.by_name()
