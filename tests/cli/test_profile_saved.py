"""Saved profiles of all formats, their differences, and what is shown of them."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import hostile
import pytest
from areas import Area, One, sums
from conftest import Run
from sheaf.commands.profile import chains, fold, saved
from sheaf.commands.profile.chains import Call
from sheaf.errors import SheafError

A, B, C = (0x1001, 0x2001), (0x3001, 0x2001), (0x4001,)
OLD = [One(A, 1 << 20), One(B, 1 << 20), One(C, 1 << 22)]
NEW = [*OLD, One(A, 1 << 20), One(A, 1 << 20), One((0x5001,), 1 << 21)][1:]
FORMATS = [".pb.gz", ".collapsed", ".speedscope.json", ".json"]


@pytest.fixture
def files(sheaf: Run, tmp_path: Path) -> Path:
    """A directory with an old and a new profile in each format."""
    for name, samples in (("old", OLD), ("new", NEW)):
        record = Area(samples).write(tmp_path / f"{name}.1.sheaf")
        for suffix in FORMATS:
            done = sheaf("profile", str(record), "--output", str(tmp_path / f"{name}{suffix}"))
            assert done.returncode == 0, done.stderr
    return tmp_path


@pytest.mark.parametrize("old", FORMATS)
@pytest.mark.parametrize("new", FORMATS)
def test_differences_of_all_formats(files: Path, old: str, new: str) -> None:
    profile, names = saved.difference(str(files / f"old{old}"), str(files / f"new{new}"))
    found = {tuple(frame.function for frame in names.stack(row)): row.values[0] for row in profile.rows}
    assert found == {("0x2001", "0x1001"): 1 << 20, ("0x5001",): 1 << 21}
    assert profile.total()[0] == (1 << 20) + (1 << 21)
    assert (profile.total()[1] is None) == (not old == new == ".json")


def test_the_command_shows_differences(sheaf: Run, files: Path) -> None:
    old, new = str(files / "old.json"), str(files / "new.json")
    text = sheaf("profile", "--diff", old, new, "--tree").stdout
    assert text.startswith("new.json: inuse_space less those of old.json: 3.0M in 2 stacks\n")
    assert "2.0M         66.7% ├ 0x5001" in text
    back = sheaf("profile", "--diff", new, old).stdout
    assert "-2.0M  66.7% 0x5001" in back
    assert "No difference." in sheaf("profile", "--diff", old, old).stdout
    made = json.loads(sheaf("profile", "--diff", old, new, "--format", "json").stdout)
    assert [row["values"] for row in made["rows"]] == [[1 << 21], [1 << 20]]
    counts = sheaf("profile", "--diff", str(files / "old.pb.gz"), str(files / "new.pb.gz"), "--view", "peak")
    assert "peak_space less those of old.pb.gz: 3.0M" in counts.stdout
    for suffix in (*FORMATS, ".html"):
        done = sheaf("profile", "--diff", old, new, "--output", str(files / f"diff{suffix}"))
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "words, message",
    [
        (["--diff", "{}/old.json", "/no/such"], "/no/such: No such file or directory; name a saved profile"),
        (["--diff", "{}/old.json", "{}/old.1.sheaf"], "old.1.sheaf: not a saved profile"),
        (["--diff", "{}/old.json", "{}/new.json", "4711"], "4711: has no meaning with --diff; leave it out"),
        (["--diff", "{}/old.json", "{}/new.json", "--seconds", "3"], "--seconds: has no meaning with --diff; leave it out"),
        (["--diff", "{}/old.json", "{}/new.json", "--view", "age"], "--view age: not a column of saved profiles"),
        (["--diff", "{}/old.json", "{}/new.json", "--view", "peak"], "a saved profile has no peak_space; it has inuse_objects"),
        ([], "missing; name a process or a record"),
        (["{}/old.1.sheaf", "--focus", "("], "--focus (: not a regular expression"),
    ],
)
def test_wrong_command_lines(sheaf: Run, files: Path, words: list[str], message: str) -> None:
    done = sheaf("profile", *(word.format(files) for word in words))
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("suffix", FORMATS)
def test_damaged_files_are_an_error_on_one_line(files: Path, suffix: str) -> None:
    draw, data = random.Random(3), (files / f"new{suffix}").read_bytes()
    packed = suffix == ".pb.gz"
    plain = gzip.decompress(data) if packed else data
    for seed in range(150):
        changed = hostile.changed(plain if seed % 2 else data, draw)
        (files / "hostile").write_bytes(gzip.compress(changed) if packed and seed % 2 else changed)
        with hostile.bounded():
            try:
                saved.difference(str(files / f"old{suffix}"), str(files / "hostile"))
            except SheafError as error:
                assert "\n" not in error.message


# ---- what is shown ----


def test_stacks_are_chosen(sheaf: Run, files: Path) -> None:
    record = str(files / "old.1.sheaf")
    made = json.loads(sheaf("profile", record, "--focus", "0x2001", "--ignore", "^0x3", "--format", "json").stdout)
    assert [[frame["function"] for frame in row["frames"]] for row in made["rows"]] == [["0x1001", "0x2001"]]
    assert made["totals"][1] == pytest.approx(sums(OLD[:1])[1])
    assert "1 of 3 stacks are shown (--focus 0x2001 --ignore ^0x3)." in made["notes"]


def test_a_tree_and_long_stacks(sheaf: Run, files: Path) -> None:
    record = str(files / "old.1.sheaf")
    lines = sheaf("profile", record, "--tree").stdout.splitlines()
    at = next(i for i, line in enumerate(lines) if line.endswith(" all"))
    assert [line.split("% ")[1] for line in lines[at:]] == ["all", "├ 0x4001", "└ 0x2001", "  ├ 0x1001", "  └ 0x3001"]
    assert "and 3 smaller branches" in sheaf("profile", record, "--tree", "--limit", "2").stdout
    long = sheaf("profile", record, "--long", "--limit", "2").stdout
    assert long.endswith("4.0M 66.7%\n    0x4001\n1.0M 16.7%\n    0x1001\n    0x2001\nand 1 smaller stacks\n")
    folded = sheaf("profile", record, "--long", "--fold", "0x?001").stdout
    assert "    0x1001\n    0x2001" in folded  # a stack of wrappers alone is shown whole
    assert "    0x1001\n    0x2001" not in sheaf("profile", record, "--long", "--fold", "0x1*").stdout


@pytest.mark.parametrize(
    "stack, left",
    [
        (["malloc", "zmalloc_usable", "dictAdd", "main"], ["dictAdd", "main"]),
        (["operator new", "std::vector::reserve", "load"], ["load"]),
        (["_PyMem_RawMalloc", "PyObject_Malloc", "PyList_New"], ["PyList_New"]),
        (["g_malloc0", "g_strdup", "open_file", "g_malloc"], ["open_file", "g_malloc"]),
        (["xmalloc", "xstrdup"], ["xmalloc", "xstrdup"]),
        (["mine", "main"], ["main"]),
        ([], []),
    ],
)
def test_wrappers_are_folded(stack: list[str], left: list[str]) -> None:
    assert fold.folded(stack, ("mine*",)) == left


def test_chains_tell_callers_apart() -> None:
    same = [Call("allocate_a_thing_for_somebody"), Call("middle_of_everything_that_is_here"), *(Call(f"c{i}") for i in range(9))]
    by_name = chains.chains([[*same, Call("one")], [*same, Call("other")]], [70, 70])
    assert by_name[0] != by_name[1]
    assert by_name[0].endswith(" < one")
    by_line = chains.chains([[Call("f", ":7"), Call("main")], [Call("f", ":9"), Call("main")]], [40, 40])
    assert by_line == ["f:7 < main", "f:9 < main"]
    for width in range(24, 90):
        assert all(len(text) <= width for text in chains.chains([[*same, Call("one")], [*same, Call("other")]], [width, width]))
    assert chains.chains([same], [60])[0].count(" < ") >= 2  # a long name leaves room for callers
    more = [Call("f"), *(Call(f"caller{i}") for i in range(9))]
    shown = chains.chains([more, [*more[:6], Call("x")]], [40, 40])
    assert len({text.partition("+")[2].partition("<")[2] for text in shown}) == 2
    address = chains.chains([[Call("python3.11+0x1234567"), Call("a" * 30), Call("b" * 30)]], [50])
    assert "1234567 < aaa" in address[0]
