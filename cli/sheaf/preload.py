"""The preloaded object: where it is, and how the loader is told of it."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sheaf.errors import SheafError

LIBRARY = "libsheaf-preload.so"
_MULTIARCH = {"x86_64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu"}
_LOADERS = {"x86_64": "/lib64/ld-linux-x86-64.so.2", "aarch64": "/lib/ld-linux-aarch64.so.1"}
_SPECIAL = re.compile(r"[ :$]")  # the loader splits its list at spaces and colons, and expands $ORIGIN and the like


def _places(package: Path, root: Path) -> Iterator[Path]:
    yield package
    yield package.parents[1] / "build" / "preload"
    machine = _MULTIARCH.get(os.uname().machine, os.uname().machine)
    for prefix in ("usr/local", "usr"):
        for directory in (f"lib/{machine}", "lib64", "lib"):
            yield root / prefix / directory


def search(package: Path, root: Path = Path("/")) -> Path | None:
    """The package's own object, a build tree's, or an installed one."""
    return next((place / LIBRARY for place in _places(package, root) if (place / LIBRARY).is_file()), None)


def library() -> Path:
    """The object that $SHEAF_LIBRARY names, or the one that is found."""
    chosen = os.environ.get("SHEAF_LIBRARY")
    package = Path(__file__).resolve().parent
    found = Path(chosen) if chosen else search(package)
    if found and found.is_file():
        return found.resolve()
    if chosen:
        raise SheafError(f"SHEAF_LIBRARY={chosen}: no such file; name {LIBRARY}, or unset it", 125)
    raise SheafError(f"{LIBRARY}: neither in {package} nor in /usr/lib or /usr/local/lib; "
                     "reinstall Sheaf or set SHEAF_LIBRARY to the object", 125)


def _private(directory: Path) -> bool:
    """Make it if need be; true when only we can put anything there. Others may read: the program may become another user."""
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        status = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _links() -> Iterator[Path]:
    """Directories for links, the ones that nobody clears first: a program may start children after weeks."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if os.path.isabs(cache) and os.access(os.path.dirname(cache), os.W_OK):
        yield Path(cache) / "sheaf"
    for temporary in dict.fromkeys((tempfile.gettempdir(), "/var/tmp", "/tmp")):
        yield Path(temporary) / f"sheaf-{os.geteuid()}"


def listable(path: Path) -> str:
    """A path to the same file that can stand in LD_PRELOAD: itself, or a link to it that stays."""
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
    raise SheafError(f"{path}: LD_PRELOAD cannot hold spaces, colons or $; set SHEAF_LIBRARY to a link without them", 125)


def _list(rest: str | None) -> str:
    ours = listable(library())
    return f"{ours} {rest}" if rest else ours


def set_up(environment: dict[str, str]) -> None:
    """For a program and all that it starts."""
    environment["LD_PRELOAD"] = _list(environment.get("LD_PRELOAD"))


def through_loader(program: Path, args: tuple[str, ...], environment: dict[str, str]) -> list[str]:
    """A command for the program alone. What was in LD_PRELOAD goes the same way, since otherwise it would come first."""
    try:
        with program.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise SheafError(f"--no-children {args[0]}: {error.strerror}; it must be readable for that", 126) from error
    if magic != b"\x7fELF":
        raise SheafError(f"--no-children {args[0]}: is a script; name its interpreter before it", 125)
    loader = _LOADERS.get(os.uname().machine, "")
    if not os.path.exists(loader):
        raise SheafError("--no-children: the dynamic loader was not found; run without it", 125)
    return [loader, "--preload", _list(environment.pop("LD_PRELOAD", None)), "--argv0", args[0], str(program), *args[1:]]
