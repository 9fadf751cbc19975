#!/usr/bin/env python3
"""
What llvm-mca says of the fast paths: cycles from the first instruction to the last of one call, and cycles for each of
many calls of malloc and free in turn, on models of several CPUs. Both take every load as a hit in the first-level
cache. llvm-mca sees neither the forwarding of stores to loads (so a word that the call before stored costs it nothing),
nor the front end, calls and returns, nor mispredicted branches: docs/design.md, "Critical paths".

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
    """The first that has models of all these CPUs (LLVM 17 or later)."""
    for name in TOOLS:
        if shutil.which(name):
            version = re.search(r"version (\d+)", paths.output([name, "--version"]))
            if version and int(version[1]) >= 17:
                return name
    raise CountError("llvm-mca: none of version 17 or later here; apt install llvm-19")


def assembly(path: list[Instruction]) -> str:
    """What the assembler takes: without the return, and with names for places in the object."""
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
    """For each of so many calls, one after the other."""
    command = [tool, f"-mtriple={machine}-linux-gnu", f"-mcpu={model}", f"-iterations={calls}", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    total = re.search(r"Total Cycles:\s+(\d+)", done.stdout)
    if not total:
        raise CountError(f"{tool} -mcpu={model}: {(done.stderr.strip().splitlines() or ['no answer'])[0]}")
    return int(total[1]) / calls


def report(tool: str, path: Path) -> None:
    """One row for each model of the object's machine."""
    machine = paths.machine_of(path)
    objdump = next(name for name in (f"{machine}-linux-gnu-objdump", "objdump") if shutil.which(name))
    straight = paths.straight(path, objdump, ("malloc", "free"))
    texts = [assembly(straight["malloc"]), assembly(straight["free"])]
    print(f"{path}: {len(straight['malloc'])} and {len(straight['free'])} instructions")
    print("| model | malloc alone | free alone | pair, many |\n|---|---|---|---|")
    for model in MODELS[machine]:
        alone = [cycles(tool, machine, model, text, 1) for text in texts]
        print(f"| {model} | {alone[0]:.0f} | {alone[1]:.0f} | {cycles(tool, machine, model, ''.join(texts), CALLS):.1f} |")


def main() -> int:
    """A table for each object."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("objects", nargs="+", type=Path, metavar="OBJECT", help="libsheaf-preload.so, of either machine")
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
