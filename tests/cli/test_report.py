"""`sheaf report` and `sheaf run --debug`, on a program that writes past the end of a block."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, Run

SOURCE = """\
#include <stdlib.h>
void *volatile kept;
static void *give(void) { void *p = malloc(20); kept = p; return p; }
static void harm(char *p) { p[20] = 1; free(p); }
int main(int argc, char **argv) { (void)argv; harm(give()); return argc - 1; }
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("report")
    (directory / "harm.c").write_text(SOURCE)
    flags = ["-g", "-O0", "-fno-builtin", "-fno-inline"]
    subprocess.run(["cc", *flags, "-o", "harm", "harm.c"], cwd=directory, check=True)
    return directory / "harm"


@pytest.mark.usefixtures("library")
def test_a_report_ends_the_program(sheaf: Run, program: Path) -> None:
    done = sheaf("run", "--debug", "FZPU", "--", str(program))
    assert done.returncode == -6
    assert re.match(r"sheaf: overflow: bytes were written past the end of 0x[0-9a-f]+ \(malloc-32\)\n", done.stderr)


@pytest.mark.usefixtures("library")
def test_files_and_lines(sheaf: Run, program: Path, tmp_path: Path) -> None:
    if not shutil.which("addr2line"):
        pytest.skip("there is no addr2line")
    log = tmp_path / "log"
    done = sheaf(
        "run",
        "--debug",
        "FZPU,malloc-32",
        "--option",
        "debug_action=continue",
        "--option",
        f"debug_log={log}",
        "--",
        str(program),
    )
    assert (done.returncode, done.stderr) == (0, "")
    shown = sheaf("report", str(log)).stdout
    allocated, found = shown.split("found by")
    assert re.search(r"harm\.c:3\n", allocated)
    assert re.search(r"harm\.c:4\n", found)
    assert "repaired: the red zones were rewritten" in shown


@pytest.mark.usefixtures("library")
@pytest.mark.skipif(not shutil.which("addr2line"), reason="there is no addr2line")
@pytest.mark.parametrize("action", ["abort", "continue"])
def test_run_adds_files_and_lines_by_itself(sheaf: Run, program: Path, tmp_path: Path, action: str) -> None:
    done = sheaf(
        "run",
        "--debug",
        "FZPU,malloc-32",
        "--option",
        f"debug_action={action}",
        "--",
        str(program),
        env={"TMPDIR": str(tmp_path)},
    )
    assert done.returncode == (0 if action == "continue" else -6)
    allocated, found = done.stderr.split("found by")
    assert re.search(r"harm\.c:3\n", allocated)
    assert re.search(r"harm\.c:4\n", found)
    assert not list(tmp_path.iterdir())


# Writes past the end of a block when it is told to, and waits.
HARM = """
import ctypes, sys
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
for line in sys.stdin:
    block = libc.malloc(20)
    ctypes.memset(block + 20, 0, 4)
    libc.free(block)
    print("done", flush=True)
"""


@pytest.mark.skipif(not shutil.which("addr2line"), reason="there is no addr2line")
def test_reports_are_printed_while_the_program_runs(library: str) -> None:
    command = [
        sys.executable,
        "-m",
        "sheaf",
        "run",
        "--debug",
        "FZU,malloc-32",
        "--option",
        "debug_action=continue",
        "--",
        sys.executable,
        "-c",
        HARM,
    ]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "cli")},
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        for _ in range(2):
            print("", file=process.stdin, flush=True)
            assert process.stdout.readline() == "done\n"
            while "overflow: " not in (line := process.stderr.readline()):
                assert line
        process.stdin.close()
        assert process.wait() == 0


@pytest.mark.usefixtures("library")
@pytest.mark.skipif(not shutil.which("addr2line"), reason="there is no addr2line")
def test_reports_of_processes_that_outlive_the_program_are_kept(tmp_path: Path) -> None:
    sleeper = "import os, time\nchild = os.fork()\nprint(child, flush=True)\nif child == 0: time.sleep(100)"
    command = [sys.executable, "-m", "sheaf", "run", "--debug", "FZU,malloc-32", "--", sys.executable, "-c", sleeper]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "cli"), "TMPDIR": str(tmp_path)}
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        assert subprocess.run(command, stdout=out, stderr=err, env=environment).returncode == 0
    os.kill(max(map(int, (tmp_path / "out").read_text().split())), 9)
    (log,) = tmp_path.glob("sheaf-*/reports")
    assert (tmp_path / "err").read_text() == f"sheaf: processes of the program still run; their reports follow in {log}\n"


def test_other_lines_are_kept_or_omitted(sheaf: Run, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("one\nsheaf:     (/no/such/object+0x123)\n")
    assert sheaf("report", str(log)).stdout == log.read_text()
    assert sheaf("report", "--reports-only", str(log)).stdout == "sheaf:     (/no/such/object+0x123)\n"


def test_undecodable_input_is_accepted() -> None:
    command = [sys.executable, "-m", "sheaf", "report", "-"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "cli")}
    done = subprocess.run(command, input=b"\xff\xfe text\n", capture_output=True, env=environment)
    assert (done.returncode, done.stdout.decode(), done.stderr) == (0, "\ufffd\ufffd text\n", b"")
    closed = subprocess.run(["sh", "-c", 'exec "$@" <&-', "sh", *command], capture_output=True, env=environment)
    assert (closed.returncode, closed.stdout, closed.stderr) == (0, b"", b"")


def test_no_such_file(sheaf: Run) -> None:
    done = sheaf("report", "/no/such/file")
    assert done.returncode == 1
    assert done.stderr == (
        "sheaf: /no/such/file: No such file or directory; name the file of SHEAF_DEBUG_LOG, or - for standard input\n"
    )
