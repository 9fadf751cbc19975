"""`sheaf run` is transparent to the program and refuses what it cannot do."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, Run
from sheaf.commands.run import _why_no_record


def test_output_and_status_are_the_programs(sheaf: Run, library: str) -> None:
    done = sheaf("run", "sh", "-c", "cat; echo err >&2; exit 7", input="in")
    assert (done.stdout, done.stderr, done.returncode) == ("in", "err\n", 7)


@pytest.mark.parametrize("more", [[], ["--stats"]])
def test_death_by_signal_is_passed_on(sheaf: Run, library: str, more: list[str]) -> None:
    assert sheaf("run", *more, "sh", "-c", "kill -TERM $$").returncode == -signal.SIGTERM
    assert sheaf("run", *more, "sh", "-c", "kill -KILL $$").returncode == -signal.SIGKILL


def test_statuses_of_env(sheaf: Run, library: str, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    assert sheaf("run", "no-such-program").returncode == 127
    assert sheaf("run", str(plain)).returncode == 126
    assert sheaf("run", "--option", "nosuch=1", "true").returncode == 125
    assert sheaf("run", "true", env={"SHEAF_LIBRARY": str(tmp_path / "none")}).returncode == 125


def test_stats_at_the_end(sheaf: Run, library: str) -> None:
    done = sheaf("run", "--stats", sys.executable, "-c", "print(len([str(i) for i in range(50000)]))")
    assert done.stdout == "50000\n"
    assert "malloc-" in done.stderr
    assert max(map(len, done.stderr.splitlines())) <= 80
    done = sheaf("run", "--stats=json", "ls", "/")
    rows = json.loads(done.stderr)["rows"]
    assert rows
    assert all(row["in_use"] >= 0 and row["in_sheaves"] >= 0 for row in rows)


def test_record_of_program_and_children(sheaf: Run, library: str, tmp_path: Path) -> None:
    assert sheaf("run", "--record", str(tmp_path), "sh", "-c", "ls / >/dev/null; ls / >/dev/null").returncode == 0
    names = sorted(path.name.split(".")[0] for path in tmp_path.glob("*.sheaf"))
    assert names.count("ls") == 2
    assert "sh" in names


def test_record_survives_sigkill_and_is_read_live(sheaf: Run, library: str, tmp_path: Path) -> None:
    code = "x = [bytes(5000) for _ in range(2000)]; print('ready', flush=True); import time; time.sleep(60)"
    env = {**os.environ, "PYTHONPATH": str(ROOT / "cli")}
    with subprocess.Popen(
        [sys.executable, "-m", "sheaf", "run", "--record", str(tmp_path), sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        env=env,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        live = json.loads(sheaf("stats", "--format", "json", str(process.pid)).stdout)
        process.kill()
        process.wait()
    dead = json.loads(sheaf("stats", "--format", "json", str(tmp_path)).stdout)
    assert live["processes"][0]["state"] == "running"
    assert dead["processes"][0]["state"] == "gone"
    for out in (live, dead):
        big = [row for row in out["rows"] if row["object_size_bytes"] == 5120]
        assert big[0]["in_use"] >= 2000 - 2 * 1024
        assert big[0]["in_use"] + big[0]["in_sheaves"] + big[0]["in_barns"] >= 2000


def test_options(sheaf: Run, library: str) -> None:
    done = sheaf("run", "--option", "decay=5", "--option", "barn=64K", "sh", "-c", "env | grep ^SHEAF_ | sort")
    assert "SHEAF_BARN=64K" in done.stdout
    assert "SHEAF_DECAY=5" in done.stdout
    for bad in ("decya=5", "decay", "decay=x", "decay=-1", "rseq=maybe", "helper=2"):
        done = sheaf("run", "--option", bad, "true")
        assert done.returncode == 125
        assert len(done.stderr.splitlines()) == 1
    assert "did you mean decay" in sheaf("run", "--option", "decya=5", "true").stderr


@pytest.mark.parametrize("option", ["--record", "--debug"])
def test_an_empty_value_is_an_error(sheaf: Run, library: str, option: str) -> None:
    """An unset shell variable gives an empty value."""
    done = sheaf("run", option, "", "true")
    assert (done.returncode, len(done.stderr.splitlines())) == (125, 1)
    assert done.stderr.startswith(f"sheaf: {option}")


def test_a_format_separated_from_stats_is_explained(sheaf: Run, library: str) -> None:
    done = sheaf("run", "--stats", "json", "true")
    assert done.returncode == 127
    assert done.stderr == "sheaf: json: no such program; to choose the format, write --stats=json\n"


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_programs_that_cannot_be_preloaded(sheaf: Run, library: str, tmp_path: Path) -> None:
    source = tmp_path / "p.c"
    source.write_text("int main(void) { return 3; }")
    static = tmp_path / "static"
    subprocess.run(["gcc", "-static", source, "-o", static], check=True)
    done = sheaf("run", str(static))
    assert done.returncode == 125
    assert "statically linked" in done.stderr
    assert sheaf("run", "--force", str(static)).returncode == 3
    asan = tmp_path / "asan"
    if subprocess.run(["gcc", "-fsanitize=address", source, "-o", asan], capture_output=True).returncode == 0:
        assert "sanitizer" in sheaf("run", str(asan)).stderr
    elf32 = tmp_path / "elf32"
    raw = bytearray(static.read_bytes())
    raw[4] = 1
    elf32.write_bytes(raw)
    elf32.chmod(0o755)
    assert "32-bit" in sheaf("run", str(elf32)).stderr


def test_stats_after_options_with_values(sheaf: Run, library: str, tmp_path: Path) -> None:
    for i in range(2):
        done = sheaf("run", "--option", "decay=5", "--record", str(tmp_path), "--stats", "echo", str(i))
        assert done.stdout == f"{i}\n"
        assert "sheaf: 1 process: echo" in done.stderr


def test_a_closed_pipe_ends_the_program(sheaf: Run, library: str) -> None:
    pipe = f"{sys.executable} -m sheaf run sh -c 'yes; echo $? >&2' | head -n 1"
    done = subprocess.run(
        ["bash", "-c", pipe], capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": str(ROOT / "cli")}
    )
    assert done.stderr == "141\n"


def test_a_script_is_not_given_to_the_loader(sheaf: Run, library: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\nexit 4\n")
    script.chmod(0o755)
    assert sheaf("run", str(script)).returncode == 4
    assert sheaf("run", "--no-children", str(script)).returncode == 125


def test_without_stats_the_command_becomes_the_program(library: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "sheaf", "run", "sh", "-c", "echo $$"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "cli")},
    ) as process:
        assert process.stdout
        assert int(process.stdout.read()) == process.pid


def test_a_closed_standard_error_does_not_change_the_status(library: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "cli")}
    command = [sys.executable, "-m", "sheaf", "run", "--stats", "sh", "-c", "exit 6"]
    assert subprocess.run(command, stderr=writer, env=environment).returncode == 6
    os.close(writer)
    closed = subprocess.run(["sh", "-c", '"$@" >&- 2>&-', "sh", *command], capture_output=True, env=environment)
    assert (closed.returncode, closed.stdout, closed.stderr) == (6, b"", b"")


def test_no_traces_are_left(sheaf: Run, library: str, tmp_path: Path) -> None:
    assert sheaf("run", "--stats", "true", env={"TMPDIR": str(tmp_path)}).returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_a_missing_record_is_explained(sheaf: Run, library: str, tmp_path: Path) -> None:
    assert _why_no_record(str(tmp_path)).startswith("no process wrote a record: ")
    done = sheaf("run", "--stats", "true", env={"SHEAF_RECORD": "/proc"})
    assert done.returncode == 0
    assert re.match(
        r"sheaf: no counters: no record can be written to /proc: [\w ]+; name a writable directory with --record$",
        done.stderr.splitlines()[-1],
    )


@pytest.mark.skipif(not shutil.which("gcc"), reason="gcc is missing")
@pytest.mark.parametrize("option", ["--stats", "--profile", "--debug=FZ", "--record=records", None])
def test_a_program_with_a_malloc_of_its_own(sheaf: Run, library: str, tmp_path: Path, option: str | None) -> None:
    """Nothing is measured, and one line says why."""
    source = """#include <stddef.h>
        static char heap[1 << 20]; static size_t used;
        void *malloc(size_t n) { used += (n + 15) & ~15ul; return heap + used - ((n + 15) & ~15ul); }
        void free(void *p) { (void)p; }
        int main(void) { return malloc(1) ? 7 : 8; }"""
    own = tmp_path / "own"
    subprocess.run(["gcc", "-x", "c", "-", "-o", own], input=source, text=True, check=True)
    (tmp_path / "records").mkdir()
    done = sheaf("run", *([option] if option else []), str(own), cwd=tmp_path)
    line = (
        f"sheaf: {own}: it defines malloc and free itself, so Sheaf steps aside and measures nothing of it; "
        "build it without its allocator\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, "", line if option else "")


def test_only_the_last_directory_of_a_record_is_created(sheaf: Run, library: str, tmp_path: Path) -> None:
    """And not without a word, because the name may be mistyped."""
    done = sheaf("run", "--record", "typo/a", "true", cwd=tmp_path)
    assert done.returncode == 125
    assert done.stderr == f"sheaf: --record typo/a: there is no directory {tmp_path}/typo; create it, or check the name\n"
    assert list(tmp_path.iterdir()) == []
    for said in ("sheaf: --record new/: created the directory\n", ""):
        done = sheaf("run", "--record", "new/", "true", cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, said)


def test_a_record_directory_that_cannot_be_made(sheaf: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = sheaf("run", "--record", str(tmp_path / "file" / "below"), "true")
    assert done.returncode == 125
    assert done.stderr == f"sheaf: --record {tmp_path}/file/below: Not a directory; name a writable directory\n"


def test_stats_are_one_table_with_allocations_frees_and_the_peak(sheaf: Run, library: str) -> None:
    code = (
        "import ctypes; c = ctypes.CDLL(None); c.malloc.restype = ctypes.c_void_p; c.free.argtypes = [ctypes.c_void_p]\n"
        "for _ in range(3): c.free(c.malloc(1 << 20))\nblocks = [c.malloc(30000) for _ in range(100)]"
    )
    lines = sheaf("run", "--stats", "--", sys.executable, "-c", code).stderr.splitlines()
    assert re.fullmatch(r"sheaf: 1 process: python\S* \(\d+\); [\w ]+; peak [\d.]+ MiB", lines[0])
    assert lines[1].split() == ["NAME", "SIZE", "ALLOCS", "FREES", "IN", "USE", "SLABS", "MEMORY", "FAST"]
    rows = {line.split()[0]: line.split() for line in lines[2:]}
    assert all(rows)  # no second table
    block, total = rows["malloc-32768" if "malloc-30720" not in rows else "malloc-30720"], rows["total"]
    assert int(block[2]) - int(block[3]) == int(block[4]) >= 100
    large = next(line for line in lines if line.startswith("large blocks")).split()
    assert int(large[3]) >= 3 <= int(large[4])
    assert total[-1].endswith("%")
    assert lines[-1].startswith("total ")
    several = sheaf("run", "--stats", "sh", "-c", "ls / >/dev/null; ls / >/dev/null").stderr.splitlines()[0]
    assert "highest peak" in several


def test_stats_go_to_a_file(sheaf: Run, library: str, tmp_path: Path) -> None:
    file = tmp_path / "stats"
    done = sheaf("run", "--stats=json", "--stats-file", str(file), "sh", "-c", "ls / >/dev/null; echo err >&2; exit 3")
    assert (done.stdout, done.stderr, done.returncode) == ("", "err\n", 3)
    assert json.loads(file.read_text())["rows"]
    done = sheaf("run", "--stats-file", str(file), "ls", "-d", "/")
    assert (done.stdout, done.stderr, done.returncode) == ("/\n", "", 0)
    assert file.read_text().startswith("sheaf: 1 process: ls ")
    assert sheaf("run", f"--stats-file={file}", "--stats", "ls", "-d", "/").stderr == ""


def test_a_file_for_stats_that_cannot_be_written(sheaf: Run, library: str, tmp_path: Path) -> None:
    for name, why in ((str(tmp_path), "Is a directory"), ("", "No such file or directory")):
        done = sheaf("run", "--stats-file", name, "echo", "not run")
        said = f"sheaf: --stats-file {name}: {why}; name a file that can be written\n"
        assert (done.stdout, done.stderr, done.returncode) == ("", said, 125)
    if os.access("/dev/full", os.W_OK):
        done = sheaf("run", "--stats-file", "/dev/full", "sh", "-c", "ls / >/dev/null; exit 4")
        said = "sheaf: --stats-file /dev/full: No space left on device; the counters are not written\n"
        assert (done.stderr, done.returncode) == (said, 4)


def test_a_narrow_terminal_is_respected(sheaf: Run, library: str) -> None:
    for columns in (40, 60, 80, 120):
        lines = sheaf("run", "--stats", "ls", "-d", "/", env={"COLUMNS": str(columns)}).stderr.splitlines()[1:]
        assert max(map(len, lines)) <= columns
