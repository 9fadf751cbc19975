"""Functions of JavaScript programs in profiles: their names, files and lines, and an engine that changes what is read."""

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
    """A function that runs a program with every allocation of 4 KiB and more sampled, and returns its profile."""
    node = shutil.which("node", path="/usr/bin:/usr/local/bin") or pytest.skip("node is not installed")

    def run(program: str, *options: str, rate: str = "4K") -> dict[str, Any]:
        path = tmp_path / "program.js"
        path.write_text(program, encoding="utf-8")
        document = profile(sheaf, library, [node, *options, str(path)], tmp_path, rate)
        Path(f"/tmp/perf-{document['pid']}.map").unlink(missing_ok=True)
        return document

    return run


@pytest.mark.parametrize("options", [[], ["--perf-basic-prof", "--interpreted-frames-native-stack"], ["--no-opt", "--sparkplug"]])
def test_functions_and_lines(profiled: Profiled, options: list[str]) -> None:
    rows = profiled(PROGRAM, *options)["rows"]
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


def test_stacks_are_whole(profiled: Profiled) -> None:
    """From the program's entry to the allocation, without V8's functions that only call, for all but few samples."""
    found, all_of_them = 0, 0
    for row in profiled(PROGRAM)["rows"]:
        functions = [frame["function"] for frame in row["frames"]]
        count = round(row["values"][0])
        if count and 300_000 < row["values"][1] / count < 300_010:
            all_of_them += count
            hidden = [name for name in functions if name.startswith(("Builtins_Interpreter", "Builtins_JSEntry"))]
            found += count * ("main" in functions and not hidden and any(name.startswith("node::Start(") for name in functions))
    assert all_of_them == 14
    assert found >= 10  # a thread that meets another one in the same room goes without


def test_names_of_every_kind(profiled: Profiled) -> None:
    """Names that are inferred, that have other characters, or none; long files; modules; code that is evaluated."""
    program = (
        "\n" * 3000
        + """\
const keep = [];
const give = (n) => keep.push(new ArrayBuffer(300_000 + n));
const 名前 = function () { give(1); };
const object = { method() { give(2); }, get Getter() { give(3); return 1; } };
object.assigned = () => { give(4); };
function* generator() { give(5); yield 1; }
async function waits() { await null; give(6); }
class A { constructor() { give(7); } static stat() { give(8); } #own() { give(9); } call() { this.#own(); } }
名前(); object.method(); object.Getter; object.assigned(); [...generator()]; new A(); A.stat(); new A().call();
eval("\\n\\nfunction evaluated() { give(10); }\\nevaluated()//# sourceURL=made.js");
waits().then(() => process.reallyExit(0));
"""
    )
    found = {}
    for row in profiled(program)["rows"]:
        names = [(frame["function"], frame["line"]) for frame in row["frames"] if frame["line"] and "node:" not in frame["file"]]
        after = names[names.index(("give", 3002)) + 1] if ("give", 3002) in names else None
        if after:
            found[after[0]] = after[1]
    lines = {
        "名前": 3003,
        "method": 3004,
        "get Getter": 3004,
        "object.assigned": 3005,
        "generator": 3006,
        "waits": 3007,
        "A": 3008,
        "stat": 3008,
        "#own": 3008,
    }
    assert {name: found.get(name) for name in lines} == lines


CHURN = """\
const { Worker, isMainThread } = require("worker_threads");
const keep = [];
function churn(seed, rounds) {
  for (let i = 0; i < rounds; i++) {
    const name = `fn_${seed}_${i}`;
    const made = new Function("n", "keep", "\\n".repeat(i % 50) + `return (function ${name}(n) {
      keep.push(new Uint8Array(2000), Buffer.alloc(9000)); return n < 2 ? keep.length : ${name}(n - 1); })(n)`);
    made(4, keep);
    try { if (i % 5 === 0) throw new Error(name); } catch (error) { keep.push(error.stack); }
    JSON.parse(JSON.stringify(keep.slice(-3).map(String)));
    if (i % 20 === 0) { keep.length = 0; gc(); }
    else if (i % 7 === 0) gc({ type: "minor" });
  }
}
churn(isMainThread, 60);
if (isMainThread) {
  let left = 2;
  process.on("SIGUSR2", () => keep.push(Buffer.alloc(10_000)));
  const ended = (code) => { if (code) throw code; if (!--left) process.exit(0); };
  for (let i = 0; i < left; i++) new Worker(__filename).on("exit", ended);
  for (let i = 0; i < 20; i++) process.kill(process.pid, "SIGUSR2");
  churn("main", 60);
}
"""


@pytest.mark.parametrize("options", [[], ["--stress-compaction"]])
@pytest.mark.parametrize("rate", ["64", "4K"])
def test_code_that_churns(profiled: Profiled, rate: str, options: list[str]) -> None:
    """Allocations are sampled while V8 makes and frees code and moves objects, with threads and signals."""
    rows = profiled(CHURN, "--expose-gc", *options, rate=rate)["rows"]
    assert rows
    if rate != "64":  # otherwise the table of stacks may be full
        assert any("churn" in [name for name, _ in of_program(row, "program.js")] for row in rows)
