"""Functions of JavaScript programs in profiles: stacks go through V8's code, and its map of code names it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Run
from scripts import of_program, profile

# Each function keeps a block that is always sampled. Callbacks run in functions of V8.
PROGRAM = """\
const keep = [];
function plain() {
  keep.push(new ArrayBuffer(300_001));
}
class Box {
  fill() { plain(); keep.push(Buffer.alloc(300_002)); }
}
const arrow = (n) => n ? arrow(n - 1) : keep.push(new ArrayBuffer(300_003));
function hot(i) {
  if (i % 10_000 === 0) keep.push(new ArrayBuffer(300_004));
}
function main() {
  new Box().fill();
  arrow(5);
  [1].forEach(function each() { keep.push(new ArrayBuffer(300_005)); });
  for (let i = 0; i < 100_000; i++) hot(i);
}
main();
process.reallyExit(0);
"""
WANTED = {
    300_001: ["plain", "fill", "main"],
    300_002: ["fill", "main"],
    300_003: [*["arrow"] * 6, "main"],
    300_004: ["hot", "main"],
    300_005: ["each", "main"],
}
LINES = {"plain": 2, "fill": 6, "arrow": 8, "hot": 9, "main": 12, "each": 15}

Profiled = Callable[..., dict[str, Any]]


@pytest.fixture
def profiled(sheaf: Run, library: str, tmp_path: Path) -> Profiled:
    """A function that runs the program with every allocation of 4 KiB and more sampled, and returns its profile."""
    node = shutil.which("node", path="/usr/bin:/usr/local/bin") or pytest.skip("node is not installed")

    def run(*options: str) -> dict[str, Any]:
        path = tmp_path / "program.js"
        path.write_text(PROGRAM, encoding="utf-8")
        document = profile(sheaf, library, [node, *options, str(path)], tmp_path, "4K")
        Path(f"/tmp/perf-{document['pid']}.map").unlink(missing_ok=True)
        return document

    return run


def test_functions_and_lines(profiled: Profiled) -> None:
    rows = profiled("--perf-basic-prof", "--interpreted-frames-native-stack")["rows"]
    found: dict[int, set[tuple[str, ...]]] = {}
    for row in rows:
        functions = [one for one in of_program(row, "program.js") if one[0] != "(anonymous)"]
        assert all(LINES[name] == line for name, line in functions)
        count = round(row["values"][0])
        if count and functions:
            found.setdefault(round(row["values"][1] / count), set()).add(tuple(name for name, _ in functions))
    for size, wanted in WANTED.items():
        stacks = [list(stack) for near in (size - 1, size, size + 1) for stack in found.get(near, ())]
        assert wanted in stacks or (size == 300_004 and ["main"] in stacks), (size, found)  # hot() may be inlined


def test_stacks_go_through_code_without_a_map(profiled: Profiled) -> None:
    """From the program's entry to the allocation, with V8's frames between them, in most of the memory that it keeps."""
    whole = 0.0
    for row in profiled()["rows"]:
        functions = [frame["function"] for frame in row["frames"]]
        if 300_000 < row["values"][1] / max(row["values"][0], 1) < 300_010:
            whole += row["values"][1] * ("main" in functions or "_start" in functions or "node::Start" in functions)
    assert whole > 10 * 300_000
