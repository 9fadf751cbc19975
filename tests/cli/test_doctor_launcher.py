"""`sheaf doctor` on programs that are served only in part: those that start others without Sheaf, and those with own heaps."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from sheaf.commands.doctor import program as doctor_program
from sheaf.commands.doctor.finding import Finding, future
from sheaf.commands.doctor.launcher import launcher
from sheaf.system.program import obstacle

TRUE = Path(shutil.which("true") or "/bin/true")
SH = Path("/bin/sh")


def findings(path: Path) -> dict[str, Finding]:
    found = doctor_program.read(path)
    assert not isinstance(found, Finding)
    return {one.subject: one for one in doctor_program.examine(found, future())[0]}


@pytest.mark.parametrize(
    "name, said, advice",
    [
        ("sudo", "a new environment", "as in `sudo sheaf run -- PROGRAM`"),
        ("su", "the loader removes", "as in `su -c"),
        ("systemd-run", "a service starts", "as in `systemd-run sheaf run -- PROGRAM`"),
        ("flatpak", "in a sandbox", "in the sandbox"),
        ("podman", "in containers", "into the image"),
        ("ssh", "another machine", "install Sheaf there"),
        ("valgrind", "replace malloc", "--debug"),
        ("qemu-aarch64", "only the emulator", "-E LD_PRELOAD"),
        ("qemu-arm-static", "only the emulator", "-E LD_PRELOAD"),
    ],
)
def test_launchers(tmp_path: Path, name: str, said: str, advice: str) -> None:
    (tmp_path / name).symlink_to(TRUE)
    found = findings(tmp_path / name)["launcher"]
    assert found.status == "note"
    assert said in found.what
    assert advice in found.advice
    assert ";" not in found.what


@pytest.mark.parametrize("name", ["true", "sudoku", "qemu-system-x86_64", "qemu-img", "sshd"])
def test_other_programs(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to(TRUE)
    assert "launcher" not in findings(tmp_path / name)


@pytest.mark.parametrize(
    "line",
    [
        "unset LD_PRELOAD",
        "unset A LD_PRELOAD B",
        "exec env -i PATH=$PATH ./x",
        "env -u LD_PRELOAD x",
        "env - x",
        "export LD_PRELOAD=",
        "LD_PRELOAD= ./x",
        "if true; then unset LD_PRELOAD; fi",
        "env --ignore-environment x",
        "LD_PRELOAD='' x",
    ],
)
def test_scripts_that_clear_the_environment(tmp_path: Path, line: str) -> None:
    path = tmp_path / "wrapper"
    path.write_text(f"#!/bin/sh\n{line}\nexec x\n")
    path.chmod(0o755)
    found = findings(path)["launcher"]
    assert "LD_PRELOAD" in found.what or "env -" in found.what
    assert ";" not in found.what


@pytest.mark.parametrize("line", ["# unset LD_PRELOAD", "echo hello # env -i", "LD_PRELOAD=/x.so y", "environment -i", "unset A"])
def test_scripts_that_do_not(tmp_path: Path, line: str) -> None:
    path = tmp_path / "wrapper"
    path.write_text(f"#!/bin/sh\n{line}\n")
    assert launcher(path, SH) is None


def test_heaps_of_runtimes(tmp_path: Path) -> None:
    for name, more, said in (("node", b"\0DOTNET_ROOT\0libhostfxr.so\0", ".NET has a heap"), ("plain", b"\0DOTNET_ROOT\0", "")):
        path = tmp_path / name
        path.write_bytes(TRUE.read_bytes() + more)
        path.chmod(0o755)
        found = findings(path).get("runtime")
        assert said in found.what if found else not said


def test_an_appimage(tmp_path: Path) -> None:
    static = shutil.which("busybox") or shutil.which("ldconfig", path="/sbin:/usr/sbin")
    if not static:
        pytest.skip("no static program is installed")
    raw = bytearray(Path(static).read_bytes())
    raw[8:11] = b"AI\x02"
    path = tmp_path / "x.AppImage"
    path.write_bytes(raw)
    path.chmod(0o755)
    found = obstacle(path)
    if found and found.subject == "linkage":
        assert "it is an AppImage" in found.reason
        assert "--force" in found.advice
