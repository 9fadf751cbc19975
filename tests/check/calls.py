#!/usr/bin/env python3
"""Checks the calls between the files of lib/, as the linker sees them.

Includes alone do not show circles, because a file may declare the functions that it calls. This check reads the symbols
that each object file of libsheaf-core and libsheaf-rcu defines and needs (nm). A file may use functions and variables of
its own folder and of folders below it (tree.LAYERS), and at most MOST files may use each other in a circle. A folder
reaches those above it through lib/platform/os/hooks.h and lib/cache/ops.h. Prints TAP.
"""

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from tree import LAYERS, ROOT

MOST = 3


def name_of(file: Path) -> str:
    """Return cache/slot/barn.c for cache_slot_barn.c.o: meson replaces slashes in the names of object files."""
    name = file.name.removesuffix(".o")
    files = [f"{folder}/{name[len(folder) + 1 :]}" for folder in LAYERS if name.startswith(folder.replace("/", "_") + "_")]
    return next(file for file in files if (ROOT / "lib" / file).exists())


def uses(objects: list[Path]) -> dict[str, dict[str, list[str]]]:
    """Return, for each file, the files whose symbols it needs, with these symbols."""
    defined: dict[str, str] = {}
    needed: dict[str, list[str]] = {}
    for file in objects:
        out = subprocess.run(["nm", file], capture_output=True, text=True, check=True).stdout
        for line in out.splitlines():
            *_, kind, symbol = line.split()
            if kind == "U":
                needed.setdefault(name_of(file), []).append(symbol)
            elif kind.isupper():
                defined[symbol] = name_of(file)
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for file_name, symbols in needed.items():
        for symbol in symbols:
            if defined.get(symbol, file_name) != file_name:
                found[file_name][defined[symbol]].append(symbol)
    return found


def upward(graph: dict[str, dict[str, list[str]]]) -> list[str]:
    def level(name: str) -> int:
        return LAYERS.index(name.rpartition("/")[0])

    return [
        f"lib/{user} uses {', '.join(symbols)} of lib/{used}, which is above it"
        for user, all_used in sorted(graph.items())
        for used, symbols in sorted(all_used.items())
        if level(used) < level(user)
    ]


def circles(graph: dict[str, dict[str, list[str]]]) -> list[list[str]]:
    """Return the strongly connected components of more than one file (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for used in graph.get(node, {}):
            if used not in index:
                visit(used)
                low[node] = min(low[node], low[used])
            elif used in stack:
                low[node] = min(low[node], index[used])
        if low[node] == index[node]:
            at = stack.index(node)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def main() -> int:
    objects = sorted(file for folder in sys.argv[1:] for file in Path(folder).glob("*.o"))
    if not objects:
        print(f"1..0 # SKIP no object files in {', '.join(sys.argv[1:])}")
        return 0
    graph = uses(objects)
    wrong_ways = upward(graph)
    all_circles = circles(graph)
    too_large = [", ".join(circle) for circle in all_circles if len(circle) > MOST]
    print("1..2")
    for number, (name, wrong) in enumerate(
        [("calls go down", wrong_ways), (f"no circle of more than {MOST} files", too_large)], 1
    ):
        print(f"{'not ok' if wrong else 'ok'} {number} - {name}")
        for line in wrong:
            print(f"# {line}")
    for circle in all_circles:
        print(f"# circle: {', '.join(circle)}")
    return int(bool(wrong_ways or too_large))


if __name__ == "__main__":
    sys.exit(main())
