"""Find the benchmark programs; in a source tree they are built if they are missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sheaf.errors import SheafError

_NAMES = (
    "bench-micro",
    "bench-programs",
    "bench-rest",
    "bench-seeds",
    "bench-threads",
    "bench-start",
    "bench-hundred",
    "libbench-empty.so",
)
_HERE = Path(__file__).resolve()


@dataclass(frozen=True)
class Programs:
    """A directory that contains all benchmark programs."""

    directory: Path

    def __getitem__(self, name: str) -> Path:
        return self.directory / name

    def has(self, name: str) -> bool:
        """Whether a program was built; some need a C++ compiler."""
        return (self.directory / name).exists()

    @property
    def preload(self) -> Path:
        """The preloaded object of the same build tree; it may not exist."""
        return self.directory.parent / "preload" / "libsheaf-preload.so"


def _complete(directory: Path) -> bool:
    return all((directory / name).exists() for name in _NAMES)


def _trees() -> list[Path]:
    """The source trees of this file and of the working directory, if they are any."""
    return [tree for tree in (_HERE.parents[4], Path.cwd()) if (tree / "bench" / "meson.build").is_file()]


def _build(tree: Path, notify: Callable[[str], None]) -> Path:
    """Build the programs in build/bench of a source tree; returns their directory. Raises SheafError."""
    build = tree / "build" / "bench"
    notify(f"building the benchmark programs in {build}")
    setup = ["meson", "setup", str(build), str(tree), "--buildtype=release", "-Dtests=false"]
    steps = [["ninja", "-C", str(build)]] if (build / "build.ninja").exists() else [setup, ["ninja", "-C", str(build)]]
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SheafError(f"{' '.join(step)}: failed with status {done.returncode}; run it by hand to see why")
    return build / "bench"


def find_built() -> Programs | None:
    """Like find_programs(), but without building anything; None if they are not found."""
    chosen = os.environ.get("SHEAF_BENCH_DIR")
    if chosen:
        directory = Path(chosen).resolve()
        if not _complete(directory):
            raise SheafError(f"SHEAF_BENCH_DIR={chosen}: programs are missing; name the directory bench/ of a meson build")
        return Programs(directory)
    places = [_HERE.parent / "programs", Path.cwd() / "bench"]
    places += [tree / "build" / sub / "bench" for tree in _trees() for sub in ("bench", ".", "gcc")]
    return next((Programs(place.resolve()) for place in places if _complete(place)), None)


def find_programs(notify: Callable[[str], None]) -> Programs:
    """
    The benchmark programs in $SHEAF_BENCH_DIR, in the package, or in a build directory; otherwise they are built in the
    source tree. Raises SheafError if there is none.
    """
    built = find_built()
    if built:
        return built
    trees = _trees()
    if trees and shutil.which("meson") and shutil.which("ninja"):
        return Programs(_build(trees[0], notify))
    raise SheafError(
        "benchmark programs: not found; run `meson setup build && ninja -C build` in a clone of Sheaf, "
        "then `sheaf bench` there or with SHEAF_BENCH_DIR=CLONE/build/bench"
    )


def find_descriptions() -> Path:
    """The directory with the descriptions of the real programs, in the package or in the source tree."""
    for place in (_HERE.parent / "real", _HERE.parents[4] / "bench" / "real"):
        if place.is_dir():
            return place
    raise SheafError(f"{_HERE.parent / 'real'}: the directory is missing; reinstall Sheaf")
