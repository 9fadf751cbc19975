"""Ask something of a running process through the control area of its record (sheaf/control.h).

Only the owner of a record and root can write to it. The process answers where its slow paths look at the clock, or by its
helper thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import platform
import pwd
import secrets
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sheaf.errors import SheafError
from sheaf.records import layout, record
from sheaf.records.record import Head
from sheaf.records.state import States
from sheaf.system import proc
from sheaf.system.progress import TIMEOUT, Notice

FOLD, TRIM, SET, PROFILE, MAP, LEAKS = range(1, 7)  # enum sheaf_operation
DONE, UNKNOWN, RANGE, NO_ROOM, REFUSED, NO_EFFECT = range(6)  # enum sheaf_status
WINDOW_BYTES = 64 << 10
_LARGEST = 1 << 32  # bytes of a record with a profile area
_REQUEST, _ANSWER, _STATUS, _RESULTS, _LOOKS = 0, 1, 2, 3, 11  # places of the words of struct sheaf_control
_BELL, _WAITS = 8 * 12, 8 * 12 + 4  # bytes from the start, of words of 4
_BYTES = _WAITS + 4
_VALUE_SHIFT, _SEQUENCE_SHIFT, _SUBJECT_SHIFT = 24, 16, 8
VALUE_MOST = (1 << 40) - 1
_CHECK_SECONDS = 0.25  # between two checks whether the process still runs


@dataclass(frozen=True)
class Answer:
    """What the process answered: an enum sheaf_status, and results whose meaning depends on the operation."""

    status: int
    results: tuple[int, ...]


class Control:
    """
    The control area of a running process, which no other client uses meanwhile. `pid` is its number here, None if it is not
    visible. Made by connect().
    """

    def __init__(self, head: Head, pid: int | None, file: int, offset: int, window: int, timeout: float, deadline: float) -> None:
        """The first answer must come before `deadline`, in seconds of time.monotonic(), each other one within `timeout`."""
        self.head, self.pid, self.timeout = head, pid, timeout
        self._file, self._offset, self._window = file, offset, window
        self._deadline: float | None = deadline

    @property
    def who(self) -> str:
        """The process, for messages."""
        return record.label(self.head.program, self.head.pid, self.pid)

    def _read(self, offset: int, size: int) -> bytes:
        """Bytes of the record. The file is not mapped: if its owner cut it short, SIGBUS would end this command."""
        try:
            raw = os.pread(self._file, size, offset)
        except OSError as error:
            raise SheafError(f"{self.head.path}: {error.strerror}; name the record of a running process") from error
        if len(raw) < size:
            raise SheafError(f"{self.head.path}: cut short; start the process again with a new record")
        return raw

    def _words(self, place: int, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}Q", self._read(self._offset + 8 * place, 8 * count))

    def _word(self, place: int) -> int:
        return self._words(place, 1)[0]

    def _send(self, word: int) -> None:
        """
        Write the request. write(2) need not store 8 bytes at once, so the operation, which is the first byte, is none until
        the rest is there.
        """
        raw, at = struct.pack("<Q", word), self._offset + 8 * _REQUEST
        try:
            os.pwrite(self._file, b"\0", at)
            os.pwrite(self._file, raw[1:], at + 1)
            os.pwrite(self._file, raw[:1], at)
        except OSError as error:
            raise SheafError(f"{self.head.path}: {error.strerror}; free space in its file system") from error

    @property
    def has_helper(self) -> bool:
        """Whether the process has a thread that answers while the program sleeps."""
        return self.helper != 0

    @property
    def helper(self) -> int:
        """The number of that thread in the PID namespace of the process; 0 if there is none."""
        return int.from_bytes(self._read(self._offset + _WAITS, 4), "little")

    def begin(self, operation: int, subject: int = 0, value: int = 0) -> int:
        """Send a request without waiting for the answer. Returns its word, for answered()."""
        sequence = (self._word(_ANSWER) >> _SEQUENCE_SHIFT) + 1 & 0xFF
        word = operation | subject << _SUBJECT_SHIFT | sequence << _SEQUENCE_SHIFT | value << _VALUE_SHIFT
        self._send(word)
        if self.has_helper:
            _ring(self._file, self._offset + _BELL)
        return word

    def answered(self, word: int) -> Answer | None:
        """The answer to a request, if there is one."""
        return Answer(self._word(_STATUS), self._words(_RESULTS, 8)) if self._word(_ANSWER) == word else None

    def withdraw(self) -> None:
        """Take a request back, unless the process is already doing it."""
        self._send(0)

    def ask(self, operation: int, subject: int = 0, value: int = 0) -> Answer:
        """
        Send a request and wait for the answer. Raises SheafError if there is none in time; the request is then withdrawn,
        unless the process is already doing it.
        """
        looks = self._word(_LOOKS)
        checked, pause = time.monotonic(), 0.0002
        deadline, self._deadline = self._deadline or checked + self.timeout, None
        notice = Notice()
        word = self.begin(operation, subject, value)
        while not (answer := self.answered(word)):
            now = time.monotonic()
            if now > deadline:
                self.withdraw()
                if answer := self.answered(word):
                    break
                raise self._silent(self._word(_LOOKS) != looks)
            notice.look(lambda: self._waiting(self._word(_LOOKS) != looks))
            if now - checked > _CHECK_SECONDS:
                checked = now
                self._must_run()
            time.sleep(pause)
            pause = min(2 * pause, 0.01)
        return answer

    def _must_run(self) -> None:
        if States().of(self.head).ended or (self.pid and record.is_zombie(self.pid)):
            self._send(0)
            raise SheafError(f"{self.who}: ended while it was asked; name a running process")

    def _silent(self, looked: bool) -> SheafError:
        """Why there was no answer; `looked` says whether the process has looked at the area meanwhile."""
        self._must_run()
        why, advice = self._why(looked)
        return SheafError(f"{self.who}: did not answer within {self.timeout:g} s: {why}; {advice}")

    def _waiting(self, looked: bool) -> str:
        """What this command waits for, and how long."""
        why, _ = self._why(looked)
        return f"{self.who}: has not answered yet: {why}; waiting for {self.timeout:g} s at most (--timeout), Ctrl-C ends that"

    def _why(self, looked: bool) -> tuple[str, str]:
        """Why there is no answer, and what to do."""
        now = proc.stat(self.pid) if self.pid else None
        if now and now.state in "Tt":
            return "it is stopped", f"continue it with `kill -CONT {self.pid}`"
        if looked:
            return "it is still busy with the request, or with another one", "give a longer --timeout"
        if self.has_helper:
            return "its helper thread has not run yet", "give a longer --timeout"
        sleeps = (
            "it sleeps, and it has no helper thread"
            if now and now.threads == 1
            else ("its threads allocate and free nothing, and none is a helper thread")
        )
        return sleeps, "try again while it works, or start it with SHEAF_HELPER=1"

    def extend(self, size: int) -> None:
        """Make the record at least `size` bytes long. What is added has no memory until the process writes to it."""
        if os.fstat(self._file).st_size >= size:
            return
        if size > _LARGEST:
            raise layout.damaged(self.head.path)
        try:
            os.ftruncate(self._file, size)
        except OSError as error:
            raise SheafError(f"{self.head.path}: {error.strerror}; free space in its file system") from error

    def window(self) -> bytes:
        """The bytes of the window, in which the process describes its memory."""
        return self._read(self._window, WINDOW_BYTES)


_FUTEX = {"x86_64": 202, "aarch64": 98}  # number of the system call
_FUTEX_WAKE = 1
_EVERYBODY = 0x7FFFFFFF


def _ring(file: int, offset: int) -> None:
    """
    Change the word at `offset` of an open record and wake the thread that waits for that. The mapping is only named to the
    system, never touched, because an access behind the end of a file that was cut short would end this command. Where any
    of this is not possible, nothing happens: the process then answers when it next allocates or frees.
    """
    number, page = _FUTEX.get(platform.machine()), mmap.ALLOCATIONGRANULARITY
    start = offset - offset % page
    try:
        os.pwrite(file, secrets.token_bytes(4), offset)
        with mmap.mmap(file, page, offset=start) as area:
            if number is not None:
                _wake(number, area, offset - start)
    except (OSError, ValueError):
        return


def _wake(number: int, area: mmap.mmap, at: int) -> None:
    word = ctypes.c_uint32.from_buffer(area, at)
    try:
        ctypes.CDLL(None).syscall(ctypes.c_long(number), ctypes.byref(word), _FUTEX_WAKE, _EVERYBODY, None, None, 0)
    finally:
        del word  # the mapping cannot be closed before


def find(target: str) -> Path:
    """
    The record of the running process that a number, a program's name or the path of a record leads to. Raises SheafError if
    there is no such process, or if it keeps no record.
    """
    if record.is_path(target) and os.path.isdir(target):
        raise SheafError(f"{target}: is a directory; name one process or its record")
    return next(iter(record.find(target)))


def _owner(file: int) -> str:
    """The user that an open file belongs to."""
    uid = os.fstat(file).st_uid
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = f"user {uid}"
    return name


def _writable(path: Path, file: int) -> int:
    """
    Open a file again for writing. The owner of its directory may replace the path at any time, so the path is not used: what
    is written must reach the file whose header was read.
    """
    try:
        return os.open(f"/proc/self/fd/{file}", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM):
            owner = _owner(file)
            who = "root" if owner == "root" else f"{owner} or as root"
            raise SheafError(f"{path}: the record belongs to {owner}; run sheaf as {who}") from error
        advice = "mount it writable here" if error.errno == errno.EROFS else "name the record of a running process"
        raise SheafError(f"{path}: {error.strerror}; {advice}") from error


def _lock(file: int, who: str, timeout: float, deadline: float) -> None:
    """Exclude other clients until the file is closed."""
    notice = Notice()
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise SheafError(
                    f"{who}: another sheaf command has been asking it for {timeout:g} s; try again when that has ended"
                ) from error
            notice.look(lambda: f"{who}: another sheaf command is asking it; waiting for {timeout:g} s at most (--timeout)")
            time.sleep(0.01)


def _running(head: Head) -> int | None:
    """The number of the process here; None if it is not visible. Raises SheafError if it has ended."""
    state = States().of(head)
    if state.name == "copy":
        raise SheafError(f"{head.path}: is a copy of the record of a running process; name process {head.pid}")
    if state.ended:
        raise SheafError(f"{head.path}: {head.who} has {_past(str(state))}; name a running process")
    return state.pid or None


def _past(state: str) -> str:
    return state if state.startswith("ended") else f"been {state}"


@contextlib.contextmanager
def connect(target: str, timeout: float = TIMEOUT) -> Iterator[Control]:
    """
    The control area of the process that a number, a program's name or the path of a record leads to. Raises SheafError,
    which says why the process cannot be asked.
    """
    if not proc.readable():
        raise SheafError(f"{target}: /proc cannot be read here, so no process can be asked; run sheaf outside of the sandbox")
    path = find(target)
    head = record.read_head(path)
    pid = _running(head)
    who = record.label(head.program, head.pid, pid)
    reader = layout.Reader(path)
    with reader.file:
        control, window = reader.optional("control_offset"), reader.optional("window_offset")
        if not control or not window or control % 8 or window % 8:
            raise SheafError(
                f"{who}: runs on Sheaf {head.version}, whose records have no control area; "
                "start it again with the Sheaf of this command"
            )
        file = _writable(path, reader.file.fileno())
    try:
        if os.fstat(file).st_size < max(control + _BYTES, window + WINDOW_BYTES):
            raise SheafError(f"{path}: cut short; start the process again with a new record")
        deadline = time.monotonic() + timeout
        _lock(file, who, timeout, deadline)
        yield Control(head, pid, file, control, window, timeout, deadline)
    finally:
        os.close(file)
