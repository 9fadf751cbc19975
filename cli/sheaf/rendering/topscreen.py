"""The screen of `sheaf top`. It is drawn by lines, with the 16 colours and the background of the terminal."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.strip import Strip
from textual.widget import Widget

from sheaf.records.watch import Process
from sheaf.rendering import memorytext, sizes, toprows
from sheaf.rendering.columns import Column, cells, headings
from sheaf.rendering.toprows import CACHES, DEFAULT_KEYS, KEYS, PROCESSES, History, Moment, Row, Source

_PLAIN, _BOLD, _DIM = Style(), Style(bold=True), Style(dim=True)
_HEADING, _SORTED, _SELECTED = Style(reverse=True), Style(reverse=True, bold=True), Style(reverse=True)
_WARNING, _LIVE, _RESIDENT = Style(color="yellow"), Style(color="green"), Style(color="cyan")
_SLOW_SHARE = 0.1  # of the operations; above it the cell is highlighted
_INTERVALS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0)
_FOOT = "q Quit  ? Help  Enter Caches  T Trim  P Profile  / Filter  < > Sort  e Ended"
_FOOT_CACHES = "q Quit  ? Help  Esc Back  T Trim  P Profile  / Filter  < > Sort  i Reverse"
Line = list[Segment]


def _line(text: str, style: Style = _PLAIN) -> Line:
    return [Segment(text, style)]


class Page:
    """
    A table on the screen: its columns, order, and the selected row. A row that the user selected stays selected when its place
    changes; until then the first row is selected.
    """

    def __init__(self, columns: Sequence[Column], key: str) -> None:
        self.columns, self.key, self.reverse = columns, key, False
        self.rows: list[Row] = []
        self.at = 0  # the selected row
        self.first = 0  # the row at the top
        self._selected: object = None  # what identifies the row that the user selected

    def _identity(self, at: int) -> object:
        """What is the same for the same process or cache in each refresh."""
        return self.rows[at].get("path") or self.rows[at].get("name")

    def show(self, rows: Sequence[Row], wanted: str) -> None:
        """Take new rows, and keep the selection; if its row has vanished, the one in its place becomes selected."""
        self.rows = toprows.arranged(rows, self.key, self.reverse, wanted)
        places = {self._identity(i): i for i in range(len(self.rows))} if self._selected is not None else {}
        self.at = places.get(self._selected, self._limited(self.at))

    def _limited(self, at: int) -> int:
        return max(0, min(at, len(self.rows) - 1))

    def select(self, at: int) -> None:
        """Select a row, or the nearest one that exists."""
        self.at = self._limited(at)
        self._selected = self._identity(self.at) if self.rows and self.at else None

    def begin(self) -> None:
        """Show the first rows."""
        self.at, self.first, self._selected = 0, 0, None

    def scroll(self, height: int) -> None:
        """Make the selected row one of the `height` visible ones."""
        self.first = max(min(self.first, self.at, max(0, len(self.rows) - height)), self.at - height + 1)

    def sort(self, key: str) -> None:
        """Sort by a column; again by the same one reverses the order."""
        self.reverse = not self.reverse if key == self.key else False
        self.key = key
        self.begin()

    def step(self, by: int) -> None:
        """Sort by the column to the left or to the right."""
        names = [one.name for one in self.columns]
        self.sort(names[(names.index(self.key) + by) % len(names)])

    def turn(self) -> None:
        """Reverse the order."""
        self.sort(self.key)


class Command:
    """A command of sheaf that runs beside the screen. `ran` is called with whether it succeeded, and with what it printed."""

    def __init__(self, ran: Callable[[bool, str], None]) -> None:
        self._ran = ran
        self._task: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        """Whether a command runs."""
        return self._task is not None and not self._task.done()

    def start(self, words: Sequence[str], width: int) -> None:
        """Run a command with its output in `width` columns."""
        self._task = asyncio.create_task(self._follow(words, {**os.environ, "COLUMNS": str(width), "NO_COLOR": "1"}))

    def end(self) -> None:
        """End the command that runs. It is not heard of again."""
        if self._task:
            self._task.cancel()
            self._ran(False, "ended")

    async def _follow(self, words: Sequence[str], environment: dict[str, str]) -> None:
        # -P: modules in the current directory are not those of Python.
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "sheaf",
            *words,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            out, err = await process.communicate()
        except asyncio.CancelledError:
            process.terminate()
            await process.wait()
            raise
        done = process.returncode == 0
        self._ran(done, (out if done else err).decode(errors="replace"))


class Board(Widget, can_focus=True):
    """All that is on the screen."""

    def __init__(self, source: Source, interval: float, ended: bool, key: str | None) -> None:
        super().__init__()
        self.source, self.interval, self.ended, self.stopped = source, interval, ended, False
        self.processes = Page(PROCESSES, key if key and not source.only else DEFAULT_KEYS[0])
        self.caches = Page(CACHES, key if key and source.only else DEFAULT_KEYS[1])
        self.chosen: Path | None = source.only
        self.filter, self.typing = "", False
        self.help: int | None = None  # the first line of the help, or of the output of a command, that is visible
        self.command = Command(self._ran)
        self.output: list[str] = []  # of the command, shown instead of the help
        self.notice = ""  # what the command said in one line, until the next key
        self.moment: Moment | None = None
        self.history = History()
        self._filters = ["", ""]  # of the processes while caches are shown, and the other way round
        self._gone: Process | None = None  # the last that is known of a chosen process whose record has vanished
        self._drawn: tuple[int, int, list[Line]] | None = None
        self.poke = asyncio.Event()  # set: refresh now
        utf8 = "utf" in (sys.stdout.encoding or "").lower() and os.environ.get("TERM") != "linux"
        self._blocks = toprows.BLOCKS if utf8 else toprows.ASCII

    # ---- what is shown ----

    @property
    def page(self) -> Page:
        """The table on the screen."""
        return self.caches if self.chosen else self.processes

    def process(self) -> Process | None:
        """The process whose caches are shown; as it was last if its record has vanished."""
        found = next((one for one in self.moment.processes if one.path == self.chosen), None) if self.moment else None
        if found or self._gone is None:
            self._gone = found
        elif self._gone.before:  # the record has vanished
            self._gone = replace(self._gone, before=None)
        return self._gone if self.chosen else None

    def take(self, moment: Moment) -> None:
        """Show what a refresh found."""
        self.moment = moment
        self.history.add(moment)
        self.show()

    def show(self) -> None:
        """Bring the rows of the page in order."""
        if self.moment is None:
            return
        if self.chosen:
            process = self.process()
            self.caches.show(toprows.cache_rows(process) if process else [], self.filter)
        else:
            shown = [one for one in self.moment.processes if self.ended or not one.state.ended]
            self.processes.show([toprows.process_row(one) for one in shown], self.filter)
        self.draw()

    def draw(self) -> None:
        """Draw everything again."""
        self._drawn = None
        self.refresh()

    def _both(self, points: Sequence[tuple[int, int]], width: int) -> list[Line]:
        """Live and resident memory with a sparkline each."""
        if not points:
            return []
        room = max(4, min(toprows.HISTORY, width - 20))
        lines = []
        for i, (name, style) in enumerate((("live", _LIVE), ("resident", _RESIDENT))):
            values = [point[i] for point in points]
            lines.append(
                [
                    Segment(f"{name:<9} {sizes.brief(values[-1]):>6}  "),
                    Segment(toprows.sparkline(values, room, self._blocks).lstrip(" ") or " ", style),
                ]
            )
        return lines

    def _status(self) -> str:
        every = f"every {self.interval:g} s"
        return f"{every}, stopped" if self.stopped else every

    def _head_of_processes(self, width: int) -> list[Line]:
        assert self.moment
        sums = toprows.totals(self.moment.processes)
        clock = time.strftime("%H:%M:%S", time.localtime(self.moment.at))
        ended = sum(one.state.ended for one in self.moment.processes)
        counts = f"{sums['running']} running" + (f", {ended} ended" if ended else "")
        first = f"sheaf top - {clock}, {counts}, {sizes.rate(sums['alloc'])} allocations/s; {self._status()}"
        return [_line(first, _BOLD), *self._both(self.history.total, width)]

    def _head_of_caches(self, process: Process, width: int) -> list[Line]:
        assert self.moment
        clock = time.strftime("%H:%M:%S", time.localtime(self.moment.at))
        vanished = all(one.path != process.path for one in self.moment.processes)
        state = "its record has vanished" if vanished else str(process.state)
        lines = [_line(f"{process.who}, {state}, {process.head.mode} - {clock}; {self._status()}", _BOLD)]
        used = process.memory_now
        lines += [_line(text) for text in (memorytext.lines(used, width=max(40, min(width, 100))) if used else [])]
        return lines + self._both(self.history.of(process.path), width)

    def _table(self, width: int, height: int) -> list[Line]:
        page = self.page
        columns = toprows.fitting(page.columns, width)
        room = width - sum(abs(one.width) + 1 for one in columns)
        spark = room if page is self.processes and room >= 4 else 0
        heading = [
            Segment(f"{text} ", _SORTED if one.name == page.key else _HEADING)
            for one, text in zip(columns, headings(columns), strict=True)
        ]
        page.scroll(max(1, height - 1))
        lines = [[*heading, Segment("RESIDENT"[:spark].ljust(room) if spark else " " * room, _HEADING)]]
        for number, row in enumerate(page.rows[page.first : page.first + max(0, height - 1)], page.first):
            lines.append(self._row(row, columns, spark, number == page.at))
        return lines

    def _row(self, row: Row, columns: Sequence[Column], spark: int, selected: bool) -> Line:
        base = _SELECTED if selected else _DIM if row.get("state", "running") != "running" else _PLAIN
        line = []
        for one, text in zip(columns, cells(row, columns), strict=True):
            slow = one.name == "slow" and (row["slow"] or 0) > _SLOW_SHARE
            line.append(Segment(f"{text} ", base + _WARNING if slow and not selected else base))
        if spark:
            points = [resident for _, resident in self.history.of(row["path"])]
            line.append(Segment(toprows.sparkline(points, spark, self._blocks), base if selected else base + _RESIDENT))
        return line

    def _foot(self) -> Line:
        if self.typing:
            return _line(f"Filter: {self.filter}_   Enter keeps it, Esc clears it", _BOLD)
        if self.notice:
            return _line(self.notice, _BOLD)
        text = _FOOT_CACHES if self.chosen else _FOOT
        return _line(f"[{self.filter}] {text}" if self.filter else text, _DIM)

    def _document(self, width: int, height: int) -> list[Line]:
        """What covers the table: the output of a command, or the help."""
        lines = [_line(text) for text in self.output] if self.output else self._help(width)
        self.help = min(self.help or 0, max(0, len(lines) - height))
        return lines[self.help : self.help + height]

    def _help(self, width: int) -> list[Line]:
        lines = [_line("sheaf top: keys and columns (Up and Down scroll, any other key goes back)", _BOLD), _line("")]
        for keys, meaning in KEYS:
            lines += _wrapped(keys, meaning, 12, width)
        for title, columns in (("Processes", PROCESSES), ("Caches of a process", CACHES)):
            lines += [_line(""), _line(f"{title}: column, key that sorts by it, meaning", _BOLD)]
            for one in columns:
                lines += _wrapped(f"{one.heading:<9} {one.key}", one.meaning, 12, width)
        return lines

    def lines(self, width: int, height: int) -> list[Line]:
        """The whole screen."""
        if self.help is not None:
            return self._document(width, height)
        if self.moment is None:
            return [_line("sheaf top: reading records ...", _BOLD)]
        process = self.process()
        if self.chosen and process is None:
            head = [_line(f"{self.chosen}: the record has vanished", _BOLD)]
        else:
            head = self._head_of_caches(process, width) if self.chosen and process else self._head_of_processes(width)
        if height < 12:  # leave room for the table
            head = head[:1]
        body = self._table(width, height - len(head) - 1)
        if not self.page.rows:
            nothing = [] if self.chosen else self.source.why_empty()
            said = [f"Nothing matches the filter {self.filter}."] if self.filter else nothing
            body += [_line(""), *(_line(text) for one in said for text in _folded(one, width))]
        body = body[: max(0, height - len(head) - 1)]
        blank = [_line("")] * max(0, height - len(head) - len(body) - 1)
        return [*head, *body, *blank, self._foot()][:height]

    def render_line(self, y: int) -> Strip:
        """One line for textual."""
        width, height = self.size
        if self._drawn is None or self._drawn[:2] != (width, height):
            self._drawn = width, height, self.lines(width, height)
        lines = self._drawn[2]
        return Strip(lines[y] if y < len(lines) else []).adjust_cell_length(width)

    # ---- keys ----

    def on_key(self, event: events.Key) -> None:
        """Act on a key."""
        event.stop()
        if not self.command.running:
            self.notice = ""
        if self.typing:
            self._type(event)
        elif self.help is not None:
            steps = {"up": -1, "down": 1, "pageup": -10, "pagedown": 10}
            self.help = max(0, self.help + steps[event.key]) if event.key in steps else None
            self.output = self.output if event.key in steps else []
        else:
            self._act(event)
        self.show()
        self.draw()

    def _type(self, event: events.Key) -> None:
        if event.key in ("enter", "escape"):
            self.typing = False
            self.filter = self.filter if event.key == "enter" else ""
        elif event.key in ("backspace", "ctrl+h"):
            self.filter = self.filter[:-1]
        elif event.character and event.is_printable:
            self.filter += event.character
            self.page.begin()

    def _act(self, event: events.Key) -> None:
        page, rows = self.page, max(1, self.size.height - 6)
        moves = {
            "up": page.at - 1,
            "down": page.at + 1,
            "pageup": page.at - rows,
            "pagedown": page.at + rows,
            "home": 0,
            "end": len(page.rows),
        }
        acts: dict[str, Callable[[], None]] = {
            "enter": self._enter,
            "escape": self._back,
            "backspace": self._back,
            "ctrl+h": self._back,
            "ctrl+l": self.poke.set,
        }
        by_character: dict[str, Callable[[], None]] = {
            "q": self.app.exit,
            "?": self._show_help,
            "/": self._begin_filter,
            "<": lambda: page.step(-1),
            ">": lambda: page.step(1),
            "i": page.turn,
            "e": self._show_ended,
            "T": lambda: self._run("trim"),
            "P": lambda: self._run("profile"),
            " ": self._stop,
            "+": lambda: self._pace(1),
            "-": lambda: self._pace(-1),
            "j": lambda: page.select(page.at + 1),
            "k": lambda: page.select(page.at - 1),
            "h": self._show_help,
        } | {one.key: (lambda name=one.name: page.sort(name)) for one in page.columns}
        if event.key in moves:
            page.select(moves[event.key])
        elif event.key in acts:
            acts[event.key]()
        elif event.character in by_character:
            by_character[event.character]()

    def _enter(self) -> None:
        if not self.chosen and self.processes.rows:
            self.chosen, self._gone = self.processes.rows[self.processes.at]["path"], None
            self.caches.begin()
            self._filters[0], self.filter = self.filter, ""

    def _run(self, name: str) -> None:
        """Run a command for the selected process, unless one is running."""
        row = next(iter(self.processes.rows[self.processes.at : self.processes.at + 1]), None)
        path = self.chosen or (row and row["path"])
        if path and not self.command.running:
            self.notice = f"sheaf {name} {path.stem} ... (Esc ends it)"
            self.command.start([name, str(path)], self.size.width)

    def _ran(self, done: bool, text: str) -> None:
        """Show what a command has printed: one line at the foot, more in place of the table."""
        lines = text.splitlines()
        self.notice = lines[-1] if lines and (len(lines) == 1 or not done) else ""
        if done and len(lines) > 1:
            self.output, self.help = [*lines, "", "Up and Down scroll, any other key goes back."], 0
        self.draw()

    def _back(self) -> None:
        if self.command.running:
            self.command.end()
            return
        if self.filter:
            self.filter = ""
        elif self.chosen and not self.source.only:
            self.chosen = self._gone = None
            self.filter = self._filters[0]

    def _show_ended(self) -> None:
        self.ended = self.source.ended = not self.ended
        self.poke.set()

    def _show_help(self) -> None:
        self.help = 0

    def _begin_filter(self) -> None:
        self.typing, self.filter = True, ""

    def _stop(self) -> None:
        self.stopped = not self.stopped
        self.poke.set()

    def _pace(self, by: int) -> None:
        at = min(range(len(_INTERVALS)), key=lambda i: abs(_INTERVALS[i] - self.interval))
        self.interval = _INTERVALS[max(0, min(at + by, len(_INTERVALS) - 1))]
        self.poke.set()

    def on_click(self, event: events.Click) -> None:
        """Select the row under the mouse; a selected process is opened, a heading sorts."""
        page = self.page
        start = next((y for y, line in enumerate(self.lines(*self.size)) if line and line[0].style in (_HEADING, _SORTED)), None)
        if self.help is not None or start is None or event.y < start:
            return
        at = page.first + event.y - start - 1
        if event.y == start:
            self._sort_at(event.x)
        elif at < len(page.rows):
            if at == page.at:
                self._enter()
            else:
                page.select(at)
        self.show()

    def _sort_at(self, x: int) -> None:
        for one in toprows.fitting(self.page.columns, self.size.width):
            x -= abs(one.width) + 1
            if x < 0:
                self.page.sort(one.name)
                return

    def on_mouse_scroll_down(self) -> None:
        """Select a later row."""
        self.page.select(self.page.at + 3)
        self.draw()

    def on_mouse_scroll_up(self) -> None:
        """Select an earlier row."""
        self.page.select(self.page.at - 3)
        self.draw()

    def on_resize(self) -> None:
        """Draw for the new size."""
        self.draw()


def _folded(text: str, width: int) -> list[str]:
    """The text in lines of at most `width` columns."""
    return textwrap.wrap(text, max(20, width))


def _wrapped(term: str, meaning: str, indent: int, width: int) -> list[Line]:
    """A term in bold and its meaning, which begins in the column after `indent`, or in the next line after a long term."""
    folded = _folded(meaning, width - indent)
    first = [] if len(term) >= indent else [[Segment(term.ljust(indent), _BOLD), Segment(folded.pop(0))]]
    return [*(first or [_line(term, _BOLD)]), *(_line(" " * indent + text) for text in folded)]


class Top(App[None]):
    """The application: refreshes the board until it is quit."""

    CSS = "Screen, Board { background: ansi_default; color: ansi_default; } Board { width: 100%; height: 100%; }"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "quit", priority=True),
        Binding("ctrl+q", "quit", priority=True),
        Binding("ctrl+z", "suspend_process", priority=True),
    ]

    def __init__(self, source: Source, interval: float, ended: bool, key: str | None) -> None:
        super().__init__(ansi_color=True)
        self.board = Board(source, interval, ended, key)
        self.refreshes = 0
        self._signal = 0

    def compose(self) -> ComposeResult:
        """The one widget."""
        yield self.board

    def on_mount(self) -> None:
        """Begin to refresh."""
        self.board.focus()
        self.run_worker(self._follow(), exclusive=True)

    async def _follow(self) -> None:
        """Refresh at each interval, in another thread, so that keys work meanwhile."""
        board = self.board
        while True:
            if not board.stopped:
                moment = await asyncio.to_thread(board.source.refresh)
                self.refreshes += 1
                board.take(moment)
            try:
                await asyncio.wait_for(board.poke.wait(), board.interval)
            except TimeoutError:
                continue
            board.poke.clear()
            board.draw()

    def _end_by(self, number: int) -> None:
        self._signal = number
        self.exit()

    async def on_load(self) -> None:
        """Restore the terminal when a signal ends the program."""
        if self.is_headless:
            return
        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, self._end_by, number)

    def run_until_quit(self) -> None:
        """Run until the user quits or a signal ends it, in the latter case by the same signal."""
        self.run()
        if self._signal:
            signal.signal(self._signal, signal.SIG_DFL)
            os.kill(os.getpid(), self._signal)
