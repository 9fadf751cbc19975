"""`sheaf run` with programs that end in odd ways, and in odd places: statuses are the program's, and errors one line."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, Run

WAYS = pytest.mark.parametrize("more", [[], ["--stats"], ["--leaks"]], ids=["plain", "stats", "leaks"])
needs_namespaces = pytest.mark.skipif(
    subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0 if shutil.which("unshare") else True,
    reason="mount namespaces are not permitted",
)


GONE = "mkdir $GONE; cd $GONE; rmdir $GONE; "  # go to a directory that does not exist any more


def in_shell(script: str, library: str, **more: str) -> subprocess.CompletedProcess[bytes]:
    """Run a script in which $S is the command. Its output may be any bytes."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "cli"), "SHEAF_LIBRARY": library, "S": f"{sys.executable} -m sheaf", **more}
    done = subprocess.run(["sh", "-c", script], capture_output=True, env=env)
    assert b"Traceback" not in done.stderr + done.stdout, done.stderr
    return done


@WAYS
@pytest.mark.parametrize("number", sorted({*range(1, 16), 24, 25, 26, 31, signal.SIGRTMIN, signal.SIGRTMAX}))
def test_each_signal(library: str, number: int, more: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sheaf", "run", *more, "sh", "-c", f"ulimit -c 0; kill -{number} $$; exit 9"],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "cli"), "SHEAF_LIBRARY": library},
    )
    assert done.returncode == -number
    assert b"Traceback" not in done.stderr


@WAYS
def test_statuses_and_chains(sheaf: Run, library: str, more: list[str]) -> None:
    assert sheaf("run", *more, "sh", "-c", "exit 255").returncode == 255
    assert sheaf("run", *more, "sh", "-c", "exec sh -c 'exec sh -c \"exit 7\"'").returncode == 7
    assert sheaf("run", *more, "setsid", "-w", "sh", "-c", "exit 5").returncode == 5
    assert sheaf("run", *more, "sh", "-c", "i=0; while [ $i -lt 500 ]; do (:) & i=$((i+1)); done; wait; exit 4").returncode == 4


@WAYS
def test_streams_that_are_closed_or_full(library: str, more: list[str]) -> None:
    line = " ".join(["$S run", *more, "-- sh -c 'exit 3'"])
    assert in_shell(f"{line} <&- >&- 2>&-", library).returncode == 3
    assert in_shell(f"{line} >/dev/full 2>/dev/full", library).returncode == 3


def test_results_that_cannot_be_printed(library: str, tmp_path: Path) -> None:
    done = in_shell(f"$S run --record {tmp_path} -- {sys.executable} -c 1 && $S stats {tmp_path} >/dev/full", library)
    assert (done.returncode, done.stderr) == (1, b"sheaf: standard output: No space left on device; write to another file\n")


@WAYS
def test_names_and_arguments_that_are_not_text(library: str, tmp_path: Path, more: list[str]) -> None:
    name = os.fsencode(tmp_path) + b"/\xff\xfe"
    Path(os.fsdecode(name)).symlink_to(shutil.which("printf") or "/usr/bin/printf")
    for locale in ("C", "C.UTF-8", "POSIX", "none"):
        env = {
            **os.environb,
            b"PYTHONPATH": os.fsencode(ROOT / "cli"),
            b"SHEAF_LIBRARY": os.fsencode(library),
            b"LC_ALL": locale.encode(),
        }
        start = [os.fsencode(sys.executable), b"-m", b"sheaf", b"run", *map(os.fsencode, more), b"--"]
        done = subprocess.run([*start, name, b"%s", b"\xfd\n\xfc"], capture_output=True, env=env)
        assert (done.returncode, done.stdout) == (0, b"\xfd\n\xfc")
        done = subprocess.run([*start, name + b"x"], capture_output=True, env=env)
        assert done.returncode == 127
        assert b"\\xff\\xfex: no such program" in done.stderr
        assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    "path, found", [("::/bin:/usr/bin", True), ("/bin::/usr/bin:", True), ("", False), ("/none", False), ("/dev/null", False)]
)
def test_parts_of_path_that_are_empty(library: str, path: str, found: bool) -> None:
    done = in_shell(f"PATH={path} {sys.executable} -m sheaf run -- true", library)
    assert done.returncode == (0 if found else 127)
    assert done.stderr.count(b"\n") == (0 if found else 1)


@WAYS
def test_homes_that_cannot_be_written(library: str, more: list[str], tmp_path: Path) -> None:
    spaced = tmp_path / "a place"
    spaced.mkdir()
    (spaced / "libsheaf-preload.so").symlink_to(library)  # LD_PRELOAD needs a link to this name
    for home in ("/proc", "/none", ""):
        line = " ".join(["$S run", *more, "-- sh -c 'exit 6'"])
        done = in_shell(line, str(spaced / "libsheaf-preload.so"), HOME=home, XDG_CACHE_HOME=home)
        assert done.returncode == 6


def test_a_command_line_that_is_too_long(library: str) -> None:
    script = (
        f"{sys.executable} -c '" + 'import sys; sys.argv = ["sheaf", "run", "--", "echo", "x" * (1 << 22)]; '
        "from sheaf.__main__ import entry; entry()'"
    )
    done = in_shell(script, library)
    assert (done.returncode, done.stderr) == (
        126,
        b"sheaf: echo: cannot be executed: Argument list too long; shorten its arguments or the environment\n",
    )


@pytest.mark.parametrize("option", ["--stats", "--leaks", "--profile"])
def test_no_place_for_temporary_files(library: str, option: str) -> None:
    done = in_shell(f"(ulimit -f 0; $S run {option} -- true; echo $?) 2>&1 | cat", library)
    assert b"No usable temporary directory" in done.stdout
    assert done.stdout.endswith(b"; change that and try again\n125\n")


@WAYS
def test_a_working_directory_that_was_removed(library: str, tmp_path: Path, more: list[str]) -> None:
    done = in_shell(GONE + " ".join(["$S run", *more, "-- sh -c 'exit 8'"]), library, GONE=str(tmp_path / "gone"))
    assert done.returncode == 8


@pytest.mark.parametrize("command", ["records", "stats .", "top --batch -n 1 .", "run --record x -- true", "profile ."])
def test_other_commands_in_a_directory_that_was_removed(library: str, tmp_path: Path, command: str) -> None:
    done = in_shell(f"{GONE} $S {command}", library, GONE=str(tmp_path / "gone"))
    assert done.stderr.count(b"\n") <= 1


@needs_namespaces
@pytest.mark.parametrize(
    "command, status",
    [
        ("run -- sh -c 'exit 3'", 3),
        ("run --stats -- sh -c 'exit 3'", 3),
        ("run --leaks -- sh -c 'exit 3'", 3),
        ("stats nope", 1),
        ("top --batch -n 1", 1),
        ("doctor 1", 1),
        ("dump 1", 1),
    ],
)
def test_without_proc(library: str, command: str, status: int) -> None:
    done = in_shell(f"unshare -m sh -c 'mount -t tmpfs none /proc; exec $S \"$@\"' sh {command}", library)
    assert done.returncode in (0, status)


@pytest.mark.parametrize(
    "code",
    [
        "rm -rf $SHEAF_RECORD",
        "mkdir $SHEAF_RECORD/x.sheaf; mkfifo $SHEAF_RECORD/y.sheaf; ln -s z.sheaf $SHEAF_RECORD/z.sheaf",
        "head -c 100 /dev/zero >$SHEAF_RECORD/x.sheaf; ln -s /dev/zero $SHEAF_RECORD/y.sheaf",
    ],
)
@pytest.mark.parametrize("option", ["--stats", "--stats=json", "--profile"])
def test_programs_that_change_their_records(sheaf: Run, library: str, tmp_path: Path, code: str, option: str) -> None:
    done = sheaf("run", option, "sh", "-c", f"{code}; exit 5", cwd=tmp_path)  # profiles are written there
    assert done.returncode == 5
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "code", ["rm -f $SHEAF_DEBUG_LOG; mkdir $SHEAF_DEBUG_LOG", "rm -f $SHEAF_DEBUG_LOG; ln -s /dev/zero $SHEAF_DEBUG_LOG"]
)
def test_programs_that_replace_the_log_of_leaks(sheaf: Run, library: str, code: str) -> None:
    done = sheaf("run", "--leaks", "env", "-u", "LD_PRELOAD", "sh", "-c", code)
    assert done.returncode == 125
    assert "the leak report is lost" in done.stderr.splitlines()[-1]
