"""Programs into which Sheaf cannot be preloaded are refused, as the kernel and the loader would treat them."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Run
from sheaf.errors import SheafError
from sheaf.system import program

NOBODY = 65534
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the owner of a file")


@pytest.fixture(scope="module")
def public() -> Iterator[Path]:
    """A directory that every user can read, on a file system that is not mounted nosuid."""
    with tempfile.TemporaryDirectory() as name:
        if os.statvfs(name).f_flag & os.ST_NOSUID:
            pytest.skip(f"{name} is mounted nosuid")
        Path(name).chmod(0o755)
        yield Path(name)


def compile_c(source: str, into: Path, *flags: str) -> Path | None:
    """Compile a C program; None if that fails."""
    done = subprocess.run(["gcc", "-x", "c", "-", "-o", into, *flags], input=source, text=True, capture_output=True)
    return into if done.returncode == 0 else None


@pytest.fixture(scope="module")
def secure(public: Path) -> Path:
    """A program that exits with 1 if it runs in secure mode, in which the loader ignores LD_PRELOAD."""
    built = compile_c("#include <sys/auxv.h>\nint main(void) { return getauxval(AT_SECURE) != 0; }", public / "secure")
    assert built
    return built


def as_user(uid: int, groups: list[int], path: Path) -> tuple[bool, bool]:
    """As user `uid`: whether `sheaf run` refuses the file, and whether the kernel starts it in secure mode."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setgroups(groups)
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        ours = program.obstacle(path) is not None
        kernels = subprocess.call([path]) == 1
        os.write(writer, bytes([ours, kernels]))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        answer = file.read()
    os.waitpid(pid, 0)
    return bool(answer[0]), bool(answer[1])


def capability(effective: int, permitted: int, inheritable: int = 0) -> bytes:
    """The extended attribute that setcap writes, version 2."""
    return struct.pack("<5I", 2 << 24 | effective, permitted, inheritable, 0, 0)


FILES = {
    "plain": (0, 0, 0o755, None),
    "setuid root": (0, 0, 0o4755, None),
    "setuid nobody": (NOBODY, 0, 0o4755, None),
    "setgid root": (0, 0, 0o2755, None),
    "setgid nobody": (0, NOBODY, 0o2755, None),
    "setgid without the group's x": (0, 0, 0o2745, None),
    "a permitted and effective capability": (0, 0, 0o755, capability(1, 1 << 10)),
    "a permitted capability": (0, 0, 0o755, capability(0, 1 << 10)),
    "an inheritable capability": (0, 0, 0o755, capability(0, 0, 1 << 10)),
    "no capability, effective": (0, 0, 0o755, capability(1, 0)),
}


@needs_gcc
@needs_root
@pytest.mark.parametrize("uid", [0, NOBODY])
@pytest.mark.parametrize("kind", FILES)
def test_raised_privileges_as_the_kernel_sees_them(secure: Path, uid: int, kind: str) -> None:
    owner, group, mode, capabilities = FILES[kind]
    copy = Path(shutil.copy(secure, secure.with_name("copy")))
    os.chown(copy, owner, group)
    copy.chmod(mode)
    if capabilities:
        try:
            os.setxattr(copy, "security.capability", capabilities)
        except OSError as error:
            pytest.skip(f"no file capabilities here: {error.strerror}")
    ours, kernels = as_user(uid, [uid], copy)
    copy.unlink()
    assert ours == kernels
    if "plain" in kind:
        assert not ours
    if (kind == "setuid nobody" and uid == 0) or (kind == "setuid root" and uid == NOBODY):
        assert ours


@needs_gcc
@needs_root
def test_setuid_is_named(sheaf: Run, library: str, secure: Path) -> None:
    copy = Path(shutil.copy(secure, secure.with_name("setuid")))
    os.chown(copy, NOBODY, 0)
    copy.chmod(0o4755)
    done = sheaf("run", str(copy))
    assert done.returncode == 125
    assert "it is setuid" in done.stderr
    assert sheaf("run", "--force", str(copy)).returncode == 1


def changed_copy(path: Path, into: Path, offset: int, raw: bytes) -> Path:
    """A copy of an ELF file with other bytes at an offset of its header."""
    data = bytearray(path.read_bytes())
    data[offset : offset + len(raw)] = raw
    into.write_bytes(data)
    into.chmod(0o755)
    return into


def test_other_machines(sheaf: Run, library: str, tmp_path: Path) -> None:
    true = Path(shutil.which("true") or "")
    sparc = changed_copy(true, tmp_path / "sparc", 18, struct.pack("<H", 43))
    done = sheaf("run", str(sparc))
    assert done.returncode == 125
    assert "built for another architecture" in done.stderr
    arm = changed_copy(true, tmp_path / "arm", 4, b"\x01")
    assert "32-bit" in sheaf("run", str(arm)).stderr


@pytest.mark.parametrize("offset", [32, 40, 54, 56])
@pytest.mark.parametrize("raw", [b"\0\0", b"\xff\xff", b"\x01\0"])
def test_damaged_elf_headers_end_in_one_line(sheaf: Run, library: str, tmp_path: Path, offset: int, raw: bytes) -> None:
    damaged = changed_copy(Path(shutil.which("true") or ""), tmp_path / "damaged", offset, raw * (4 if offset == 32 else 1))
    done = sheaf("run", str(damaged))
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 1


@needs_gcc
def test_sanitizers_are_recognized_by_symbols_and_libraries(tmp_path: Path) -> None:
    name = 'const char *name = "libasan.so __asan_init libtsan.so.2"; int main(void) { return name[0] == 0; }'
    plain = compile_c(name, tmp_path / "plain")
    assert plain
    assert program.obstacle(plain) is None
    for kind in ("address", "thread", "leak"):
        built = compile_c("int main(void) { return 0; }", tmp_path / kind, f"-fsanitize={kind}")
        if built:
            why = program.obstacle(built)
            assert why is not None
            assert "sanitizer" in why.reason
    harmless = compile_c("int main(void) { return 0; }", tmp_path / "undefined", "-fsanitize=undefined")
    assert harmless is None or program.obstacle(harmless) is None


@pytest.mark.skipif(shutil.which("clang") is None, reason="clang is not installed")
def test_a_static_sanitizer_of_clang_is_recognized(tmp_path: Path) -> None:
    source = tmp_path / "p.c"
    source.write_text("int main(void) { return 0; }")
    built = tmp_path / "p"
    if subprocess.run(["clang", "-fsanitize=address", source, "-o", built], capture_output=True).returncode != 0:
        pytest.skip("clang has no sanitizer runtime")
    assert program.obstacle(built) is not None


# ---- the search for the program is that of env(1) ----


def executable(path: Path, text: str, mode: int = 0o755) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def compare_with_env(sheaf: Run, path: str, *argv: str) -> tuple[int, str]:
    """Status and output of a command with env; asserts that `sheaf run` gives the same."""
    plain = subprocess.run(["/usr/bin/env", *argv], env={"PATH": path}, capture_output=True, text=True)
    ours = sheaf("run", *argv, env={"PATH": path})
    assert (ours.returncode, ours.stdout) == (plain.returncode, plain.stdout)
    assert len(ours.stderr.splitlines()) == (1 if plain.returncode else 0)
    return ours.returncode, ours.stdout


def test_search_and_statuses_are_those_of_env(sheaf: Run, library: str, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    executable(first / "both", "#!/bin/sh\necho first\n", 0o644)
    executable(second / "both", "#!/bin/sh\necho second\n")
    executable(first / "plain", "text", 0o644)
    executable(second / "bare", "echo $0 $1\n")
    executable(second / "gone", "#!/no/such/interpreter\n")
    (first / "directory").mkdir()
    path = f"{first}:{second}"
    assert compare_with_env(sheaf, path, "both") == (0, "second\n")
    assert compare_with_env(sheaf, path, "bare", "word") == (0, f"{second}/bare word\n")
    for status, name in (
        (126, "plain"),
        (126, "directory"),
        (127, "nothing"),
        (127, "gone"),
        (127, ""),
        (127, f"{first}/none"),
        (126, f"{first}/plain"),
        (126, f"{first}/plain/below"),
        (126, str(first)),
        (127, f"{second}/gone"),
    ):
        assert compare_with_env(sheaf, path, name)[0] == status, name
    assert sheaf("run", "--stats", "gone", env={"PATH": path}).returncode == 127
    assert sheaf("run", "--stats", "bare", "word", env={"PATH": path}).stdout == f"{second}/bare word\n"


def test_an_interpreter_named_by_env_is_examined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elf32 = changed_copy(Path(sys.executable).resolve(), tmp_path / "old", 4, b"\x01")
    monkeypatch.setenv("PATH", str(tmp_path))
    script = executable(tmp_path / "script", "#!/usr/bin/env -S A=b old -x\n")
    why = program.obstacle(script)
    assert why is not None
    assert "32-bit" in why.reason
    assert program.interpreter(script) == elf32
    loop = executable(tmp_path / "loop", f"#!{tmp_path}/loop\n")
    assert program.obstacle(loop) is None
    with pytest.raises(SheafError):
        program.locate("none")


def test_a_directory_is_named_as_one(sheaf: Run, library: str, tmp_path: Path) -> None:
    done = sheaf("run", str(tmp_path))
    assert (done.returncode, done.stderr) == (126, f"sheaf: {tmp_path}: is a directory; name a program\n")


# ---- static programs ----


@needs_gcc
def test_static_programs_are_refused_unless_they_have_sheaf(sheaf: Run, library: str, tmp_path: Path) -> None:
    source = "#include <stdlib.h>\nint main(void) { void *volatile p = malloc(100); free(p); return 0; }"
    plain = compile_c(source, tmp_path / "plain", "-static")
    archive = Path(library).with_name("libsheaf-malloc.a")
    if not plain or not archive.exists():
        pytest.skip("no static libc or no libsheaf-malloc.a")
    done = sheaf("run", str(plain))
    assert done.returncode == 125
    assert "statically linked; link it with -lsheaf-malloc" in done.stderr
    linked = compile_c(source, tmp_path / "linked", "-static", "-x", "none", str(archive))
    assert linked
    done = sheaf("run", "--stats", str(linked))
    assert done.returncode == 0
    assert "1 process: linked" in done.stderr
    assert "ok       linkage: it is statically linked with Sheaf" in sheaf("doctor", str(linked)).stdout
    stripped = tmp_path / "stripped"
    subprocess.run(["strip", "-o", stripped, linked], check=True)
    assert program.obstacle(stripped) is None


def elf_with_sections(path: Path, *names: str) -> Path:
    """A static ELF file that has nothing but sections of these names."""
    strings = b"\0" + b"".join(name.encode() + b"\0" for name in names)
    table = bytearray(64)
    for name in names:
        table += struct.pack("<IIQQQQIIQQ", strings.index(name.encode()), 1, 0, 0, 64, len(strings), 0, 0, 1, 0)
    machine = {"x86_64": 62, "aarch64": 183}.get(os.uname().machine, 0)
    start = 64 + len(strings)
    numbers = (2, 1, 1, 0, 0, 2, machine, 1, 0, 0, start, 0, 64, 56, 0, 64, len(names) + 1, 1)
    head = struct.pack("<4s5B7x2HI3QI6H", b"\x7fELF", *numbers)
    path.write_bytes(head + strings + table)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("name", [".note.go.buildid", ".go.buildinfo"])
def test_go_programs_get_an_answer_of_their_own(sheaf: Run, library: str, tmp_path: Path, name: str) -> None:
    done = sheaf("run", str(elf_with_sections(tmp_path / "go", ".text", name)))
    assert done.returncode == 125
    assert "static Go program" in done.stderr
    assert "sheaf-malloc" not in done.stderr
    why = program.obstacle(elf_with_sections(tmp_path / "other", ".text"))
    assert why is not None
    assert "Go" not in why.reason


@pytest.mark.parametrize("offset", [40, 58, 60, 62])
@pytest.mark.parametrize("raw", [b"\0\0", b"\xff\xff", b"\x01\0"])
def test_damaged_section_tables_do_not_matter(tmp_path: Path, offset: int, raw: bytes) -> None:
    whole = elf_with_sections(tmp_path / "go", ".text", ".go.buildinfo")
    assert program.obstacle(changed_copy(whole, tmp_path / "damaged", offset, raw)) is not None
    true = Path(shutil.which("true") or "")
    assert program.obstacle(changed_copy(true, tmp_path / "damaged", offset, raw)) is None
