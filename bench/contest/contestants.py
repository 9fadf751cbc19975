"""The allocators that are compared: where they are found, and proof that a program really runs under them."""

import os
import platform
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from contest.errors import ContestError

SUBJECT = "sheaf"
VERIFY_TIMEOUT_S = 20


@dataclass(frozen=True)
class Contestant:
    """One allocator; without a path it is the one that the program has anyway."""

    name: str
    path: Path | None = None
    variables: dict[str, str] = field(default_factory=dict)
    version: str = ""

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
    Known("tcmalloc", ("libtcmalloc_minimal.so.4",), "libtcmalloc-minimal4"),
)


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
        raise ContestError(f"--peer {text}: NAME=PATH[,VAR=VALUE] is wanted, NAME of letters, digits, '-', '_' and '.'")
    pairs: dict[str, str] = {}
    for variable in variables:
        key, equals, value = variable.partition("=")
        if not key or not equals:
            raise ContestError(f"--peer {text}: '{variable}' is not VAR=VALUE")
        pairs[key] = value
    if path and not Path(path).is_file():
        raise ContestError(f"--peer {name}: no file {path}; give the path of the shared object")
    found = Path(path).resolve() if path else None
    return Contestant(name, found, pairs, installed_version(Path(path)) if path else "")


def _find_known(known: Known) -> Contestant | None:
    for directory in library_directories():
        for file in known.files:
            if (directory / file).is_file():
                return Contestant(known.name, directory / file, version=installed_version(directory / file))
    return None


def find_contestants(sheaf: Path, sheaf_asked: bool, peers: list[str], only: list[str]) -> list[Contestant]:
    """glibc first, the peers, Sheaf last. What is missing is named on standard error and left out."""
    found = {"glibc": Contestant("glibc", version=" ".join(platform.libc_ver()).strip())}
    missing: dict[str, str] = {}
    for known in KNOWN:
        contestant = _find_known(known)
        if contestant:
            found[known.name] = contestant
        else:
            missing[known.name] = f"not found; apt install {known.package}, or --peer {known.name}=PATH"
    for contestant in map(parse_peer, peers):
        found[contestant.name] = contestant
        missing.pop(contestant.name, None)
    if sheaf.is_file():
        found[SUBJECT] = Contestant(SUBJECT, sheaf.resolve())
    elif sheaf_asked:
        raise ContestError(f"--sheaf {sheaf}: no such file; build it with ninja, or give the path of the shared object")
    elif SUBJECT not in found:
        missing[SUBJECT] = f"no {sheaf}; build it with ninja, or --sheaf PATH"

    for name in only:
        if name not in found:
            raise ContestError(f"--only {name}: {missing.get(name, 'unknown; add it with --peer NAME=PATH')}")
    for name, what in missing.items():
        if not only:
            print(f"{name}: {what}", file=sys.stderr)
    return [contestant for contestant in found.values() if not only or contestant.name in only]


def verify(contestant: Contestant, micro: Path) -> None:
    """The dynamic linker goes on without an object that it cannot preload; a figure of that would be glibc's."""
    environment = {**fixed_environment(), **contestant.environment()}
    try:
        done = subprocess.run(
            [micro, "--allocator"], env=environment, capture_output=True, text=True, check=False, timeout=VERIFY_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise ContestError(f"{contestant.name}: a trivial program hangs under {contestant.path}") from None
    if done.returncode != 0 or "ERROR: ld.so" in done.stderr:
        said = done.stderr.strip().splitlines()[:1] or [f"exit status {done.returncode}"]
        raise ContestError(f"{contestant.name}: {contestant.path} cannot be preloaded ({said[0]})")
    if contestant.path and Path(done.stdout.strip()).resolve() != contestant.path.resolve():
        raise ContestError(
            f"{contestant.name}: {contestant.path} is loaded but malloc comes from {done.stdout.strip()}; "
            "give the object that defines malloc"
        )
