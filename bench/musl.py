#!/usr/bin/env python3
"""Compare Sheaf with mallocng, mimalloc 3 and jemalloc where everything is built with musl-gcc.

python3 bench/musl.py [--rounds N] [--only NAME ...] [--object FILE] [--json FILE] [--page FILE]

Prints the table of docs/platforms.md; --page replaces the one in a page. The allocators come from crates, lua and redis from
tests/musl/programs. All of it stays in $MUSL_CACHE (build/musl-programs).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "cli"))

from sheaf.commands.bench.recipes import RECIPES  # noqa: E402  (of this tree)

CACHE = Path(os.environ.get("MUSL_CACHE") or ROOT / "build" / "musl-programs").resolve()
ALLOCATORS = ("mallocng", "Sheaf", "mimalloc 3", "jemalloc")
OTHERS = tuple(name for name in ALLOCATORS if name != "Sheaf")
COMPILER = ["musl-gcc", "-idirafter", str(CACHE / "include")]
_PATIENCE_S = 60.0  # until a server answers
_LOAD = ["-n", "400000", "-r", "50000", "-d", "100", "-P", "16", "-c", "20", "-q", "-t", "set,lpush,hset"]


@dataclass(frozen=True)
class Test:
    """A line of the table: its name here and in the table. Times of programs are seconds, others nanoseconds."""

    name: str
    title: str
    program: bool = False


TESTS = (
    Test("pair", "pair (ns, MiB)"),
    Test("batch", "batches of 1000"),
    Test("pass", "pass to another thread"),
    Test("larson", "larson, 2 threads"),
    Test("lua", "lua, tables and strings (s)", True),
    Test("redis", "redis, set lpush hset (s)", True),
)


def fail(text: str) -> None:
    """End with a message."""
    sys.exit(f"bench/musl.py: {text}")


def call(command: Sequence[str], directory: Path = ROOT, **variables: str) -> None:
    """Run a command that prints to standard error; a failure ends this program."""
    done = subprocess.run(command, cwd=directory, env={**os.environ, **variables}, stdout=sys.stderr, check=False)
    if done.returncode:
        fail(f"{' '.join(command[:3])} ... failed with status {done.returncode}")


# ---- what is compared ----


def sources() -> dict[str, Path]:
    """The folders of the crates with the sources of the other allocators, by crate; cargo fetches them once."""
    wanted = {one.crate: one.crate_version for one in RECIPES if one.name in ("mimalloc3", "jemalloc")}
    folder = CACHE / "crates"
    if not all((folder / "vendor" / crate).is_dir() for crate in wanted):
        if shutil.which("cargo") is None:
            fail("cargo is missing; install it to fetch the sources of other allocators")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        needs = "".join(f'{crate} = "={version}"\n' for crate, version in wanted.items())
        package = '[package]\nname = "peers"\nversion = "0.0.0"\nedition = "2018"\n\n[lib]\npath = "lib.rs"\n\n[dependencies]\n'
        (folder / "Cargo.toml").write_text(package + needs)
        (folder / "lib.rs").touch()
        call(["cargo", "vendor", "--quiet", "vendor"], folder)
    return {crate: folder / "vendor" / crate for crate in wanted}


def mimalloc() -> Path:
    """The shared object of mimalloc 3, from its one file that includes all others, with the settings of a release."""
    made = CACHE / "libmimalloc3.so"
    if not made.exists():
        source = sources()["libmimalloc-sys"] / "c_src" / "mimalloc" / "v3"
        settings = ["-DNDEBUG", "-DMI_MALLOC_OVERRIDE", "-DMI_SHARED_LIB", "-DMI_SHARED_LIB_EXPORT", "-DMI_LIBC_MUSL=1"]
        flags = ["-O3", "-fPIC", "-fvisibility=hidden", "-ftls-model=initial-exec", "-fno-builtin-malloc", "-pthread", "-w"]
        call([*COMPILER, *flags, *settings, "-I", "include", "-shared", "src/static.c", "-o", str(made)], source)
    return made


def jemalloc() -> Path:
    """The shared object of jemalloc, built by its configure and make, without C++."""
    made = CACHE / "libjemalloc.so"
    if not made.exists():
        crate = sources()["tikv-jemalloc-sys"]
        build = CACHE / "jemalloc"
        shutil.rmtree(build, ignore_errors=True)
        shutil.copytree(crate / "jemalloc", build)
        shutil.copy(crate / "configure" / "configure", build / "configure")
        settings = ["--disable-cxx", "--disable-doc", "--with-version=5.3.1-0-g0", f"CC={' '.join(COMPILER)}"]
        call(["sh", "configure", *settings], build)
        call(["make", "-s", "build_lib_shared"], build)
        shutil.copy(build / "lib" / "libjemalloc.so.2", made)
    return made


def loads() -> Path:
    """The program of the micro suite, which also runs other programs."""
    made = CACHE / "bench-musl"
    call([*COMPILER, "-O2", "-fno-builtin", "-pthread", str(ROOT / "bench" / "musl.c"), "-o", str(made)])
    return made


def programs() -> None:
    """Build lua and redis if they are missing."""
    if not all((CACHE / "bin" / name).exists() for name in ("lua5.4", "redis-server")):
        call([str(ROOT / "tests" / "musl" / "programs"), "--build", "lua5.4", "redis"])


# ---- runs ----


@dataclass(frozen=True)
class Result:
    """CPU time of an operation in nanoseconds, or of a program in seconds, and the peak of resident memory in KiB."""

    time: float
    peak: int


def parse(text: str) -> Result:
    """The answer of bench/musl.c."""
    time_, peak = text.split()
    return Result(float(time_), int(peak))


class Runner:
    """Runs tests in a directory of its own."""

    def __init__(self, directory: Path, objects: dict[str, Path | None]) -> None:
        self._directory, self._objects = directory, objects
        self._loads = loads()
        self._environment = {**os.environ, "PATH": f"{CACHE / 'bin'}:{os.environ['PATH']}", "LC_ALL": "C"}
        text = tomllib.loads((ROOT / "bench" / "real" / "lua.toml").read_text())["test"][0]["prepare"]
        subprocess.run(["bash", "-c", text], cwd=directory, check=True)

    def run(self, test: Test, allocator: str) -> Result:
        """One run."""
        path = self._objects[allocator]
        if test.name == "lua":
            return self._measured(path, ["lua5.4", "run.lua"])
        if test.name == "redis":
            return self._redis(path)
        environment = {**self._environment, "LD_PRELOAD": str(path)} if path else self._environment
        done = subprocess.run([self._loads, test.name], env=environment, capture_output=True, text=True, check=True)
        return parse(done.stdout)

    def _start(self, path: Path | None, command: Sequence[str], answer: int) -> subprocess.Popen[bytes]:
        """Start a program whose usage is written to a descriptor when it ends. The launcher itself uses mallocng."""

        def only_answer() -> None:
            os.dup2(answer, 3)

        environment = {**self._environment, "PRELOAD": str(path)} if path else self._environment
        return subprocess.Popen(
            [self._loads, "run", *command],
            cwd=self._directory,
            env=environment,
            stdout=subprocess.DEVNULL,
            pass_fds=(answer, 3),
            preexec_fn=only_answer,
        )

    def _measured(self, path: Path | None, command: Sequence[str], load: Sequence[Sequence[str]] = ()) -> Result:
        with (self._directory / "usage").open("w+b") as file:
            with self._start(path, command, file.fileno()) as process:
                for one in load:
                    subprocess.run(one, cwd=self._directory, env=self._environment, stdout=subprocess.DEVNULL, check=True)
            if process.returncode:
                fail(f"{command[0]} on {path or 'mallocng'} ended with status {process.returncode}")
            file.seek(0)
            return parse(file.read().decode())

    def _redis(self, path: Path | None) -> Result:
        (self._directory / "s").unlink(missing_ok=True)
        ask = ["redis-cli", "-s", "s"]
        ready = [
            "sh",
            "-c",
            f"for i in $(seq {int(_PATIENCE_S * 10)}); do [ -S s ] && exec {' '.join(ask)} ping; sleep 0.1; done; exit 1",
        ]
        server = ["redis-server", "--port", "0", "--unixsocket", "s", "--save", "", "--appendonly", "no"]
        return self._measured(
            path,
            server,
            [ready, ["redis-benchmark", "-s", "s", *_LOAD], ["sh", "-c", f"{' '.join(ask)} shutdown nosave || true"]],
        )


# ---- the table ----


def figures(value: float) -> str:
    """Three significant figures."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}" if value >= 1 else f"{value:.3f}"


def table(results: dict[str, dict[str, list[Result]]]) -> list[str]:
    """The lines of the table: medians, and the ratios of Sheaf to the best of the others and to mallocng."""
    lines = [f"| load | {' | '.join(ALLOCATORS)} | time | peak |", "|---" * (len(ALLOCATORS) + 3) + "|"]
    for test in TESTS:
        if test.name not in results:
            continue
        runs = results[test.name]
        middle = {name: (median(runs[name], "time"), median(runs[name], "peak")) for name in ALLOCATORS}
        cells = [f"{figures(time_)}, {peak / 1024:.1f}" for time_, peak in middle.values()]
        best = min(middle[name][0] for name in OTHERS)
        ratios = middle["Sheaf"][0] / best, middle["Sheaf"][1] / middle["mallocng"][1]
        lines.append(f"| {test.title} | {' | '.join(cells)} | {ratios[0]:.2f} | {ratios[1]:.2f} |")
    return lines


def median(runs: Sequence[Result], field: str) -> float:
    """The median of a field."""
    return float(statistics.median(getattr(one, field) for one in runs))


def replace_table(page: Path, lines: Sequence[str]) -> None:
    """Put the table in the place of the one in a page, which begins with the same words."""
    text = page.read_text()
    changed, n = re.subn(r"^\| load \| mallocng .*\n(?:\|.*\n)*", "\n".join(lines).replace("\\", r"\\") + "\n", text, flags=re.M)
    if n != 1:
        fail(f"{page}: has no table of these loads")
    page.write_text(changed)


def main() -> None:
    """Build, run in interleaved rounds, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="rounds; medians are printed (5)")
    parser.add_argument("--only", nargs="+", choices=[one.name for one in TESTS], help="tests to run")
    parser.add_argument(
        "--object", type=Path, default=ROOT / "build/musl/preload/libsheaf-preload.so", help="Sheaf's object for musl"
    )
    parser.add_argument("--json", type=Path, help="write all results to a file")
    parser.add_argument("--page", type=Path, help="replace the table in this page")
    given = parser.parse_args()
    if not given.object.is_file():
        fail(f"{given.object}: no such object; build it: CC=musl-gcc meson setup build/musl -Dtests=false -Dbench=false")
    tests = [one for one in TESTS if not given.only or one.name in given.only]
    programs()
    objects = {"mallocng": None, "Sheaf": given.object.resolve(), "mimalloc 3": mimalloc(), "jemalloc": jemalloc()}
    results: dict[str, dict[str, list[Result]]] = {test.name: {name: [] for name in ALLOCATORS} for test in tests}
    with tempfile.TemporaryDirectory(prefix="sheaf-musl-") as directory:
        runner = Runner(Path(directory), objects)
        for number in range(given.rounds):
            order = [ALLOCATORS[(i + number) % len(ALLOCATORS)] for i in range(len(ALLOCATORS))]
            for test in tests:
                for name in order:
                    results[test.name][name].append(runner.run(test, name))
            print(f"round {number + 1} of {given.rounds}, {time.strftime('%H:%M:%S')}", file=sys.stderr)
    lines = table(results)
    print("\n".join(lines))
    if given.json:
        raw = {test: {name: [(one.time, one.peak) for one in runs] for name, runs in by.items()} for test, by in results.items()}
        given.json.write_text(json.dumps(raw, indent=1) + "\n")
    if given.page:
        replace_table(given.page, lines)


if __name__ == "__main__":
    main()
