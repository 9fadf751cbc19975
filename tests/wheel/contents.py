#!/usr/bin/env python3
"""
Checks a wheel for other machines: its tag, its files, and which symbols its object needs.

    tests/wheel/contents.py WHEEL
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TAG = "py3-none-manylinux_2_31_x86_64"
NEWEST = (2, 31)
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


def symbol_problems(path: Path) -> list[str]:
    """Symbols that the object needs and that glibc 2.31 may lack, and libraries other than libc."""
    problems = []
    for line in subprocess.run(["objdump", "-T", path], capture_output=True, text=True, check=True).stdout.splitlines():
        if "*UND*" not in line:
            continue
        fields, weak = line.split("*UND*"), line[17:24].strip().startswith("w")
        version, name = re.search(r"\(?GLIBC_([\d.]+)\)?", fields[1]), line.split()[-1]
        if not version and not weak:
            problems.append(f"{name}: needed without a version")
        if version and tuple(map(int, version[1].split("."))) > NEWEST:
            problems.append(f"{name}: needs glibc {version[1]}")
    dynamic = subprocess.run(["objdump", "-p", path], capture_output=True, text=True, check=True).stdout
    return problems + [f"needs {name}" for name in re.findall(r"NEEDED +(\S+)", dynamic) if name != "libc.so.6"]


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
