"""A progress bar with the remaining time, if standard error is a terminal."""

from __future__ import annotations

import shutil
import sys
import time

_WIDTH = 20


def note(text: str) -> None:
    """Replace the bar by a text until the next update. Does nothing if standard error is not a terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text[: shutil.get_terminal_size().columns - 1]}", end="", file=sys.stderr, flush=True)


class Progress:
    """
    Shows the progress of a measurement. A test is expected to take as long as in the previous round; in the first round, as
    long as the tests so far on average.
    """

    def __init__(self, rounds: int, tests: int) -> None:
        self._rounds, self._tests = rounds, tests
        self._took: dict[int, float] = {}
        self._begun = time.monotonic()
        self._place = -1

    def left(self, round_: int, place: int) -> float:
        """The expected remaining seconds before test `place` of round `round_`; 0 if nothing has run yet."""
        if not self._took:
            return 0.0
        mean = sum(self._took.values()) / len(self._took)
        each = [self._took.get(test, mean) for test in range(self._tests)]
        return sum(each[place:]) + sum(each) * (self._rounds - round_ - 1)

    def __call__(self, round_: int, place: int, name: str) -> None:
        now = time.monotonic()
        if self._place >= 0:
            self._took[self._place] = now - self._begun
        self._begun, self._place = now, place
        share = (round_ * self._tests + place) / (self._rounds * self._tests)
        left = self.left(round_, place)
        time_left = f"{int(left) // 60}:{int(left) % 60:02} left" if left else "estimating"
        bar = "#" * int(share * _WIDTH)
        note(f"[{bar:<{_WIDTH}}] {share:4.0%}  {time_left}  round {round_ + 1} of {self._rounds}, {name}")

    def end(self) -> None:
        """Clear the line."""
        note("")
