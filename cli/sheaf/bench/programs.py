"""Where the built benchmark programs are; in a source tree they are built when missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sheaf.errors import SheafError

_NAMES = ("bench-micro", "bench-programs", "bench-rest", "bench-seeds", "bench-threads", "bench-start", "bench-hundred",
          "libbench-empty.so")  # fmt: skip
_HERE = Path(__file__).resolve()


@dataclass(frozen=True)
class Programs:
    """A directory with all of them."""

    directory: Path

    def __getitem__(self, name: str) -> Path:
        return self.directory / name

    def has(self, name: str) -> bool:
        """Some are built only where there is a C++ compiler."""
        return (self.directory / name).exists()

    @property
    def preload(self) -> Path:
        """The object that the same build made; need not exist."""
        return self.directory.parent / "preload" / "libsheaf-preload.so"


def _complete(directory: Path) -> bool:
    return all((directory / name).exists() for name in _NAMES)


def _trees() -> list[Path]:
    """The clone that this file lies in, the one that the user stands in."""
    return [tree for tree in (_HERE.parents[3], Path.cwd()) if (tree / "bench" / "meson.build").is_file()]


def _build(tree: Path, tell: Callable[[str], None]) -> Path:
    """By meson, into build/bench of the tree."""
    build = tree / "build" / "bench"
    tell(f"building the benchmark programs in {build}")
    setup = ["meson", "setup", str(build), str(tree), "--buildtype=release", "-Dtests=false"]
    steps = [["ninja", "-C", str(build)]] if (build / "build.ninja").exists() else [setup, ["ninja", "-C", str(build)]]
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SheafError(f"{' '.join(step)}: failed; run it by hand to see why")
    return build / "bench"


def find_built() -> Programs | None:
    """As find_programs(), without building anything."""
    chosen = os.environ.get("SHEAF_BENCH_DIR")
    if chosen:
        directory = Path(chosen).resolve()
        if not _complete(directory):
            raise SheafError(f"SHEAF_BENCH_DIR={chosen}: lacks benchmark programs; name the directory bench/ of a meson build")
        return Programs(directory)
    places = [_HERE.parent / "programs", Path.cwd() / "bench"]
    places += [tree / "build" / sub / "bench" for tree in _trees() for sub in ("bench", ".", "gcc")]
    return next((Programs(place.resolve()) for place in places if _complete(place)), None)


def find_programs(tell: Callable[[str], None]) -> Programs:
    """$SHEAF_BENCH_DIR, inside the package, a build directory here or in the clone, or a new one there."""
    built = find_built()
    if built:
        return built
    trees = _trees()
    if trees and shutil.which("meson") and shutil.which("ninja"):
        return Programs(_build(trees[0], tell))
    raise SheafError(
        "no benchmark programs here: in a clone of Sheaf run 'meson setup build && ninja -C build', "
        "then sheaf bench there or with SHEAF_BENCH_DIR=CLONE/build/bench"
    )


def find_descriptions() -> Path:
    """The directory with what the real programs do: inside the package, or in the clone."""
    for place in (_HERE.parent / "real", _HERE.parents[3] / "bench" / "real"):
        if place.is_dir():
            return place
    raise SheafError(f"{_HERE.parent / 'real'}: missing; reinstall Sheaf")
