"""Make the initial file system of a guest: busybox, the tests of a build, and what they need."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ELF_MACHINES = {"amd64": 62, "arm64": 183}
CROSS_ROOT = Path("/usr/aarch64-linux-gnu")
CROSS_LIBRARIES = (
    "ld-linux-aarch64.so.1",
    "libc.so.6",
    "libm.so.6",
    "libdl.so.2",
    "libpthread.so.0",
    "libutil.so.1",
    "libgcc_s.so.1",
    "libstdc++.so.6",
)


@dataclass(frozen=True)
class Test:
    """A test of meson's that a guest can run."""

    suite: str
    name: str
    seconds: int
    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]

    def line(self) -> str:
        """Return the line of the guest's script that runs the test."""
        words = [f"{name}={value}" for name, value in self.environment if not name.startswith("IDENTITY_")]
        return shlex.join(["run", self.suite, self.name, str(self.seconds), "env", *words, *self.command])


def is_program(path: Path, machine: str) -> bool:
    """Whether this is an ELF file for the machine."""
    try:
        with path.open("rb") as file:
            start = file.read(20)
    except OSError:
        return False
    return start[:4] == b"\x7fELF" and int.from_bytes(start[18:20], "little") == ELF_MACHINES[machine]


def tests(build: Path, machine: str, chosen: re.Pattern[str]) -> list[Test]:
    """Return the build's tests whose "SUITE NAME" matches and whose program runs on the machine."""
    listed = subprocess.run(["meson", "introspect", "--tests", str(build)], capture_output=True, text=True, check=True)
    found = []
    for test in json.loads(listed.stdout):
        suite = test["suite"][0].rpartition(":")[2]
        name = test["name"]
        if suite in ("regress", "stress") and "fork" in name:
            suite = "fork"
        program = build / test["cmd"][0]
        if chosen.fullmatch(f"{suite} {name}") and is_program(program, machine):
            command = (str(program), *test["cmd"][1:])
            found.append(Test(suite, name, test["timeout"], command, tuple(test["env"].items())))
    return found


class Image:
    """The folder of an initial file system."""

    def __init__(self, folder: Path, machine: str, busybox: Path) -> None:
        self.folder = folder
        self.machine = machine
        for name in ("bin", "dev", "etc", "proc", "sys", "tmp", "root", "usr/bin"):
            (folder / name).mkdir(parents=True)
        shutil.copy(busybox, folder / "bin/busybox")
        (folder / "bin/sh").symlink_to("busybox")
        (folder / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n")
        (folder / "etc/group").write_text("root:x:0:\nnogroup:x:65534:\n")
        shutil.copy(HERE / "init", folder / "init")
        (folder / "init").chmod(0o755)

    def add(self, source: Path, at: str = "") -> None:
        """Copy a file, to the same place or to `at`."""
        to = self.folder / (at or str(source)).lstrip("/")
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, to)

    def add_libraries(self, programs: list[Path], converters: Path) -> None:
        """Copy the shared libraries of the system that the programs need, converters of characters, and a locale."""
        locale = Path("/usr/lib/locale/C.utf8")
        if locale.is_dir():
            shutil.copytree(locale, self.folder / str(locale)[1:])
        for folder in converters.glob("usr/lib/*/gconv"):
            shutil.copytree(folder, self.folder / folder.relative_to(converters))
        if self.machine == "arm64":
            for name in CROSS_LIBRARIES:
                self.add(CROSS_ROOT / "lib" / name, f"/lib/{name}")
            return
        listed = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True).stdout
        for library in sorted(set(re.findall(r"(/\S+\.so\S*)(?= \()", listed))):
            if Path(library).exists() and not (self.folder / library.lstrip("/")).exists():
                self.add(Path(library))

    def pack(self, file: Path) -> None:
        """Write the file system."""
        names = subprocess.run(["find", "."], cwd=self.folder, capture_output=True, check=True).stdout
        with file.open("wb") as out:
            subprocess.run(["cpio", "-o", "-H", "newc", "--quiet"], cwd=self.folder, input=names, stdout=out, check=True)
