#!/usr/bin/env python3
"""
Runs test programs of a build of meson in the root of another distribution. Prints TAP, one line for each case.

    tests/platforms/programs.py run BUILD ROOT OBJECT SUITE    with OBJECT in place of the build's preloaded object
    tests/platforms/programs.py targets BUILD SUITE...         what ninja has to build

The suites are those of meson, and `fork`: the programs about fork(), which come from several suites.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TREE = Path(__file__).resolve().parents[2]
FORK = re.compile(r"(process|regress-a?t?fork|regress-detached|stress.*fork)")
OBJECT = "preload/libsheaf-preload.so"
OWN = {"GLIBC_TUNABLES": "glibc.pthread.rseq=0"}
SETTINGS = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8", "SHEAF_SOAK": "1"}
# The tree is at its own path in the root, so that the paths of programs, arguments and settings hold there.
ENTER = 'cd "$0" && exec env -i "$@"'
SLOWER = 10  # than on an idle machine, as in tests/run


@dataclass(frozen=True)
class Program:
    """A test of meson: its name, command, environment, and how long it may take."""

    name: str
    suite: str
    command: tuple[str, ...]
    settings: dict[str, str]
    timeout: int

    def on(self, build: Path, instead: Path) -> dict[str, str]:
        """The environment with another preloaded object."""
        return {name: value.replace(str(build / OBJECT), str(instead)) for name, value in self.settings.items()}


def suite_of(name: str, suite: str) -> str:
    """The suite that a test counts for."""
    return "fork" if FORK.match(name) else suite


def programs(build: Path, suites: list[str]) -> list[Program]:
    """The tests of the suites, in meson's order."""
    tests: list[dict[str, Any]] = json.loads((build / "meson-info/intro-tests.json").read_text())
    found = []
    for test in tests:
        suite = suite_of(test["name"], test["suite"][0].partition(":")[2])
        if suite in suites:
            found.append(Program(test["name"], suite, tuple(test["cmd"]), test["env"], test["timeout"]))
    return found


def with_own_rseq(found: list[Program]) -> list[Program]:
    """The programs, and those on the preloaded object again where libc must not register rseq."""
    again = [
        Program(program.name + "-own", program.suite, program.command, {**program.settings, **OWN}, program.timeout)
        for program in found
        if "LD_PRELOAD" in program.settings and "SHEAF_RSEQ" not in program.settings
    ]
    return found + again


def registers(root: Path) -> bool:
    """Whether the root's libc registers rseq, as glibc does from 2.35 on."""
    run = subprocess.run(["chroot", root, "ldd", "--version"], capture_output=True, text=True, check=True)
    version = re.search(r"(\d+)\.(\d+)$", run.stdout.splitlines()[0])
    return version is not None and (int(version[1]), int(version[2])) >= (2, 35)


def verdicts(program: Program, status: int, output: str) -> list[str]:
    """The lines of a program's cases, without numbers."""
    label = f"{program.suite}: {program.name}"
    newer = re.search(r"version `(GLIBC_[\d.]+)' not found \(required by ([^)]*)\)", output)
    if newer and newer[2] == program.command[0]:
        return [f"ok - {label} # SKIP the test program needs {newer[1]}"]
    if none := re.search(r"^1\.\.0 # SKIP (.*)", output, re.M):
        return [f"ok - {label} # SKIP {none[1]}"]
    if status == 77:
        return [f"ok - {label} # SKIP {(output.splitlines() or [''])[-1]}"]
    lines = []
    for bad, name, skipped in re.findall(r"^(not )?ok\b *\d* *-? *(.*?) *(# *skip.*)?$", output, re.M | re.I):
        lines.append(f"{bad}ok - {label}: {name} {skipped}".rstrip())
    if status and not any(line.startswith("not ok") for line in lines):
        lines.append(f"not ok - {label}: status {status}")
    if status:
        lines += [f"# {line}" for line in output.splitlines()[-12:]]
    return lines or [f"ok - {label}"]


def run(program: Program, build: Path, root: Path, instead: Path) -> list[str]:
    """Run a program in the root; returns the lines of its cases."""
    settings = [f"{name}={value}" for name, value in {**SETTINGS, **program.on(build, instead)}.items()]
    command = ["chroot", str(root), "sh", "-c", ENTER, str(build), *settings, *program.command]
    limit = ["timeout", "-k", "5", str(program.timeout * SLOWER)]
    done = subprocess.run(
        [*limit, *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    return verdicts(program, done.returncode, done.stdout.decode(errors="replace"))


def run_suite(build: Path, root: Path, instead: Path, suite: str) -> None:
    """Run a suite and print its TAP."""
    chosen = programs(build, [suite])
    if registers(root) and suite in ("conformance", "stress", "fork", "rseq"):
        chosen = with_own_rseq(chosen)
    number = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for lines in pool.map(lambda program: run(program, build, root, instead), chosen):
            for line in lines:
                number += not line.startswith("#")
                print(re.sub(r"^(not )?ok -", rf"\g<0> {number}", line).replace(f"ok - {number}", f"ok {number} -"))
            sys.stdout.flush()
    print(f"1..{number}")


def targets(build: Path, suites: list[str]) -> set[str]:
    """The files of the build that the tests name."""
    found = set()
    for program in programs(build, suites):
        for words in (*program.command, *program.settings.values()):
            for word in words.split(":"):
                path = Path(os.path.relpath(build / word, build))
                if path.parts[0] in ("tests", "preload") and path.suffix in ("", ".so") and not (TREE / path).is_dir():
                    found.add(str(path))
    return found


def main() -> None:
    """See above."""
    how, build = sys.argv[1], Path(sys.argv[2]).resolve()
    if how == "targets":
        print("\n".join(sorted(targets(build, sys.argv[3:]))))
    else:
        run_suite(build, Path(sys.argv[3]), Path(sys.argv[4]), sys.argv[5])


if __name__ == "__main__":
    main()
