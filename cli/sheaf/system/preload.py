"""Find the preloaded object and set up the dynamic loader to load it.

An object serves the programs of one C library: that with which it is linked. A program of the other one does not start with
it, so where programs of both may be started, LD_PRELOAD gets a path that names an object for each (`_folder`).
"""

from __future__ import annotations

import contextlib
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
OTHER = {"glibc": "musl", "musl": "glibc"}
_MULTIARCH = {"x86_64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu"}
_LOADERS = {
    ("glibc", "x86_64"): "/lib64/ld-linux-x86-64.so.2",
    ("glibc", "aarch64"): "/lib/ld-linux-aarch64.so.1",
    ("musl", "x86_64"): "/lib/ld-musl-x86_64.so.1",
    ("musl", "aarch64"): "/lib/ld-musl-aarch64.so.1",
}
_SPECIAL = re.compile(r"[ :$]")  # the loader splits LD_PRELOAD at spaces and colons, and expands $ORIGIN and other tokens
_SYSTEM_CACHE = Path("/var/cache/sheaf")


def _places(package: Path, root: Path, libc: str) -> Iterator[Path]:
    machine = os.uname().machine
    yield package
    if libc:
        yield package / libc
    build = package.parents[1]
    yield build / "build" / "preload"
    if libc == "musl":
        yield build / "build-musl" / "preload"
    for prefix in ("usr/local", "usr"):
        if libc == "musl":
            yield root / prefix / f"lib/{machine}-linux-musl"
        for directory in (f"lib/{_MULTIARCH.get(machine, machine)}", "lib64", "lib"):
            yield root / prefix / directory


def libc_of(path: Path) -> str:
    """The C library that an object is built for: "musl" or "glibc"; empty if it cannot be known."""
    try:
        image = elf.read(path)
    except (OSError, elf.Damaged):
        return ""
    return elf.libc(image) if image else ""


def search(package: Path, root: Path = Path("/"), libc: str = "") -> Path | None:
    """
    The object of the package, of a build tree, or of the system, in this order; None if there is none. With `libc`, only an
    object for that C library is taken.
    """
    found = (place / LIBRARY for place in _places(package, root, libc) if (place / LIBRARY).is_file())
    return next((path for path in found if not libc or libc_of(path) == libc), None)


def _check(chosen: str, path: Path) -> elf.Image:
    """
    The headers of a preloaded object of Sheaf for this machine. Raises SheafError if the file is none; the loader would only
    ignore it.
    """
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
    return image


def _chosen(libc: str) -> Path | None:
    """
    The object that $SHEAF_LIBRARY names, if it is one for the C library, or the one for that library in a folder beside it;
    None if there is none. Raises SheafError if the variable names no object of Sheaf.
    """
    chosen = os.environ.get("SHEAF_LIBRARY")
    if not chosen:
        return None
    path = Path(chosen)
    if not path.is_file():
        raise SheafError(f"SHEAF_LIBRARY={chosen}: no such file; name {LIBRARY}, or unset it", 125)
    image = _check(chosen, path)
    if not libc or elf.libc(image) == libc:
        return path
    beside = path.parent / libc / LIBRARY
    return beside if libc_of(beside) == libc else None


def library(libc: str = "") -> Path:
    """
    The object for programs with a C library, or for those of any if `libc` is empty: the one that $SHEAF_LIBRARY names, or
    else the result of search(). Raises SheafError if there is none that can be used.
    """
    package = Path(__file__).resolve().parents[1]
    found = _chosen(libc) or search(package, libc=libc)
    if found:
        return found.resolve()
    missing = f"{LIBRARY}{libc and f' for {libc}'}: not found in {package}, /usr/local/lib or /usr/lib"
    if libc == "musl":
        raise SheafError(f"{missing}; build it with CC=musl-gcc and set SHEAF_LIBRARY to it", 125)
    raise SheafError(f"{missing}; reinstall Sheaf or set SHEAF_LIBRARY to the object", 125)


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
    regularly come last. Root's home may be closed to the user to whom a program of root changes.
    """
    own = os.environ.get("XDG_CACHE_HOME")
    if not own and os.geteuid() == 0:
        yield _SYSTEM_CACHE
    cache = own or os.path.expanduser("~/.cache")
    if os.path.isabs(cache) and os.access(os.path.dirname(cache), os.W_OK):
        yield Path(cache) / "sheaf"
    for temporary in dict.fromkeys((tempfile.gettempdir(), "/var/tmp", "/tmp")):
        yield Path(temporary) / f"sheaf-{os.geteuid()}"


def _name(*paths: Path) -> str:
    return hashlib.sha256(b"\0".join(os.fsencode(path) for path in paths)).hexdigest()[:16]


def _link(link: Path, target: Path) -> None:
    """Make a link, or replace one that leads elsewhere."""
    fresh = link.with_name(f"{link.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    if not link.is_symlink() or os.readlink(link) != str(target):
        fresh.symlink_to(target)
        fresh.replace(link)


def listable(path: Path) -> str:
    """
    A path to the same file that LD_PRELOAD can hold: the path itself or a permanent link to it. Raises SheafError if no link
    can be made.
    """
    if not _SPECIAL.search(str(path)):
        return str(path)
    for directory in _links():
        if _SPECIAL.search(str(directory)) or not _private(directory):
            continue
        link = directory / f"{_name(path)}.so"
        try:
            _link(link, path)
        except OSError:
            continue
        return str(link)
    raise SheafError(f"{path}: LD_PRELOAD cannot hold a space, a colon or $; set SHEAF_LIBRARY to a link without them", 125)


def _values(libc: str) -> list[str]:
    """What `$LIB` in LD_PRELOAD can stand for."""
    machine = os.uname().machine
    return ["$LIB"] if libc == "musl" else ["lib", "lib64", f"lib/{_MULTIARCH.get(machine, machine)}"]


def _folder(objects: dict[str, Path]) -> str | None:
    """
    A path that names the object for glibc to glibc, the one for musl to musl, and nothing to that of which `objects` has
    none: it contains `$LIB`, which glibc replaces and musl takes literally. None if no links can be made.
    """
    for directory in _links():
        if _SPECIAL.search(str(directory)) or not _private(directory):
            continue
        base = directory / _name(*(objects.get(libc, Path()) for libc in OTHER))
        try:
            for libc, path in objects.items():
                for folder in _values(libc):
                    (base / folder).mkdir(mode=0o755, parents=True, exist_ok=True)
                    _link(base / folder / LIBRARY, path)
        except OSError:
            continue
        return f"{base}/$LIB/{LIBRARY}"
    return None


def _loader(libc: str) -> str:
    return _LOADERS.get((libc, os.uname().machine), "")


def _object(libc: str) -> str:
    """
    Sheaf's object as LD_PRELOAD names it for a program with a C library. Where programs of the other library can run, these
    get the object for it, or run without one.
    """
    own = library(libc)
    other = OTHER.get(libc_of(own), "")
    if not other or not os.path.exists(_loader(other)):
        return listable(own)
    objects = {OTHER[other]: own}
    with contextlib.suppress(SheafError):  # without an object, children with that library run without Sheaf
        objects[other] = library(other)
    return _folder(objects) or listable(own)


def candidates(path: str, libc: str) -> list[str]:
    """The paths that an entry of LD_PRELOAD can stand for where a C library reads it."""
    return [path.replace("$LIB", value) for value in _values(libc)]


def _joined(ours: str, rest: str | None) -> str:
    """The value of LD_PRELOAD: Sheaf's object, then the objects that were set before."""
    return f"{ours} {rest}" if rest else ours


def set_up(environment: dict[str, str], libc: str) -> None:
    """Change the environment so that a program and its children run on Sheaf. `libc` is the C library of the program."""
    environment["LD_PRELOAD"] = _joined(_object(libc), environment.get("LD_PRELOAD"))


def through_loader(program: Path, args: tuple[str, ...], environment: dict[str, str]) -> list[str]:
    """
    A command line that runs the program on Sheaf, but not its children. LD_PRELOAD is moved from the environment to the
    command line, because the loader would otherwise load its objects before Sheaf's.
    """
    try:
        image = elf.read(program)
    except OSError as error:
        advice = "make it readable, or run it without --no-children"
        raise SheafError(f"--no-children {args[0]}: cannot be read: {error.strerror}; {advice}", 126) from error
    except elf.Damaged:
        image = elf.Image(64, 0)
    if image is None:
        raise SheafError(f"--no-children {args[0]}: the program is a script; write its interpreter before it", 125)
    loader = image.loader or _loader("glibc")
    if not os.path.exists(loader):
        raise SheafError(f"--no-children: the dynamic loader was not found ({loader}); run without --no-children", 125)
    path = os.path.join(os.curdir, program)  # the loader searches for a name without a slash among libraries
    objects = _joined(listable(library(elf.libc(image))), environment.pop("LD_PRELOAD", None))
    return [loader, "--preload", objects, "--argv0", args[0], path, *args[1:]]
