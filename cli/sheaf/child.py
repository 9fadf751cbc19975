"""A program that is executed in our place, or run as a child in a way that nobody notices.

A terminal sends its signals to the whole foreground group, so the program has them already; what was sent to us alone
is passed on. The kernel tells one from the other by si_code. Stops are not passed on but mirrored: when the program
stopped, whatever it did before (an editor gives the terminal back first), we stop, too, and the shell sees the job
stop.
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
    """A file and what it is executed with; `name` is what the user called it."""

    name: str
    file: str
    argv: list[str]
    environment: dict[str, str]


def _failure(command: Command, error: OSError) -> SheafError:
    if error.errno == errno.ENOENT:
        return SheafError(f"{command.name}: the interpreter it asks for does not exist; check its first line", 127)
    return SheafError(f"{command.name}: {error.strerror}; the system cannot execute it", 126)


def _start(command: Command, how: Callable[[str, list[str], dict[str, str]], T]) -> T:
    try:
        return how(command.file, command.argv, command.environment)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise _failure(command, error) from error
    shell = "/bin/sh"  # runs what is no program and names no interpreter, as execvp has it
    return _start(Command(command.name, shell, [shell, command.file, *command.argv[1:]], command.environment), how)


def execute(command: Command) -> None:
    """Become the program. SheafError when that is not possible."""
    if sys.stdout:
        sys.stdout.flush()
    for number in _IGNORED_BY_PYTHON:  # exec would pass that on
        signal.signal(number, signal.SIG_DFL)
    _start(command, os.execve)


def _in_foreground() -> bool:
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
    """All signals wait until `tend` takes them one by one, so that none is lost before the program runs."""

    def __init__(self, command: Command) -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # when ignored, there would be no status
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED)
        self.stopped = False
        self.stop_signal = 0
        self.status: int | None = None

        def spawn(file: str, argv: list[str], environment: dict[str, str]) -> int:
            return os.posix_spawn(file, argv, environment, setsigmask=mask, setsigdef=_IGNORED_BY_PYTHON)

        self.pid = _start(command, spawn)

    def tend(self) -> int:
        """Until the program ends: its exit status, or the negative number of its signal."""
        while self.status is None:
            info = signal.sigwaitinfo(_WAITED)
            if info.si_signo == signal.SIGCHLD:
                if self._look() and self.stopped:
                    self._stop()
            elif info.si_signo == signal.SIGCONT:
                self._look()
                if self.status is None and (self.stopped or self._is_news(info)):
                    self._go_on()
            elif self._is_news(info):
                os.kill(self.pid, info.si_signo)
        return self.status

    def _is_news(self, info: signal.struct_siginfo) -> bool:
        """Not the terminal's (but a hangup comes to the session's leader alone), nor what the program sent to its group."""
        return info.si_pid != self.pid and (info.si_code <= 0 or info.si_signo == signal.SIGHUP)

    def _look(self) -> bool:
        """Whether there is news of the program. As the first process of a container we may have foreign children."""
        news = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            except ChildProcessError:
                return news
            if pid == 0:
                return news
            if pid != self.pid:
                continue
            news = True
            self.stopped = os.WIFSTOPPED(status)
            if self.stopped:
                self.stop_signal = os.WSTOPSIG(status)
            elif not os.WIFCONTINUED(status):
                self.status = os.waitstatus_to_exitcode(status)

    def _go_on(self) -> None:
        self.stopped = False
        os.kill(self.pid, signal.SIGCONT)

    def _stop(self) -> None:
        """Stop until somebody continues us: the whole group, as `fg` does, or us alone; then the program must go on, too."""
        while self.stopped:
            # A hand that debugs stops the program alone, unless a shell at the terminal waits for just that.
            if self.stop_signal == signal.SIGSTOP and not _in_foreground():
                return
            if signal.SIGCONT in signal.sigpending():  # somebody was faster
                return
            os.kill(os.getpid(), self.stop_signal)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [self.stop_signal])
            signal.pthread_sigmask(signal.SIG_BLOCK, [self.stop_signal])
            if not signal.sigtimedwait([signal.SIGCONT], 0):  # nobody would: the kernel did not let us stop
                return
            if not self._look():  # it may have stopped again meanwhile
                self._go_on()


def run(command: Command) -> int:
    """Run it to its end: its exit status, or the negative number of its signal. Signals stay blocked."""
    return _Child(command).tend()


def end_as(status: int) -> None:
    """End the way the program did; by its signal, without a core of ours."""
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
    os._exit(128 - status)  # the first process of a container is not killed by its own signals
