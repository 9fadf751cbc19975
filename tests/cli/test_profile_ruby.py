"""Functions of Ruby programs in profiles: their names, files and lines, and interpreters that change what is read."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Run
from scripts import Rows, check_made, of_program, profile
from sheaf.commands.profile.area import Module, Name
from sheaf.commands.profile.symbols import Symbolizer

BEGIN = "KEEP = []\n"
END = "\n$stdout.flush\nProcess.exit!(0)\n"  # at once, so that everything lives
# Each function keeps one block that is always sampled. The first line of a program is 2.
PROGRAM = (
    """\
class Box
  def fill
    KEEP << "x" * 100_001
    [1].each do |x|
      KEEP << "x" * 100_002
    end
  end
end
def deep(n)
  return deep(n - 1) if n > 0
  KEEP << "x" * 100_004
end
def fails
  raise ArgumentError
rescue ArgumentError
  KEEP << "x" * 100_007
ensure
  KEEP << "x" * 100_008
end
def évaluée
  KEEP << "x" * 100_009
end
Box.define_method(:defined) { KEEP << "x" * 100_011 }
def long(n)
"""
    + "".join(f"  n += {i} if n == {i + 1}\n" for i in range(200))
    + """\
  KEEP << "x" * 100_012
end
def main
  Box.new.fill
  deep(5)
  [3].sort_by { |x| KEEP << "x" * 100_005; x }
  Thread.new { KEEP << "x" * 100_006 }.join
  fails
  évaluée
  Box.new.defined
  long(-1)
  Fiber.new { KEEP << "x" * 100_013 }.resume
  KEEP << (lambda { "x" * 100_010 }).call
end

main
"""
)
MAIN = ("main", 229), ("<main>", 241)
WANTED = {
    100_001: [("fill", 4), *MAIN],
    100_002: [("block in fill", 6), ("fill", 5), *MAIN],
    100_004: [("deep", 12), *[("deep", 11)] * 5, ("main", 230), ("<main>", 241)],
    100_005: [("block in main", 231), ("main", 231), ("<main>", 241)],
    100_006: [("block in main", 232)],
    100_007: [("rescue in fails", 17), ("fails", 16), ("main", 233), ("<main>", 241)],
    100_008: [("fails", 19), ("main", 233), ("<main>", 241)],
    100_009: [("évaluée", 22), ("main", 234), ("<main>", 241)],
    100_010: [("block in main", 238), ("main", 238), ("<main>", 241)],
    100_011: [("block in <main>", 24), ("main", 235), ("<main>", 241)],
    100_012: [("long", 226), ("main", 236), ("<main>", 241)],
    100_013: [("block in main", 237)],
}

Profiled = Callable[..., Rows]


@pytest.fixture
def profiled(sheaf: Run, library: str, tmp_path: Path) -> Profiled:
    """A function that runs a program with every allocation of 4 KiB and more sampled, and returns the rows of its profile."""
    ruby = shutil.which("ruby", path="/usr/bin:/usr/local/bin") or pytest.skip("ruby is not installed")

    def run(program: str, rate: str = "4K", *options: str) -> Rows:
        path = tmp_path / "program.rb"
        path.write_text(program, encoding="utf-8")
        command = [ruby, "-W0", "-Ku", *options, str(path)]
        rows: Rows = profile(sheaf, library, command, tmp_path, rate, LC_ALL="C.UTF-8")["rows"]
        return rows

    return run


def test_functions_and_lines(profiled: Profiled) -> None:
    rows = profiled(BEGIN + PROGRAM + END)
    found = {round(row["values"][1]): of_program(row, "program.rb") for row in rows if of_program(row, "program.rb")}
    assert {size: found.get(size + 1) for size in WANTED} == WANTED  # a byte more, for the zero


def test_no_frames_of_the_interpreter_between_functions(profiled: Profiled) -> None:
    for row in profiled(BEGIN + PROGRAM + END):
        functions = [frame["function"] for frame in row["frames"]]
        if ("deep", 12) in of_program(row, "program.rb"):
            first, last = functions.index("deep"), functions.index("<main>")
            assert functions[first : last + 1] == ["deep"] * 6 + ["main", "<main>"]


def test_sequences_take_the_place_of_others(profiled: Profiled) -> None:
    """Functions are defined, run once and removed, so that the next one has the same addresses, also after compaction."""
    program = """
GC.auto_compact = true if GC.respond_to?(:auto_compact=)
200.times do |i|
  name = format("made_%03d", i)
  eval("\\n" * (i % 9) + "def #{name}\\n  'x' * #{50_000 + 1000 * i}\\nend", binding, "made.rb", 1)
  KEEP << send(name)
  Object.send(:remove_method, name)
  GC.start if i % 7 == 0
  GC.compact if i % 50 == 0
end
"""
    check_made(profiled(BEGIN + program + END), "made.rb")


CHURN = """
def churn(seed, rounds)
  rounds.times do |i|
    name = "fn_#{seed}_#{i}"
    text = "def #{name}(n)\\n  x = (0..3).map { 'x' * 2000 }\\n  n < 2 ? x : #{name}(n - 1)\\nend\\n"
    eval("\\n" * (i % 50) + text, TOPLEVEL_BINDING, "#{seed}_#{i % 7}.rb", 1)
    begin
      KEEP << send(name, 4)
      Fiber.new { KEEP << send(name, 2) }.resume
      raise ArgumentError, name if i % 5 == 0
    rescue ArgumentError => error
      KEEP << error.backtrace
    end
    Object.send(:remove_method, name)
    (KEEP.clear; GC.start) if i % 50 == 0
    GC.compact if i % 60 == 30
  end
end
Signal.trap(:USR1) { KEEP << "x" * 10_000 }
threads = (0...4).map { |j| Thread.new { churn(j, 60) } }
beat = Thread.new { 50.times { Process.kill(:USR1, Process.pid); sleep 0.001 } }
3.times do
  child = fork do
    churn("child", 10)
    Process.exit!(0)
  end
  Process.wait(child)
  abort unless $?.success?
end
churn("main", 60)
[beat, *threads].each(&:join)
"""


@pytest.mark.parametrize("rate", ["1", "4K"])
def test_code_that_churns(profiled: Profiled, rate: str) -> None:
    """Allocations are sampled, also while the interpreter makes code and moves objects, with threads, signals and forks."""
    rows = profiled(BEGIN + CHURN + END, rate, "--disable-gems")
    assert rows
    if rate != "1":  # otherwise the table of stacks is full when the interpreter has started
        assert any("churn" in [name for name, _ in of_program(row, "program.rb")] for row in rows)


def test_frames_without_names_between_functions() -> None:
    """Functions of Ruby without names are left out beside functions of the program, and nowhere else."""
    one = 1 << 63 | 2 << 24 | 7
    interpreter, other = Module(0x1000, 0x2000, 0, b"", "/usr/lib/libruby-3.1.so.3.1"), Module(0x3000, 0x4000, 0, b"", "/o.so")
    with Symbolizer([interpreter, other], names={16: Name("work", "/srv/app.rb")}) as symbolizer:
        assert symbolizer.shown([0x1010, one, 0x1020, 0x1030, 0x3010, 0x1040]) == [one, 0x3010, 0x1040]
        assert not [note for note in symbolizer.notes if "Ruby functions" in note]
