"""Find the program that a command runs, and decide whether a shared object can be preloaded into it."""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sheaf.errors import SheafError
from sheaf.system import elf, proc

_SANITIZERS = ("asan", "tsan", "msan", "lsan", "hwasan")  # ubsan does not replace malloc

_GO = {".note.go.buildid", ".go.buildinfo"}
_LINKED = ".note.sheaf"  # in static programs that were linked with libsheaf-malloc


@dataclass
class Obstacle:
    """Why a program cannot run on Sheaf, and what its user can do. `subject` is a key in the output of `sheaf doctor`."""

    reason: str
    advice: str
    subject: str


# Sheaf steps aside where it does not have both (preload/names.h).
DECISIVE = ("malloc", "free")


def own_malloc(defined: frozenset[str]) -> str:
    """Those names in words that a program defines itself and for which Sheaf steps aside; empty if there are none."""
    return " and ".join(name for name in DECISIVE if name in defined)


def steps_aside(path: Path) -> str:
    """The same for the program in a file, or for its interpreter; empty too if the file cannot be examined."""
    try:
        image = elf.read(target := interpreter(path))
        return own_malloc(elf.details(target).defined) if image and image.bits == 64 else ""
    except (OSError, elf.Damaged):
        return ""


def libc(path: Path) -> str:
    """The C library of the program in a file, or of its interpreter: "musl" or "glibc"; empty if it cannot be known."""
    try:
        image = elf.read(interpreter(path))
        return elf.libc(image) if image else ""
    except (OSError, elf.Damaged):
        return ""


def _candidates(command: str) -> Iterator[str]:
    """The files that execvp would try, in the same order."""
    if os.sep in command:
        yield command
        return
    for directory in os.environ.get("PATH", "/bin:/usr/bin").split(":"):
        yield os.path.join(directory or ".", command)


def locate(command: str) -> Path:
    """
    The file that running `command` executes. Raises SheafError with the status of env(1): 127 if there is no such file, 126
    if it cannot be executed.
    """
    denied, directory = "", False
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
        denied, directory = denied or place, directory or stat.S_ISDIR(mode)
    if denied:
        shown = command if denied == command else f"{command}: {denied}"
        if directory:
            raise SheafError(f"{shown}: is a directory; name a program", 126)
        raise SheafError(f"{shown}: not an executable file; check its mode", 126)
    raise SheafError(f"{command or 'an empty name'}: no such program; check the name or PATH", 127)


def interpreter(path: Path, depth: int = 0) -> Path:
    """Follow #! lines to the program that the kernel executes in the end."""
    try:
        with elf.opened(path) as file:
            line = file.read(256).split(b"\n", 1)[0]
    except (OSError, ValueError, elf.Damaged):
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
    """What prevents preloading into a program; None if nothing does, or if the file cannot be read."""
    target = interpreter(path)
    why = _raised_privileges(target)
    if why:
        return Obstacle(why, "the loader ignores LD_PRELOAD for it; run it without Sheaf", "privileges")
    try:
        image = elf.read(target)
    except (OSError, elf.Damaged):
        return None
    return elf_obstacle(image) if image else None


def elf_obstacle(image: elf.Image) -> Obstacle | None:
    """What in the file itself prevents preloading into a program; None if nothing does."""
    if image.bits != 64:
        return Obstacle("it is a 32-bit program", "Sheaf is 64-bit; run the program without Sheaf", "machine")
    wanted = elf.MACHINES.get(os.uname().machine)
    if wanted is not None and image.machine != wanted:
        return Obstacle("it is built for another architecture", "run it without Sheaf", "machine")
    if not image.interpreted:
        return _static_obstacle(image)
    for kind in _SANITIZERS:
        if f"__{kind}_init" in image.strings or any(name.startswith(f"lib{kind}.so") for name in image.needed):
            return Obstacle("it is built with a sanitizer, which replaces malloc", "build it without the sanitizer", "sanitizer")
    return None


def linked_with_sheaf(image: elf.Image) -> bool:
    """Whether a static program contains Sheaf, which then needs no preloading."""
    return _LINKED in image.sections


def _static_obstacle(image: elf.Image) -> Obstacle | None:
    if linked_with_sheaf(image):
        return None
    if image.appimage:
        return Obstacle(
            "it is an AppImage, whose own code is statically linked and starts the program inside",
            "that one inherits LD_PRELOAD with `sheaf run --force`",
            "linkage",
        )
    if image.sections & _GO:
        return Obstacle("it is a static Go program, whose heap is that of Go's runtime", "run it without Sheaf", "linkage")
    return Obstacle("it is statically linked", "link it with -lsheaf-malloc or dynamically, or run it without Sheaf", "linkage")


# ---- privileges for which the kernel sets AT_SECURE; the loader then ignores LD_PRELOAD ----


def _raised_privileges(path: Path) -> str:
    """
    Why the kernel would set AT_SECURE for this file; empty if it would not. The kernel compares the ids after the exec with
    the real ids of the caller. Capabilities count only if the caller is not root.
    """
    try:
        status = path.stat()
        own = proc.status("self")
        may_raise = not os.statvfs(path).f_flag & os.ST_NOSUID
    except OSError:
        return ""
    if not own:
        return ""
    euid, egid = os.geteuid(), os.getegid()
    if may_raise and own.get("NoNewPrivs", "0") == "0":
        if status.st_mode & stat.S_ISUID:
            euid = status.st_uid
        if status.st_mode & stat.S_ISGID and status.st_mode & stat.S_IXGRP:  # without S_IXGRP it means mandatory locking
            egid = status.st_gid
    if euid != os.getuid():
        return "it is setuid"
    if egid != os.getgid():
        return "it is setgid"
    if may_raise and os.getuid() != 0 and _gains_capabilities(path, own):
        return "it has file capabilities"
    return ""


def _gains_capabilities(path: Path, own: dict[str, str]) -> bool:
    """Whether the file capabilities raise the privileges of this process."""
    try:
        raw = os.getxattr(path, "security.capability")
    except OSError:
        return False
    (magic,) = struct.unpack_from("<I", raw)
    pairs = 1 if magic >> 24 == 1 else 2
    words = struct.unpack_from(f"<{2 * pairs}I", raw, 4)
    permitted = sum(word << 32 * i for i, word in enumerate(words[0::2]))
    inheritable = sum(word << 32 * i for i, word in enumerate(words[1::2]))
    bounding, inherited, ambient = (int(own[name], 16) for name in ("CapBnd", "CapInh", "CapAmb"))
    new = (permitted & bounding) | (inheritable & inherited)
    return bool(magic & 1 or new & ~ambient)  # 1 is the effective bit of the file
