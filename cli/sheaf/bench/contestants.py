"""The allocators that are compared: where they are found, and proof that a program really runs under them."""

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
    """One allocator; without a path it is the one that the program has anyway."""

    name: str
    path: Path | None = None
    variables: dict[str, str] = field(default_factory=dict)
    version: str = ""
    mode: str = ""  # such as "per-CPU", where the allocator has several

    @property
    def is_peer(self) -> bool:
        """Ours, in any variant (a name such as sheaf-small), is not its own peer."""
        return self.name != SUBJECT and not self.name.startswith(SUBJECT + "-")

    def environment(self) -> dict[str, str]:
        """All that a run gets besides the fixed variables."""
        preload = {"LD_PRELOAD": str(self.path)} if self.path else {}
        return {**self.variables, **preload}


@dataclass(frozen=True)
class Known:
    """A peer that distributions bring."""

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

# Prints the object that malloc comes from in a process of its own.
# An executable at a fixed address lends its own address to functions that it refers to (Debian's python3: malloc).
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
    """The same for every run, so that nothing set in the user's shell decides a figure."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}


def library_directories() -> list[Path]:
    """Where a system keeps its libraries for this machine's architecture."""
    triplet = f"{platform.machine()}-linux-gnu"
    return [Path("/usr/local/lib"), Path("/usr/lib") / triplet, Path("/usr/lib64"), Path("/usr/lib")]


def installed_version(path: Path) -> str:
    """Package and version as dpkg knows them, or an empty string."""
    for candidate in (path, path.resolve()):
        owner = _output(["dpkg-query", "--search", str(candidate)])
        if owner:
            package = owner.split(": ")[0].split(",")[0]
            return _output(["dpkg-query", "--show", "--showformat=${Package} ${Version}", package])
    return ""


def own_version() -> str:
    """Of this tree, or of the installed package."""
    tree = Path(__file__).resolve().parents[3]
    described = ""
    if (tree / "bench" / "meson.build").is_file():
        described = _output(["git", "-C", str(tree), "describe", "--always", "--dirty"])
    try:
        released = metadata.version("sheaf")
    except metadata.PackageNotFoundError:
        released = ""
    return ", ".join(part for part in (released, described) if part)


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def parse_peer(text: str) -> Contestant:
    """NAME=PATH[,VAR=VALUE...]; an empty path is the libc's own malloc with other variables."""
    head, *variables = text.split(",")
    name, equals, path = head.partition("=")
    if not name or not equals or not all(c.isalnum() or c in "-_." for c in name):
        raise SheafError(f"--peer {text}: NAME=PATH[,VAR=VALUE] is wanted, NAME of letters, digits, '-', '_' and '.'", 2)
    pairs: dict[str, str] = {}
    for variable in variables:
        key, equals, value = variable.partition("=")
        if not key or not equals:
            raise SheafError(f"--peer {text}: '{variable}' is not VAR=VALUE", 2)
        pairs[key] = value
    if path and not Path(path).is_file():
        raise SheafError(f"--peer {name}: no file {path}; give the path of the shared object", 2)
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
    The peers of the distribution; and, for each that is missing, what to install. jemalloc is among the newest peers by
    the same name, so that the installed one is called jemalloc-installed beside it.
    """
    found: dict[str, Contestant] = {}
    missing: dict[str, str] = {}
    for known in KNOWN:
        contestant = _find_known(known)
        name = "jemalloc-installed" if beside_newest and known.name == "jemalloc" else known.name
        if contestant:
            found[name] = replace(contestant, name=name)
        else:
            missing[name] = f"not found: apt install {known.package}, or --peer {name}=PATH"
    return found, missing


@dataclass(frozen=True)
class Choice:
    """Which allocators take part, as the command line has it."""

    peers: Sequence[str] = ()  # NAME=PATH[,VAR=VALUE...]
    only: Sequence[str] = ()
    kind: str = "installed"  # one of CHOICES


def _unknown(name: str, choice: Choice) -> str:
    if name in (known.name for known in KNOWN) and choice.kind == "newest":
        return "is not among the newest peers; add --peers installed or --peers all"
    if choice.kind == "installed":
        return "unknown; --peers newest brings others, or add it with --peer NAME=PATH"
    return "not there: left out as said above, or unknown; see --list-peers, or add it with --peer NAME=PATH"


def find_contestants(sheaf: Callable[[], Path], choice: Choice, newest: Newest, tell: Callable[[str], None]) -> list[Contestant]:
    """glibc first, the peers, Sheaf last. What is missing is named through `tell` and left out."""
    found = {PLAIN: Contestant(PLAIN, version=" ".join(platform.libc_ver()).strip())}
    missing: dict[str, str] = {}
    if choice.kind != "newest":
        installed, missing = _installed(choice.kind == "all")
        found.update(installed)
    given = {contestant.name: contestant for contestant in map(parse_peer, choice.peers)}
    if choice.kind != "installed":
        found.update((contestant.name, contestant) for contestant in newest(choice.only, tell))
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
            tell(f"{name}: {what}")
    return [contestant for contestant in found.values() if not choice.only or contestant.name in choice.only]


def verify(contestant: Contestant) -> None:
    """The dynamic linker goes on without an object that it cannot preload; a figure of that would be glibc's."""
    environment = {**fixed_environment(), **contestant.environment()}
    command = [sys.executable, "-I", "-S", "-c", _WHOSE_MALLOC]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, errors="replace", check=False, timeout=VERIFY_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise SheafError(f"{contestant.name}: a small program hangs under {contestant.path}; leave it out") from None
    if done.returncode != 0 or "ERROR: ld.so" in done.stderr:
        said = done.stderr.strip().splitlines()[:1] or [f"exit status {done.returncode}"]
        raise SheafError(f"{contestant.name}: {contestant.path} cannot be preloaded ({said[0]}); give another object")
    if contestant.path and Path(done.stdout.strip()).resolve() != contestant.path.resolve():
        raise SheafError(
            f"{contestant.name}: {contestant.path} is loaded but malloc comes from {done.stdout.strip()}; "
            "give the object that defines malloc"
        )
