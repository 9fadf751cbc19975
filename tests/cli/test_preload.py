"""The preloaded object is found, and is loaded before all other objects."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, Run
from sheaf.errors import SheafError
from sheaf.system import preload

MAPS = "import re; print(*dict.fromkeys(re.findall(r'/\\S*(?:libsheaf|libother)[^/\\n]*', open('/proc/self/maps').read())))"


@pytest.mark.parametrize(
    "place",
    [
        "usr/lib",
        "usr/lib64",
        "usr/local/lib",
        "usr/local/lib64",
        f"usr/lib/{os.uname().machine}-linux-gnu",
        f"usr/local/lib/{os.uname().machine}-linux-gnu",
    ],
)
def test_installed_objects_are_found(tmp_path: Path, place: str) -> None:
    package = tmp_path / "site-packages" / "sheaf"
    assert preload.search(package, tmp_path) is None
    installed = tmp_path / place / preload.LIBRARY
    installed.parent.mkdir(parents=True)
    installed.touch()
    assert preload.search(package, tmp_path) == installed
    package.mkdir(parents=True)
    (package / preload.LIBRARY).touch()
    assert preload.search(package, tmp_path) == package / preload.LIBRARY


def test_a_missing_object_is_named(sheaf: Run, tmp_path: Path) -> None:
    done = sheaf("run", "true", env={"SHEAF_LIBRARY": str(tmp_path / "none")})
    assert done.returncode == 125
    assert done.stderr == f"sheaf: SHEAF_LIBRARY={tmp_path}/none: no such file; name {preload.LIBRARY}, or unset it\n"


def test_an_existing_preload_is_kept_after_sheaf(sheaf: Run, library: str) -> None:
    done = sheaf("run", "sh", "-c", 'echo "$LD_PRELOAD"', env={"LD_PRELOAD": "libm.so.6"})
    ours, other = done.stdout.split()
    assert (Path(ours.replace("$LIB", "lib")).resolve(), other) == (Path(library).resolve(), "libm.so.6")


def test_children_do_not_run_on_sheaf(sheaf: Run, library: str) -> None:
    done = sheaf(
        "run",
        "--no-children",
        "sh",
        "-c",
        'echo "[$LD_PRELOAD]"; grep -c libsheaf /proc/$$/maps; cat /proc/self/maps | grep -c libsheaf',
    )
    lines = done.stdout.split()
    assert lines[0] == "[]"
    assert int(lines[1]) > 0
    assert lines[2] == "0"


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_no_children_with_a_program_in_the_current_directory(sheaf: Run, library: str, tmp_path: Path) -> None:
    shutil.copy(shutil.which("true") or "/bin/true", tmp_path / "program")
    done = sheaf("run", "--no-children", "./program", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("more", [[], ["--no-children"], ["--stats"]])
def test_our_malloc_wins_over_another_preloaded_one(sheaf: Run, library: str, tmp_path: Path, more: list[str]) -> None:
    """The malloc of the other object ends the program; its getpagesize shows that it was loaded nevertheless."""
    other, ask = tmp_path / "libother.so", tmp_path / "ask"
    source = """
        #include <stdlib.h>
        extern int asked __attribute__((weak));  /* defined only in the program under test */
        void *__libc_malloc(size_t n);
        void *malloc(size_t n) { if (&asked) exit(9); return __libc_malloc(n); }
        int getpagesize(void) { return 42; }"""
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", other], input=source, text=True, check=True)
    source = """
        #include <stdlib.h>
        #include <unistd.h>
        int asked;
        int main(void) { return malloc(100) ? getpagesize() : 1; }"""
    subprocess.run(["gcc", "-rdynamic", "-fno-builtin", "-x", "c", "-", "-o", ask], input=source, text=True, check=True)
    assert subprocess.run([ask], env={"LD_PRELOAD": str(other)}).returncode == 9
    assert sheaf("run", *more, str(ask), env={"LD_PRELOAD": str(other)}).returncode == 42


@pytest.mark.parametrize("name", ["with space", "with:colon", "both: of $LIB"])
@pytest.mark.parametrize("more", [[], ["--no-children"]])
def test_paths_that_ld_preload_cannot_hold(sheaf: Run, library: str, tmp_path: Path, name: str, more: list[str]) -> None:
    home = tmp_path / "home"
    (home / ".cache").mkdir(parents=True)
    odd = tmp_path / name / preload.LIBRARY
    odd.parent.mkdir()
    shutil.copy(library, odd)
    env = {"SHEAF_LIBRARY": str(odd), "HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache")}
    for _ in range(2):
        done = sheaf("run", *more, sys.executable, "-c", f"print({str(odd)!r} in open('/proc/self/maps').read())", env=env)
        assert (done.stdout, done.stderr) == ("True\n", "")
    made = home / ".cache" / "sheaf"
    assert {link.resolve() for link in made.rglob("*.so")} == {odd}
    assert not made.stat().st_mode & 0o022


def test_a_link_that_cannot_be_made_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(preload, "_links", lambda: iter([tmp_path / "an odd one"]))
    with pytest.raises(SheafError, match="SHEAF_LIBRARY"):
        preload.listable(tmp_path / "a b.so")


def test_links_go_only_to_private_directories(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shared, own = tmp_path / "shared", tmp_path / "own"
    shared.mkdir()
    shared.chmod(0o777)
    (tmp_path / "indirect").symlink_to(tmp_path)
    monkeypatch.setattr(preload, "_links", lambda: iter([shared, tmp_path / "indirect", own]))
    assert Path(preload.listable(tmp_path / "a b.so")).parent == own


@pytest.mark.parametrize("more", [[], ["--no-children"]])
def test_the_object_is_loaded_into_the_program(sheaf: Run, library: str, more: list[str]) -> None:
    done = sheaf("run", *more, sys.executable, "-c", MAPS)
    assert done.stdout.strip() == str(Path(library).resolve())


def test_only_what_is_needed_is_loaded() -> None:
    code = """
import sys
sys.argv = ["sheaf", "run", "--help"]
import sheaf.__main__
try:
    sheaf.__main__.entry()
except SystemExit:
    print(*(name for name in sys.modules if name.startswith("sheaf")))"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "cli")}
    )
    loaded = done.stdout.splitlines()[-1].split()
    assert "sheaf.commands.run" in loaded
    assert "sheaf.commands.stats" not in loaded
    assert not any(name.startswith("sheaf.commands.bench") for name in loaded)


@pytest.mark.parametrize("kind", ["text", "program", "other machine"])
def test_an_object_that_is_not_sheafs_is_refused(sheaf: Run, library: str, tmp_path: Path, kind: str) -> None:
    path = Path("/etc/passwd")
    if kind == "program":
        path = Path(shutil.which("true") or "")
    elif kind == "other machine":
        path = tmp_path / preload.LIBRARY
        raw = bytearray(Path(library).read_bytes())
        raw[18:20] = b"\x2b\0"
        path.write_bytes(raw)
    done = sheaf("run", "true", env={"SHEAF_LIBRARY": str(path)})
    assert (done.returncode, done.stderr) == (
        125,
        f"sheaf: SHEAF_LIBRARY={path}: not an object of Sheaf for this machine; name {preload.LIBRARY}, or unset it\n",
    )
