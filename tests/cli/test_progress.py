"""The progress bar of long work."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from conftest import ROOT, write_record
from sheaf.system import progress

pytest.importorskip("pyte")
from terminal import Display

# sheaf with a bar that appears at once
AT_ONCE = """
import sys
from sheaf import __main__
from sheaf.system import progress
progress.DELAY = 0
sys.argv[0] = "sheaf"
__main__.entry()
"""


def shown(*args: str, **environment: str) -> Display:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "cli"), "TERM": "xterm", **environment}
    return Display([sys.executable, "-c", AT_ONCE, *args], env)


def records(directory: Path, count: int) -> None:
    for i in range(count):
        write_record(directory / f"p.{i}.sheaf", {"malloc-64": {"alloc_slowpath": 1, "slabs": 1}})


@pytest.mark.parametrize(
    ("command", "label"),
    [
        (["stats"], b"Reading records"),
        (["records"], b"Reading records"),
        (["records", "--prune", "--keep", "0"], b"Removing records"),
    ],
)
def test_a_bar_appears_and_leaves_nothing(tmp_path: Path, command: list[str], label: bytes) -> None:
    records(tmp_path, 60)
    with shown(*command, str(tmp_path)) as display:
        assert display.end() == 0
        assert label in display.raw
        assert b"100%" in display.raw
        assert "%" not in display.text().replace("0%", "")
        assert "records  [" not in display.text()


def test_no_bar_without_a_terminal_or_on_a_dumb_one(tmp_path: Path) -> None:
    records(tmp_path, 10)
    with shown("records", str(tmp_path), TERM="dumb") as display:
        assert display.end() == 0
        assert b"Reading" not in display.raw


def test_all_items_are_given_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for delay in (0.0, 3600.0):
        monkeypatch.setattr(progress, "DELAY", delay)
        for count in (0, 1, 100):
            assert list(progress.shown(range(count), "Counting")) == list(range(count))
    assert capsys.readouterr().err == ""
