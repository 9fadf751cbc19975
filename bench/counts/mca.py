#!/usr/bin/env python3
"""
Estimate the cycles of the fast paths with llvm-mca, for models of several CPUs: from the first to the last instruction of
one call, and per pair of malloc and free in many consecutive pairs. The models assume that every load hits the first-level
cache. They ignore the forwarding of stores to loads (a word stored by the previous call costs nothing), the front end,
calls and returns, and mispredicted branches; see docs/design-notes.md, "Critical paths".

python3 bench/counts/mca.py BUILD/preload/libsheaf-preload.so...
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

import paths
from paths import CountError, Instruction

MODELS = {"x86_64": ("icelake-server", "sapphirerapids", "znver4", "znver5"), "aarch64": ("neoverse-v2",)}
TOOLS = ("llvm-mca", *(f"llvm-mca-{version}" for version in range(30, 16, -1)))
CALLS = 200


def _tool() -> str:
    """The first llvm-mca with models of all these CPUs (LLVM 17 or later). Raises CountError."""
    for name in TOOLS:
        if shutil.which(name):
            version = re.search(r"version (\d+)", paths.output([name, "--version"]))
            if version and int(version[1]) >= 17:
                return name
    raise CountError("llvm-mca: no version from 17 on found; run apt install llvm-19")


def assembly(path: list[Instruction]) -> str:
    """The path as assembly text, without the return, and with a symbol instead of addresses in the object."""
    lines = []
    for i in path:
        if i.mnemonic.startswith("ret"):
            continue
        operands = list(i.operands)
        if i.mnemonic.startswith(("j", "b.", "cb", "tb", "adrp")) and i.mnemonic != "bfi":
            operands[-1] = "place"
        lines.append(f"{i.mnemonic} {', '.join(operands)}")
    return "\n".join(lines) + "\n"


def cycles(tool: str, machine: str, model: str, text: str, calls: int) -> float:
    """Cycles per iteration of the text, in `calls` consecutive iterations."""
    command = [tool, f"-mtriple={machine}-linux-gnu", f"-mcpu={model}", f"-iterations={calls}", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    total = re.search(r"Total Cycles:\s+(\d+)", done.stdout)
    if not total:
        raise CountError(f"{tool} -mcpu={model}: {(done.stderr.strip().splitlines() or ['no output'])[0]}")
    return int(total[1]) / calls


def report(tool: str, path: Path) -> None:
    """Print a table with a row for each CPU model of the object's architecture."""
    machine = paths.machine_of(path)
    objdump = next(name for name in (f"{machine}-linux-gnu-objdump", "objdump") if shutil.which(name))
    straight = paths.straight(path, objdump, ("malloc", "free"))
    texts = [assembly(straight["malloc"]), assembly(straight["free"])]
    print(f"{path}: {len(straight['malloc'])} and {len(straight['free'])} instructions")
    print("| model | one malloc | one free | per pair of many |\n|---|---|---|---|")
    for model in MODELS[machine]:
        alone = [cycles(tool, machine, model, text, 1) for text in texts]
        print(f"| {model} | {alone[0]:.0f} | {alone[1]:.0f} | {cycles(tool, machine, model, ''.join(texts), CALLS):.1f} |")


def main() -> int:
    """Print a table for each object; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("objects", nargs="+", type=Path, metavar="OBJECT", help="libsheaf-preload.so of x86_64 or aarch64")
    try:
        tool = _tool()
        for path in parser.parse_args().objects:
            report(tool, path)
    except (CountError, OSError) as error:
        print(f"mca.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
