"""What kind of program a command would run, and whether a shared object can be preloaded into it."""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sheaf import elf
from sheaf.errors import SheafError

_MACHINES = {"x86_64": 62, "aarch64": 183}
_SANITIZERS = ("asan", "tsan", "msan", "lsan", "hwasan")  # ubsan brings no malloc


@dataclass
class Obstacle:
    """Why Sheaf cannot serve a program."""

    reason: str
    advice: str


def _candidates(command: str) -> Iterator[str]:
    """The files that execvp would try, in its order."""
    if os.sep in command:
        yield command
        return
    for directory in os.environ.get("PATH", "/bin:/usr/bin").split(":"):
        yield os.path.join(directory or ".", command)


def locate(command: str) -> Path:
    """The file that executing `command` runs. As env does: 127 when there is none, 126 when it cannot be executed."""
    denied = ""
    for place in _candidates(command) if command else ():
        try:
            mode = os.stat(place).st_mode
        except OSError as error:
            if os.sep in command and not isinstance(error, FileNotFoundError):
                raise SheafError(f"{command}: {error.strerror}; check the path", 126) from error
            denied = denied or (place if isinstance(error, PermissionError) else "")
            continue
        if stat.S_ISREG(mode) and os.access(place, os.X_OK, effective_ids=True):
            return Path(place)
        denied = denied or place
    if denied:
        shown = command if denied == command else f"{command}: {denied}"
        raise SheafError(f"{shown}: not an executable file; check its mode", 126)
    raise SheafError(f"{command or 'an empty name'}: no such program; check the name or PATH", 127)


def interpreter(path: Path, depth: int = 0) -> Path:
    """Follow #! lines to the program that really runs."""
    try:
        with path.open("rb") as file:
            line = file.read(256).split(b"\n", 1)[0]
    except OSError:
        return path
    words = line[2:].split() if line.startswith(b"#!") and depth <= 4 else []
    if not words:
        return path
    if os.path.basename(words[0]) == b"env":
        name = next((w for w in words[1:] if not w.startswith(b"-") and b"=" not in w), b"")
        try:
            return interpreter(locate(os.fsdecode(name)), depth + 1)
        except SheafError:
            return path
    return interpreter(Path(os.fsdecode(words[0])), depth + 1)


def obstacle(path: Path) -> Obstacle | None:
    """Look at a program before it is run; None when all is well or nothing can be told."""
    target = interpreter(path)
    why = _raised_privileges(target)
    if why:
        return Obstacle(why, "the loader ignores LD_PRELOAD for it; run it without Sheaf")
    try:
        image = elf.read(target)
    except (OSError, elf.Damaged):
        return None
    return _elf_obstacle(image) if image else None


def _elf_obstacle(image: elf.Image) -> Obstacle | None:
    if image.bits != 64:
        return Obstacle("it is a 32-bit program", "Sheaf is a 64-bit object; run it without")
    wanted = _MACHINES.get(os.uname().machine)
    if wanted is not None and image.machine != wanted:
        return Obstacle("it is built for another machine", "run it without Sheaf")
    if not image.interpreted:
        return Obstacle("it is statically linked", "nothing can be preloaded into it; link it with libsheaf instead")
    for kind in _SANITIZERS:
        if f"__{kind}_init" in image.strings or any(name.startswith(f"lib{kind}.so") for name in image.needed):
            return Obstacle("it is built with a sanitizer", "the sanitizer brings its own malloc; build it without to use Sheaf")
    return None


# ---- what makes the kernel start a program in secure mode (AT_SECURE), in which the loader ignores LD_PRELOAD ----


def _own_status() -> dict[str, str]:
    lines = Path("/proc/self/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _raised_privileges(path: Path) -> str:
    """The kernel compares the ids after the exec with the caller's real ones; capabilities count unless that is root."""
    try:
        status = path.stat()
        own = _own_status()
        may_raise = not os.statvfs(path).f_flag & os.ST_NOSUID
    except OSError:
        return ""
    euid, egid = os.geteuid(), os.getegid()
    if may_raise and own.get("NoNewPrivs", "0") == "0":
        if status.st_mode & stat.S_ISUID:
            euid = status.st_uid
        if status.st_mode & stat.S_ISGID and status.st_mode & stat.S_IXGRP:  # otherwise it marks mandatory locking
            egid = status.st_gid
    if euid != os.getuid():
        return "it is setuid"
    if egid != os.getgid():
        return "it is setgid"
    if may_raise and os.getuid() != 0 and _gains_capabilities(path, own):
        return "it has file capabilities"
    return ""


def _gains_capabilities(path: Path, own: dict[str, str]) -> bool:
    try:
        raw = os.getxattr(path, "security.capability")
    except OSError:
        return False
    magic, = struct.unpack_from("<I", raw)
    pairs = 1 if magic >> 24 == 1 else 2
    words = struct.unpack_from(f"<{2 * pairs}I", raw, 4)
    permitted = sum(word << 32 * i for i, word in enumerate(words[0::2]))
    inheritable = sum(word << 32 * i for i, word in enumerate(words[1::2]))
    bounding, inherited, ambient = (int(own[name], 16) for name in ("CapBnd", "CapInh", "CapAmb"))
    new = (permitted & bounding) | (inheritable & inherited)
    return bool(magic & 1 or new & ~ambient)  # 1: the file's effective bit
