"""Wake the helper thread of a process by the futex in the control area of its record (sheaf/control.h)."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import secrets

_FUTEX = {"x86_64": 202, "aarch64": 98}  # number of the system call
_FUTEX_WAKE = 1
_EVERYBODY = 0x7FFFFFFF


def ring(file: int, offset: int) -> None:
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
