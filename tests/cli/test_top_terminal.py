"""`sheaf top` on a terminal: its screen, its colours, and its ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, Start

pytest.importorskip("textual")
pytest.importorskip("pyte")
from terminal import Display


def shown(directory: Path, environment: dict[str, str] | None = None) -> Display:
    """`sheaf top` on a terminal."""
    given = environment or {}
    env = {**os.environ, "PYTHONPATH": str(ROOT / "cli"), "TERM": "xterm", "LC_ALL": "C.UTF-8", **given}
    for name in ("NO_COLOR", "COLORTERM", "COLUMNS", "LINES"):
        if name not in given:
            env.pop(name, None)
    return Display([sys.executable, "-m", "sheaf", "top", "--interval", "0.1", str(directory)], env)


def test_a_session_of_80_columns(start: Start, tmp_path: Path) -> None:
    program = start()
    with shown(tmp_path) as display:
        screen = display.wait(lambda now: str(program.pid) in now and "█" in now and "Enter Caches" in now)
        lines = screen.splitlines()
        assert re.match(r"sheaf top - \d\d:\d\d:\d\d, 1 running, \S+ allocations/s; every 0.1 s$", lines[0])
        assert re.match(r"live +[\d.]+[KM] +[▁▂▃▄▅▆▇█]+$", lines[1])
        assert lines[3].split() == ["PID", "S", "PROGRAM", "RES", "LIVE", "WARM", "ALLOC/S", "SLOW%", "REFILL/S", "RESIDENT"]
        assert re.match(rf" *{program.pid} R python", lines[4])
        assert lines[23].startswith("q Quit  ? Help  Enter Caches")
        display.type("\r")
        display.wait(lambda now: f"({program.pid}), running" in now and "malloc-" in now)
        program.end()
        display.wait(lambda now: f"({program.pid}), ended" in now)
        display.resize(120, 40)
        display.wait(lambda now: now.split("\n")[39].startswith("q Quit"))
        display.type("?")
        display.wait(lambda now: "keys and columns" in now)
        display.type("xq")
        assert display.end() == 0
        assert display.raw.rindex(b"\x1b[?1049l") > display.raw.rindex(b"\x1b[?1049h")
        assert display.raw.rindex(b"\x1b[?25h") > display.raw.rindex(b"\x1b[?25l")


@pytest.mark.parametrize(
    ("end", "status"), [("q", 0), ("\x03", 0), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGHUP, -signal.SIGHUP)]
)
def test_every_end_restores_the_terminal(tmp_path: Path, end: str | signal.Signals, status: int) -> None:
    with shown(tmp_path) as display:
        before = display.attributes()
        display.wait(lambda now: "No process on Sheaf" in now)
        assert display.attributes() != before
        if isinstance(end, str):
            display.type(end)
        else:
            os.kill(display.pid, end)
        while b"\x1b[?1049l" not in display.raw:
            display._read()
        after = display.attributes()
        assert display.end() == status
        assert display.raw.rindex(b"\x1b[?25h") > display.raw.rindex(b"\x1b[?25l")
        assert b"Traceback" not in display.raw
        assert after[:4] == before[:4] or display.raw.endswith(b"\x1b[?1006l")


def colours(raw: bytes) -> set[int]:
    """The parameters of all sequences that set attributes."""
    return {int(number) for found in re.findall(rb"\x1b\[([0-9;]*)m", raw) for number in found.split(b";") if number}


@pytest.mark.parametrize(
    ("environment", "allowed"),
    [
        ({"NO_COLOR": "1"}, {0, 1, 2, 7, 39, 49}),
        ({"TERM": "xterm"}, {0, 1, 2, 7, *range(30, 38), 39, *range(40, 48), 49}),
        ({"TERM": "linux", "LC_ALL": "C"}, {0, 1, 2, 7, *range(30, 38), 39, *range(40, 48), 49}),
    ],
)
def test_colours(start: Start, tmp_path: Path, environment: dict[str, str], allowed: set[int]) -> None:
    program = start()
    with shown(tmp_path, environment) as display:
        display.wait(lambda now: str(program.pid) in now)
        display.type("\r")
        display.wait(lambda now: "malloc-" in now)
        display.type("q")
        assert display.end() == 0
        assert colours(display.raw) <= allowed
        if environment.get("TERM") == "linux":
            assert not set("▁▂▃▄▅▆▇█") & set(display.raw.decode())
        elif "NO_COLOR" not in environment:
            assert colours(display.raw) & set(range(30, 38))


@pytest.mark.parametrize("environment", [{"TERM": "dumb"}])
def test_a_terminal_that_cannot_be_drawn_on(tmp_path: Path, environment: dict[str, str]) -> None:
    with shown(tmp_path, environment) as display:
        assert display.end() == 1
        assert b"use --batch" in display.raw


def test_the_program_of_a_name(start: Start, library: str, tmp_path: Path) -> None:
    name = f"top-{os.getpid()}"
    (tmp_path / name).symlink_to(sys.executable)
    process = subprocess.Popen(
        [tmp_path / name, "-c", "input()"],
        stdin=subprocess.PIPE,
        env={**os.environ, "LD_PRELOAD": library, "SHEAF_RECORD": str(tmp_path)},
    )
    try:
        while not list(tmp_path.glob("*.sheaf")):
            os.sched_yield()
        env = {**os.environ, "PYTHONPATH": str(ROOT / "cli"), "TERM": "xterm"}
        with Display([sys.executable, "-m", "sheaf", "top", name], env) as display:
            display.wait(lambda now: f"({process.pid}), running" in now)
            display.type("q")
            assert display.end() == 0
    finally:
        process.communicate(b"\n")
