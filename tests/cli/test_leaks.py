"""`sheaf run --leaks`: stacks, suppressions, the exit status, several processes, CPython's pools."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, Run
from sheaf.errors import SheafError
from sheaf.rendering import leakreport

SOURCE = """\
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
struct node { struct node *next; char rest[1016]; };
static void *volatile kept, *volatile sink;
static void *make(size_t n) { void *p = calloc(1, n); if (!p) abort(); return p; }
static void lose_one(void) { sink = make(1024); }
static void lose_two(void) { struct node *a = make(1024); a->next = make(1024); sink = a; }
static void lose_large(void) { sink = make(1 << 20); }
static void scrub(void) { volatile char bytes[65536]; for (int i = 0; i < 65536; i++) bytes[i] = 0; sink = NULL; }
int main(int argc, char **argv)
{
    kept = make(4096);
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "one")) lose_one();
        if (!strcmp(argv[i], "two")) lose_two();
        if (!strcmp(argv[i], "large")) lose_large();
        if (!strcmp(argv[i], "many")) for (size_t n = 2; n < 82; n++) sink = make(n << 16);
        if (!strcmp(argv[i], "children")) for (int c = 0; c < 3; c++) { if (!fork()) exit(0); wait(NULL); }
        if (!strcmp(argv[i], "lossy-child")) { if (!fork()) { lose_one(); scrub(); exit(0); } wait(NULL); }
        if (!strcmp(argv[i], "_exit")) _exit(3);
        if (!strcmp(argv[i], "3")) { scrub(); exit(3); }
    }
    scrub();
    return 0;
}
"""
WHITE = "sheaf:     "


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("leaks")
    (directory / "lossy.c").write_text(SOURCE)
    subprocess.run(["cc", "-g", "-O0", "-fno-builtin", "-fno-inline", "-o", "lossy", "lossy.c"], cwd=directory, check=True)
    return str(directory / "lossy")


@pytest.mark.usefixtures("library")
def test_nothing_lost_is_one_line(sheaf: Run, program: str) -> None:
    done = sheaf("run", "--leaks", program)
    assert done.returncode == 0
    assert re.fullmatch(r"sheaf: nothing lost; still referenced: 4 KiB in 1 block \(process \d+, lossy\)\n", done.stderr)


@pytest.mark.usefixtures("library")
def test_groups_by_cache_and_the_sum(sheaf: Run, program: str) -> None:
    done = sheaf("run", "--leaks", program, "one", "one", "two", "large")
    large, small, last = done.stderr.splitlines()
    assert large == "sheaf: leak: 1048576 bytes in 1 block of malloc-large, lost"
    assert small == "sheaf: leak: 3072 bytes in 3 blocks of malloc-1024, lost, and 1024 bytes in 1 block through them"
    assert last.startswith("sheaf: lost 1 MiB in 4 blocks, 1 KiB in 1 block through them; still referenced: 4 KiB in 1 block (")


@pytest.mark.usefixtures("library")
def test_stacks_have_functions_and_lines(sheaf: Run, program: str) -> None:
    lines = sheaf("run", "--leaks", "--stacks", "--", program, "two", "one").stderr.splitlines()
    assert lines[0] == "sheaf: leak: 1024 bytes in 1 block of malloc-1024, lost, and 1024 bytes in 1 block through it:"
    assert re.match(rf"{WHITE}make \(.*lossy\+0x[0-9a-f]+\) .*lossy\.c:7$", lines[1])
    assert re.match(rf"{WHITE}lose_two \(.*lossy\+0x[0-9a-f]+\) .*lossy\.c:9$", lines[2])
    assert "sheaf: leak: 1024 bytes in 1 block of malloc-1024, lost:" in lines
    assert any(line.startswith(f"{WHITE}lose_one (") for line in lines)


@pytest.mark.usefixtures("library")
def test_suppressions(sheaf: Run, program: str, tmp_path: Path) -> None:
    known = tmp_path / "known"
    known.write_text("# known\n\nleak:lose_t*o\n")
    done = sheaf("run", "--leaks", "--stacks", "--suppress", str(known), "--", program, "one", "two")
    assert "lose_one" in done.stderr
    assert "lose_two" not in done.stderr
    assert done.stderr.endswith("sheaf: suppressed: 2048 bytes in 2 blocks\n")
    assert "sheaf: lost 2 KiB in 2 blocks, 1 KiB in 1 block through them" in done.stderr  # the process knows no suppressions


@pytest.mark.usefixtures("library")
def test_suppressions_need_stacks(sheaf: Run, program: str, tmp_path: Path) -> None:
    known = tmp_path / "known"
    known.write_text("leak:lose_one\n")
    done = sheaf("run", "--leaks", "--suppress", str(known), "--", program, "one")
    assert "no stack is known of 1024 bytes in 1 block, so no suppression can match; add --stacks" in done.stderr


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("arguments", "suppressed", "status"),
    [
        (["one"], False, 23),
        ([], False, 0),
        (["one"], True, 0),
        (["one", "3"], False, 23),
        (["3"], False, 3),
        (["lossy-child"], False, 23),
        (["one", "_exit"], False, 3),
    ],
)
def test_status(sheaf: Run, program: str, tmp_path: Path, arguments: list[str], suppressed: bool, status: int) -> None:
    known = tmp_path / "known"
    known.write_text("leak:^lose_one$\n" if suppressed else "leak:^lose_on$\nleak:ose_one_\n")
    done = sheaf("run", "--leaks", "--stacks", "--suppress", str(known), "--leak-status", "23", "--", program, *arguments)
    assert done.returncode == status


@pytest.mark.usefixtures("library")
def test_the_status_is_the_programs_by_default(sheaf: Run, program: str) -> None:
    assert sheaf("run", "--leaks", program, "one", "3").returncode == 3


@pytest.mark.usefixtures("library")
def test_processes_that_lose_nothing_share_a_line(sheaf: Run, program: str) -> None:
    assert sheaf("run", "--leaks", program, "children").stderr == "sheaf: 4 processes lost nothing\n"


@pytest.mark.usefixtures("library")
def test_no_report(sheaf: Run, program: str) -> None:
    assert sheaf("run", "--leaks", program, "one", "_exit").stderr == (
        "sheaf: no leak report: no process that runs on Sheaf ended by exit() or by returning from main\n"
    )


@pytest.mark.usefixtures("library")
def test_the_output_is_bounded_but_not_in_a_file(sheaf: Run, program: str, library: str, tmp_path: Path) -> None:
    done = sheaf("run", "--leaks", program, "many")
    assert done.stderr.count("of malloc-large, lost") == 50
    assert "in 30 smaller groups; name a file with --option debug_log=FILE for all of them" in done.stderr
    alone = subprocess.run(
        [program, "many"],
        env={**os.environ, "LD_PRELOAD": library, "SHEAF_LEAKS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert alone.stderr.count("of malloc-large, lost") == 50
    assert "in 30 smaller groups; set SHEAF_DEBUG_LOG=FILE for all of them" in alone.stderr
    log = tmp_path / "log"
    log.write_text("sheaf: leak: 7 bytes in 1 block of earlier, lost\n")
    done = sheaf("run", "--leaks", "--option", f"debug_log={log}", program, "many")
    assert log.read_text().count("of malloc-large, lost") == 80
    assert "earlier" not in done.stderr


@pytest.mark.usefixtures("library")
def test_the_report_in_a_file(sheaf: Run, program: str, tmp_path: Path) -> None:
    """All groups are there, and standard error has one line."""
    file = tmp_path / "leaks.txt"
    done = sheaf("run", "--leaks", "--leak-output", str(file), program, "one", "two")
    assert re.fullmatch(rf"sheaf: \d+ bytes in \d+ blocks lost; the report is in {file}\n", done.stderr), done
    assert file.read_text().splitlines()[-1].startswith("sheaf: lost ")
    sheaf("run", "--leaks", "--leak-output", str(file), program, "many")
    assert "smaller groups" not in file.read_text()


@pytest.mark.usefixtures("library")
def test_the_report_as_json(sheaf: Run, program: str, tmp_path: Path) -> None:
    file, known = tmp_path / "leaks.json", tmp_path / "known"
    known.write_text("leak:lose_two\n")
    done = sheaf(
        "run",
        "--leaks",
        "--stacks",
        "--suppress",
        str(known),
        "--leak-output",
        str(file),
        "--leak-status",
        "23",
        "--",
        program,
        "one",
        "two",
    )
    out = json.loads(file.read_text())
    assert (done.returncode, out["schema_version"], len(out["processes"]), out["others"]) == (23, 1, 1, [])
    groups = out["processes"][0]["groups"]
    assert out["processes"][0]["program"] == "lossy"
    by_name = {group["frames"][1]["function"]: group for group in groups}
    assert by_name["lose_two"]["suppressed"] and not by_name["lose_one"]["suppressed"]
    assert (by_name["lose_two"]["lost_bytes"], by_name["lose_two"]["through_bytes"]) == (1024, 1024)
    assert out["lost_bytes"] == sum(group["lost_bytes"] + group["through_bytes"] for group in groups if not group["suppressed"])
    frame = by_name["lose_one"]["frames"][1]
    assert (frame["module"], Path(frame["file"]).name, frame["line"] > 0) == (program, "lossy.c", True)


@pytest.mark.usefixtures("library")
def test_a_report_that_cannot_be_written(sheaf: Run, program: str) -> None:
    done = sheaf("run", "--leaks", "--leak-output", "/nowhere/leaks", program, "one")
    assert (done.returncode, done.stderr) == (
        125,
        "sheaf: --leak-output /nowhere/leaks: No such file or directory; name a file that can be written\n",
    )
    done = sheaf("run", "--leaks", "--leak-output", "/dev/full", program, "one")
    assert "--leak-output /dev/full: No space left on device; the report is not written; 1024 bytes in 1 block" in done.stderr


@pytest.mark.usefixtures("library")
def test_stats_and_leaks_together(sheaf: Run, program: str) -> None:
    done = sheaf("run", "--stats", "--leaks", program, "one")
    assert "sheaf: 1 process: lossy" in done.stderr
    assert "sheaf: lost 1 KiB in 1 block;" in done.stderr


@pytest.mark.usefixtures("library")
def test_other_reports_are_kept(sheaf: Run, program: str) -> None:
    """Reports of debugging go to the same file, and are printed with their positions."""
    code = "import ctypes; c = ctypes.CDLL(None); c.malloc.restype = ctypes.c_void_p; ctypes.memset(c.malloc(60), 65, 61)"
    done = sheaf(
        "run",
        "--leaks",
        "--debug",
        "FZPU",
        "--option",
        "validate=1",
        "--option",
        "debug_action=continue",
        "--",
        sys.executable,
        "-c",
        code,
    )
    assert "sheaf: overflow: bytes were written past the end of" in done.stderr
    assert re.search(r"sheaf: lost .*; still referenced: ", done.stderr)


@pytest.mark.usefixtures("library")
def test_pools_of_cpython_are_one_line(sheaf: Run) -> None:
    """Objects above 512 bytes come from malloc. The reference to one is hidden in another form than its address."""
    code = (
        "import ctypes, os\n"
        "for _ in range(20):\n"
        "    kept = bytes(2000)\n"
        "    ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))\n"
        "del kept\n"
    )
    done = sheaf("run", "--leaks", "--stacks", "--", "/usr/bin/python3", "-c", code)
    if "nothing lost" in done.stderr:
        pytest.skip("stale references keep all of them")
    assert re.search(
        r"sheaf: leak: \d+ bytes in \d+ blocks? of CPython's object allocator, lost: memory of Python objects\n", done.stderr
    )
    assert "PyObject_Malloc" not in done.stderr


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--stacks"], "--stacks: has no effect without --leaks; add --leaks"),
        (["--leak-output", "x"], "--leak-output: has no effect without --leaks; add --leaks"),
        (["--leak-status", "1"], "--leak-status: has no effect without --leaks; add --leaks"),
        (["--leaks", "--stacks", "--debug", "FZ"], "--stacks: debug=FZ is set as well; leave --stacks out and add U to it"),
        (["--leaks", "--option", "leaks=live"], "--leaks: SHEAF_LEAKS=live is set as well; leave one of them out"),
        (
            ["--leaks", "--suppress", "/no/file"],
            "--suppress /no/file: No such file or directory; name a file of lines leak:PATTERN",
        ),
        (
            ["--leaks", "--leak-status", "256"],
            "sheaf run: --leak-status: 256 is not in the range 0<=x<=255; see `sheaf run --help`",
        ),
    ],
)
def test_misuse(sheaf: Run, arguments: list[str], message: str) -> None:
    done = sheaf("run", *arguments, "true")
    assert done.returncode == 125
    assert done.stderr.removeprefix("sheaf: ").strip() == message.removeprefix("sheaf: ")


def test_a_wrong_file_of_suppressions(tmp_path: Path) -> None:
    for line in ("lose", "leak:", "leak: *", "race:lose"):
        (tmp_path / "known").write_text(f"# first\n{line}\n")
        with pytest.raises(SheafError, match=r"line 2: .*: no suppression; write leak:PATTERN"):
            leakreport.read_suppressions(str(tmp_path / "known"))


def test_patterns_are_those_of_leaksanitizer() -> None:
    frame = f"{WHITE}lose_one+0x12 (/usr/lib/libz.so.1+0x12)"
    log = [
        "sheaf: leak: 8 bytes in 1 block of malloc-8, lost:",
        frame,
        "sheaf: lost 8 bytes in 1 block; still referenced: 0 bytes in 0 blocks (process 1, a (b))",
    ]
    for pattern, matches in {
        "lose": True,
        "^lose": True,
        "one$": True,
        "^one": False,
        "lose$": False,
        "l*e": True,
        "libz": True,
        "libz.so.1$": True,
        "other": False,
        "LOSE": False,
    }.items():
        assert (leakreport.text(log, [pattern]).lost.blocks == 0) == matches, pattern


def test_torn_and_mixed_logs_are_kept() -> None:
    torn = ["sheaf: leak: 8 bytes in 1 block of malloc-8, lost:", f"{WHITE}(/no/such+0x1)", "sheaf: lost 8 by"]
    lines = leakreport.text(["hello", *torn], []).lines
    assert all(line in lines for line in ["hello", *torn])


def test_pools_are_recognized_by_the_innermost_frames() -> None:
    def group(names: list[str]) -> list[str]:
        return [
            "sheaf: leak: 600 bytes in 1 block of malloc-640, lost, and 8 bytes in 2 blocks through it:",
            *(f"{WHITE}{name}+0x1 (/usr/bin/python3+0x{i + 1:x})" for i, name in enumerate(names)),
        ]

    last = "sheaf: lost 1.2 KiB in 2 blocks; still referenced: 0 bytes in 0 blocks (process 1, python3)"
    objects = group(["_PyMem_RawMalloc", "PyObject_Malloc", "PyBytes_FromStringAndSize"])
    assert leakreport.text([*objects, *objects, last], []).lines == [
        "sheaf: leak: 1216 bytes in 6 blocks of CPython's object allocator, lost: memory of Python objects",
        last,
    ]
    stripped = [line.replace("_PyMem_RawMalloc+0x1 ", "") for line in objects]
    assert leakreport.text([*stripped, last], []).lines[0].startswith("sheaf: leak: 608 bytes in 3 blocks of CPython's")
    other = group(["inflateInit2_", "zlib", "PyObject_Call", "_PyEval", "PyObject_Malloc"])
    other = [line.replace("/usr/bin/python3", "/usr/lib/libz.so") for line in other]
    assert leakreport.text([*other, last], []).lines == [*other, last]


def test_the_command_is_documented() -> None:
    page = (ROOT / "docs/leaks.md").read_text()
    for option in ("--leaks", "--stacks", "--suppress", "--leak-status"):
        assert option in page
