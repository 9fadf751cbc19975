"""`sheaf profile`, `sheaf leaks` and `sheaf run --profile`, on processes that behave like ones on Sheaf."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from areas import SIZE, START_NS, Area, One, sums
from conftest import ROOT, Run, write_record
from sheaf.commands.profile import at_exit, pprof
from sheaf.commands.profile.area import read_area
from sheaf.records import layout
from sheaf.system import places
from terminal import Terminal

A, B = (0x1001, 0x2001), (0x3001,)
OLD = [One(A, 1 << 20, time_ms=10), One(B, 1 << 20, time_ms=10)]
NEW = [*OLD, *(One(A, 1 << 20, time_ms=55_000 + i) for i in range(5))]


class Sampled:
    """A running process with a record; `say` makes it write its next area."""

    def __init__(self, process: subprocess.Popen[str], path: Path) -> None:
        self.process, self.path = process, path
        assert process.stdin
        assert process.stdout
        self._input, self._output = process.stdin, process.stdout

    def say(self) -> None:
        self._input.write("next\n")
        self._input.flush()
        assert self.line() == "written"

    def line(self) -> str:
        return self._output.readline().strip()


@contextmanager
def sampled(
    directory: Path, areas: list[Area], begun: Area | None = None, refusal: int = 0, name: str = "victim"
) -> Iterator[Sampled]:
    """Start a process. `begun` is the area that it has from the start; sampling is off without one."""
    files = []
    for i, area in enumerate(areas):
        files.append(directory / f"area{i}")
        files[-1].write_bytes(area.pack())
    path = directory / f"{name}.sheaf"
    # It knows its number only when it runs, and so it waits for a line before it maps the record.
    process = subprocess.Popen(
        [name, str(ROOT / "tests/cli/sampled.py"), str(path), *map(str, files)],
        executable=sys.executable,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    write_record(path, {}, pid=process.pid, ended=False, profile=begun.pack() if begun else bytes(SIZE), profile_size=SIZE)
    reader = layout.Reader(path)
    reader.file.close()
    one = Sampled(process, path)
    assert process.stdin
    process.stdin.write(f"{reader.optional('control_offset')} {reader.optional('profile_offset')} {refusal}\n")
    process.stdin.flush()
    try:
        assert one.line() == "ready"
        yield one
    finally:
        process.kill()
        process.communicate()


def test_a_process_is_sampled_for_a_while(sheaf: Run, tmp_path: Path) -> None:
    with sampled(tmp_path, [Area(OLD)]) as one:
        done = sheaf("profile", str(one.process.pid), "--seconds", "0.3", "--rate", "64K")
        assert done.returncode == 0, done.stderr
        assert [one.line(), one.line()] == ["rate 65536", "rate 0"]
        assert "only allocations since then are known" in " ".join(done.stdout.split())
        assert "0x2001" in done.stdout
        assert not read_area(one.path).header.on


def test_one_that_is_sampled_already_is_shown_at_once(sheaf: Run, tmp_path: Path) -> None:
    with sampled(tmp_path, [], Area(OLD, on=1)) as one:
        done = sheaf("profile", str(one.process.pid), "--rate", "64K", "--format", "json")
        made = json.loads(done.stdout)
        assert made["view"] == "live"
        assert made["notes"][0] == "The process was sampled already, every 512 KiB; --rate has no effect."
        assert sum(row["values"][1] for row in made["rows"]) == pytest.approx(sums(OLD)[1])
        assert read_area(one.path).header.on


def test_seconds_show_differences(tmp_path: Path) -> None:
    """The second area is written while the command waits: it opens its output before it takes the first snapshot."""
    with sampled(tmp_path, [Area(NEW, on=1)], Area(OLD, on=1)) as one:
        command = [sys.executable, "-m", "sheaf", "profile", str(one.process.pid), "--seconds", "600"]
        command += ["--output", str(tmp_path / "g.json")]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "cli")}
        with Terminal(command, environment) as terminal:
            terminal.expect_part("sampling")  # the progress bar: the first snapshot has been taken
            one.say()
            terminal.type("\x03")
            assert terminal.end() == 0
        made = json.loads((tmp_path / "g.json").read_text())
        assert made["view"] == "growth"
        assert len(made["rows"]) == 1
        assert made["rows"][0]["values"][1] == pytest.approx(sums(NEW[2:])[1])
        assert any(note.startswith("Stopped after") for note in made["notes"])
        assert read_area(one.path).header.on


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_sampling_is_switched_off_by_signals(tmp_path: Path, number: int) -> None:
    with sampled(tmp_path, [Area(OLD)]) as one:
        command = [sys.executable, "-m", "sheaf", "profile", str(one.process.pid), "--seconds", "600"]
        process = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": str(ROOT / "cli")},
            stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # nohup, for example, ignores SIGHUP
        )
        assert one.line() == "rate 524288"
        process.send_signal(number)
        assert one.line() == "rate 0"
        process.communicate()
        assert process.returncode == -number


def test_a_process_that_ends_meanwhile(tmp_path: Path) -> None:
    with sampled(tmp_path, [Area(OLD)]) as one:
        command = [sys.executable, "-m", "sheaf", "profile", str(one.process.pid), "--seconds", "600", "--format", "json"]
        process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT / "cli")}, stdout=subprocess.PIPE)
        assert one.line() == "rate 524288"
        one.process.kill()
        one.process.wait()
        out, _ = process.communicate(timeout=60)
        made = json.loads(out)
        assert process.returncode == 0
        assert any(note.startswith("Stopped after") for note in made["notes"])


def test_a_refusal(sheaf: Run, tmp_path: Path) -> None:
    with sampled(tmp_path, [Area(OLD)], refusal=1) as one:
        done = sheaf("profile", str(one.process.pid))
        assert done.returncode == 1
        pid = one.process.pid
        assert done.stderr == f"sheaf: victim ({pid}): refuses to sample: all of its caches are debugged or hardened\n"


def test_a_record_of_an_ended_process(sheaf: Run, tmp_path: Path) -> None:
    path = Area(OLD).write(tmp_path / "p.1.sheaf")
    done = sheaf("profile", str(path))
    assert done.returncode == 0
    assert done.stdout.startswith("p (99999999): live bytes: ")
    wrong = sheaf("profile", str(path), "--seconds", "3")
    assert (wrong.returncode, wrong.stderr) == (2, f"sheaf: {path}: the process has ended; leave --seconds out\n")
    wrong = sheaf("profile", str(path), "--view", "growth")
    assert (wrong.returncode, wrong.stderr) == (
        1,
        "sheaf: --view growth: needs a process that runs; name its PID, with --seconds N\n",
    )


@pytest.mark.parametrize(
    "suffix, begins",
    [
        (".pb.gz", b"\x1f\x8b"),
        (".txt", b"0x2001;0x1001 "),
        (".speedscope.json", b'{"$schema"'),
        (".json", b"{"),
        (".html", b"<!DOCTYPE html>"),
    ],
)
def test_output(sheaf: Run, tmp_path: Path, suffix: str, begins: bytes) -> None:
    file = tmp_path / f"heap{suffix}"
    file.write_bytes(b"old" * 9_000_000)
    done = sheaf("profile", str(Area(NEW).write(tmp_path / "p.1.sheaf")), "--output", str(file))
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("sheaf: p (99999999): live bytes: ")
    assert done.stderr.endswith(f"written to {file}\n")
    assert file.read_bytes().startswith(begins)
    assert not file.read_bytes().endswith(b"old")


def test_unreliable_figures_are_named_in_every_format(sheaf: Run, tmp_path: Path) -> None:
    path = str(Area([*OLD, One((5,), 1000)]).write(tmp_path / "p.1.sheaf"))
    for form in ("table", "json", "speedscope", "collapsed", "html"):
        done = sheaf("profile", path, "--format", form, "--output", str(tmp_path / "out"))
        assert done.returncode == 0, done.stderr
        assert "unreliable" in (done.stderr if form == "collapsed" else (tmp_path / "out").read_text()), form
    message = pprof.message()()
    assert sheaf("profile", path, "--output", str(tmp_path / "out.pb.gz")).returncode == 0
    message.ParseFromString(gzip.decompress((tmp_path / "out.pb.gz").read_bytes()))
    texts = message.string_table
    assert any("are unreliable" in texts[comment] for comment in message.comment)
    labels = [[(texts[label.key], texts[label.str]) for label in sample.label] for sample in message.sample]
    assert sorted(labels) == [[], [], [("estimate", "unreliable")]]
    leaks = sheaf("leaks", path, env={"COLUMNS": "200"})
    assert "unreliable: 0x5" in leaks.stdout


@pytest.mark.parametrize(
    "words, message",
    [
        (["--output", "heap.xyz"], "--output heap.xyz: no format has this suffix"),
        (["--output", "/no/such/dir/a.html"], "--output /no/such/dir/a.html: No such file or directory"),
        (["--rate", "fast"], "--rate fast: not a number of bytes"),
        (["--view", "nothing"], "--view: 'nothing' is not one of"),
        (["--seconds", "0"], "--seconds: 0.0 is not in the range"),
    ],
)
def test_wrong_command_lines(sheaf: Run, tmp_path: Path, words: list[str], message: str) -> None:
    done = sheaf("profile", str(Area(OLD).write(tmp_path / "p.1.sheaf")), *words, cwd=tmp_path)
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "heap.xyz").exists()


def test_a_failure_leaves_the_output_alone(sheaf: Run, tmp_path: Path) -> None:
    record = write_record(tmp_path / "p.1.sheaf", {})
    (tmp_path / "kept.html").write_text("precious")
    for name in ("kept.html", "new.html"):
        assert sheaf("profile", str(record), "--output", str(tmp_path / name)).returncode == 1
    assert (tmp_path / "kept.html").read_text() == "precious"
    assert not (tmp_path / "new.html").exists()


def test_names(sheaf: Run, tmp_path: Path) -> None:
    unknown = sheaf("profile", "nosuchprogram")
    assert unknown.returncode == 1
    assert unknown.stderr.startswith("sheaf: nosuchprogram: no process of this name runs on Sheaf; ")
    with sampled(tmp_path, [], Area(OLD, on=1), name="heapvictim") as one:
        assert sheaf("profile", "heapvictim").stdout.startswith(f"heapvictim ({one.process.pid}): live bytes")
        (tmp_path / "heapvictim").write_bytes(b"a program of this name")
        assert sheaf("profile", "heapvictim", cwd=tmp_path).returncode == 0
        (tmp_path / "two").mkdir()
        with sampled(tmp_path / "two", [], Area(OLD, on=1), name="heapvictim") as other:
            several = sheaf("profile", "heapvictim")
            numbers = ", ".join(map(str, sorted((one.process.pid, other.process.pid))))
            assert several.stderr == (
                f"sheaf: heapvictim: 2 processes on Sheaf have this name: {numbers}; give one of these numbers\n"
            )


# ---- leaks ----


def test_leaks_of_a_sampled_process(tmp_path: Path) -> None:
    with sampled(tmp_path, [Area(NEW, on=1)], Area(OLD, on=1, now_ms=50_000)) as one:
        command = [sys.executable, "-m", "sheaf", "leaks", str(one.process.pid), "--seconds", "600", "--older", "10s"]
        with Terminal(command, {**os.environ, "PYTHONPATH": str(ROOT / "cli"), "COLUMNS": "100"}) as terminal:
            terminal.expect_part("sampling")
            one.say()
            terminal.type("\x03")
            terminal.expect("2 of 2 stacks have old live memory")
            terminal.expect("Suspicious: stacks with live samples older than 10s.")
            assert terminal.expect("grows   ").endswith("0x1001 < 0x2001")
            assert terminal.expect("old ").endswith("0x3001")
            assert terminal.end() == 0


def test_leaks_of_one_that_is_not_sampled(sheaf: Run, tmp_path: Path) -> None:
    with sampled(tmp_path, [Area(OLD)]) as one:
        done = sheaf("leaks", str(one.process.pid), "--seconds", "0.2", "--format", "json")
        assert done.returncode == 0, done.stderr
        assert [one.line(), one.line()] == ["rate 524288", "rate 0"]
        made = json.loads(done.stdout)
        assert {row["verdict"] for row in made["rows"]} == {"old"}
        assert "Sampling was switched on by this command: only allocations since then are known." in made["notes"]


def test_leaks_of_a_record(sheaf: Run, tmp_path: Path) -> None:
    path = Area([*OLD, One((5,), 1 << 22, time_ms=59_000)]).write(tmp_path / "p.1.sheaf")
    done = sheaf("leaks", str(path), env={"COLUMNS": "200"})
    assert done.returncode == 0
    assert "older than 30s, ordered by their bytes; growth is not known from" in done.stdout
    assert "0x5" not in done.stdout
    made = json.loads(sheaf("leaks", str(path), "--format", "json").stdout)
    assert (made["time_ns"], made["duration_ms"]) == (START_NS + 60_000_000_000, None)
    wrong = sheaf("leaks", str(path), "--older", "soon")
    assert wrong.stderr.startswith("sheaf: --older soon: not an age")
    assert wrong.returncode == 2


# ---- run ----


def test_run_checks_before_it_starts(sheaf: Run, tmp_path: Path) -> None:
    for words, message in (
        (["--profile=fast"], "--profile=fast: not a number of bytes; give a size such as 512K"),
        (["--profile-output", "a.xyz"], "--profile-output a.xyz: no format has this suffix"),
        (["--profile-output", "/no/such/a.html"], "--profile-output /no/such/a.html: cannot be written"),
    ):
        done = sheaf("run", *words, "--", "touch", "started", cwd=tmp_path)
        assert done.returncode == 125
        assert message in done.stderr
        assert not (tmp_path / "started").exists()


def reported(directory: Path, output: str | None, areas: dict[str, list[One]]) -> str:
    """What `sheaf run --profile` prints if its processes leave records with these areas."""
    made = directory / "made"
    made.mkdir()
    paths = [Area(samples).write(made / f"{name}.sheaf", int(name.split(".")[1])) for name, samples in areas.items()]
    said: list[str] = []
    at_exit.report(paths, output, 80, said.append)
    return "\n".join(said)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_default_name_is_that_of_the_record(here: Path) -> None:
    said = reported(here, None, {"work.71": OLD})
    assert said.startswith("sheaf: work (71): live bytes at their peak, 30.0 s after sampling began: ")
    assert "written to work.71.pb.gz" in said
    assert "0x1001 < 0x2001" in said
    assert (here / "work.71.pb.gz").read_bytes()[:2] == b"\x1f\x8b"


def test_several_processes_have_a_directory(here: Path) -> None:
    said = reported(here, "heap.html", {"work.71": OLD, "work.72.1": NEW, "none.73": []})
    assert {path.name for path in here.iterdir()} == {"made", "heap.profiles"}
    assert {path.name for path in (here / "heap.profiles").iterdir()} == {"work.71.html", "work.72.1.html"}
    assert said.index("work (72)") < said.index("work (71)")  # the largest peak first


def test_many_processes_leave_one_directory_and_few_lines(here: Path) -> None:
    said = reported(here, None, {f"work.{number}": OLD for number in range(71, 102)})
    assert {path.name for path in here.iterdir()} == {"made", "work.71.profiles"}
    assert len(list((here / "work.71.profiles").iterdir())) == 31
    assert said.count("written to work.71.profiles/work.") == 3
    assert said.endswith("\nsheaf: 28 more processes have a profile in work.71.profiles/")
    (here / "a.profiles").write_text("")
    (here / "made").rename(here / "before")
    assert reported(here, "a.txt", {"work.1": OLD, "work.2": OLD}) == (
        "sheaf: a.profiles: File exists; name another file with --profile-output"
    )


def test_nothing_is_written_without_samples(here: Path) -> None:
    said = reported(here, "heap.txt", {"none.73": []})
    assert said == ("sheaf: no profile: no process allocated enough to be sampled; sample more often, as in --profile=16K")
    assert not (here / "heap.txt").exists()


# ---- real programs ----

PROGRAM = """\
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
void *volatile kept;
__attribute__((noinline)) void *store(size_t n) { void *p = memset(malloc(n), 1, n); kept = p; return p; }
__attribute__((noinline)) void pass(size_t n) { void *p = malloc(n); kept = p; free(p); }
int main(int argc, char **argv)
{
    (void)argv;
    for (int i = 0; i < 20000; i++) {
        store(1000);
        pass(3000);
    }
    puts("ready");
    fflush(stdout);
    while (argc > 1) {
        pass(100000);
        usleep(argc > 2 ? 100 : 100000);
    }
    return 0;
}
"""


@pytest.fixture
def program(library: str, tmp_path: Path) -> Path:
    """A program that keeps 20 MB in store() and allocates 60 MB in pass(). Skips the test if the object has no profiles."""
    if b"SHEAFPRO" not in Path(library).read_bytes():
        pytest.skip("the object has no profiles")
    (tmp_path / "keeper.c").write_text(PROGRAM)
    subprocess.run(["cc", "-g", "-O1", "-fno-builtin", "-o", "keeper", "keeper.c"], cwd=tmp_path, check=True)
    return tmp_path / "keeper"


@contextmanager
def started(command: list[str], library: str, records: Path, **more: str) -> Iterator[subprocess.Popen[str]]:
    """A program on Sheaf that has said that it is ready. It is killed at the end, whatever happens."""
    records.mkdir()
    environment = {**os.environ, "LD_PRELOAD": library, "SHEAF_RECORD": str(records), **more}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def total(made: dict[str, Any], column: str, function: str) -> tuple[float, float]:
    """The value and the error of a column in all stacks that contain a function."""
    at = [one["name"] for one in made["columns"]].index(column)
    rows = [row for row in made["rows"] if any(frame["function"] == function for frame in row["frames"])]
    return sum(row["values"][at] for row in rows), sum((row["errors"][at] or 0.0) ** 2 for row in rows) ** 0.5


@pytest.mark.parametrize("more", [[], ["--no-children"]])  # which starts the dynamic linker, with the program as its argument
@pytest.mark.parametrize("name", ["./keeper", "{directory}/keeper"])
def test_run_profiles_a_program(sheaf: Run, program: Path, tmp_path: Path, name: str, more: list[str]) -> None:
    records = tmp_path / "records"
    done = sheaf(
        "run",
        *more,
        "--record",
        str(records),
        "--option",
        "profile_cost=0",
        "--profile=4K",
        "--profile-output",
        "heap.json",
        "--",
        name.format(directory=program.parent),
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "ready\n"), done.stderr
    assert "store < main" in done.stderr
    for view, column, function, truth in (("live", "inuse_space", "store", 20e6), ("allocated", "alloc_space", "pass", 60e6)):
        made = json.loads(sheaf("profile", str(next(records.iterdir())), "--view", view, "--format", "json").stdout)
        value, error = total(made, column, function)
        assert abs(value - truth) < 5 * error < truth / 2  # beyond five errors in one of a million runs
    assert json.loads((tmp_path / "heap.json").read_text())["view"] == "peak"


def test_functions_files_and_lines_of_a_program(sheaf: Run, program: Path, tmp_path: Path) -> None:
    if not places.tool():
        pytest.skip("there is no llvm-symbolizer and no addr2line")
    sheaf("run", "--profile=4K", "--profile-output", "heap.json", "--", str(program), cwd=tmp_path)
    made = json.loads((tmp_path / "heap.json").read_text())
    shown = [frame for row in made["rows"] for frame in row["frames"]]
    frames = {(frame["function"], Path(frame["file"] or "").name, frame["line"]) for frame in shown}
    assert ("store", "keeper.c", 6) in frames
    assert ("main", "keeper.c", 12) in frames


def test_a_killed_program_leaves_its_profile(sheaf: Run, library: str, program: Path, tmp_path: Path) -> None:
    records = tmp_path / "records"
    with started([str(program), "wait"], library, records, SHEAF_PROFILE="4096") as process:
        made = json.loads(sheaf("profile", str(process.pid), "--format", "json").stdout)
    value, error = total(made, "inuse_space", "store")
    assert abs(value - 20e6) < 5 * error
    later = json.loads(sheaf("profile", str(next(records.iterdir())), "--format", "json").stdout)
    assert total(later, "inuse_space", "store") == pytest.approx((value, error))


def test_a_program_that_is_not_sampled_yet(sheaf: Run, library: str, program: Path, tmp_path: Path) -> None:
    """Sampling is switched on and off again, as often as the command is called."""
    records = tmp_path / "records"
    with started([str(program), "work", "fast"], library, records) as process:
        pid, path = str(process.pid), next(records.iterdir())
        for _ in range(2):
            done = sheaf("profile", pid, "--seconds", "1", "--rate", "1K", "--view", "allocated", "--format", "json")
            assert done.returncode == 0, done.stderr
            made = json.loads(done.stdout)
            assert total(made, "alloc_space", "pass")[0] > 0
            assert total(made, "alloc_space", "store")[0] == 0
            assert made["notes"][0].startswith("Sampling was switched on by this command")
            assert not read_area(path).header.on
        done = sheaf("leaks", pid, "--seconds", "0.3")
        assert done.returncode == 0, done.stderr


# ---- start-up ----


def test_run_imports_no_profile_code(tmp_path: Path) -> None:
    code = "import sys, sheaf.commands.run, sheaf.__main__; print([name for name in sys.modules if '.commands.profile' in name])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "cli")}
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    "module", ["sheaf.commands.profile.command", "sheaf.commands.leaks.command", "sheaf.commands.profile.at_exit"]
)
def test_heavy_libraries_are_imported_on_use(module: str) -> None:
    code = f"import sys, {module}; print([name for name in ('google.protobuf',) if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "cli")}
    )
    assert done.stdout == "[]\n"
