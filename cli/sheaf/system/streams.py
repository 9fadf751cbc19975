"""Standard streams that were closed at the start, or that cannot take what is written to them."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys

from sheaf.errors import SheafError


class _Messages(io.TextIOWrapper):
    """Standard error. A message that cannot be written is lost, but changes neither the course of a command nor its status."""

    def write(self, text: str, /) -> int:
        """Write if that is possible."""
        with contextlib.suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        """Flush if that is possible."""
        with contextlib.suppress(OSError):
            super().flush()


class _Results(io.TextIOWrapper):
    """Standard output. A result that cannot be written is a SheafError, unless nobody reads it any more (BrokenPipeError)."""

    def write(self, text: str, /) -> int:
        """Write. Raises SheafError."""
        try:
            return super().write(text)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise self._failure(error) from error

    def flush(self) -> None:
        """Flush. Raises SheafError."""
        try:
            super().flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise self._failure(error) from error

    def write_bytes(self, data: bytes) -> None:
        """Write bytes that are not text. Raises SheafError."""
        self.flush()
        try:
            self.buffer.write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise self._failure(error) from error
        self.flush()

    def _failure(self, error: OSError) -> SheafError:
        give_up()
        if error.errno == errno.EBADF:
            return SheafError("standard output is closed; redirect it to a file, or to /dev/null", own_failure())
        return SheafError(f"standard output: {error.strerror}; write to another file", own_failure())


def own_failure() -> int:
    """The exit status for a failure of sheaf itself."""
    return 125 if sys.argv[1:2] == ["run"] else 1


def prepare() -> None:
    """
    Make standard error ignore failures and standard output explain them. A closed standard output, which Python knows as None,
    becomes one that refuses each write, so that no result is lost silently. A program that `sheaf run` executes still finds
    it closed.
    """
    stdout: io.TextIOWrapper | None = sys.stdout  # type: ignore[assignment]
    stderr: io.TextIOWrapper | None = sys.stderr  # type: ignore[assignment]
    if stdout is None:
        stdout = open(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), "w", encoding="utf-8")  # noqa: SIM115
        encoding, errors, buffer = stdout.encoding, stdout.errors, stdout.detach()  # its owner would close the file
    else:
        encoding, errors, buffer = stdout.encoding, stdout.errors, stdout.buffer
    sys.stdout = _Results(buffer, encoding, errors, line_buffering=sys.__stdout__ is not None and sys.__stdout__.line_buffering)
    if stderr is not None:
        sys.stderr = _Messages(stderr.buffer, stderr.encoding, stderr.errors, line_buffering=True)


def write(data: bytes) -> None:
    """Write bytes to standard output. Raises SheafError."""
    if isinstance(sys.stdout, _Results):
        sys.stdout.write_bytes(data)
    else:  # not the command line: a test
        sys.stdout.buffer.write(data)


def give_up() -> None:
    """Drop what standard output could not write; Python would try again at its end, and report the failure once more."""
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
