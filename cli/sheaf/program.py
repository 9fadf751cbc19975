"""What kind of program a command would run, and whether a shared object can be preloaded into it."""

from __future__ import annotations

import os
import shutil
import stat
import struct
from dataclasses import dataclass
from pathlib import Path

from sheaf.errors import SheafError

_MACHINES = {"x86_64": 62, "aarch64": 183}
_SANITIZERS = (b"libasan.so", b"libtsan.so", b"libmsan.so", b"liblsan.so", b"libhwasan.so", b"__asan_init",
                b"__tsan_init", b"__msan_init")


@dataclass
class Obstacle:
    """Why Sheaf cannot serve a program."""

    reason: str
    advice: str


def locate(command: str) -> Path:
    """The file that executing `command` runs. 127 when there is none, 126 when it is not executable."""
    found = command if os.sep in command else shutil.which(command)
    if found is None or not os.path.exists(found):
        raise SheafError(f"{command}: no such program; check the name or PATH", 127)
    if os.path.isdir(found) or not os.access(found, os.X_OK):
        raise SheafError(f"{command}: not an executable file; check its mode", 126)
    return Path(found)


def _interpreter(path: Path, depth: int = 0) -> Path:
    """Follow #! lines to the program that really runs."""
    try:
        with path.open("rb") as file:
            line = file.read(256).split(b"\n", 1)[0]
    except OSError:
        return path
    if not line.startswith(b"#!") or depth > 4:
        return path
    words = line[2:].split()
    if words and os.path.basename(words[0]) == b"env":
        name = next((w for w in words[1:] if not w.startswith(b"-") and b"=" not in w), b"")
        found = shutil.which(os.fsdecode(name)) if name else None
        return _interpreter(Path(found), depth + 1) if found else path
    return _interpreter(Path(os.fsdecode(words[0])), depth + 1) if words else path


def _elf_obstacle(path: Path, raw: bytes) -> Obstacle | None:
    if raw[4] != 2:
        return Obstacle("it is a 32-bit program", "Sheaf is a 64-bit object; run it without")
    machine = struct.unpack_from("<H", raw, 18)[0]
    wanted = _MACHINES.get(os.uname().machine)
    if wanted is not None and machine != wanted:
        return Obstacle("it is built for another machine", "run it without Sheaf")
    offset, = struct.unpack_from("<Q", raw, 32)
    size, count = struct.unpack_from("<HH", raw, 54)
    kinds = []
    for i in range(count):
        if offset + (i + 1) * size <= len(raw):
            kinds.append(struct.unpack_from("<I", raw, offset + i * size)[0])
    if 3 not in kinds:  # PT_INTERP
        return Obstacle("it is statically linked", "nothing can be preloaded into it; link it with libsheaf instead")
    try:
        whole = path.read_bytes()
    except OSError:
        return None
    if any(name in whole for name in _SANITIZERS):
        return Obstacle("it is built with a sanitizer", "the sanitizer brings its own malloc; build it without to use Sheaf")
    return None


def obstacle(path: Path) -> Obstacle | None:
    """Look at a program before it is run; None when all is well or nothing can be told."""
    target = _interpreter(path)
    try:
        status = target.stat()
        with target.open("rb") as file:
            raw = file.read(8192)
    except OSError:
        return None
    if status.st_mode & (stat.S_ISUID | stat.S_ISGID) and os.geteuid() != 0:
        return Obstacle("it is setuid or setgid", "the loader ignores LD_PRELOAD for it; run it without Sheaf")
    if _has_capabilities(target):
        return Obstacle("it has file capabilities", "the loader ignores LD_PRELOAD for it; run it without Sheaf")
    if raw[:4] != b"\x7fELF" or len(raw) < 64:
        return None
    return _elf_obstacle(target, raw)


def _has_capabilities(path: Path) -> bool:
    try:
        return os.geteuid() != 0 and bool(os.getxattr(path, "security.capability"))
    except OSError:
        return False
