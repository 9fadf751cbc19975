"""Keep up with the processes that run on Sheaf and with their records.

A `Watch` reads the record of an ended process once, and afterwards only checks that the file is the same. The record of a
running process changes all the time, so each refresh reads its numbers again, but not its header, which is constant.
"""

from __future__ import annotations

import contextlib
import functools
import os
import stat
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sheaf.errors import SheafError
from sheaf.records import layout, record
from sheaf.records.contents import Caches, Contents, Named, open_again, pieces, total
from sheaf.records.layout import Description, Entry
from sheaf.records.memory import Memory, of_numbers, of_system
from sheaf.records.record import Head
from sheaf.records.state import State, States
from sheaf.system import proc

_TRIES = 16  # refreshes in which a file that is no record is read again; later it is read in each 16th
_SETTLED = 2  # refreshes after which a process without a record is not examined again, unless it executes a program


class CacheNumbers:
    """
    A cache of one process, as it stands in the record, with its counters summed over all slots. Numbers are found by name:
    those of the entry, gauges, counters, and the sums that the record defines.
    """

    __slots__ = ("_counters", "_entry", "_gauges", "_sums", "_text", "number")

    def __init__(
        self, text: Description, number: int, entry: Entry, gauges: Sequence[int], counters: Sequence[int], sums: Sequence[int]
    ) -> None:
        self._text, self.number, self._entry = text, number, entry
        self._gauges, self._counters, self._sums = gauges, counters, sums

    @property
    def name(self) -> str:
        """The name; caches of one name on several memory nodes belong together."""
        return self._entry.name

    @property
    def node(self) -> int | None:
        """The memory node; None if the cache belongs to none."""
        return self._entry.node

    @property
    def geometry(self) -> Mapping[str, int]:
        """The numbers of the entry, such as object_size and slab_size."""
        return self._entry.geometry

    @property
    def gauges(self) -> Named:
        """The gauges by name."""
        return Named(self._text.places.gauges, self._gauges)

    @property
    def counters(self) -> Named:
        """The sum of each counter over all slots, by name."""
        return Named(self._text.places.counters, self._counters)

    @property
    def sums(self) -> Mapping[str, int]:
        """The sums that the record defines for a cache, by name."""
        return Named(self._text.places.cache_sums, self._sums)


def _caches(found: Caches) -> list[CacheNumbers]:
    text = found.shape.text
    gauges, counters = pieces(found.gauges, len(text.gauges)), pieces(found.counters(), len(text.counters))
    return [
        CacheNumbers(text, number, entry, gauges[i] if gauges else (), counters[i] if counters else (), sums)
        for i, ((number, entry), sums) in enumerate(zip(found.shape.entries, found.sums(), strict=True))
    ]


_NONE = Named({}, ())


@dataclass(slots=True)
class Numbers:
    """
    The numbers of a process at one moment. `at` is that moment, in seconds of time.monotonic(). Without caches, because they
    were not asked for, `gauges`, `counters` and `cache_sums` are empty.
    """

    at: float
    values: Named
    sums: Named  # the sums that the record defines for the process
    gauges: Named  # the sums of all gauges over all caches
    counters: Named  # the same of the counters
    cache_sums: Named  # the same of the sums over caches, such as in_use_bytes
    _found: Caches | None = None
    _caches: list[CacheNumbers] | None = None

    @property
    def caches(self) -> Sequence[CacheNumbers] | None:
        """The caches; None if they were not asked for, or if the process has ended."""
        if self._caches is None and self._found:
            self._caches, self._found = _caches(self._found), None
        return self._caches

    def without_caches(self) -> Numbers:
        """The same with the sums of the caches only."""
        return replace(self, _found=None, _caches=None)

    def get(self, name: str) -> int | None:
        """A counter or value; None if there is none of this name, or if caches were not asked for."""
        found = self.counters.get(name)
        return self.values.get(name) if found is None else found


def _numbers(contents: Contents, text: Description, caches: bool) -> Numbers:
    at = time.monotonic()
    values = contents.values()
    own = Named(text.places.values, values), Named(text.places.process_sums, text.process_sum(values)[0])
    if not caches:
        return Numbers(at, *own, _NONE, _NONE, _NONE)
    found = contents.caches()
    width = len(text.counters)
    counters = total(pieces(found.counters(), width), width)
    width = len(text.gauges)
    gauges = Named(text.places.gauges, total(pieces(found.gauges, width), width))
    sums = total(found.sums(), len(text.cache_sums))
    return Numbers(at, *own, gauges, Named(text.places.counters, counters), Named(text.places.cache_sums, sums), found)


@dataclass(frozen=True)
class Process:
    """
    A process with a record at the last refresh. `resident` is 0 unless the process runs. `before` are its numbers at the
    refresh before, None at the first and after the end.
    """

    head: Head
    state: State
    numbers: Numbers
    before: Numbers | None = None
    resident: int = 0

    @property
    def pid(self) -> int:
        """The number of the process as this command sees it; of an ended process the one in the record."""
        return self.state.pid or self.head.pid

    @property
    def program(self) -> str:
        """The base name of the executed file."""
        return self.head.program

    @property
    def who(self) -> str:
        """The process, for headings."""
        return record.label(self.program, self.head.pid, self.state.pid or None)

    @property
    def path(self) -> Path:
        """The record."""
        return self.head.path

    @property
    def start_time_ns(self) -> int:
        """The start of the record, in nanoseconds since 1970."""
        return self.head.start_time_ns

    @property
    def running(self) -> bool:
        """Whether the process runs and keeps this record."""
        return self.state.name == "running"

    @property
    def memory(self) -> Memory | None:
        """The memory of the process by use; None if its caches were not asked for."""
        value, sums, of_caches = self.numbers.values, self.numbers.sums, self.numbers.cache_sums
        if not of_caches:
            return None
        resident = self.resident or value.get("resident_bytes", 0) or None
        return of_numbers(value, sums, of_caches, resident, value.get("peak_resident_bytes", 0) or None)

    @functools.cached_property
    def memory_now(self) -> Memory | None:
        """The same, for a running process with what the system says of its resident memory and of the peak."""
        memory = self.memory
        if memory is None or not self.running:
            return memory
        resident, peak, anonymous = of_system(self.pid)
        return replace(memory, resident=resident or memory.resident, peak_resident=peak, anonymous=anonymous)

    def rate(self, *names: str) -> float | None:
        """Counters and values of the process, added up, in events per second since the refresh before; None if unknown."""
        if self.before is None:
            return None
        pairs = [(self.numbers.get(name), self.before.get(name)) for name in names]
        known = [(new, old) for new, old in pairs if new is not None and old is not None]
        seconds = self.numbers.at - self.before.at
        return max(0, sum(new - old for new, old in known)) / seconds if known and seconds > 0 else None


Identity = tuple[int, int, int, int]  # device, inode, size and time of the last change of a file


@dataclass
class _Known:
    """A record that was read before, or with `why` a file that is none. `system` is the process when it was last checked."""

    identity: Identity
    process: Process | None = None
    layout: layout.Layout | None = None
    system: proc.Stat | None = None
    why: str = ""
    tries: int = 1


@dataclass
class Statistics:
    """What the last refresh read. Its cost follows from these numbers."""

    headers: int = 0  # records of which the header was read
    numbers: int = 0  # records of which the numbers were read
    processes: int = 0  # processes of which /proc/PID/stat was read
    maps: int = 0  # processes of which /proc/PID/maps was read


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


@dataclass
class _Candidate:
    """A process that may keep a record in a directory that is not watched yet."""

    system: proc.Stat
    looks: int = 0
    readable: bool = True
    unrecorded: bool = False  # it runs on Sheaf but keeps no record


class Watch:
    """
    The records in some directories, or without directories those of all processes that run and whose maps may be read, and
    the other records in the same directories. Not thread-safe. The memory that it takes is proportional to the number of
    records in the directories; with `ended` false, ended processes take next to none and are left out. With `discover`, the
    records of all processes are found in addition to those in the directories that are given. `counts` has the number of files
    with the suffix .sheaf in each directory at the last refresh.
    """

    def __init__(self, places: Iterable[Path | str] | None = None, *, ended: bool = True, discover: bool = False) -> None:
        self._discovers = discover or places is None
        if places is None:
            places = [os.environ["SHEAF_RECORD"]] if os.environ.get("SHEAF_RECORD") else []
        self._places = {Path(os.path.realpath(place)): None for place in places}
        self._given = frozenset(self._places)
        self.counts: dict[Path, int] = {}
        self._ended = ended
        self._of_ended: bool | Callable[[Head], bool] = True
        self._known: dict[Path, _Known] = {}
        self._candidates: dict[int, _Candidate] = {}
        self._named: dict[Path, dict[str, Path]] = {}  # the records of each directory by their names
        self._single: dict[Path, None] = {}  # records in the file systems of containers
        self._systems: dict[int, proc.Stat | None] = {}
        self.statistics = Statistics()

    @property
    def places(self) -> list[Path]:
        """The directories that are watched."""
        return list(self._places)

    @property
    def others(self) -> dict[Path, str]:
        """The files with the suffix .sheaf that could not be read as records, and why."""
        return {path: known.why for path, known in self._known.items() if known.why}

    @property
    def unreadable(self) -> list[int]:
        """The processes whose maps may not be read. Those that end or appear are noticed by refresh()."""
        return [pid for pid, candidate in self._candidates.items() if not candidate.readable]

    @property
    def unrecorded(self) -> list[int]:
        """The processes that run on Sheaf and keep no record."""
        return [pid for pid, candidate in self._candidates.items() if candidate.unrecorded]

    def forget(self, process: Process) -> None:
        """Keep nothing of an ended process but which file its record is, and do not return it again."""
        known = self._known.get(process.path)
        if known and known.process and known.process.state.ended:
            known.process = None

    def refresh(self, caches: bool | Collection[int] = False, of_ended: bool | Callable[[Head], bool] = True) -> list[Process]:
        """
        Read what has changed, and return all processes: the running ones first, each kind by its start. `caches` says
        whether to read caches: of all processes, of none, or of those with these numbers; `of_ended` whether those of ended
        processes, or of an ended process, are among them, which are read once and of which only the sums are kept. An
        unreadable directory counts as empty.
        """
        self.statistics, self._systems = Statistics(), {}
        self._of_ended = of_ended
        if self._discovers:
            self._discover()
        files = self._files()
        self._known = {path: known for path, known in self._known.items() if path in files}
        fresh = {path: identity for path, identity in files.items() if self._is_new(path, identity)}
        for path, known in list(self._known.items()):
            if path not in fresh and known.process is not None:
                self._again(path, known, known.process, caches)
        self._read_new(fresh, caches)
        found = [known.process for known in self._known.values() if known.process]
        if not self._ended:
            found = [process for process in found if not process.state.ended]
        return sorted(found, key=lambda one: (not one.running, one.start_time_ns, one.pid))

    def _wants(self, head: Head) -> bool:
        """Whether the caches of an ended process are to be read."""
        return self._of_ended if isinstance(self._of_ended, bool) else self._of_ended(head)

    def last(self, process: Process) -> Numbers:
        """The numbers of a process as they are in its record now. Raises SheafError if the record has vanished."""
        known = self._known.get(process.path)
        numbers = self._reread(process.path, known, True) if known and known.layout else None
        if numbers is None:
            raise SheafError(f"{process.path}: cannot be read now; it was removed")
        return numbers

    def _system(self, pid: int) -> proc.Stat | None:
        if pid not in self._systems:
            self.statistics.processes += 1
            self._systems[pid] = proc.stat(pid)
        return self._systems[pid]

    # ---- which records there are ----

    def _discover(self) -> None:
        """Find the directories of the records of all processes. A process is examined when it is new or executes a program."""
        seen = {}
        for pid in proc.pids():
            now = self._system(pid)
            if now is None or now.zombie:
                continue
            old = self._candidates.get(pid)
            if old is None or (old.system.start, old.system.image) != (now.start, now.image):
                old = _Candidate(now)
            seen[pid] = old
            if old.looks <= _SETTLED:
                old.looks += 1
                self._look(pid, old)
        self._candidates = seen

    def _look(self, pid: int, candidate: _Candidate) -> None:
        self.statistics.maps += 1
        try:
            text = record.maps(pid)
        except SheafError:
            candidate.looks, candidate.readable = _SETTLED + 1, False
            return
        files = record.mapped(pid, text)
        candidate.unrecorded = not files and "libsheaf-preload" in text
        for file in files:
            candidate.looks = _SETTLED + 1
            place = next((place for place in file.places if record.same(place, file)), None)
            if place is None:
                continue
            if str(place).startswith(f"/proc/{pid}/root"):  # in another file system; the directory is not visible from here
                self._single[place] = None
            else:
                self._places[place.parent] = None

    def _files(self) -> dict[Path, Identity]:
        """All regular files with the suffix .sheaf, each once even if it has several paths."""
        files: dict[Path, Identity] = {}
        seen: set[tuple[int, int]] = set()

        def add(path: Path, status: os.stat_result) -> None:
            if stat.S_ISREG(status.st_mode) and (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                files[path] = _identity(status)

        self.counts = {}
        before, self._named = self._named, {}  # making paths anew would take most of the time
        for place in list(self._places):
            old = before.get(place, {})
            try:
                with os.scandir(place) as entries:
                    named = {
                        entry.name: (old.get(entry.name) or place / entry.name, entry)
                        for entry in entries
                        if entry.name.endswith(".sheaf")
                    }
                self._named[place] = {name: path for name, (path, _) in named.items()}
                if named:
                    self.counts[place] = len(named)
                for path, entry in named.values():
                    with contextlib.suppress(OSError):  # it vanished
                        add(path, entry.stat(follow_symlinks=False))
            except FileNotFoundError:
                if place not in self._given:  # such as the private directory of a run that has ended
                    del self._places[place]
            except OSError:
                continue
        for path in list(self._single):
            try:
                add(path, path.stat())
            except OSError:
                del self._single[path]
        return files

    def _is_new(self, path: Path, identity: Identity) -> bool:
        """Whether the header is to be read: the file is a new one, or it was no record and may have become one."""
        known = self._known.get(path)
        if known is None or known.identity[:2] != identity[:2]:
            return True
        if known.process is None:  # a header that is being written need not change the time of the file
            known.tries += bool(known.why)
            return known.identity != identity or (bool(known.why) and (known.tries < _TRIES or known.tries % _TRIES == 0))
        return known.process.state.ended and known.identity != identity

    # ---- what they contain ----

    def _read_new(self, fresh: Mapping[Path, Identity], caches: bool | Collection[int]) -> None:
        """Read records for the first time, or again if the file is another one now."""
        begun: list[tuple[Path, Head]] = []
        for path, identity in fresh.items():
            self.statistics.headers += 1
            tries = self._known[path].tries if path in self._known else 1
            try:
                reader = layout.Reader(path)
                with reader.file:
                    head = record.head(reader)
                    known = self._known[path] = _Known(_identity(reader.status), layout=reader.layout)
                    if head.end_time_ns:
                        if self._ended:
                            contents = Contents(reader.file, path, reader.layout, reader)
                            numbers = self._count(contents, reader.text, self._wants(head) and _asked(caches, head.pid))
                            known.process = Process(head, State("ended"), numbers.without_caches())
                    else:
                        begun.append((path, head))
            except SheafError as error:
                self._known[path] = _Known(identity, why=error.message, tries=tries)
        if begun:
            states = States(head for _, head in begun)
            for path, head in begun:
                known = self._known[path]
                known.system = self._system(head.pid)  # before the state, so that a later exec is noticed
                known.process = self._judged(path, known, head, states, None, caches)

    def _count(self, contents: Contents, text: Description, caches: bool) -> Numbers:
        self.statistics.numbers += 1
        return _numbers(contents, text, caches)

    def _reread(self, path: Path, known: _Known, caches: bool) -> Numbers | None:
        """The numbers of a record whose layout is known; None if it has vanished or was damaged."""
        assert known.layout
        known.why = f"{path}: cannot be read now"  # unless this succeeds
        try:
            file, status = open_again(path, known.identity[:2])
            with file:
                known.identity = _identity(status)
                numbers = self._count(Contents(file, path, known.layout), known.layout.text, caches)
        except (SheafError, OSError):
            return None
        known.why = ""
        return numbers

    def _judged(
        self, path: Path, known: _Known, head: Head, states: States, before: Numbers | None, caches: bool | Collection[int]
    ) -> Process | None:
        """The process of a record without an end, whose state and numbers are to be found out."""
        state = states.of(head)
        numbers = self._reread(path, known, _asked(caches, state.pid or head.pid))
        if numbers is None:
            return None
        end = numbers.values.get("end_time_ns", 0)
        if end:  # it ended after the header was read
            head, state = replace(head, end_time_ns=end), State("ended")
        if state.ended and not self._ended:
            return None
        now = self._system(state.pid) if state.pid else None
        return Process(head, state, numbers.without_caches() if state.ended else numbers, before, now.resident if now else 0)

    def _again(self, path: Path, known: _Known, process: Process, caches: bool | Collection[int]) -> None:
        """Bring a record that was read before up to date."""
        wanted = _asked(caches, process.pid) and (not process.state.ended or self._wants(process.head))
        if process.state.ended:
            if not self._ended:
                known.process = None
                return
            numbers = process.numbers
            if wanted and not numbers.cache_sums:
                again = self._reread(path, known, True)
                numbers = again.without_caches() if again else numbers
            if process.before is not None or numbers is not process.numbers:
                known.process = replace(process, numbers=numbers, before=None, resident=0)
            return
        now = self._system(process.pid)
        old, known.system = known.system, now
        if not (process.running and now and old and (now.start, now.image, now.zombie) == (old.start, old.image, False)):
            head = replace(process.head)  # without what it remembers of its process
            known.process = self._judged(path, known, head, States([head]), process.numbers, caches)
            return
        current = self._reread(path, known, wanted)
        if current is None:
            known.process = None
            return
        known.process = replace(process, numbers=current, before=process.numbers, resident=now.resident)
        end = current.values.get("end_time_ns", 0)
        if end:
            head = replace(process.head, end_time_ns=end)
            known.process = replace(known.process, head=head, state=State("ended"), numbers=current.without_caches(), resident=0)


def _asked(caches: bool | Collection[int], pid: int) -> bool:
    return caches if isinstance(caches, bool) else pid in caches
