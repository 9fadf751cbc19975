"""
The command with programs that are linked with musl, and with such programs beside those of glibc. Needs musl-gcc, and the
object that MUSL_LIBRARY names (tests/musl/run sets it and runs this file).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Run
from sheaf.system import elf, preload

SOURCE = r"""
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *volatile keep[2000];

__attribute__((noinline)) static void *hold(int i) { return memset(malloc(100 + i), 1, 100); }

__attribute__((noinline)) static void lose(void)
{
    void *volatile block = malloc(777);
    block = NULL;
    (void)block;
}

static void *work(void *none)
{
    for (;;) {
        free(hold(1));
        usleep(1000);
    }
    return none;
}

int main(int n, char **args)
{
    char line[4096], *end;
    FILE *maps = fopen("/proc/self/maps", "r");
    char *object = NULL;
    while (maps && !object && fgets(line, sizeof(line), maps))
        if (strstr(line, "libsheaf-preload"))
            object = strchr(line, '/');
    if (object && (end = strchr(object, '\n')))
        *end = 0;
    const char *word = n > 1 ? args[1] : "";
    if (!strcmp(word, "over")) {
        char *block = malloc(10);
        ((volatile char *)block)[12] = 1;
        free(block);
    }
    if (strcmp(word, "serve") && strcmp(word, "lose"))
        printf("%s\n", object ? object : "none");
    fflush(stdout);
    if (*word == '/')
        execv(word, args + 1);
    for (int i = 0; i < 2000; i++)
        keep[i] = hold(i);
    lose();
    if (!strcmp(word, "serve")) {
        pthread_t one;
        pthread_create(&one, NULL, work, NULL);
        puts("ready");
        fflush(stdout);
        pause();
    }
    return 0;
}
"""
GLIBC_LOADERS = ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")

pytestmark = pytest.mark.skipif(shutil.which("musl-gcc") is None, reason="musl-gcc is missing (install musl-tools)")
needs_glibc = pytest.mark.skipif(not any(map(os.path.exists, GLIBC_LOADERS)), reason="there is no glibc beside musl")


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The paths of the same program by the C library with which it is linked."""
    folder = tmp_path_factory.mktemp("programs")
    source = folder / "program.c"
    source.write_text(SOURCE)
    made = {}
    for libc, compiler in (("musl", ["musl-gcc", "-Wl,--eh-frame-hdr"]), ("glibc", ["gcc"])):
        made[libc] = str(folder / f"for-{libc}")
        flags = ["-g", "-O1", "-fno-builtin", "-pthread", "-w"]
        subprocess.run([compiler[0], *flags, str(source), "-o", made[libc], *compiler[1:]], check=True)
    return made


@pytest.fixture
def musl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The path of the object for musl, which SHEAF_LIBRARY names."""
    path = os.environ.get("MUSL_LIBRARY")
    if not path:
        pytest.skip("MUSL_LIBRARY does not name the object for musl; tests/musl/run does")
    monkeypatch.setenv("SHEAF_LIBRARY", path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    return str(Path(path).resolve())


@pytest.fixture
def both(library: str, musl: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The paths of the objects by C library. SHEAF_LIBRARY names that for glibc, and the other one lies beside it."""
    objects = {"glibc": str(Path(library).resolve()), "musl": musl}
    (tmp_path / "objects" / "musl").mkdir(parents=True)
    for libc, folder in (("glibc", "."), ("musl", "musl")):
        (tmp_path / "objects" / folder / preload.LIBRARY).symlink_to(objects[libc])
    monkeypatch.setenv("SHEAF_LIBRARY", str(tmp_path / "objects" / preload.LIBRARY))
    return objects


@pytest.fixture
def server(sheaf: Run, musl: str, programs: dict[str, str], tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A program with musl that runs on Sheaf, records itself, and is sampled."""
    (tmp_path / "records").mkdir()
    env = {**os.environ, "LD_PRELOAD": musl, "SHEAF_RECORD": str(tmp_path / "records"), "SHEAF_PROFILE": "4096"}
    with subprocess.Popen([programs["musl"], "serve"], env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "ready\n"
        yield process
        process.kill()


Start = Callable[..., list[str]]


@pytest.fixture
def start(sheaf: Run, tmp_path: Path) -> Start:
    """A function that runs programs one after the other by execv, and returns which object each had."""

    def run(*args: str) -> list[str]:
        done = sheaf("run", *args)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.split()

    return run


# ---- which object ----


@pytest.mark.parametrize("libc", ["musl", "glibc"])
def test_each_program_gets_the_object_for_its_c_library(
    start: Start, programs: dict[str, str], both: dict[str, str], libc: str
) -> None:
    assert start(programs[libc]) == [both[libc]]


@pytest.mark.parametrize("first", ["musl", "glibc"])
def test_children_with_the_other_c_library_run_on_sheaf(
    start: Start, programs: dict[str, str], both: dict[str, str], first: str
) -> None:
    second = preload.OTHER[first]
    assert start(programs[first], programs[second], programs[first]) == [both[first], both[second], both[first]]


@pytest.mark.parametrize("first", ["musl", "glibc"])
def test_no_children(start: Start, programs: dict[str, str], both: dict[str, str], first: str) -> None:
    assert start("--no-children", programs[first], programs[preload.OTHER[first]]) == [both[first], "none"]


def test_children_with_musl_start_where_there_is_no_object_for_them(
    start: Start, programs: dict[str, str], library: str, musl: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    alone = tmp_path / preload.LIBRARY
    shutil.copy(library, alone)
    monkeypatch.setenv("SHEAF_LIBRARY", str(alone))
    assert start(programs["glibc"], programs["musl"]) == [str(alone), "none"]


@needs_glibc
def test_children_with_glibc_start_where_there_is_no_object_for_them(
    sheaf: Run, programs: dict[str, str], musl: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """glibc says so and goes on."""
    alone = tmp_path / preload.LIBRARY
    shutil.copy(musl, alone)
    monkeypatch.setenv("SHEAF_LIBRARY", str(alone))
    done = sheaf("run", programs["musl"], programs["glibc"])
    assert (done.returncode, done.stdout.split()) == (0, [str(alone), "none"])
    assert "cannot be preloaded" in done.stderr


def test_a_missing_object_is_named(sheaf: Run, programs: dict[str, str], library: str) -> None:
    done = sheaf("run", programs["musl"], env={"SHEAF_LIBRARY": library})
    assert done.returncode == 125
    assert re.fullmatch(r"sheaf: libsheaf-preload\.so for musl: not found in .*; build it with .*\n", done.stderr)


def test_scripts(start: Start, programs: dict[str, str], both: dict[str, str], tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(f"#!{programs['musl']} once\n")
    script.chmod(0o755)
    assert start(str(script))[0] == both["musl"]


def test_an_existing_preload_is_kept(sheaf: Run, programs: dict[str, str], both: dict[str, str]) -> None:
    done = sheaf("run", "sh", "-c", 'echo "$LD_PRELOAD"', env={"LD_PRELOAD": "libm.so.6"})
    ours, other = done.stdout.split()
    assert "/$LIB/" in ours and other == "libm.so.6"


def test_the_paths_are_private_and_replaced(start: Start, programs: dict[str, str], both: dict[str, str], tmp_path: Path) -> None:
    assert start(programs["musl"])
    (folder,) = (tmp_path / "cache" / "sheaf").iterdir()
    assert not folder.stat().st_mode & 0o022
    link = folder / "$LIB" / preload.LIBRARY
    link.unlink()
    link.symlink_to("/no/such/object")
    assert start(programs["musl"]) == [both["musl"]]


@pytest.mark.parametrize("libc", ["musl", "glibc"])
def test_the_c_library_of_a_file(programs: dict[str, str], both: dict[str, str], libc: str) -> None:
    for file in (programs[libc], both[libc]):
        image = elf.read(Path(file))
        assert image and elf.libc(image) == libc


def test_the_object_of_the_system(musl: str, tmp_path: Path) -> None:
    package, folder = tmp_path / "site" / "sheaf", tmp_path / f"usr/lib/{os.uname().machine}-linux-musl"
    assert preload.search(package, tmp_path, "musl") is None
    folder.mkdir(parents=True)
    (folder / preload.LIBRARY).symlink_to(musl)
    assert preload.search(package, tmp_path, "musl") == folder / preload.LIBRARY
    assert preload.search(package, tmp_path, "glibc") is None
    assert preload.search(package, tmp_path) is None


# ---- what the command does with a program ----


def test_counters(sheaf: Run, programs: dict[str, str], musl: str) -> None:
    done = sheaf("run", "--stats", "--", programs["musl"])
    assert done.returncode == 0
    assert re.search(r"1 process: for-musl \(\d+\); rseq own|1 process: for-musl \(\d+\); lock", done.stderr)


@pytest.mark.parametrize("more", [[], ["--no-children"]])
def test_the_name_in_records(sheaf: Run, programs: dict[str, str], musl: str, tmp_path: Path, more: list[str]) -> None:
    (tmp_path / "records").mkdir()
    assert sheaf("run", "--record", str(tmp_path / "records"), *more, programs["musl"]).returncode == 0
    assert [path.name.split(".")[0] for path in (tmp_path / "records").iterdir()] == ["for-musl"]


def test_debug_reports(sheaf: Run, programs: dict[str, str], musl: str, tmp_path: Path) -> None:
    done = sheaf("run", "--debug", "FZPU", "--", "for-musl", "over", cwd=tmp_path, env={"PATH": path_with(programs["musl"])})
    assert done.returncode in (-6, 134)
    assert "bytes were written past the end" in done.stderr
    assert re.search(r"main\+?.* \(.*for-musl\+0x[0-9a-f]+\) .*program\.c:\d+", done.stderr)


@pytest.mark.parametrize("more", [[], ["--no-children"]])
def test_profiles_name_functions(sheaf: Run, programs: dict[str, str], musl: str, tmp_path: Path, more: list[str]) -> None:
    env = {"PATH": path_with(programs["musl"])}
    done = sheaf("run", "--profile=4096", *more, "--", "for-musl", "lose", cwd=tmp_path, env=env)
    assert done.returncode == 0
    assert re.search(r" hold < main < ", done.stderr)


def test_leaks_at_the_end(sheaf: Run, programs: dict[str, str], musl: str) -> None:
    done = sheaf("run", "--leaks", "--stacks", "--", programs["musl"], "lose")
    assert "leak: 777 bytes in 1 block of malloc-832, lost" in done.stderr
    assert "lost 777 bytes in 1 block;" in done.stderr
    assert re.search(r"lose.*program\.c:\d+", done.stderr)


def test_a_running_process(sheaf: Run, server: subprocess.Popen[str]) -> None:
    pid = str(server.pid)
    caches = json.loads(sheaf("stats", "--format", "json", pid).stdout)
    assert pid in json.dumps(caches)
    assert re.search(r" main|hold", sheaf("profile", pid).stdout)
    assert re.search(r"leak: \d+ bytes in 1 block of", sheaf("leaks", pid).stdout)
    assert sheaf("trim", pid).returncode == 0
    assert "malloc-1792" in sheaf("dump", pid).stdout
    assert sheaf("set", pid, "decay=100").returncode == 0
    answer = json.loads(sheaf("doctor", "--json", pid).stdout)
    assert answer["ok"] and answer["findings"][0]["what"].startswith("it runs on Sheaf")


def test_records_stay_when_the_process_is_killed(sheaf: Run, server: subprocess.Popen[str], tmp_path: Path) -> None:
    server.kill()
    server.wait()
    assert "ended by signal" in sheaf("stats", str(tmp_path / "records")).stdout


def path_with(program: str) -> str:
    """PATH with the folder of a program before the rest."""
    return f"{os.path.dirname(program)}:{os.environ['PATH']}"


# ---- doctor and unit ----


def test_doctor_knows_musl(sheaf: Run, programs: dict[str, str], both: dict[str, str]) -> None:
    done = sheaf("doctor", "--json", programs["musl"])
    found = {one["subject"]: one for one in json.loads(done.stdout)["findings"]}
    assert done.returncode == 0
    assert re.match(r"musl \d+\.\d+\.\d+ does not know restartable sequences", found["libc"]["what"])
    assert found["library"]["what"] == both["musl"]
    assert json.loads(sheaf("doctor", "--json", programs["glibc"]).stdout)["ok"]


def test_doctor_misses_the_object(sheaf: Run, programs: dict[str, str], library: str) -> None:
    done = sheaf("doctor", programs["musl"], env={"SHEAF_LIBRARY": library})
    assert done.returncode == 1
    assert "problem  library: libsheaf-preload.so for musl: not found in" in done.stdout


def test_doctor_of_a_process_without_sheaf(sheaf: Run, programs: dict[str, str], both: dict[str, str], tmp_path: Path) -> None:
    """The object is there under the path that glibc makes of $LIB, and is not what musl looks for."""
    (tmp_path / "lib").mkdir()
    env = {**os.environ, "LD_PRELOAD": f"{tmp_path}/$LIB/libsheaf-preload.so"}
    with subprocess.Popen([programs["musl"], "serve"], env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "ready\n"
        said = sheaf("doctor", str(process.pid)).stdout
        (tmp_path / "lib" / preload.LIBRARY).symlink_to(both["glibc"])
        then = sheaf("doctor", str(process.pid)).stdout
        process.kill()
    assert "does not exist where it runs" in said
    assert "does not exist where it runs" in then


@pytest.mark.parametrize("libc", ["musl", "glibc"])
def test_units(sheaf: Run, programs: dict[str, str], both: dict[str, str], tmp_path: Path, libc: str) -> None:
    """The drop-in names the object for the program of the service."""
    folder = tmp_path / "root/etc/systemd/system"
    folder.mkdir(parents=True)
    (tmp_path / "root/program").symlink_to(programs[libc])
    (folder / "demo.service").write_text("[Service]\nType=simple\nExecStart=-/program --flag 'a b'\n")
    assert sheaf("unit", "--install", "--root", str(tmp_path / "root"), "demo").returncode == 0
    text = (folder / "demo.service.d/sheaf.conf").read_text()
    assert f'Environment="LD_PRELOAD={both[libc]}"' in text
