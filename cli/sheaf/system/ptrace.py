"""Stop the threads of a process from outside by ptrace(2), read their registers, and trace the copy that one of them makes.

A stop by ptrace runs nothing in the process. System calls that were interrupted are restarted by the kernel, but for those
that signal(7) lists under "Interruption of system calls and library functions by stop signals". When this command ends, by
whatever cause, the kernel lets all threads go on.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import signal
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sheaf.errors import SheafError
from sheaf.system import proc

_SEIZE, _INTERRUPT, _CONT, _DETACH, _SETOPTIONS, _GETEVENTMSG, _GETREGSET = 0x4206, 0x4207, 7, 17, 0x4200, 0x4201, 0x4204
_TRACE_FORK, _TRACE_CLONE, _TRACE_EXIT, _EXIT_KILL = 1 << 1, 1 << 3, 1 << 6, 1 << 20
_EVENT_FORK, _EVENT_CLONE, _EVENT_EXIT, _EVENT_STOP = 1, 3, 6, 128
_WALL = 0x40000000
_GENERAL, _FLOATING, _ARM_TLS = 1, 2, 0x401  # sets of registers
_STOP_SECONDS = 2.0  # for threads to stop: they need a CPU for that
_SLOW_SECONDS = 0.1  # for threads that sleep uninterruptibly
_TICK = 0.0001
_MOST = 2048  # bytes of a set of registers

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


@dataclass(frozen=True)
class _Machine:
    """Where a set of general registers has the stack pointer and the thread pointer, in words; bytes below the stack in use."""

    stack: int
    pointer: int | None
    red_zone: int


_MACHINES = {"x86_64": _Machine(19, 21, 128), "aarch64": _Machine(31, None, 0)}


@dataclass(frozen=True)
class Registers:
    """What the registers of a stopped thread contain; `low` is the lowest address of its stack that is in use."""

    pointer: int
    low: int
    words: tuple[int, ...]


def _call(request: int, tid: int, address: int = 0, data: int = 0) -> None:
    if _libc.ptrace(request, tid, address, data) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _register_set(tid: int, kind: int) -> bytes:
    buffer = ctypes.create_string_buffer(_MOST)
    vector = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), _MOST)
    _call(_GETREGSET, tid, kind, ctypes.addressof(vector))
    return buffer.raw[: vector[1]]


def _registers(tid: int) -> Registers:
    machine = _MACHINES[platform.machine()]
    general = _register_set(tid, _GENERAL)
    raw = general + _register_set(tid, _FLOATING)
    first = struct.unpack(f"={len(general) // 8}Q", general)
    if machine.pointer is None:
        (pointer,) = struct.unpack_from("=Q", _register_set(tid, _ARM_TLS))
    else:
        pointer = first[machine.pointer]
    words = struct.unpack_from(f"={len(raw) // 8}Q", raw)
    return Registers(pointer, max(0, first[machine.stack] - machine.red_zone), tuple(word for word in words if word))


def state(pid: int, tid: int) -> str:
    """The state of a thread as in /proc/PID/stat; X if it is gone."""
    found = proc.stat(f"{pid}/task/{tid}")
    return found.state if found else "X"


def _refusal(pid: int, who: str) -> SheafError:
    """Why a process may not be traced, and what to do."""
    tracer = proc.status(pid).get("TracerPid", "")
    if tracer not in ("", "0", str(os.getpid())):
        return SheafError(f"{who}: process {tracer} traces it already, as a debugger does; end that first, or use --growth")
    with contextlib.suppress(OSError, ValueError):
        scope = int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text())
        if scope == 3:
            return SheafError(f"{who}: kernel.yama.ptrace_scope=3 forbids to stop any process; use --growth")
        if scope and os.geteuid() != 0:
            return SheafError(
                f"{who}: kernel.yama.ptrace_scope={scope} forbids to stop its threads; run sheaf as root, or use --growth"
            )
    return SheafError(
        f"{who}: the system forbids to stop its threads; run sheaf as root, in a container with CAP_SYS_PTRACE, or use --growth"
    )


class Threads:
    """
    The threads of a process: all are stopped but `spared`, which is traced and runs. Made by stopped(). `running` is the number
    of threads that did not stop.
    """

    def __init__(self, pid: int, spared: int, who: str) -> None:
        self._pid, self._spared, self._who = pid, spared, who
        self._seized: set[int] = set()
        self._stopped: dict[int, int] = {}  # with the signal to deliver when it goes on
        self._copies: list[int] = []
        self._began = self._ended = 0.0

    @property
    def running(self) -> int:
        """The number of threads that did not stop, the spared one aside."""
        return len(self._seized - set(self._stopped) - {self._spared})

    @property
    def pause(self) -> float:
        """For how long the threads were stopped, in seconds."""
        return self._ended - self._began

    def stop(self) -> None:
        """Stop all threads, and those that they create meanwhile."""
        self._seize(self._spared, _TRACE_FORK | _TRACE_CLONE)
        if self._spared not in self._seized:
            raise SheafError(f"{self._who}: ended while it was asked; name a running process")
        fresh = self._seize_new()
        self._began = time.monotonic()
        while fresh:
            for tid in fresh:
                with contextlib.suppress(ProcessLookupError):
                    _call(_INTERRUPT, tid)
            self._wait(set(fresh), self._began)
            fresh = self._seize_new()

    def _seize(self, tid: int, options: int = 0) -> None:
        try:
            _call(_SEIZE, tid, 0, options)
            self._seized.add(tid)
        except ProcessLookupError:
            pass
        except PermissionError as error:
            if proc.status(f"{self._pid}/task/{tid}").get("TracerPid") == str(os.getpid()):
                self._seized.add(tid)  # it has not stopped since an earlier time
            elif state(self._pid, tid) not in "ZX":  # a main thread that has ended
                raise _refusal(self._pid, self._who) from error

    def _seize_new(self) -> list[int]:
        fresh = [tid for tid in proc.tasks(self._pid) if tid not in self._seized]
        for tid in fresh:
            self._seize(tid)
        return [tid for tid in fresh if tid in self._seized]

    def _wait(self, missing: set[int], since: float) -> None:
        """Wait until these threads are stopped, or will not soon."""
        while missing := {tid for tid in missing if not self._look(tid)}:
            passed = time.monotonic() - since
            if passed > _STOP_SECONDS or (passed > _SLOW_SECONDS and all(state(self._pid, tid) == "D" for tid in missing)):
                return
            time.sleep(_TICK)

    def _look(self, tid: int) -> bool:
        """Whether the thread is stopped, or gone."""
        try:
            found, status = os.waitpid(tid, os.WNOHANG | _WALL)
        except ChildProcessError:
            self._seized.discard(tid)
            return True
        if not found:
            return False
        if not os.WIFSTOPPED(status):
            self._seized.discard(tid)
            return True
        event = status >> 16
        if event in (_EVENT_FORK, _EVENT_CLONE):
            message = ctypes.c_ulong()
            with contextlib.suppress(ProcessLookupError):
                _call(_GETEVENTMSG, tid, 0, ctypes.addressof(message))
                if self._is_copy(message.value):
                    self._copies.append(message.value)
                else:
                    self._seized.add(message.value)  # the kernel traces and stops it too
        self._stopped[tid] = 0 if event else os.WSTOPSIG(status)
        return True

    def _is_copy(self, number: int) -> bool:
        """Whether it is a child process of this one, and not a thread, which must not be killed."""
        fields = proc.status(number)
        return (fields.get("Tgid"), fields.get("PPid")) == (str(number), str(self._pid))

    def registers(self) -> list[Registers]:
        """The registers of the stopped threads."""
        found = []
        for tid in list(self._stopped):
            with contextlib.suppress(ProcessLookupError):  # it was killed
                found.append(_registers(tid))
        return found

    def copy(self) -> int | None:
        """The copy that the spared thread has made of the process, if it has made one. It has not run yet."""
        if self._spared not in self._stopped and self._spared in self._seized:
            self._look(self._spared)
        return self._copies.pop() if self._copies else None

    def resume(self) -> None:
        """Let all threads go on. Those that did not stop are left to resume_late()."""
        for tid in list(self._stopped):
            self._release(tid)
        self._ended = time.monotonic()
        if self._spared in self._seized:
            with contextlib.suppress(ProcessLookupError):
                _call(_INTERRUPT, self._spared)
            self._wait({self._spared}, self._ended)
        self.resume_late()
        for copy in self._copies:  # too late
            kill(copy)

    def resume_late(self) -> None:
        """Let threads go on that stopped only now. To be called until this command ends, which has the same effect."""
        for tid in list(self._seized):
            if tid in self._stopped or self._look(tid):
                self._release(tid)

    def _release(self, tid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            _call(_DETACH, tid, 0, self._stopped.get(tid, 0))
        self._stopped.pop(tid, None)
        self._seized.discard(tid)


@contextlib.contextmanager
def _bounded(limit: float) -> Iterator[None]:
    """
    No job control, and at most so many seconds. Then SIGALRM ends this command, whatever it is doing, and the kernel lets all
    threads go on.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def stopped(pid: int, spared: int, who: str, limit: float) -> Iterator[Threads]:
    """
    Stop all threads of a process but one, and let them go on in the end, at the latest after `limit` seconds, which ends this
    command. Raises SheafError if that is not permitted.
    """
    if platform.machine() not in _MACHINES:
        raise SheafError(f"{platform.machine()}: the registers of this machine are not known; use --growth")
    threads = Threads(pid, spared, who)
    with _bounded(limit):
        try:
            threads.stop()
            yield threads
        finally:
            threads.resume()


def kill(copy: int) -> None:
    """End a copy, and wait until it has ended. SIGKILL does not wake one that stopped in its exit."""
    with contextlib.suppress(OSError):
        os.kill(copy, signal.SIGKILL)
    while True:
        with contextlib.suppress(OSError):
            _call(_CONT, copy)
        try:
            _, status = os.waitpid(copy, _WALL)
        except OSError:
            return
        if not os.WIFSTOPPED(status):
            return


class Copy:
    """A copy of a process, from its first stop to its end. It ends with this command. Use it as a context manager."""

    def __init__(self, number: int, who: str) -> None:
        self.number, self._who = number, who
        self._memory: int | None = None

    def __enter__(self) -> Copy:
        try:
            os.waitpid(self.number, _WALL)  # its first stop, before it runs
            _call(_SETOPTIONS, self.number, 0, _TRACE_EXIT | _EXIT_KILL)
            self._memory = os.open(f"/proc/{self.number}/mem", os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            kill(self.number)
            raise self._lost(error) from error
        return self

    def __exit__(self, *_: object) -> None:
        if self._memory is not None:
            os.close(self._memory)
        kill(self.number)

    def _lost(self, error: OSError) -> SheafError:
        why = "it was killed" if error.errno in (errno.ESRCH, errno.ECHILD, errno.EIO) else error.strerror
        return SheafError(f"{self._who}: the copy that was searched cannot be read: {why}; try again")

    def read(self, address: int, size: int) -> bytes:
        """Bytes of its memory."""
        assert self._memory is not None
        raw = b""
        try:
            while len(raw) < size and (part := os.pread(self._memory, size - len(raw), address + len(raw))):
                raw += part
        except (OSError, OverflowError) as error:
            raise self._lost(error if isinstance(error, OSError) else OSError(errno.EFAULT, "bad address")) from error
        return raw

    def write(self, address: int, raw: bytes) -> None:
        """Change its memory."""
        assert self._memory is not None
        try:
            done = 0
            while done < len(raw):
                done += os.pwrite(self._memory, raw[done:], address + done)
        except (OSError, OverflowError) as error:
            raise self._lost(error if isinstance(error, OSError) else OSError(errno.EFAULT, "bad address")) from error

    def go_on(self) -> None:
        """Let it run."""
        try:
            _call(_CONT, self.number)
        except OSError as error:
            raise self._lost(error) from error

    def at_end(self) -> bool:
        """Whether it has done its work and is about to end. Raises SheafError if it failed."""
        try:
            found, status = os.waitpid(self.number, os.WNOHANG | _WALL)
        except OSError as error:
            raise self._lost(error) from error
        if not found:
            return False
        if not os.WIFSTOPPED(status):
            raise self._lost(OSError(errno.ESRCH, ""))
        event, number = status >> 16, os.WSTOPSIG(status)
        if event == _EVENT_EXIT:
            return True
        if event != _EVENT_STOP and number not in (signal.SIGSTOP, signal.SIGTRAP):
            raise SheafError(f"{self._who}: the copy that was searched got {signal.Signals(number).name}; report this")
        self.go_on()
        return False
