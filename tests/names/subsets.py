#!/usr/bin/env python3
"""
Run programs that define some of malloc's names themselves, with and without Sheaf: subsets.py OBJECT BUILD CC CXX [--all].

Each program exports another subset of the names of own.c. Under glibc a call leads to the program's function or to the C
library's, and functions of libc and libstdc++ that are defined by others lead to the program's. Under Sheaf all calls must
lead to the same functions, and the memory must be the same malloc's. Prints TAP.
"""

from __future__ import annotations

import difflib
import itertools
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
_NEW = "_Znwm _Znam _ZnwmRKSt9nothrow_t _ZnamRKSt9nothrow_t _ZnwmSt11align_val_t _ZnamSt11align_val_t"
_NEW += " _ZnwmSt11align_val_tRKSt9nothrow_t _ZnamSt11align_val_tRKSt9nothrow_t"
_DELETE = "_ZdlPv _ZdaPv _ZdlPvm _ZdaPvm _ZdlPvRKSt9nothrow_t _ZdaPvRKSt9nothrow_t _ZdlPvSt11align_val_t"
_DELETE += " _ZdaPvSt11align_val_t _ZdlPvmSt11align_val_t _ZdaPvmSt11align_val_t _ZdlPvSt11align_val_tRKSt9nothrow_t"
_DELETE += " _ZdaPvSt11align_val_tRKSt9nothrow_t"
# Names that the tests replace together.
GROUPS = {
    "malloc": "malloc",
    "free": "free",
    "calloc": "calloc",
    "realloc": "realloc",
    "reallocarray": "reallocarray",
    "aligned_alloc": "aligned_alloc",
    "memalign": "memalign posix_memalign valloc pvalloc",
    "malloc_usable_size": "malloc_usable_size",
    "operators": f"{_NEW} {_DELETE}",
}
Subset = tuple[str, ...]
ALL: Subset = tuple(GROUPS)


@dataclass
class Outcome:
    status: int
    log: str
    errors: str


class Place:
    """The compiled parts, and what is linked from them."""

    def __init__(self, build: Path, cc: str, cxx: str) -> None:
        self.build, self.cc = build, cc.split()
        self.build.mkdir(parents=True, exist_ok=True)
        c = [*self.cc, "-O1", "-g", "-fPIC", "-fno-builtin", "-fvisibility=hidden", "-Wno-deprecated-declarations"]
        for name, tag, more in (("a", "A", ["-DLIBC_NAMES"]), ("a-next", "A", []), ("b", "B", [])):
            self._run([*c, *more, f'-DTAG="{tag}"', "-c", HERE / "own.c", "-o", build / f"own-{name}.o"])
        self._run([*c, "-c", HERE / "main.c", "-o", build / "main.o"])
        # With builtins a compiler may leave out pairs of new and delete.
        self._run(
            [
                *cxx.split(),
                "-std=c++17",
                "-O1",
                "-g",
                "-fPIC",
                "-shared",
                "-fno-builtin",
                "-fsized-deallocation",
                HERE / "calls.cpp",
                "-ldl",
                "-o",
                build / "libcalls.so",
            ]
        )

    def _run(self, command: Sequence[str | Path]) -> None:
        subprocess.run([str(word) for word in command], check=True)

    def _own(self, kind: str, subset: Iterable[str]) -> Path:
        """The object file that has only the names of the subset; the others are local in it."""
        chosen = set(subset)
        out = self.build / f"own-{kind}-{'.'.join(g for g in ALL if g in chosen)}.o"
        away = [f"--localize-symbol={name}" for group, names in GROUPS.items() if group not in chosen for name in names.split()]
        self._run(["objcopy", *away, self.build / f"own-{kind}.o", out])
        return out

    def _link(self, out: Path, parts: Sequence[str | Path]) -> Path:
        search = [f"-L{self.build}", f"-Wl,-rpath,{self.build}"]
        self._run([*self.cc, *parts, *search, "-Wl,--no-as-needed", "-lcalls", "-ldl", "-o", out])
        return out

    def program(self, kind: str, subset: Iterable[str], libraries: Sequence[Path] = ()) -> Path:
        own = self._own(kind, subset)
        # -rdynamic, for functions that no library refers to when the program is linked
        out = self._link(own.with_suffix(".program"), [self.build / "main.o", own, "-rdynamic", "-Wl,--no-as-needed", *libraries])
        own.unlink()
        return out

    def plain(self, libraries: Sequence[Path] = ()) -> Path:
        return self._link(self.build / f"plain-{len(libraries)}", [self.build / "main.o", "-Wl,--no-as-needed", *libraries])

    def library(self, kind: str, subset: Iterable[str]) -> Path:
        own = self._own(kind, subset)
        return self._link(own.with_name("lib" + own.stem + ".so"), ["-shared", own])


def run(program: Path, preloaded: Sequence[Path], **names: Iterable[str]) -> Outcome:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SHEAF_") or k == "SHEAF_RSEQ"}
    environment["LD_PRELOAD"] = ":".join(str(path) for path in preloaded)
    environment |= {f"NAMES_{tag}": ",".join(subset) for tag, subset in names.items()}
    done = subprocess.run([program], env=environment, capture_output=True, text=True, errors="replace", timeout=200)
    return Outcome(done.returncode, done.stdout, done.stderr)


def subsets(every: bool) -> list[Subset]:
    """All subsets; or all of the names that decide, with none, one, two or all of the others."""
    chosen = [s for n in range(len(ALL) + 1) for s in itertools.combinations(ALL, n)]
    if every:
        return chosen
    others = set(ALL) - {"malloc", "free", "realloc", "operators"}
    return [s for s in chosen if len(others & set(s)) in (0, 1, len(others))]


class Report:
    """TAP."""

    def __init__(self) -> None:
        self.number = 0
        self.failed: list[str] = []

    def case(self, name: str, problems: Sequence[str], what: str = "") -> None:
        self.number += 1
        print(f"{'not ok' if problems else 'ok'} {self.number} - {name}{what and f' # {what}'}", flush=True)
        for problem in problems[:3]:
            print("".join(f"# {line}\n" for line in problem.splitlines()[:25]), end="", flush=True)
        if problems:
            self.failed.append(name)


def differences(name: str, without: Outcome, with_sheaf: Outcome) -> str:
    """In words and lines, or nothing."""
    if (without.status, without.log) == (with_sheaf.status, with_sheaf.log):
        return ""
    lines = difflib.unified_diff(without.log.splitlines(), with_sheaf.log.splitlines(), "glibc", "Sheaf", lineterm="", n=0)
    head = f"{name or 'no names'}: status {without.status} on glibc, {with_sheaf.status} on Sheaf; {with_sheaf.errors.strip()}"
    return "\n".join([head, *itertools.islice(lines, 20)])


def in_program(place: Place, sheaf: Path, kind: str, chosen: Sequence[Subset]) -> tuple[list[str], int]:
    """Compare programs with these names of their own; returns the problems, and how many do not run on glibc either."""

    def one(subset: Subset) -> tuple[str, bool]:
        program = place.program(kind, subset)
        without, with_sheaf = run(program, [], A=subset), run(program, [sheaf], A=subset)
        program.unlink()
        if without.status < 0:
            return "", True
        return differences(",".join(subset), without, with_sheaf), False

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(one, chosen))
    return [text for text, _ in results if text], sum(broken for _, broken in results)


def preloaded_before(place: Place, sheaf: Path) -> list[str]:
    """Another preloaded object before Sheaf is as if the program had its names."""
    problems = []
    program = place.plain()
    for subset in (ALL, ALL[:4], ("malloc", "free"), ("realloc",), ("aligned_alloc", "operators"), ALL[:-1]):
        other = place.library("a-next", subset)
        without, with_sheaf = run(program, [other], A=subset), run(program, [other, sheaf], A=subset)
        problems.append(differences(",".join(subset), without, with_sheaf))
        assert without.status == 0, without
    return [text for text in problems if text]


def preloaded_behind(place: Place, sheaf: Path) -> list[str]:
    """Behind Sheaf, another object's names are those that a program with a malloc of its own reaches."""
    problems = []
    programs: tuple[Subset, ...] = (("malloc", "free"), ALL[:4], ("malloc", "free", "realloc", "operators"))
    for mine, theirs in itertools.product(programs, (ALL, ALL[:-1])):
        program, other = place.program("a-next", mine), place.library("b", theirs)
        without = run(program, [other], A=mine, B=theirs)
        problems.append(differences(",".join(mine), without, run(program, [sheaf, other], A=mine, B=theirs)))
        assert without.status == 0 and " B:" in without.log, without
    # A program without names of its own uses Sheaf, and nothing of the other object's.
    outcome = run(place.plain(), [sheaf, place.library("b", ALL)], B=ALL)
    expected = run(place.plain(), [])
    problems.append(differences("none", expected, outcome))
    return [text for text in problems if text]


def in_library(place: Place, sheaf: Path) -> list[str]:
    """A library that the program is linked with is behind Sheaf: all names are Sheaf's."""
    problems = []
    for subset in (ALL, ALL[:4], ("malloc", "free"), ("realloc",)):
        library = place.library("b", subset)
        problems.append(differences(",".join(subset), run(place.plain(), []), run(place.plain([library]), [sheaf], B=subset)))
        assert " B:" in run(place.plain([library]), [], B=subset).log
        mine = ("malloc", "free", "calloc")
        program = place.program("a-next", mine, [library])
        problems.append(
            differences(
                f"{','.join(mine)} before {','.join(subset)}",
                run(program, [], A=mine, B=subset),
                run(program, [sheaf], A=mine, B=subset),
            )
        )
    return [text for text in problems if text]


def main() -> int:
    sheaf, build, cc, cxx = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), sys.argv[3], sys.argv[4]
    place = Place(build, cc, cxx)
    chosen = subsets("--all" in sys.argv[5:])
    report = Report()
    print("1..5")
    problems, broken = in_program(place, sheaf, "a", chosen)
    some_run = [] if broken < len(chosen) / 2 else [f"{broken} of {len(chosen)} programs do not run on glibc"]
    report.case("names of the program", problems + some_run, f"{len(chosen)} subsets, {broken} do not run on glibc")
    problems, broken = in_program(place, sheaf, "a-next", [s for s in chosen if len(s) in (1, 2, len(ALL) - 1, len(ALL))])
    report.case("names of the program that find the next by dlsym", problems)
    report.case("names of an object preloaded before", preloaded_before(place, sheaf))
    report.case("names of an object preloaded behind", preloaded_behind(place, sheaf))
    report.case("names of a library", in_library(place, sheaf))
    return bool(report.failed)


if __name__ == "__main__":
    sys.exit(main())
