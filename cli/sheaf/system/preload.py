"""Find the preloaded object and set up the dynamic loader to load it."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sheaf.errors import SheafError
from sheaf.system import elf

LIBRARY = "libsheaf-preload.so"
_MULTIARCH = {"x86_64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu"}
_LOADERS = {"x86_64": "/lib64/ld-linux-x86-64.so.2", "aarch64": "/lib/ld-linux-aarch64.so.1"}
_SPECIAL = re.compile(r"[ :$]")  # the loader splits LD_PRELOAD at spaces and colons, and expands $ORIGIN and other tokens


def _places(package: Path, root: Path) -> Iterator[Path]:
    yield package
    yield package.parents[1] / "build" / "preload"
    machine = _MULTIARCH.get(os.uname().machine, os.uname().machine)
    for prefix in ("usr/local", "usr"):
        for directory in (f"lib/{machine}", "lib64", "lib"):
            yield root / prefix / directory


def search(package: Path, root: Path = Path("/")) -> Path | None:
    """The object of the package, of a build tree, or of the system, in this order; None if there is none."""
    return next((place / LIBRARY for place in _places(package, root) if (place / LIBRARY).is_file()), None)


def _check(chosen: str, path: Path) -> None:
    """Raise SheafError unless the file is a preloaded object of Sheaf for this machine; the loader would only ignore it."""
    try:
        image = elf.read(path)
    except OSError as error:
        raise SheafError(f"SHEAF_LIBRARY={chosen}: {error.strerror}; name {LIBRARY}, or unset it", 125) from error
    except elf.Damaged:
        image = None
    wanted = elf.MACHINES.get(os.uname().machine)
    ours = image is not None and next(image.strings.begin_with("sheaf_"), None) is not None
    if image is None or not ours or image.bits != 64 or wanted not in (None, image.machine):
        raise SheafError(f"SHEAF_LIBRARY={chosen}: not an object of Sheaf for this machine; name {LIBRARY}, or unset it", 125)


def library() -> Path:
    """The object that $SHEAF_LIBRARY names, or else the result of search(). Raises SheafError if it cannot be used."""
    chosen = os.environ.get("SHEAF_LIBRARY")
    package = Path(__file__).resolve().parents[1]
    found = Path(chosen) if chosen else search(package)
    if found and found.is_file():
        if chosen:
            _check(chosen, found)
        return found.resolve()
    if chosen:
        raise SheafError(f"SHEAF_LIBRARY={chosen}: no such file; name {LIBRARY}, or unset it", 125)
    raise SheafError(
        f"{LIBRARY}: not found in {package}, /usr/local/lib or /usr/lib; reinstall Sheaf or set SHEAF_LIBRARY to the object", 125
    )


def _private(directory: Path) -> bool:
    """
    Create the directory unless it exists. Returns whether this user alone can write to it. Others may read it, because the
    program may change its user.
    """
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        status = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _links() -> Iterator[Path]:
    """
    Directories for links, most durable first: a program may start children after weeks, so directories that are cleaned
    regularly come last.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if os.path.isabs(cache) and os.access(os.path.dirname(cache), os.W_OK):
        yield Path(cache) / "sheaf"
    for temporary in dict.fromkeys((tempfile.gettempdir(), "/var/tmp", "/tmp")):
        yield Path(temporary) / f"sheaf-{os.geteuid()}"


def listable(path: Path) -> str:
    """
    A path to the same file that LD_PRELOAD can hold: the path itself or a permanent link to it. Raises SheafError if no link
    can be made.
    """
    if not _SPECIAL.search(str(path)):
        return str(path)
    name = f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}.so"
    for directory in _links():
        if _SPECIAL.search(str(directory)) or not _private(directory):
            continue
        link, fresh = directory / name, directory / f"{name}.{os.getpid()}"
        try:
            fresh.unlink(missing_ok=True)
            if not link.is_symlink() or os.readlink(link) != str(path):
                fresh.symlink_to(path)
                fresh.replace(link)
        except OSError:
            continue
        return str(link)
    raise SheafError(f"{path}: LD_PRELOAD cannot hold a space, a colon or $; set SHEAF_LIBRARY to a link without them", 125)


def _list(rest: str | None) -> str:
    """The value of LD_PRELOAD: Sheaf's object, then the objects that were set before."""
    ours = listable(library())
    return f"{ours} {rest}" if rest else ours


def set_up(environment: dict[str, str]) -> None:
    """Change the environment so that a program and its children run on Sheaf."""
    environment["LD_PRELOAD"] = _list(environment.get("LD_PRELOAD"))


def through_loader(program: Path, args: tuple[str, ...], environment: dict[str, str]) -> list[str]:
    """
    A command line that runs the program on Sheaf, but not its children. LD_PRELOAD is moved from the environment to the
    command line, because the loader would otherwise load its objects before Sheaf's.
    """
    try:
        with program.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        advice = "make it readable, or run it without --no-children"
        raise SheafError(f"--no-children {args[0]}: cannot be read: {error.strerror}; {advice}", 126) from error
    if magic != b"\x7fELF":
        raise SheafError(f"--no-children {args[0]}: the program is a script; write its interpreter before it", 125)
    loader = _LOADERS.get(os.uname().machine, "")
    if not os.path.exists(loader):
        raise SheafError(f"--no-children: the dynamic loader was not found ({loader}); run without --no-children", 125)
    path = os.path.join(os.curdir, program)  # the loader searches for a name without a slash among libraries
    return [loader, "--preload", _list(environment.pop("LD_PRELOAD", None)), "--argv0", args[0], path, *args[1:]]
