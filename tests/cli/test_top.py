"""`sheaf top`: its rows, its output for scripts and its keys."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT, Run, Start, write_record
from sheaf.records.state import State
from sheaf.records.watch import Watch
from sheaf.rendering import sizes, toprows
from sheaf.rendering.columns import Column
from sheaf.rendering.toprows import CACHES, PROCESSES, History, Moment, Source

pytest.importorskip("textual")
pytest.importorskip("pyte")
from sheaf.rendering.topscreen import Top
from textual.pilot import Pilot

COUNTS = {
    "alloc_fastpath": 1000,
    "alloc_slowpath": 10,
    "free_fastpath": 700,
    "free_slowpath": 5,
    "slabs": 2,
    "objects": 2048,
    "free_in_slabs": 1500,
    "barn_objects": 100,
    "inherited": 3,
}
ONCE = 3600.0  # an interval in which no second refresh happens by itself


# ---- rows ----


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (None, "-"),
        (0, "0K"),
        (1023, "1.0K"),
        (4096, "4.0K"),
        (10 << 10, "10K"),
        (999 << 10, "999K"),
        (1023 << 10, "1.0M"),
        (1 << 30, "1.0G"),
        (9_999 << 40, "9.8P"),
        (1 << 63, "8192P"),
    ],
)
def test_sizes(number: int | None, shown: str) -> None:
    assert sizes.brief(number) == shown
    assert len(shown) <= 5


@pytest.mark.parametrize(
    ("value", "shown"), [(None, "-"), (0.0, "0"), (0.25, "0.2"), (12.3, "12"), (99_999, "99999"), (1e7, "9.5M")]
)
def test_rates(value: float | None, shown: str) -> None:
    assert sizes.rate(value) == shown


def test_sparklines() -> None:
    assert toprows.sparkline([0, 1, 4, 8], 6) == "   ▁▄█"
    assert toprows.sparkline([5, 5, 5, 9], 2) == "▅█"
    assert toprows.sparkline([], 3) == toprows.sparkline([0, 0, 0], 3) == "   "
    assert toprows.sparkline([1, 9], 2, toprows.ASCII) == ".@"


def test_order_and_filter() -> None:
    rows = [
        {"pid": pid, "program": name, "resident": size}
        for pid, name, size in ((3, "beta", 5), (20, "alpha", None), (100, "gamma", 7), (11, "Beta", 5))
    ]

    def pids(key: str, reverse: bool = False, wanted: str = "") -> list[int]:
        return [row["pid"] for row in toprows.arranged(rows, key, reverse, wanted)]

    assert pids("resident") == [100, 3, 11, 20]
    assert pids("resident", True) == [3, 11, 100, 20]
    assert pids("pid") == [3, 11, 20, 100]
    assert pids("program", True) == [100, 3, 20, 11]
    assert pids("pid", wanted="BETA") == [3, 11]
    assert pids("pid", wanted="1") == [11, 100]
    assert pids("pid", wanted="none") == []
    caches = [{"name": f"malloc-{size}", "memory": 1} for size in (1024, 1280, 128)]
    assert [row["name"] for row in toprows.arranged(caches, "name", False)] == ["malloc-128", "malloc-1024", "malloc-1280"]
    assert [row["name"] for row in toprows.arranged(caches, "memory", False)] == ["malloc-128", "malloc-1024", "malloc-1280"]


@pytest.mark.parametrize("columns", [PROCESSES, CACHES])
def test_columns_fit_80_characters(columns: list[Column]) -> None:
    assert list(toprows.fitting(columns, 80)) == [one for one in columns if one.name != "command"]
    assert list(toprows.fitting(columns, 110)) == list(columns)
    least = {"pid", "program", "resident"} if columns is PROCESSES else {"name", "memory"}
    assert {one.name for one in toprows.fitting(columns, 30)} == least
    assert sum(abs(one.width) + 1 for one in toprows.fitting(columns, 30)) - 1 <= 30
    for one in columns:
        assert len(one.heading) <= abs(one.width)
    keys = [one.key for one in columns]
    assert len(set(keys)) == len(keys)
    assert not set(keys) & set("q?/<>ie +-jkhTP")


def test_the_history_ends_with_its_process(tmp_path: Path) -> None:
    write_record(tmp_path / "a.1.sheaf", {"malloc-64": COUNTS})
    (process,) = Watch([tmp_path]).refresh(caches=True)
    running = replace(process, state=State("running", pid=7), resident=1 << 20)
    history = History()
    for _ in range(toprows.HISTORY + 5):
        history.add(Moment(0.0, [running]))
    assert list(history.of(process.path)) == [(308 * 64, 1 << 20)] * toprows.HISTORY
    history.add(Moment(0.0, []))
    assert (history.of(process.path), history.total[-1]) == ((), (0, 0))


# ---- for scripts ----


def test_batch_of_a_directory(sheaf: Run, start: Start, tmp_path: Path) -> None:
    programs = [start() for _ in range(2)]
    write_record(tmp_path / "old.1.sheaf", {"malloc-64": COUNTS})
    done = sheaf("top", "--batch", "-n", "2", "--interval", "0.1", str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.split("\n\n")
    assert first.splitlines()[0].endswith(", - allocations/s")
    for text in (first, second):
        lines = text.splitlines()
        assert re.fullmatch(
            r"sheaf top - \d\d:\d\d:\d\d, 2 running, resident [\d.]+M, live [\d.]+[KM], warm [\d.]+[KM], "
            r"[\d.-]+ allocations/s",
            lines[0],
        )
        assert lines[1].split() == ["PID", "S", "PROGRAM", "RES", "LIVE", "WARM", "ALLOC/S", "SLOW%", "REFILL/S"]
        assert {line.split()[0] for line in lines[2:]} == {str(program.pid) for program in programs}
        assert all(line.split()[1] == "R" for line in lines[2:])
    assert all(line.endswith("-        -     -        -"[-12:]) for line in first.splitlines()[2:])
    assert "old" not in done.stdout
    every = sheaf("top", "--batch", "--ended", "-n", "1", "--sort", "pid", str(tmp_path)).stdout
    assert every.splitlines()[-1].split()[:3] == ["99999999"[:8], "E", "old"]


def test_json_lines(sheaf: Run, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHEAF_HELPER", "0")  # or the memory of caches would change between the two commands
    program = start()
    done = sheaf("top", "--json", "-n", "3", "--interval", "0.1", str(tmp_path))
    moments = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(moments) == 3
    assert moments[0]["time_ns"] < moments[2]["time_ns"]
    for moment in moments:
        (process,) = moment["processes"]
        assert (moment["schema_version"], process["pid"], process["state"]) == (1, program.pid, "running")
        assert process["memory"]["resident_bytes"] > 1 << 20
    assert [moment["processes"][0]["alloc_per_second"] is None for moment in moments] == [True, False, False]
    one = json.loads(sheaf("top", "--json", "-n", "1", str(program.pid)).stdout)["processes"][0]
    stats = json.loads(sheaf("stats", "--format", "json", str(program.pid)).stdout)["rows"]
    assert {row["name"]: row["memory_bytes"] for row in one["caches"]} == {row["name"]: row["memory_bytes"] for row in stats}


def test_batch_of_a_process_ends_with_it(start: Start, tmp_path: Path) -> None:
    program = start()
    env = {**os.environ, "PYTHONPATH": str(ROOT / "cli")}
    top = subprocess.Popen(
        [sys.executable, "-m", "sheaf", "top", "--batch", "--interval", "0.1", str(program.pid)],
        stdout=subprocess.PIPE,
        text=True,
        env=env,
    )
    assert top.stdout
    for line in top.stdout:
        if line.startswith("malloc-"):
            break
    program.end()
    rest = top.stdout.read()
    assert top.wait() == 0
    assert re.search(r"^sheaf top - \S+ \S+ \(\d+\), ended, ", rest, re.M)


def test_no_processes(sheaf: Run, tmp_path: Path) -> None:
    done = sheaf("top", "--batch", "-n", "1", str(tmp_path))
    assert done.stdout.splitlines()[-1].startswith("No process on Sheaf keeps a record. Start one with `sheaf run --record DIR ")
    assert json.loads(sheaf("top", "--json", "-n", "1", str(tmp_path)).stdout)["processes"] == []


@pytest.mark.parametrize(
    ("line", "said", "status"),
    [
        ("-n 3", "sheaf: -n: goes with --batch or --json only; add one of them, or leave -n out", 2),
        ("--batch --sort weight", "sheaf: --sort weight: no such column; the columns are pid, state, program, ", 2),
        ("--batch --interval 0", "sheaf top: --interval: 0.0 is not in the range ", 2),
        ("--batch 99999999", "sheaf: 99999999: no such process; ", 1),
        ("--batch no-such-program", "sheaf: no-such-program: no process of this name runs on Sheaf; ", 1),
        ("", "sheaf: top: standard input or output is no terminal that can be drawn on; use --batch", 1),
    ],
)
def test_errors(sheaf: Run, line: str, said: str, status: int) -> None:
    done = sheaf("top", *line.split())
    assert done.stderr.startswith(said)
    assert (done.returncode, len(done.stderr.splitlines())) == (status, 1)


def test_run_does_not_import_textual() -> None:
    code = "import sys; from sheaf.commands import run, stats, top; print([m for m in sys.modules if m in ('textual', 'rich')])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "cli")},
    )
    assert done.stdout == "[]\n"


# ---- keys ----


class Fixed(Source):
    """Refreshes that give prepared processes."""

    def __init__(self, moment: Moment) -> None:
        super().__init__(Watch([]))
        self.moment = moment

    def refresh(self) -> Moment:
        return self.moment


def text(app: Top) -> str:
    """What is on the screen."""
    lines = app.board.lines(*app.board.size)
    return "\n".join("".join(segment.text for segment in line).rstrip() for line in lines)


def pilot(
    source: Source, test: Callable[[Top, Pilot[None]], Awaitable[None]], size: tuple[int, int] = (80, 24), ended: bool = False
) -> None:
    """Run a test with an application that has made its first refresh."""

    async def run() -> None:
        app = Top(source, ONCE, ended, None)
        async with app.run_test(size=size) as driver:
            while app.board.moment is None:
                await driver.pause(0.01)
            await test(app, driver)

    asyncio.run(run())


async def refreshed(app: Top, driver: Pilot[None]) -> None:
    """Wait for another refresh."""
    before = app.refreshes
    app.board.poke.set()
    while app.refreshes == before:
        await driver.pause(0.01)
    await driver.pause()


def many(directory: Path, count: int) -> Moment:
    """So many running processes with numbers that no process has; the later ones have more resident memory."""
    write_record(directory / "a.1.sheaf", {"malloc-64": COUNTS})
    (one,) = Watch([directory]).refresh(caches=True)
    return Moment(
        0.0,
        [
            replace(
                one,
                state=State("running", pid=9001000 + i),
                resident=(i + 1) << 20,
                head=replace(one.head, program=f"program-{i}", path=directory / f"{i}.sheaf"),
            )
            for i in range(count)
        ],
    )


def test_five_hundred_processes(tmp_path: Path) -> None:
    async def test(app: Top, driver: Pilot[None]) -> None:
        lines = text(app).splitlines()
        assert len(lines) == 24
        assert max(map(len, lines)) <= 80
        assert lines[0].startswith("sheaf top - ")
        assert "500 running" in lines[0]
        assert lines[1].startswith("live ")
        assert lines[2].startswith("resident ")
        assert lines[4].split()[:4] == ["9001499", "R", "program-499", "500M"]
        assert [line.split()[0] for line in lines[4:23]] == [str(pid) for pid in range(9001499, 9001480, -1)]
        await driver.press("down", "down")
        assert app.board.page.at == 2
        await driver.press("pagedown")
        assert app.board.page.at == 20
        assert text(app).splitlines()[22].split()[0] == "9001479"
        await driver.press("end")
        assert text(app).splitlines()[22].split()[0] == "9001000"
        await driver.press("p")  # another order begins at its start
        assert text(app).splitlines()[4].split()[0] == "9001000"
        assert app.board.page.at == 0
        await driver.press("p")
        assert app.board.page.rows[0]["pid"] == 9001499
        await driver.press("/", "m", "-", "4", "2", "backspace")
        assert "Filter: m-4_" in text(app)
        assert len(app.board.page.rows) == 111
        await driver.press("enter", "i")
        assert text(app).splitlines()[-1].startswith("[m-4] q Quit")
        assert app.board.page.rows[0]["pid"] == 9001004
        await driver.press("/", "z", "z", "enter")
        assert "Nothing matches the filter zz." in text(app)
        await driver.press("escape")
        assert len(app.board.page.rows) == 500

    pilot(Fixed(many(tmp_path, 500)), test)


def test_a_selected_process_stays_selected(tmp_path: Path) -> None:
    source = Fixed(many(tmp_path, 30))

    async def test(app: Top, driver: Pilot[None]) -> None:
        def turn() -> None:
            source.moment = Moment(1.0, [replace(one, resident=(1 << 40) // one.resident) for one in source.moment.processes])

        turn()
        await refreshed(app, driver)
        assert (app.board.page.at, app.board.page.rows[0]["pid"]) == (0, 9001000)  # nothing was selected by the user
        await driver.press("down", "down")
        turn()
        await refreshed(app, driver)
        assert app.board.page.rows[app.board.page.at]["pid"] == 9001002
        assert re.search(r"^ *9001002 R", text(app), re.M)
        source.moment = Moment(2.0, [one for one in source.moment.processes if one.pid != 9001002])
        await refreshed(app, driver)
        assert app.board.page.at == 27

    pilot(source, test)


def test_sorting_by_neighbouring_columns(tmp_path: Path) -> None:
    async def test(app: Top, driver: Pilot[None]) -> None:
        names = [one.name for one in PROCESSES]
        seen = []
        for _ in names:
            await driver.press(">")
            seen.append(app.board.page.key)
        assert sorted(seen) == sorted(names)
        await driver.press("<")
        assert app.board.page.key == seen[-2]

    pilot(Fixed(many(tmp_path, 3)), test)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (60, 15), (40, 10), (20, 5), (1, 1)])
def test_any_size(tmp_path: Path, size: tuple[int, int]) -> None:
    async def test(app: Top, driver: Pilot[None]) -> None:
        for keys in ((), ("enter",), ("?",), ("?",), ("escape",), ("/",)):
            await driver.press(*keys)
            assert len(text(app).splitlines()) <= size[1]
        await driver.resize_terminal(80, 24)
        await driver.pause()
        assert len(text(app).splitlines()) == 24

    pilot(Fixed(many(tmp_path, 50)), test, size)


def test_the_help_lists_all_keys_and_columns(tmp_path: Path) -> None:
    async def test(app: Top, driver: Pilot[None]) -> None:
        await driver.press("?")
        shown = [text(app)]
        for _ in range(60):
            await driver.press("down")
            shown.append(text(app))
        every = "\n".join(shown)
        assert all(f"{one.heading:<9} {one.key}" in every for one in (*PROCESSES, *CACHES))
        assert "Ctrl-C" in every
        await driver.press("x")
        assert text(app).startswith("sheaf top - ")

    pilot(Fixed(many(tmp_path, 1)), test)


def test_no_process_on_the_screen(tmp_path: Path) -> None:
    async def test(app: Top, driver: Pilot[None]) -> None:
        assert "No process on Sheaf keeps a record." in text(app)
        await driver.press("enter", "down", "up", "end", "space", "e", "i", ">", "escape")
        assert "0 running" in text(app)
        assert "stopped" in text(app)

    pilot(Source(Watch([tmp_path])), test)


def test_the_caches_of_a_process_and_its_end(start: Start, tmp_path: Path) -> None:
    program = start()

    async def test(app: Top, driver: Pilot[None]) -> None:
        await driver.press("enter")
        lines = text(app).splitlines()
        assert re.match(rf"\S+ \({program.pid}\), running, ", lines[0])
        assert any(line.startswith("  live ") for line in lines)
        assert any(re.match(r"malloc-\d+ +\d+ +\d+ ", line) for line in lines)
        program.work()
        await refreshed(app, driver)
        await driver.press("/", *"640", "enter")
        (row,) = app.board.page.rows
        assert row["alloc"] > 0
        program.end()
        await refreshed(app, driver)
        assert f"({program.pid}), ended, " in text(app).splitlines()[0]
        assert "malloc-640 " in text(app)
        await refreshed(app, driver)
        assert app.board.page.rows[0]["alloc"] is None
        (path,) = tmp_path.glob("*.sheaf")
        path.unlink()
        await refreshed(app, driver)
        assert "its record has vanished" in text(app)
        await driver.press("escape", "escape")
        assert "0 running" in text(app)
        assert "No process on Sheaf" in text(app)

    pilot(Source(Watch([tmp_path])), test)


# Allocates all the time, so that it answers.
BUSY = "import time\nprint('ready', flush=True)\nwhile True: kept = [bytes(50_000) for _ in range(20)]; time.sleep(0.005)"


def test_keys_that_ask_the_selected_process(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "cli"))
    monkeypatch.setenv("SHEAF_PROFILE", "4096")
    start(code=BUSY)

    async def ended(app: Top, driver: Pilot[None]) -> None:
        while app.board.command.running:
            await driver.pause(0.01)

    async def test(app: Top, driver: Pilot[None]) -> None:
        await driver.press("T")
        assert "sheaf trim python" in text(app).splitlines()[-1]
        await driver.press("P")  # one after the other
        await ended(app, driver)
        assert re.match(r"python\S* \(\d+\): returned ", text(app).splitlines()[-1])
        await driver.press("down")
        assert text(app).splitlines()[-1].startswith("q Quit")
        for key in ("enter", "P"):
            await driver.press(key)
        await ended(app, driver)
        assert re.match(r"python\S* \(\d+\): live bytes", text(app))
        await driver.press("down", "up", "x")
        assert text(app).splitlines()[-1].startswith("q Quit")
        app.board.command.start(["top", "--batch"], 80)  # does not end by itself
        await driver.press("escape")
        await ended(app, driver)
        assert text(app).splitlines()[-1] == "ended"
        app.board.command.start(["trim", str(tmp_path / "none.sheaf")], 80)
        await ended(app, driver)
        assert "none.sheaf: " in text(app).splitlines()[-1]

    pilot(Source(Watch([tmp_path])), test)


def test_the_resident_size_stays_on_a_narrow_screen(tmp_path: Path) -> None:
    async def test(app: Top, driver: Pilot[None]) -> None:
        lines = text(app).splitlines()
        assert lines[3].split() == ["PID", "PROGRAM", "RES"]
        assert lines[4].split() == ["9001002", "program-2", "3.0M"]
        await driver.press("enter")

    pilot(Fixed(many(tmp_path, 3)), test, (30, 20))


def test_ended_processes_are_shown_on_demand(tmp_path: Path) -> None:
    write_record(tmp_path / "old.1.sheaf", {"malloc-64": COUNTS})

    async def test(app: Top, driver: Pilot[None]) -> None:
        assert "0 running, 1 ended" in text(app)
        assert "old" not in text(app)
        await driver.press("e")
        await refreshed(app, driver)  # reads its caches
        assert app.board.page.rows[0]["live"] == 308 * 64
        assert re.search(r"^99999999? *E old ", text(app), re.M)
        await driver.press("enter")
        assert re.search(r"^malloc-64 +64 +308 +128K +15\.\d +- +- ", text(app), re.M)
        await driver.press("backspace", "e")
        assert "old" not in text(app)

    pilot(Source(Watch([tmp_path])), test)


def test_refreshes_stop_and_continue(tmp_path: Path) -> None:
    async def test(app: Top, driver: Pilot[None]) -> None:
        await driver.press("space")
        await driver.pause()
        before = app.refreshes
        app.board.poke.set()
        await driver.pause(0.2)
        assert app.refreshes == before
        await driver.press("space")
        while app.refreshes == before:
            await driver.pause(0.01)
        assert app.board.interval == ONCE
        await driver.press("-")
        assert "every 300 s" in text(app)

    pilot(Fixed(many(tmp_path, 2)), test)


def test_the_mouse_selects_and_sorts(tmp_path: Path) -> None:
    async def test(app: Top, driver: Pilot[None]) -> None:
        await driver.click("Board", offset=(10, 6))
        assert app.board.page.at == 2
        await driver.click("Board", offset=(5, 3))
        assert app.board.page.key == "pid"
        await driver.click("Board", offset=(10, 4 + app.board.page.at))
        assert app.board.chosen is not None

    pilot(Fixed(many(tmp_path, 10)), test)
