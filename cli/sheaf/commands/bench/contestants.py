"""The allocators to compare: find them, and check that a program really uses them."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path

from sheaf.errors import SheafError

SUBJECT = "sheaf"
PLAIN = "glibc"
VERIFY_TIMEOUT_S = 30


@dataclass(frozen=True)
class Contestant:
    """An allocator. Without a path it is the program's own, normally that of glibc."""

    name: str
    path: Path | None = None
    variables: dict[str, str] = field(default_factory=dict)
    version: str = ""
    mode: str = ""  # such as "per-CPU", if the allocator has several modes

    @property
    def is_peer(self) -> bool:
        """Whether Sheaf is compared with it. Variants of Sheaf, such as sheaf-small, are not peers."""
        return self.name != SUBJECT and not self.name.startswith(SUBJECT + "-")

    def environment(self) -> dict[str, str]:
        """The variables of a run besides fixed_environment()."""
        preload = {"LD_PRELOAD": str(self.path)} if self.path else {}
        return {**self.variables, **preload}


@dataclass(frozen=True)
class Known:
    """A peer that distributions package."""

    name: str
    files: tuple[str, ...]
    package: str


KNOWN = (
    Known("mimalloc", ("libmimalloc.so.2.0", "libmimalloc.so.2", "libmimalloc.so.3"), "libmimalloc2.0"),
    Known("jemalloc", ("libjemalloc.so.2",), "libjemalloc2"),
    Known("gperftools", ("libtcmalloc_minimal.so.4",), "libtcmalloc-minimal4"),
)
CHOICES = ("installed", "newest", "all")
Newest = Callable[[Sequence[str], Callable[[str], None]], list[Contestant]]

# Prints the object that malloc comes from. In an executable at a fixed address (Debian's python3), the address of malloc is
# that of a stub in the executable, so malloc_usable_size, which Python does not refer to, is looked up instead.
_WHOSE_MALLOC = """
import ctypes, os
def owner(symbol):
    at = ctypes.cast(ctypes.CDLL(None)[symbol], ctypes.c_void_p).value
    for line in open("/proc/self/maps"):
        low, high = (int(end, 16) for end in line.split()[0].split("-"))
        if low <= at < high:
            return line.split(None, 5)[5].strip()
found = owner("malloc")
print(owner("malloc_usable_size") if found == os.path.realpath("/proc/self/exe") else found)
"""


def fixed_environment() -> dict[str, str]:
    """The same environment for every run, so that variables of the user's shell cannot affect the results."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}


def library_directories() -> list[Path]:
    """The library directories of the system for this architecture."""
    triplet = f"{platform.machine()}-linux-gnu"
    return [Path("/usr/local/lib"), Path("/usr/lib") / triplet, Path("/usr/lib64"), Path("/usr/lib")]


def installed_version(path: Path) -> str:
    """Package and version of a file according to dpkg, or an empty string."""
    for candidate in (path, path.resolve()):
        owner = _output(["dpkg-query", "--search", str(candidate)])
        if owner:
            package = owner.split(": ")[0].split(",")[0]
            return _output(["dpkg-query", "--show", "--showformat=${Package} ${Version}", package])
    return ""


def own_version() -> str:
    """The version of Sheaf: of the package, and in a source tree the output of git describe."""
    tree = Path(__file__).resolve().parents[4]
    described = ""
    if (tree / "bench" / "meson.build").is_file():
        described = _output(["git", "-C", str(tree), "describe", "--always", "--dirty"])
    try:
        released = metadata.version("sheaf")
    except metadata.PackageNotFoundError:
        released = ""
    return ", ".join(part for part in (released, described) if part)


def _output(command: list[str]) -> str:
    """Standard output of a command; empty if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def parse_peer(text: str) -> Contestant:
    """Parse NAME=PATH[,VAR=VALUE...]. An empty path means glibc's malloc with these variables. Raises SheafError."""
    head, *variables = text.split(",")
    name, equals, path = head.partition("=")
    if not name or not equals or not all(c.isalnum() or c in "-_." for c in name):
        advice = "write NAME=PATH[,VAR=VALUE], with NAME of letters, digits, '-', '_' and '.'"
        raise SheafError(f"--peer {text}: wrong form; {advice}", 2)
    pairs: dict[str, str] = {}
    for variable in variables:
        key, equals, value = variable.partition("=")
        if not key or not equals:
            raise SheafError(f"--peer {text}: '{variable}' is not a variable; write VAR=VALUE", 2)
        pairs[key] = value
    if path and not Path(path).is_file():
        raise SheafError(f"--peer {name}: no such file {path}; give the path of the shared object", 2)
    found = Path(path).resolve() if path else None
    return Contestant(name, found, pairs, installed_version(Path(path)) if path else "")


def _find_known(known: Known) -> Contestant | None:
    for directory in library_directories():
        for file in known.files:
            if (directory / file).is_file():
                return Contestant(known.name, directory / file, version=installed_version(directory / file))
    return None


def _installed(beside_newest: bool) -> tuple[dict[str, Contestant], dict[str, str]]:
    """
    The peers of the distribution, and for each missing one a message with the package to install. The newest peers also
    contain a jemalloc; beside them the installed one is named jemalloc-installed.
    """
    found: dict[str, Contestant] = {}
    missing: dict[str, str] = {}
    for known in KNOWN:
        contestant = _find_known(known)
        name = "jemalloc-installed" if beside_newest and known.name == "jemalloc" else known.name
        if contestant:
            found[name] = replace(contestant, name=name)
        else:
            missing[name] = f"not found; run apt install {known.package}, or give --peer {name}=PATH"
    return found, missing


@dataclass(frozen=True)
class Choice:
    """The options that choose the allocators."""

    peers: Sequence[str] = ()  # NAME=PATH[,VAR=VALUE...]
    only: Sequence[str] = ()
    kind: str = "installed"  # one of CHOICES


def _unknown(name: str, choice: Choice) -> str:
    """Why --only does not find a name, and what to do."""
    if name in (known.name for known in KNOWN) and choice.kind == "newest":
        return "not among the newest peers; use --peers installed or --peers all"
    if choice.kind == "installed":
        return "no such allocator; use --peers newest for more allocators, or add it with --peer NAME=PATH"
    return "not available, or no such allocator; see --list-peers, or add it with --peer NAME=PATH"


def find_contestants(
    sheaf: Callable[[], Path], choice: Choice, newest: Newest, notify: Callable[[str], None]
) -> list[Contestant]:
    """
    The allocators that take part: glibc first, then the peers, then Sheaf. Missing ones are reported through `notify` and
    left out; one that --only names raises SheafError.
    """
    found = {PLAIN: Contestant(PLAIN, version=" ".join(platform.libc_ver()).strip())}
    missing: dict[str, str] = {}
    if choice.kind != "newest":
        installed, missing = _installed(choice.kind == "all")
        found.update(installed)
    given = {contestant.name: contestant for contestant in map(parse_peer, choice.peers)}
    if choice.kind != "installed":
        found.update((contestant.name, contestant) for contestant in newest(choice.only, notify))
    found.update(given)
    missing = {name: what for name, what in missing.items() if name not in given}
    if SUBJECT not in found:
        try:
            found[SUBJECT] = Contestant(SUBJECT, sheaf(), version=own_version())
        except SheafError as error:
            missing[SUBJECT] = error.message

    for name in choice.only:
        if name not in found:
            raise SheafError(f"--only {name}: {missing.get(name) or _unknown(name, choice)}", 2)
    for name, what in missing.items():
        if not choice.only:
            notify(f"{name}: {what}")
    return [contestant for contestant in found.values() if not choice.only or contestant.name in choice.only]


def verify(contestant: Contestant) -> None:
    """
    Raise SheafError unless a program runs on this allocator. The dynamic linker ignores an object that it cannot preload, and
    the results would be those of glibc.
    """
    environment = {**fixed_environment(), **contestant.environment()}
    command = [sys.executable, "-I", "-S", "-c", _WHOSE_MALLOC]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, errors="replace", check=False, timeout=VERIFY_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise SheafError(f"{contestant.name}: a small program hangs with {contestant.path}; leave it out") from None
    if done.returncode != 0 or "ERROR: ld.so" in done.stderr:
        said = done.stderr.strip().splitlines()[:1] or [f"exit status {done.returncode}"]
        raise SheafError(f"{contestant.name}: {contestant.path} cannot be preloaded ({said[0]}); give another object")
    if contestant.path and Path(done.stdout.strip()).resolve() != contestant.path.resolve():
        raise SheafError(
            f"{contestant.name}: {contestant.path} is loaded, but malloc comes from {done.stdout.strip()}; "
            "give the object that defines malloc"
        )
