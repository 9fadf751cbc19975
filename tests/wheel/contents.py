#!/usr/bin/env python3
"""
Checks a wheel for other machines: its tag, its files, and which symbols its object needs.

    tests/wheel/contents.py WHEEL
"""

from __future__ import annotations

import re
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/check"))
from symbols import symbol_problems  # noqa: E402

TAG = "py3-none-manylinux_2_31_x86_64"
OBJECT = "sheaf/libsheaf-preload.so"
COMPLETIONS = ("bash-completion/completions/sheaf", "zsh/site-functions/_sheaf", "fish/vendor_completions.d/sheaf.fish")


def expected_files() -> set[str]:
    """The files that must be in the wheel, those below share/ included."""
    package = ROOT / "cli/sheaf"
    sources = [path for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    files = {f"sheaf/{path.relative_to(package)}" for path in sources}
    files |= {f"sheaf/commands/bench/real/{path.name}" for path in (ROOT / "bench/real").iterdir() if path.is_file()}
    files |= {f"share/man/man1/{path.name}" for path in (ROOT / "docs/man").glob("*.1")}
    files |= {f"share/{name}" for name in COMPLETIONS}
    files |= {f"sheaf/scripts/{path.name}" for path in (ROOT / "cli/completion").iterdir()}
    return files | {OBJECT, "sheaf/options.def"}


def files_of(wheel: zipfile.ZipFile) -> set[str]:
    """The files of a wheel, those for the environment's top folder by their path there; without its metadata."""
    names = {name for name in wheel.namelist() if ".dist-info/" not in name and not name.endswith("/")}
    return {re.sub(r"^sheaf-[^/]*\.data/data/", "", name) for name in names}


def file_problems(found: set[str]) -> list[str]:
    """Files that are missing, and files that nothing uses."""
    wanted = expected_files()
    return [f"{name}: is missing" for name in sorted(wanted - found)] + [
        f"{name}: not expected; add it to tests/wheel/contents.py" for name in sorted(found - wanted)
    ]


def main() -> int:
    """Print all problems; returns the exit status."""
    path = Path(sys.argv[1])
    problems = [] if f"-{TAG}." in path.name or f".{TAG}." in path.name else [f"{path.name}: the tag should be {TAG}"]
    with zipfile.ZipFile(path) as wheel, tempfile.TemporaryDirectory() as directory:
        problems += file_problems(files_of(wheel))
        if OBJECT in wheel.namelist():
            problems += symbol_problems(Path(wheel.extract(OBJECT, directory)))
    print("\n".join(problems) or f"{path.name}: as expected")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
