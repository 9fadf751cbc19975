#!/usr/bin/env python3
"""
Checks a wheel for other machines: its tag (also by auditwheel), its files, and which symbols its object needs.

    tests/wheel/contents.py WHEEL
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The platforms of tags: the newest version of glibc whose symbols may be needed, older than the tag's (none with musl), and
# the libraries of objects.
PLATFORMS = {
    "manylinux_2_28_x86_64": ((2, 17), ["libc.so.6"]),
    "manylinux_2_28_aarch64": ((2, 17), ["libc.so.6"]),
    "musllinux_1_2_x86_64": ((), ["libc.musl-x86_64.so.1"]),
    "musllinux_1_2_aarch64": ((), ["libc.musl-aarch64.so.1"]),
}
MACHINES = {"x86_64": "Advanced Micro Devices X86-64", "aarch64": "AArch64"}
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


def symbol_problems(path: Path, newest: tuple[int, ...], libraries: list[str], machine: str) -> list[str]:
    """Symbols that the object needs and that an old libc may lack, libraries other than libc, and another CPU than the tag's."""
    problems = []
    needs_version = newest != ()
    for symbol in readelf("--dyn-syms", path).splitlines():
        undefined = re.search(r" (GLOBAL|WEAK) +\w+ +UND (\w+)(?:@(\S+))?", symbol)
        if not undefined:
            continue
        binding, name, version = undefined.groups()
        if version and not needs_version:
            problems.append(f"{name}: needs {version}, and musl has no versions")
        elif version and tuple(map(int, version.removeprefix("GLIBC_").split("."))) > newest:
            problems.append(f"{name}: needs {version}")
        elif not version and needs_version and binding != "WEAK":
            problems.append(f"{name}: needed without a version")
    needed = re.findall(r"\(NEEDED\).*\[(\S+)\]", readelf("-d", path))
    if needed != libraries:
        problems.append(f"needs {', '.join(needed) or 'no library'} instead of {', '.join(libraries)}")
    if f"Machine: {MACHINES[machine]}" not in " ".join(readelf("-h", path).split()):
        problems.append(f"is not for {machine}")
    return [f"{path.name}: {problem}" for problem in problems]


def tag_problems(path: Path, platform: str) -> list[str]:
    """What auditwheel finds: the oldest platform whose rules the wheel follows, which may be older than that of its tag."""
    shown = subprocess.run(["auditwheel", "show", "--json", path], capture_output=True, text=True)
    found = json.loads(shown.stdout)
    tag = found.get("overall_tag", found.get("error", "nothing"))
    parts, wanted = (re.fullmatch(r"([a-z]+)_(\d+)_(\d+)_(\w+)", text) for text in (tag, platform))
    if not parts or not wanted or parts.group(1, 4) != wanted.group(1, 4):
        return [f"{path.name}: auditwheel finds {tag}"]
    if tuple(map(int, parts.group(2, 3))) <= tuple(map(int, wanted.group(2, 3))):
        return []
    return [f"{path.name}: auditwheel finds {tag}"]


def readelf(option: str, path: Path) -> str:
    """What readelf prints of a file, for any CPU."""
    return subprocess.run(["readelf", "-W", option, path], capture_output=True, text=True, check=True).stdout


def main() -> int:
    """Print all problems; returns the exit status."""
    path = Path(sys.argv[1])
    platform = path.stem.rpartition("-")[2]
    if not path.stem.endswith(f"-py3-none-{platform}") or platform not in PLATFORMS:
        print(f"{path.name}: the tag should be py3-none- and one of {', '.join(PLATFORMS)}")
        return 1
    newest, libraries = PLATFORMS[platform]
    with zipfile.ZipFile(path) as wheel, tempfile.TemporaryDirectory() as directory:
        problems = tag_problems(path, platform) + file_problems(files_of(wheel))
        if OBJECT in wheel.namelist():
            machine = "aarch64" if platform.endswith("_aarch64") else "x86_64"
            problems += symbol_problems(Path(wheel.extract(OBJECT, directory)), newest, libraries, machine)
    print("\n".join(problems) or f"{path.name}: as expected")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
