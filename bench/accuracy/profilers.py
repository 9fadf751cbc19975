"""The heap profilers that are compared: how a program runs under each, and how its profile is read."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from running import TIMEOUT_S, Failed, Running, environment

CLI = Path(__file__).resolve().parents[2] / "cli"
LIBRARIES = [*Path("/usr/lib").glob("*-linux-gnu*"), Path("/usr/lib64"), Path("/usr/lib"), Path("/usr/local/lib")]
WINDOW_S = 5  # between the snapshots of a growth
BEFORE_S = 1.2  # until the first of them has been taken, so that the growth lies between them


@dataclass(frozen=True)
class Figure:
    """An estimate in bytes. Its error is the half-width of a 95% interval, and None if the profiler says none."""

    bytes: float
    error: float | None = None


class Heap(ABC):
    """One profile."""

    @abstractmethod
    def site(self, name: str) -> Figure:
        """What the function and those that it calls have allocated."""

    @abstractmethod
    def total(self) -> Figure:
        """The sum of all."""


def output(command: Sequence[str | Path], values: dict[str, str]) -> str:
    """The standard output of a command. Raises Failed if it fails."""
    done = subprocess.run(command, env=environment(values), capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise Failed(f"{' '.join(map(str, command))}: ended with {done.returncode}: {last[0]}")
    return done.stdout


class Profiler(ABC):
    """A way to run a program and to see its heap. `build` is the build directory, `rate` the bytes for each sample."""

    name = ""

    def __init__(self, build: Path) -> None:
        self.build = build
        self.programs = build / "bench" / "accuracy"

    @abstractmethod
    def missing(self) -> str:
        """What is not installed; empty if all is there."""

    @abstractmethod
    def start(self, command: Sequence[str | Path], directory: Path, rate: int | None = None, peak: bool = False) -> Running:
        """Start a program; without a rate, with the default one."""

    @abstractmethod
    def live(self, program: str | Path, running: Running) -> Heap:
        """What is live. Peers have written it when the program said so, or at its end."""


class SheafHeap(Heap):
    """The JSON of `sheaf profile`."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.main = [column["name"] for column in document["columns"]].index(document["main"])

    def site(self, name: str) -> Figure:
        own = re.compile(rf"(?:.*::)?{name}(?:[(<].*)?")
        value = square = 0.0
        for row in self.document["rows"]:
            if any(own.fullmatch(frame["function"] or "") for frame in row["frames"]):
                value += row["values"][self.main]
                square += (row["errors"][self.main] or 0.0) ** 2
        return Figure(value, math.sqrt(square))

    def total(self) -> Figure:
        return Figure(self.document["totals"][self.main], self.document["total_errors"][self.main])

    def largest(self) -> dict[str, Any]:
        """The largest stack that is known."""
        return max((row for row in self.document["rows"] if row["frames"]), key=lambda row: float(row["values"][self.main]))


class Sheaf(Profiler):
    """Sheaf as a user runs it: `sheaf run --profile`, and `sheaf profile` and `sheaf leaks --growth` on the running process."""

    name = "sheaf"

    def missing(self) -> str:
        library = self.build / "preload" / "libsheaf-preload.so"
        return "" if library.exists() else f"{library}: build it with ninja -C {self.build}"

    def _values(self) -> dict[str, str]:
        return {"PYTHONPATH": str(CLI), "SHEAF_LIBRARY": str(self.build / "preload" / "libsheaf-preload.so")}

    def start(self, command: Sequence[str | Path], directory: Path, rate: int | None = None, peak: bool = False) -> Running:
        sampling = "--profile" if rate is None else f"--profile={rate}"
        records = directory / "records"
        return Running(
            [
                sys.executable,
                "-m",
                "sheaf",
                "run",
                "--record",
                records,
                sampling,
                "--profile-output",
                directory / "peak.json",
                "--",
                *command,
            ],
            self._values(),
            directory,
        )

    def ask(self, *arguments: str) -> dict[str, Any]:
        """The JSON of a command."""
        answer = output([sys.executable, "-m", "sheaf", *arguments, "--format", "json"], self._values())
        return dict(json.loads(answer))

    def view(self, running: Running, *arguments: str) -> SheafHeap:
        """A profile of the running process."""
        file = running.directory / "view.json"
        output([sys.executable, "-m", "sheaf", "profile", str(running.truth.pid), *arguments, "--output", file], self._values())
        return SheafHeap(json.loads(file.read_text()))

    def live(self, program: str | Path, running: Running) -> SheafHeap:
        return self.view(running, "--view", "live")

    def peak(self, running: Running) -> SheafHeap:
        """The profile that `sheaf run --profile` writes when the program has ended, which is that of the peak."""
        running.go_on()
        running.wait()
        return SheafHeap(json.loads((running.directory / "peak.json").read_text()))

    def growth(self, running: Running) -> tuple[SheafHeap, dict[str, Any]]:
        """The growth meanwhile, by `sheaf profile --view growth` and `sheaf leaks --growth` at the same time."""
        file = running.directory / "growth.json"
        common = [str(running.truth.pid), "--seconds", str(WINDOW_S)]
        sheaf = [sys.executable, "-m", "sheaf"]
        commands = [
            [*sheaf, "profile", *common, "--view", "growth", "--output", str(file)],
            [*sheaf, "leaks", "--growth", *common, "--format", "json"],
        ]
        asked = [
            subprocess.Popen(command, env=environment(self._values()), stdout=subprocess.PIPE, text=True) for command in commands
        ]
        time.sleep(BEFORE_S)
        running.go_on()
        running.ready()
        answers = [one.communicate(timeout=TIMEOUT_S)[0] for one in asked]
        if any(one.returncode for one in asked):
            raise Failed("sheaf profile --view growth or sheaf leaks --growth failed; run them by hand to see why")
        return SheafHeap(json.loads(file.read_text())), dict(json.loads(answers[1]))


class PprofHeap(Heap):
    """The text of jeprof or google-pprof with cumulated bytes."""

    def __init__(self, text: str) -> None:
        self.text = text

    def site(self, name: str) -> Figure:
        for line in self.text.splitlines():
            words = line.split(maxsplit=5)
            if len(words) == 6 and words[5].removesuffix(" (inline)").rsplit("::", 1)[-1] == name:
                return Figure(float(words[3]))
        return Figure(0.0)

    def total(self) -> Figure:
        found = re.search(r"^Total: (-?\d+) B", self.text, re.MULTILINE)
        if not found:
            raise Failed("the profile has no total")
        return Figure(float(found[1]))


class Peer(Profiler):
    """A profiler that writes files, which a script like pprof reads."""

    script = ""
    library = ""
    object = ""
    packages = ""

    def missing(self) -> str:
        if shutil.which(self.script) is None or self._library() is None:
            return f"run apt install {self.packages}"
        return "" if (self.programs / self.object).exists() else f"{self.object} was not built; its headers were missing"

    def _library(self) -> Path | None:
        return next((top / self.library for top in LIBRARIES if (top / self.library).exists()), None)

    @abstractmethod
    def _values(self, directory: Path, rate: int, peak: bool) -> dict[str, str]:
        """The profiler's settings."""

    def start(self, command: Sequence[str | Path], directory: Path, rate: int | None = None, peak: bool = False) -> Running:
        values = self._values(directory, rate or 512 << 10, peak)
        return Running(command, values | {"LD_PRELOAD": f"{self.programs / self.object} {self._library()}"}, directory)

    def files(self, running: Running) -> list[Path]:
        """The profiles so far, the oldest first."""
        return sorted(running.directory.glob("*.heap"), key=lambda file: [int(part) for part in re.findall(r"\d+", file.name)])

    def read(self, program: str | Path, file: Path, base: Path | None = None) -> PprofHeap:
        """One profile, or the difference to an earlier one."""
        since = [f"--base={base}"] if base else []
        return PprofHeap(
            output(
                [
                    self.script,
                    "--text",
                    "--cum",
                    "--show_bytes",
                    "--inuse_space",
                    *since,
                    os.path.realpath(shutil.which(program) or program),
                    file,
                ],
                {},
            )
        )

    def live(self, program: str | Path, running: Running) -> PprofHeap:
        files = self.files(running)
        if not files:
            raise Failed(f"{self.name} wrote no profile")
        return self.read(program, files[-1])

    def growth(self, program: str | Path, running: Running) -> PprofHeap:
        """The growth while the program goes on, as the difference of two profiles."""
        running.go_on()
        running.ready()
        first, *_, last = self.files(running)
        return self.read(program, last, first)


class Jemalloc(Peer):
    """jemalloc's profiler. With `peak`, it also writes a profile whenever its memory has grown, of which the last counts."""

    name, script, library, object = "jemalloc", "jeprof", "libjemalloc.so.2", "libaccuracy-jemalloc.so"
    packages = "libjemalloc2 libjemalloc-dev"

    def _values(self, directory: Path, rate: int, peak: bool) -> dict[str, str]:
        return {
            "MALLOC_CONF": f"prof:true,lg_prof_sample:{rate.bit_length() - 1},prof_prefix:{directory}/je,"
            f"prof_gdump:{str(peak).lower()}"
        }

    def peak(self, program: str | Path, running: Running) -> PprofHeap:
        """The profile of the moment when jemalloc used most memory."""
        return self.read(program, [file for file in self.files(running) if ".u" in file.name][-1])


class Tcmalloc(Peer):
    """The sampler of gperftools' tcmalloc. It has no profile of a peak."""

    name, script, library, object = "tcmalloc", "google-pprof", "libtcmalloc.so.4", "libaccuracy-tcmalloc.so"
    packages = "google-perftools libgoogle-perftools-dev"

    def _values(self, directory: Path, rate: int, peak: bool) -> dict[str, str]:
        return {"TCMALLOC_SAMPLE_PARAMETER": str(rate), "ACCURACY_DUMP": str(directory / "tc")}


PEERS = (Jemalloc, Tcmalloc)
