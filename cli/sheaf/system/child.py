"""Run a program by exec, or as a child process that behaves as if it had been started directly.

A terminal sends its signals to the whole foreground process group, so the child already has them. Signals that were
sent to this process alone are forwarded; si_code distinguishes the two. Stop signals are mirrored instead of forwarded:
the child may have work to do before it stops (an editor restores the terminal), so this process stops only after the
child has stopped, and then the shell sees the job stop.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from sheaf.errors import SheafError

T = TypeVar("T")
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
_WAITED = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, *_IGNORED_BY_PYTHON}


@dataclass
class Command:
    """The arguments of an exec. `name` is the program as the user wrote it and appears in messages."""

    name: str
    file: str
    argv: list[str]
    environment: dict[str, str]


def _failure(command: Command, error: OSError) -> SheafError:
    if error.errno == errno.ENOENT:
        return SheafError(f"{command.name}: its interpreter does not exist; check its first line", 127)
    advice = {
        errno.E2BIG: "shorten its arguments or the environment",
        errno.EAGAIN: "raise the limit of processes",
        errno.ENOMEM: "free some memory",
    }.get(error.errno or 0, "check the file")
    return SheafError(f"{command.name}: cannot be executed: {error.strerror}; {advice}", 126)


def _start(command: Command, how: Callable[[str, list[str], dict[str, str]], T]) -> T:
    try:
        return how(command.file, command.argv, command.environment)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise _failure(command, error) from error
    shell = "/bin/sh"  # like execvp, for a file that is neither ELF nor starts with #!
    return _start(Command(command.name, shell, [shell, command.file, *command.argv[1:]], command.environment), how)


def execute(command: Command) -> None:
    """Replace this process with the program. Raises SheafError if exec fails."""
    if sys.stdout:
        sys.stdout.flush()
    for number in _IGNORED_BY_PYTHON:  # ignored signals stay ignored across exec
        signal.signal(number, signal.SIG_DFL)
    _start(command, os.execve)


def _in_foreground() -> bool:
    """Whether this process belongs to the foreground group of its controlling terminal."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


class _Child:
    """A child process. All signals stay blocked until `tend` accepts them one by one, so that none is lost during startup."""

    def __init__(self, command: Command) -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if SIGCHLD were ignored, waitpid would return no status
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED)
        self.stopped = False
        self.stop_signal = 0
        self.status: int | None = None

        def spawn(file: str, argv: list[str], environment: dict[str, str]) -> int:
            return os.posix_spawn(file, argv, environment, setsigmask=mask, setsigdef=_IGNORED_BY_PYTHON)

        self.pid = _start(command, spawn)

    def tend(self) -> int:
        """Handle signals until the child ends. Returns its exit status, or the negative number of the signal that ended it."""
        while self.status is None:
            info = signal.sigwaitinfo(_WAITED)
            if info.si_signo == signal.SIGCHLD:
                if self._reap() and self.stopped:
                    self._stop()
            elif info.si_signo == signal.SIGCONT:
                self._reap()
                if self.status is None and (self.stopped or self._must_forward(info)):
                    self._resume()
            elif self._must_forward(info):
                os.kill(self.pid, info.si_signo)
        return self.status

    def _must_forward(self, info: signal.struct_siginfo) -> bool:
        """
        Whether the child has not received the signal yet. It has received signals of the terminal (except SIGHUP, which
        goes to the session leader alone) and signals that it sent to its own process group.
        """
        return info.si_pid != self.pid and (info.si_code <= 0 or info.si_signo == signal.SIGHUP)

    def _reap(self) -> bool:
        """
        Update the state of the child; returns whether it changed. The first process of a container also inherits orphans,
        which are reaped and ignored.
        """
        changed = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            except ChildProcessError:
                return changed
            if pid == 0:
                return changed
            if pid != self.pid:
                continue
            changed = True
            self.stopped = os.WIFSTOPPED(status)
            if self.stopped:
                self.stop_signal = os.WSTOPSIG(status)
            elif not os.WIFCONTINUED(status):
                self.status = os.waitstatus_to_exitcode(status)

    def _resume(self) -> None:
        self.stopped = False
        os.kill(self.pid, signal.SIGCONT)

    def _stop(self) -> None:
        """
        Stop this process until SIGCONT arrives. `fg` sends it to the whole group; if it was sent to this process alone,
        the child is resumed as well.
        """
        while self.stopped:
            # A SIGSTOP from elsewhere, such as a debugger, concerns the child alone. In the foreground this process must
            # stop as well, because the shell waits for the job to stop.
            if self.stop_signal == signal.SIGSTOP and not _in_foreground():
                return
            if signal.SIGCONT in signal.sigpending():  # already continued
                return
            os.kill(os.getpid(), self.stop_signal)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [self.stop_signal])
            signal.pthread_sigmask(signal.SIG_BLOCK, [self.stop_signal])
            if not signal.sigtimedwait([signal.SIGCONT], 0):  # the kernel does not stop an orphaned process group
                return
            if not self._reap():  # the child may have stopped again meanwhile
                self._resume()


def run(command: Command) -> int:
    """
    Run the command to its end. Returns its exit status, or the negative number of the signal that ended it. Signals are
    still blocked on return; call end_as() next.
    """
    return _Child(command).tend()


def end_as(status: int) -> None:
    """End this process as the child ended, with its status or by its signal, but without a core dump. Does not return."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            if stream:
                stream.flush()
    if status >= 0:
        os._exit(status)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if -status not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [-status])
    os._exit(128 - status)  # the kernel does not kill the first process of a container by its own signals
