"""Profiles of interpreted programs, with every allocation of some KiB sampled."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from conftest import Run

Rows = list[dict[str, Any]]


def profile(sheaf: Run, library: str, command: Sequence[str], folder: Path, rate: str, **env: str) -> dict[str, Any]:
    """Run a program and return the JSON of its profile; of the parent, if it forks. Records are in a new folder `records`."""
    records = folder / "records"
    records.mkdir()
    env = {
        "LD_PRELOAD": library,
        "SHEAF_RECORD": str(records),
        "SHEAF_PROFILE": rate,
        "SHEAF_PROFILE_COST": "0",
        "PATH": "/usr/bin:/bin",
        **env,
    }
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    record = min(records.iterdir(), key=lambda one: int(one.name.split(".")[-2]))
    shown = sheaf("profile", str(record), "--format", "json")
    assert shown.returncode == 0, shown.stderr
    document: dict[str, Any] = json.loads(shown.stdout)
    return document


def of_program(row: dict[str, Any], program: str) -> list[tuple[str, int]]:
    """The functions of a program's file in a stack, with lines."""
    return [(frame["function"], frame["line"]) for frame in row["frames"] if (frame["file"] or "").endswith(program)]


def check_made(rows: Rows, file: str) -> None:
    """Check the profile of functions made_000 to made_199: function i allocates 50 000 + 1000 i bytes, in line i % 9 + 2."""
    found = {}
    for row in rows:
        for frame in row["frames"]:
            if frame["file"] == file and frame["function"].startswith("made_"):
                found[frame["function"]] = round(row["values"][1]), frame["line"]
    assert len(found) == 200
    for name, (size, line) in found.items():
        i = int(name[5:])
        assert abs(size - 50_000 - 1000 * i) < 200
        assert line == i % 9 + 2
