"""Search a running process for lost blocks: stop its threads for a moment, have its helper thread copy it, and search the copy.

A block counts as lost if it is lost in each of two copies that are made one after the other. So a block that a thread holds in
a form that is not recognized at one moment is not reported; what is really lost stays lost.
"""

from __future__ import annotations

import bisect
import os
import re
import struct
import time
from dataclasses import dataclass, field

from sheaf.errors import SheafError, printable
from sheaf.records import control
from sheaf.records.control import Answer, Control
from sheaf.rendering import sizes
from sheaf.system import headroom, proc, ptrace
from sheaf.system.progress import Notice
from sheaf.system.ptrace import Copy, Registers

_TRIES = 20  # to find the helper thread not waiting for a thread that is stopped
_CLEAN_TRIES = 15  # of these, to find no thread in the middle of an allocation or a free
_COPY_SECONDS = 0.02  # for a copy of a small process, longer with each try
_STOPPED_MOST = 10.0  # seconds, besides those of a copy
_COPY_RATE = 4 << 30  # bytes that are copied in a second at least: their page tables, to be exact
_PAUSE = 0.02  # seconds between two tries, in which the program runs
_LOOK_SECONDS = 0.05  # between two looks at what memory is left
_LEAST = 64 << 20  # bytes that must be left for the copy
_MOST_TEXT, _MOST_BLOCKS = 256 << 20, 1 << 26
_LEAKS = struct.Struct("=10Q")  # struct sheaf_leaks
_NO_MEMORY, _NO_COPY, _IN_SANDBOX, _NOT_HELPER, _HAS_COPY, _BUSY = 2, 3, 4, 5, 6, 7  # enum sheaf_refusal
_DONE, _NO_PROC, _TABLES = 1, 2, 3  # enum sheaf_leaks_status
_ADDRESS = re.compile(r"sheaf:     0x([0-9a-f]{1,16})")


@dataclass
class Found:
    """The lines of the report, as processes write it at exit, and what the search cost."""

    program: str
    pid: int
    host_pid: int
    lines: list[str] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)  # seconds, each
    seconds: float = 0.0

    @property
    def cost(self) -> str:
        """What the search cost, as a line."""
        times = ", ".join(f"{1000 * pause:.1f} ms" for pause in self.pauses)
        count = "once" if len(self.pauses) == 1 else f"{len(self.pauses)} times"
        return f"sheaf: the program was paused {count}: {times}; copies of it were searched for {self.seconds:.1f} s"


@dataclass(frozen=True)
class _Module:
    start: int
    end: int
    base: int
    path: str


def _modules(pid: int, inside: str) -> list[_Module]:
    """The mapped files of a process by address. `inside` is put before their paths."""
    bases: dict[str, int] = {}
    modules = []
    for one in proc.mappings(proc.text(pid, "maps")):
        if not one.offset:
            bases[one.path] = one.start
        modules.append(_Module(one.start, one.end, bases.get(one.path, one.start - one.offset), inside + one.path))
    return modules


def _inside(pid: int) -> str:
    """What to put before the paths of a process whose file systems are not those of this command."""
    try:
        same = os.path.samestat(os.stat(f"/proc/{pid}/root"), os.stat("/"))
        return "" if same else f"/proc/{pid}/root"
    except OSError:
        return ""


def _with_modules(lines: list[str], modules: list[_Module]) -> list[str]:
    """The lines of a report with a module and an offset instead of each address."""
    starts = [module.start for module in modules]

    def frame(line: str) -> str:
        match = _ADDRESS.fullmatch(line)
        at = bisect.bisect_right(starts, int(match[1], 16)) - 1 if match else -1
        if match is None or at < 0 or int(match[1], 16) >= modules[at].end:
            return line
        return f"sheaf:     ({modules[at].path}+{int(match[1], 16) - modules[at].base:#x})"

    return [frame(line) for line in lines]


def _thread(pid: int, inner: int) -> int | None:
    """The number here of a thread, given its number in the PID namespace of its process."""
    for tid in proc.tasks(pid):
        fields = proc.status(f"{pid}/task/{tid}")
        if fields and int(fields.get("NSpid", str(tid)).split()[-1]) == inner:
            return tid
    return None


def _numbers(values: list[int]) -> bytes:
    return struct.pack(f"={len(values)}Q", *values)


@dataclass(frozen=True)
class _Made:
    """
    A copy, the threads of its original, and the answer of the helper that made it; the table for it, the sizes of its parts
    and the number of threads that ran.
    """

    copy: Copy
    threads: ptrace.Threads
    answer: Answer
    content: bytes
    counts: list[int]


class _Scanner:
    """The search in one process."""

    def __init__(self, process: Control, pid: int) -> None:
        self._process, self._pid = process, pid
        self._resident = proc.resident(pid) or 0
        self._notice = Notice()
        self._seen: list[_Module] = []  # in the last copy
        self.found = Found(process.head.program, process.head.pid, pid)

    def search(self) -> None:
        """Fill in what was found, from one copy if nothing seems to be lost there, else from two."""
        raw, is_report = self._round(None)
        if not is_report:
            raw, _ = self._round(raw)
        lines = raw.decode(errors="replace").splitlines()
        self.found.lines = [printable(line) for line in _with_modules(lines, self._seen)]

    def _helper(self) -> int:
        """The helper thread, which must exist and answer."""
        self._process.ask(control.FOLD)
        inner = self._process.helper
        if not inner:
            raise SheafError(f"{self._process.who}: has no helper thread; start it with SHEAF_HELPER=1, or use --growth")
        tid = _thread(self._pid, inner)
        if tid is None:
            raise SheafError(
                f"{self._process.who}: runs on Sheaf {self._process.head.version}, which does not tell its helper "
                "thread; start it again with the Sheaf of this command"
            )
        return tid

    def _room(self) -> None:
        """Raises SheafError if there is not enough memory for a copy whose pages the program changes."""
        left = headroom.left(self._pid)
        need = max(_LEAST, self._resident // 8)
        if left is not None and left < need:
            raise SheafError(
                f"{self._process.who}: {sizes.size(max(left, 0))} of memory are left, and a copy may need "
                f"{sizes.size(need)}; raise the limit of its control group, or use --growth"
            )

    def _refused(self, answer: Answer) -> SheafError | None:
        """The error for an answer that is not the copy; None to try again."""
        who, why = self._process.who, answer.results[0]
        if answer.status == control.UNKNOWN:
            return SheafError(
                f"{who}: runs on Sheaf {self._process.head.version}, which cannot be searched; "
                "start it again with the Sheaf of this command"
            )
        if answer.status != control.REFUSED or why in (_NOT_HELPER, _HAS_COPY, _BUSY):
            return None
        if why == _IN_SANDBOX:
            return SheafError(f"{who}: has installed a seccomp filter, which may end it for making a copy; use --growth")
        if why == _NO_MEMORY:
            return SheafError(f"{who}: the system grants no memory for a copy; free memory or raise the limit, or use --growth")
        reason = os.strerror(answer.results[1] & 0xFFF)
        return SheafError(f"{who}: the system refuses another process: {reason}; raise its limit of processes, or use --growth")

    def _copy(self, blocks: bytes) -> _Made:
        """Make a copy."""
        for number_of_try in range(_TRIES):
            self._room()
            error: SheafError | None = None
            helper, longest = self._helper(), _STOPPED_MOST + self._resident / _COPY_RATE
            with ptrace.stopped(self._pid, helper, self._process.who, longest) as threads:
                registers = threads.registers()
                content = _table(registers) + blocks
                word = self._process.begin(control.LEAKS, number_of_try >= _CLEAN_TRIES, len(content) // 8)
                number, answer = self._wait(threads, helper, word, _COPY_SECONDS * (number_of_try + 1))
                if number is None:
                    self._process.withdraw()
                    number = threads.copy()
                    error = self._refused(answer) if answer else None
                counts = [len(registers), sum(len(one.words) for one in registers), len(blocks) // 8, threads.running]
            self.found.pauses.append(threads.pause)
            if number is not None:
                answer = self._answer(threads, word, number)
                if answer.status == control.DONE:
                    return _Made(Copy(number, self._process.who), threads, answer, content, counts)
                ptrace.kill(number)  # it was made for an earlier request, which had been withdrawn
                error = self._refused(answer)
            if error:
                raise error
            time.sleep(_PAUSE)
        raise SheafError(
            f"{self._process.who}: its helper thread was not free to copy it in {_TRIES} tries; try again, or use --growth"
        )

    def _wait(self, threads: ptrace.Threads, helper: int, word: int, seconds: float) -> tuple[int | None, Answer | None]:
        """
        The number of the copy, or the answer that says why there is none. Making a copy takes the longer the larger the process
        is; a helper that sleeps makes none, but waits for a lock that a stopped thread holds.
        """
        begun = time.monotonic()
        while (waited := time.monotonic() - begun) < seconds or (
            waited < seconds + self._resident / _COPY_RATE and ptrace.state(self._pid, helper) in "RD"
        ):
            number = threads.copy()
            if number is not None:
                return number, None
            if answer := self._process.answered(word):
                return threads.copy(), answer
            time.sleep(0.0001)
        return None, None

    def _answer(self, threads: ptrace.Threads, word: int, copy: int) -> Answer:
        """The answer of the helper, which goes on once the copy exists."""
        deadline = time.monotonic() + self._process.timeout
        while not (answer := self._process.answered(word)):
            threads.resume_late()
            if time.monotonic() > deadline:
                ptrace.kill(copy)
                raise SheafError(
                    f"{self._process.who}: its helper thread did not go on within {self._process.timeout:g} s; "
                    "give a longer --timeout"
                )
            time.sleep(0.001)
        return answer

    def _round(self, blocks: bytes | None) -> tuple[bytes, bool]:
        """
        Make a copy and search it. Returns the list of blocks that seem to be lost, or the report and True: given that list, or
        if it is empty.
        """
        made, began = self._copy(blocks or b""), time.monotonic()
        with made.copy as copy:
            at, size = made.answer.results[:2]
            if size != _LEAKS.size:
                raise SheafError(
                    f"{self._process.who}: runs on Sheaf {self._process.head.version}, whose copies have another "
                    "format; start it again with the Sheaf of this command"
                )
            (address,) = struct.unpack("=Q", copy.read(at, 8).ljust(8, b"\0"))
            copy.write(address, made.content)
            copy.write(at, _LEAKS.pack(address, 1, *made.counts, blocks is not None, 0, 0, 0))
            copy.go_on()
            self._until_end(made)
            *_, second, status, result, length = _LEAKS.unpack(copy.read(at, _LEAKS.size).ljust(_LEAKS.size, b"\0"))
            if status != _DONE:
                raise self._failed(status)
            if length > (_MOST_TEXT if second else 8 * _MOST_BLOCKS):
                raise SheafError(f"{self._process.who}: too much is lost for a report ({sizes.size(length)}); use --growth")
            raw = copy.read(result, length)
            self._seen = _modules(copy.number, _inside(self._pid))
        self.found.seconds += time.monotonic() - began
        return raw, bool(second)

    def _until_end(self, made: _Made) -> None:
        pause, looked = 0.0005, time.monotonic()
        while not made.copy.at_end():
            made.threads.resume_late()
            self._notice.look(lambda: f"{self._process.who}: a copy of it is being searched, while it runs; Ctrl-C ends that")
            if time.monotonic() - looked > _LOOK_SECONDS:
                looked = time.monotonic()
                self._must_have_room()
            time.sleep(pause)
            pause = min(2 * pause, 0.01)

    def _must_have_room(self) -> None:
        """End the search before memory runs out: each page that the program changes meanwhile exists twice."""
        left = headroom.left(self._pid)
        if left is not None and left < _LEAST // 4:
            raise SheafError(
                f"{self._process.who}: memory is short, so the search was ended; try again when the program changes "
                "less of its memory, or raise its limit"
            )

    def _failed(self, status: int) -> SheafError:
        why = {_NO_PROC: "/proc cannot be read there; mount /proc", _TABLES: "no memory for the tables; raise `ulimit -v`"}
        return SheafError(f"{self._process.who}: its copy was not searched: {why.get(status, 'it ended early; try again')}")


def _table(registers: list[Registers]) -> bytes:
    pairs = [number for one in registers for number in (one.pointer, one.low)]
    return _numbers(pairs) + _numbers([word for one in registers for word in one.words])


def search(name: str, timeout: float) -> Found:
    """Search the process that a number, a program's name or the path of a record leads to. Raises SheafError."""
    with control.connect(name, timeout) as process:
        if process.pid is None:
            raise SheafError(f"{process.who}: is in a PID namespace that is not visible here; run sheaf on its host")
        scanner = _Scanner(process, process.pid)
        scanner.search()
        return scanner.found
