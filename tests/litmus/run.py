#!/usr/bin/env python3
"""Check by herd7 what aarch64's memory model allows in kernels of Sheaf's algorithms, and print TAP.

NAME.litmus must be impossible, and NAME-without-SOMETHING.litmus, the same with a barrier or an order removed, must be
possible: so it is that barrier which forbids it. herd7 is Debian's package herdtools7, which only unstable has. It is
fetched into build/litmus with the libraries that it needs, and not installed. The exit status is 77 if it cannot be had.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOP = HERE.parents[1]
KEPT = TOP / "build/litmus"
PACKAGES = ("herdtools7", "libc6", "libgmp10")
SECONDS = 300  # for a test, which takes less than one

sys.path.insert(0, str(TOP / "tests/guest"))

from archive import DEBIAN, Archive, Unavailable, unpack  # noqa: E402


def _herd() -> list[str]:
    """Return the command of herd7, which is fetched the first time."""
    root = KEPT / "root"
    if not (KEPT / "made").exists():
        archive = Archive(KEPT / "sid", DEBIAN, "sid", "amd64")
        archive.update()
        for package in PACKAGES:
            unpack(file := archive.download(package), root)
            file.unlink()
        (KEPT / "made").touch()
    linker = next(root.glob("**/ld-linux-x86-64.so.2"))
    libraries = root / "usr/lib/x86_64-linux-gnu"
    models = root / "usr/share/herdtools7/herd"
    return [
        str(linker), "--library-path", str(libraries), str(root / "usr/bin/herd7"), "-set-libdir", str(models),
        "-variant", "mixed",
    ]  # fmt: skip


def _verdict(herd: list[str], test: Path) -> str:
    """Return "Never", "Sometimes" or "Always", or what went wrong."""
    done = subprocess.run([*herd, str(test)], capture_output=True, text=True, timeout=SECONDS)
    found = re.search(r"^Observation \S+ (\S+)", done.stdout, re.M)
    return found[1] if found else f"no verdict: {done.stderr.strip()}"


def main() -> int:
    """Run all tests, or those that are named."""
    files = sorted(HERE.glob("*.litmus"))
    if sys.argv[1:]:
        files = [HERE / f"{name}.litmus" for name in sys.argv[1:]]
    try:
        herd = _herd()
    except (Unavailable, OSError) as problem:
        print(f"tests/litmus/run.py: herd7 cannot be fetched: {problem}")
        return 77
    failed = 0
    print(f"1..{len(files)}")
    for number, file in enumerate(files, 1):
        expected = "Sometimes" if "-without-" in file.stem else "Never"
        verdict = _verdict(herd, file)
        failed += verdict != expected
        if verdict != expected:
            print(f"# {verdict}, not {expected}")
        print(f"{'ok' if verdict == expected else 'not ok'} {number} {file.stem}: {expected.lower()}")
    # An order that is argued without a test that fails without it is not known to matter.
    alone = [f.stem for f in files if "-without-" not in f.stem and not any(HERE.glob(f"{f.stem}-without-*"))]
    if alone:
        print(f"# without a variant that lacks the order: {', '.join(alone)}")
    return 1 if failed or alone else 0


if __name__ == "__main__":
    sys.exit(main())
