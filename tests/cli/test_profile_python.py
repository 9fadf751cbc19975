"""Functions of Python programs in profiles: their names, files and lines, and interpreters that change what is read."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from areas import Area
from conftest import Run
from scripts import Rows, check_made, of_program, profile
from sheaf.commands.profile.area import Module, Name, named
from sheaf.commands.profile.symbols import Symbolizer

VERSIONS = ("3.11", "3.12", "3.13")
BEGIN = "import os, sys, threading\nkeep = []\n"
END = "\nsys.stdout.flush()\nos._exit(0)\n"  # at once, so that everything lives
# Each function keeps one block that is always sampled. The first line of a program is 3.
PROGRAM = """\
class Box:
    def fill(self):
        keep.append(bytes(100_001))
        return [
            keep.append(bytes(100_002)) for _ in range(1)]
def generator():
    yield 1
    yield bytes(100_003)
def deep(n):
    if n:
        return deep(n - 1)
    keep.append(bytes(100_004))
def key(x):
    keep.append(bytes(100_005))
    return x
def worker():
    keep.append(bytes(100_006))
def fails():
    try:
        raise ValueError
    except ValueError as error:
        keep.append((error.__traceback__.tb_lineno, bytes(100_007)))
async def waits():
    keep.append(bytes(100_008))
def évaluée():
    keep.append(bytes(100_009))
def main():
    Box().fill()
    keep.extend(generator())
    deep(5)
    sorted([1], key=key)
    thread = threading.Thread(target=worker)
    thread.start()
    thread.join()
    fails()
    try:
        waits().send(None)
    except StopIteration:
        pass
    évaluée()
    keep.append((lambda: bytes(100_010))())

main()
"""
WANTED = {
    100_001: [("Box.fill", 5), ("main", 30), ("<module>", 45)],
    100_003: [("generator", 10), ("main", 31), ("<module>", 45)],
    100_004: [("deep", 14), *[("deep", 13)] * 5, ("main", 32), ("<module>", 45)],
    100_005: [("key", 16), ("main", 33), ("<module>", 45)],
    100_006: [("worker", 19)],
    100_007: [("fails", 24), ("main", 37), ("<module>", 45)],
    100_008: [("waits", 26), ("main", 39), ("<module>", 45)],
    100_009: [("évaluée", 28), ("main", 42), ("<module>", 45)],
    100_010: [("main.<locals>.<lambda>", 43), ("main", 43), ("<module>", 45)],
}

Profiled = Callable[..., Rows]


def interpreter(version: str) -> str | None:
    """A CPython of that version, as the system, or else pyenv, has it."""
    found = [shutil.which(f"python{version}", path="/usr/bin:/usr/local/bin")]
    found += map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
    return next((one for one in found if one), None)


@pytest.fixture(params=VERSIONS)
def python(request: pytest.FixtureRequest) -> str:
    """An interpreter of each version."""
    found = interpreter(request.param)
    return found or pytest.skip(f"python{request.param} is not installed")


@pytest.fixture
def profiled(sheaf: Run, library: str, tmp_path: Path) -> Profiled:
    """A function that runs a program with every allocation of 4 KiB and more sampled, and returns the rows of its profile."""

    def run(python: str, program: str, rate: str = "4K", **env: str) -> Rows:
        path = tmp_path / "program.py"
        path.write_text(program, encoding="utf-8")
        rows: Rows = profile(sheaf, library, [python, "-W", "ignore", str(path)], tmp_path, rate, PYTHONUTF8="1", **env)["rows"]
        return rows

    return run


def test_functions_and_lines(profiled: Profiled, python: str) -> None:
    rows = profiled(python, BEGIN + PROGRAM + END)
    stacks = {tuple(of_program(row, "program.py")): round(row["values"][1]) for row in rows}
    for size, wanted in WANTED.items():
        assert any(abs(value - size) < 200 for stack, value in stacks.items() if list(stack) == wanted), (size, stacks)
    box = {stack[0] for stack in stacks if ("Box.fill", 6) in stack or ("Box.fill", 7) in stack}
    assert box  # the comprehension, which later versions run in place
    threads = [[frame["function"] for frame in row["frames"]] for row in rows if ("worker", 19) in of_program(row, "program.py")]
    assert all("Thread.run" in functions for functions in threads)


def test_no_frames_of_the_interpreter_between_functions(profiled: Profiled, python: str) -> None:
    rows = profiled(python, BEGIN + PROGRAM + END)
    for row in rows:
        functions = [frame["function"] for frame in row["frames"]]
        if ("worker", 19) in of_program(row, "program.py") or ("deep", 14) in of_program(row, "program.py"):
            first = min(functions.index(name) for name in ("worker", "deep") if name in functions)
            assert not [name for name in functions[first:] if name.startswith(("_PyEval", "PyEval", "_PyFunction"))]


def test_code_objects_take_the_place_of_others(profiled: Profiled, python: str) -> None:
    """Functions are defined, run once and deleted, so that the next one has the same addresses."""
    program = """
def define(i):
    space = {}
    exec(compile("\\n" * (i % 9) + f"def made_{i:03}():\\n    return bytes({50_000 + 1000 * i})", "made.py", "exec"), space)
    return space
for i in range(200):
    keep.append(define(i)[f"made_{i:03}"]())
"""
    check_made(profiled(python, BEGIN + program + END), "made.py")


CHURN = """
import gc, signal
def churn(seed, rounds):
    for i in range(rounds):
        space, name = {}, f"fn_{seed}_{i}"
        text = (f"def {name}(n):\\n  x = [bytes(2000) for k in range(3)]\\n  return x if n < 2 else {name}(n - 1)\\n"
                f"def gen_{i}():\\n  yield {name}(5)\\n")
        exec(compile("\\n" * (i % 50) + text, f"{seed}_{i % 7}.py", "exec"), space)
        try:
            keep.append(space[name](4)); list(space[f"gen_{i}"]())
            if i % 5 == 0:
                raise ValueError(name)
        except ValueError as error:
            keep.append(error.__traceback__.tb_lineno)
        if i % 50 == 0:
            keep.clear(); gc.collect()
signal.signal(signal.SIGALRM, lambda *_: keep.append(bytes(10000)))
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
threads = [threading.Thread(target=churn, args=(j, 60)) for j in range(4)]
for thread in threads:
    thread.start()
for _ in range(3):
    if not (child := os.fork()):
        signal.setitimer(signal.ITIMER_REAL, 0)
        churn("child", 10)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
churn("main", 60)
for thread in threads:
    thread.join()
signal.setitimer(signal.ITIMER_REAL, 0)
"""


@pytest.mark.parametrize("allocator", ["malloc", "pymalloc"])
def test_code_that_churns(profiled: Profiled, python: str, allocator: str) -> None:
    """Every allocation is sampled, also while the interpreter makes code, with threads, signals and forks."""
    rows = profiled(python, BEGIN + CHURN + END, rate="1", PYTHONMALLOC=allocator)
    assert rows
    if allocator == "pymalloc":  # otherwise the table of stacks is full when the interpreter has started
        assert any("churn" in [name for name, _ in of_program(row, "program.py")] for row in rows)


def test_a_name_that_is_not_known() -> None:
    area = Area([], names=[("work", "/srv/app.py")])
    known, lost = area.address(0, 7), 1 << 63 | 12
    with Symbolizer([], names={0: Name("", ""), 16: Name("work", "/srv/app.py")}) as symbolizer:
        found = symbolizer.frames(known)[0]
        assert (found.function, found.file, found.line) == ("work", "/srv/app.py", 7)
        assert symbolizer.frames(lost)[0].function == "(function without a name)"
        assert symbolizer.frames(1 << 63 | 5 << 24)[0].function == "(function without a name)"
    assert named(known) == (16, 7)


def test_frames_without_names_between_functions() -> None:
    """Functions without names are left out in CPython, beside functions of the program, and nowhere else."""
    interpreter, other = Module(0x1000, 0x2000, 0, b"", "/usr/bin/python3.11"), Module(0x3000, 0x4000, 0, b"", "/lib/other.so")
    one = Area([], names=[("work", "/srv/app.py")]).address(0, 7)
    with Symbolizer([interpreter, other], names={16: Name("work", "/srv/app.py")}) as symbolizer:
        assert symbolizer.shown([0x1010, one, 0x1020, 0x1030, 0x3010, 0x1040]) == [one, 0x3010, 0x1040]
        assert symbolizer.shown([0x1010, 0x3010, 0x1020]) == [0x1010, 0x3010, 0x1020]
        assert not [note for note in symbolizer.notes if "Python functions" in note]
