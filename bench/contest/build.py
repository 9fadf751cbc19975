"""Where the built programs are."""

import os
from dataclasses import dataclass
from pathlib import Path

from contest.errors import ContestError

REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Build:
    """The build directory's programs."""

    micro: Path
    threads: Path
    start: Path
    hundred: Path
    empty: Path
    sheaf: Path  # need not exist


def find_build(directory: Path | None) -> Build:
    """The given directory, else `build` here, else `build` in the repository."""
    candidates = [directory] if directory else [Path.cwd() / "build", REPOSITORY / "build"]
    for root in candidates:
        bench = root.resolve() / "bench"
        if os.access(bench / "bench-micro", os.X_OK):
            return Build(
                micro=bench / "bench-micro",
                threads=bench / "bench-threads",
                start=bench / "bench-start",
                hundred=bench / "bench-hundred",
                empty=bench / "libbench-empty.so",
                sheaf=root.resolve() / "preload" / "libsheaf-preload.so",
            )
    raise ContestError(
        f"{candidates[-1]}: no bench/bench-micro in it; build with 'meson setup build && ninja -C build', "
        "or name the build directory with --build DIR"
    )
