"""The newest peers: fetched with cargo, built once, and kept in a cache."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from sheaf.commands.bench.contestants import Contestant, installed_version, verify
from sheaf.commands.bench.progress import note
from sheaf.commands.bench.recipes import RECIPES, Recipe, Workplace, jobs
from sheaf.errors import SheafError

Notify = Callable[[str], None]
PACKAGES = "cargo cmake make g++"
EXPORTS = ("malloc", "free", "calloc", "realloc", "posix_memalign", "aligned_alloc", "memalign", "malloc_usable_size")
_LOOK_S = 0.2
# The user's variables must not affect how a peer is built.
_NOT_INHERITED = ("CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "MAKEFLAGS", "LD_PRELOAD")
_MANIFEST = """[package]
name = "peers"
version = "0.0.0"
edition = "2018"
publish = false

[lib]
path = "lib.rs"

[dependencies]
{crate} = "={version}"
"""


def cache() -> Path:
    """The directory of the built peers: $XDG_CACHE_HOME/sheaf/peers, or ~/.cache/sheaf/peers."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sheaf" / "peers"


def _last_line(log: Path) -> str:
    """The last line of a log that is not blank."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 1024))
        lines = file.read().decode(errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


class _Executor:
    """Runs the commands of one build. Output goes to the log, whose last line the terminal shows. Raises SheafError."""

    def __init__(self, title: str, log: Path) -> None:
        self._title, self._log = title, log
        self._begun = time.monotonic()

    def __call__(self, command: Sequence[str], directory: Path) -> None:
        environment = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
        with self._log.open("ab") as log:
            log.write(f"$ {' '.join(command)}\n".encode())
            log.flush()
            process = subprocess.Popen(
                command, cwd=directory, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        try:
            while process.poll() is None:
                note(f"{self._title} ({time.monotonic() - self._begun:.0f} s)  {_last_line(self._log)}")
                time.sleep(_LOOK_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            note("")
        if process.returncode != 0:
            raise SheafError(f"{command[0]} failed with status {process.returncode}")


def _fetch(recipe: Recipe, directory: Path, execute: _Executor) -> Path:
    """Fetch the source of the crate with cargo, which verifies the checksum of the registry; returns its directory."""
    directory.mkdir()
    (directory / "Cargo.toml").write_text(_MANIFEST.format(crate=recipe.crate, version=recipe.crate_version))
    (directory / "lib.rs").touch()
    execute(["cargo", "vendor", "--quiet", "vendor"], directory)
    return directory / "vendor" / recipe.crate


def _check(recipe: Recipe, made: Path) -> None:
    """Raise SheafError unless the object defines the whole malloc interface and a program runs on it."""
    done = subprocess.run(["nm", "-D", "--defined-only", str(made)], capture_output=True, text=True, check=False)
    defined = {words[2].partition("@")[0] for words in map(str.split, done.stdout.splitlines()) if len(words) == 3}
    lacking = [name for name in EXPORTS if name not in defined]
    if lacking:
        raise SheafError(f"the object does not define {', '.join(lacking)}")
    verify(Contestant(recipe.name, made, dict(recipe.variables)))


def _build(recipe: Recipe, into: Path, title: str) -> None:
    """Build a peer in a temporary directory, then rename the result to `into`, so that it is complete or absent."""
    log = into.with_suffix(".log")
    log.write_bytes(b"")
    with tempfile.TemporaryDirectory(prefix=f"{recipe.name}-", dir=into.parent, ignore_cleanup_errors=True) as top:
        execute = _Executor(title, log)
        source = _fetch(recipe, Path(top) / "crate", execute)
        build = Path(top) / "build"
        build.mkdir()
        made = recipe.make(Workplace(source, build, execute, jobs()))
        copied = Path(top) / into.name
        shutil.copy(made, copied)
        _check(recipe, copied)
        copied.replace(into)


@contextlib.contextmanager
def _locked(directory: Path, notify: Notify) -> Iterator[None]:
    """Hold the lock of the cache. Only one run builds; others wait and then use its result."""
    with (directory / "lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            notify(f"waiting for another run, which builds the peers in {directory}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _cargo_version() -> tuple[int, int]:
    """Major and minor version of cargo; (0, 0) if it is unknown."""
    done = subprocess.run(["cargo", "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"cargo (\d+)\.(\d+)", done.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _missing_tools(recipe: Recipe) -> list[str]:
    return [tool for tool in ("cargo", "nm", *recipe.tools) if shutil.which(tool) is None]


def _buildable(recipes: Sequence[Recipe], notify: Notify) -> list[Recipe]:
    """The recipes that can be built here. Missing tools, and peers that need a newer cargo, are reported."""
    lacking = {recipe.name: _missing_tools(recipe) for recipe in recipes}
    missing = dict.fromkeys(tool for tools in lacking.values() for tool in tools)
    if missing:
        without = ", ".join(name for name, tools in lacking.items() if tools)
        notify(f"{without}: left out: {', '.join(missing)} not found; run apt install {PACKAGES}")
    able = [recipe for recipe in recipes if not lacking[recipe.name]]
    version = _cargo_version() if able else (0, 0)
    for recipe in able:
        if version < recipe.cargo:
            notify(
                f"{recipe.name}: left out: cargo {version[0]}.{version[1]} is too old for {recipe.crate}, which needs "
                f"{recipe.cargo[0]}.{recipe.cargo[1]}; install a newer one from https://rustup.rs"
            )
    return [recipe for recipe in able if version >= recipe.cargo]


def _object(recipe: Recipe) -> Path:
    return cache() / f"{recipe.key}.so"


def _build_all(recipes: Sequence[Recipe], notify: Notify) -> None:
    """Build the peers that the cache lacks. A failure is reported with the log, and the next peer is built."""
    able = _buildable(recipes, notify)
    if not able:
        return
    try:
        cache().mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SheafError(f"{cache()}: {error.strerror}; set XDG_CACHE_HOME to a writable directory") from None
    with _locked(cache(), notify):
        left = [recipe for recipe in able if not _object(recipe).is_file()]
        for number, recipe in enumerate(left, 1):
            title = f"building {recipe.name}, {number} of {len(left)}"
            notify(f"{title}: {recipe.version}")
            try:
                _build(recipe, _object(recipe), title)
            except (SheafError, OSError) as error:
                said = error.message if isinstance(error, SheafError) else str(error)
                log = _object(recipe).with_suffix(".log")
                notify(f"{recipe.name}: left out: {said}; see {log}")


def scudo() -> Path | None:
    """The scudo of the newest installed LLVM, or None."""
    name = f"lib/linux/libclang_rt.scudo_standalone-{platform.machine()}.so"
    found = [path for top in ("lib/llvm-*/lib/clang/*", "lib/clang/*") for path in Path("/usr").glob(f"{top}/{name}")]
    return max(found, key=lambda path: [int(number) for number in re.findall(r"\d+", str(path.parent))], default=None)


def find_newest(names: Sequence[str], notify: Notify) -> list[Contestant]:
    """The newest peers, built if the cache lacks them. If `names` is not empty, only these."""
    wanted = [recipe for recipe in RECIPES if not names or recipe.name in names]
    absent = [recipe for recipe in wanted if not _object(recipe).is_file()]
    if absent:
        _build_all(absent, notify)
    found = [
        Contestant(recipe.name, _object(recipe), dict(recipe.variables), recipe.version)
        for recipe in wanted
        if _object(recipe).is_file()
    ]
    if not names or "scudo" in names:
        path = scudo()
        if path:
            found.append(Contestant("scudo", path, version=installed_version(path)))
        else:
            packages = "libclang-rt-14-dev (Debian 12) or libclang-rt-18-dev (Ubuntu 24.04)"
            notify(f"scudo: not found; run apt install {packages}, or give --peer scudo=PATH")
    return found
