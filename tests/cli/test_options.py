"""The command and the preloaded object accept the same values of options and refuse others with the same message."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT, Run
from sheaf.errors import SheafError
from sheaf.system import options, optiontable

TABLE = options.table()
TRIED = [
    *("", "0", "1", "01", "-1", "5sec", "50", "100", "101", "86400000", "86400001", "9" * 23, "auto", "AUTO", "off", "cpu_id"),
    *("64K", "64k", "1KiB", "1kib", "1KB", "1M", "1T", "2T", "64T", "65T", "9" * 23 + "T", "tiny", "abort", "/no?such", "1\n2"),
    *("x" * 255, "x" * 256),
]


def said(library: str, **settings: str) -> list[str]:
    """Standard error of a program that runs on the object with the settings, as lines."""
    env = {"PATH": os.environ["PATH"], "LD_PRELOAD": library, **settings}
    done = subprocess.run(["bash", "-c", "true"], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    return done.stderr.splitlines()


def refused(setting: str) -> str | None:
    """The message with which the command refuses a setting; None if it accepts it."""
    try:
        options.parse(setting)
    except SheafError as error:
        return error.message
    return None


@pytest.mark.parametrize("option", [option for option in TABLE.values() if option.kind != "list"], ids=lambda option: option.name)
def test_command_and_object_agree(library: str, option: optiontable.Option) -> None:
    for value in TRIED:
        wrong = refused(f"{option.name}={value}")
        lines = [line for line in said(library, **{option.variable: value}) if line.endswith("; the default is used")]
        if wrong is None:
            assert lines == []
        elif len(value) < 100 and "\n" not in value:
            assert lines == [f"sheaf: {option.variable}={wrong.split('=', 1)[1]}; the default is used"]
        else:
            assert len(lines) == 1
            assert lines[0].endswith(f"{wrong.rsplit(': ', 1)[1]}; the default is used")


@pytest.mark.parametrize("option", TABLE.values(), ids=lambda option: option.name)
def test_good_values_are_accepted_in_silence(library: str, option: optiontable.Option, tmp_path: Path) -> None:
    values: dict[str, list[object]] = {
        "number": [option.least, option.most],
        "size": [option.least, option.most],
        "choice": list(option.words),
        "boolean": [0, 1],
    }
    good = values.get(option.kind, [])
    wanted = {"debug_action": {"SHEAF_DEBUG": "F"}, "profile": {"SHEAF_RECORD": str(tmp_path)}}.get(option.name, {})
    for value in map(str, [*good, option.default] if option.default else []):
        assert refused(f"{option.name}={value}") is None
        lines = said(library, **{option.variable: value}, **wanted)
        assert lines == [] or (value != "0" and option.name in ("leaks", "stats"))


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("decay=5sec", "not a number; give a number from 0 to 86400000, in milliseconds"),
        ("decay=86400001", "out of range; give a number from 0 to 86400000, in milliseconds"),
        ("keep=1X", "not a size; give a size such as 1M, from 0 to 1T"),
        ("rcu_limit=1", "out of range; give a size such as 1M, from 64K to 1T"),
        ("rseq=never", "no such choice; give auto, libc or off"),
        ("mode=small", "no such choice; give normal or tiny"),
        ("huge=yes", "neither 0 nor 1; give 0 or 1"),
    ],
)
def test_the_line_names_the_values(sheaf: Run, library: str, setting: str, words: str) -> None:
    done = sheaf("run", "--option", setting, "true")
    assert (done.stderr, done.returncode) == (f"sheaf: --option {setting}: {words}\n", 125)
    name, value = setting.split("=")
    variable = TABLE[name].variable
    assert said(library, **{variable: value}) == [f"sheaf: {variable}={value}: {words}; the default is used"]


def test_leaks_live_alone_reports_objects_with_their_stacks(sheaf: Run) -> None:
    done = sheaf("run", "--option", "leaks=live", "bash", "-c", "true")
    assert re.match(r"sheaf: live at exit: \d+ bytes in \d+ objects\n", done.stderr)
    assert "allocated" in done.stderr or re.search(r"\+0x[0-9a-f]+ \(", done.stderr)


def test_validate_alone_finds_an_overflow(sheaf: Run) -> None:
    program = "import ctypes; c = ctypes.CDLL(None); c.malloc.restype = ctypes.c_void_p; ctypes.memset(c.malloc(60), 65, 61)"
    done = sheaf("run", "--option", "validate=1", "python3", "-c", program)
    assert "sheaf: overflow: bytes were written" in done.stderr
    assert sheaf("run", "--option", "validate=0", "python3", "-c", program).stderr == ""


@pytest.mark.parametrize(
    ("settings", "option", "when"),
    [
        ("leaks=live debug=-", "leaks", "with live if no cache is debugged"),
        ("validate=1 debug=FZ,no-such-cache", "validate", "if no cache is debugged"),
        ("debug_action=continue", "debug_action", "without debug"),
        ("debug_log=/tmp/log", "debug_log", "without debug or leaks=1"),
        ("barn_max=1M barn=0", "barn_max", "with barn=0, mode=tiny or harden=check"),
        ("barn=1M mode=tiny", "barn", "with mode=tiny or harden=check"),
        ("capacity=5 harden=check", "capacity", "with mode=tiny or harden=check"),
        ("helper=1 decay=0", "helper", "with decay=0 and no record, or with leaks=1"),
        ("nodes=2 slots=mm_cid", "nodes", "with slots=mm_cid or numa=off"),
        ("defrag=5 numa=off", "defrag", "with slots=mm_cid, numa=off or numa=interleave"),
        ("slots=cpu_id rseq=off", "slots", "with rseq=off"),
        ("profile=64K", "profile", "without record or leaks=1"),
    ],
)
def test_an_option_without_effect_says_so(library: str, settings: str, option: str, when: str) -> None:
    given = dict(setting.split("=", 1) for setting in settings.split())
    lines = said(library, **{TABLE[name].variable: value for name, value in given.items()})
    assert len(lines) == 1
    assert lines[0].startswith(f"sheaf: {TABLE[option].variable}={given[option]}: has no effect {when}; ")


def test_the_object_knows_only_options_in_the_table(library: str) -> None:
    assert said(library, SHEAF_NOSUCH="1") == ["sheaf: SHEAF_NOSUCH=1: no such option; see `sheaf run --help`"]
    assert said(library, SHEAF_DECAY_="1") == ["sheaf: SHEAF_DECAY_=1: no such option; see `sheaf run --help`"]


def test_the_pages_have_every_option() -> None:
    page = (ROOT / "docs/options.md").read_text()
    for option in TABLE.values():
        assert f"| `{option.variable}` | " in page


@pytest.mark.parametrize(
    ("rows", "wrong"),
    [
        ("OPTION_BOOLEAN(a, a, true)", "line 1: OPTION_BOOLEAN with 3 arguments"),
        ('OPTION_FLAG(a, a, true, "b")', "line 1: OPTION_FLAG with 4 arguments: no such row"),
        ('/*\n*/\nOPTION_WORD(a, b, B, "text")', "line 3: a: no such option above this row"),
        ('OPTION_BOOLEAN(a, a, true, "b")\nOPTION_BOOLEAN(a, a, true, "b")', "line 2: a: duplicate option"),
        ('OPTION_CHOICE(a, int, a, C, "b")\nOPTION_WORD(a, b, B, "text")', "a: the default C is not one of its words"),
        ('OPTION_NUMBER(a, a, x, 0, 1, "", "b")', "x: not a number"),
        ('OPTION_BOOLEAN(a, a, true, "b"', "a row has no closing parenthesis"),
    ],
)
def test_a_wrong_table_is_refused(rows: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=re.escape(wrong)):
        optiontable.parse(rows)
