"""Wrong command lines give one line with the error and the remedy, and the exit status that scripts expect."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib import import_module, util
from pathlib import Path
from types import ModuleType

import click
import pytest
from conftest import ROOT, Run
from sheaf.__main__ import _COMMANDS
from sheaf.system import options

WRONG = [
    (125, "run --recrod x true", "sheaf run: --recrod: no such option; did you mean --record?"),
    (125, "run --stat true", "sheaf run: --stat: no such option; did you mean --stats?"),
    (125, "run -x true", "sheaf run: -x: no such option; see `sheaf run --help`"),
    (125, "run --stats=xml true", "sheaf run: --stats: 'xml' is not one of 'table', 'json'; see `sheaf run --help`"),
    (125, "run --option", "sheaf run: --option requires an argument; see `sheaf run --help`"),
    (125, "run --force=1 true", "sheaf run: --force does not take a value; see `sheaf run --help`"),
    (125, "run", "sheaf run: PROGRAM [ARGS]... is missing; see `sheaf run --help`"),
    (125, "run --", "sheaf run: PROGRAM [ARGS]... is missing; see `sheaf run --help`"),
    (
        125,
        "run --option decay=x true",
        "sheaf: --option decay=x: not a number; give a number from 0 to 86400000, in milliseconds",
    ),
    (2, "stats --fromat json x", "sheaf stats: --fromat: no such option; did you mean --format?"),
    (2, "stats --format", "sheaf stats: --format requires an argument; see `sheaf stats --help`"),
    (2, "stats --by cpu x", "sheaf stats: --by: 'cpu' is not one of 'cache', 'slot', 'node'; see `sheaf stats --help`"),
    (2, "stats --diff x", "sheaf: --diff: needs exactly two records; name the earlier one first"),
    (
        125,
        "run --debug XYZ true",
        "sheaf: --debug XYZ: no such checks; give letters of F Z P U T A or -, then caches, such as FZPU or FZ,malloc-64",
    ),
    (2, "report", "sheaf report: FILE|- is missing; see `sheaf report --help`"),
    (2, "stat", "sheaf: stat: no such command; did you mean stats?"),
    (2, "--vers", "sheaf: --vers: no such option; did you mean --version?"),
]


@pytest.mark.parametrize(("status", "line", "said"), WRONG)
def test_a_wrong_command_line_gives_one_line(sheaf: Run, status: int, line: str, said: str) -> None:
    done = sheaf(*line.split())
    assert (done.stderr, done.stdout, done.returncode) == (said + "\n", "", status)


def test_an_unknown_command_lists_the_commands(sheaf: Run) -> None:
    done = sheaf("qqq")
    assert re.fullmatch(r"sheaf: qqq: no such command; the commands are run, stats, top, records(, \w+)*\n", done.stderr)
    assert done.returncode == 2


def test_help(sheaf: Run) -> None:
    done = sheaf()
    assert (done.stdout, done.returncode) == ("", 2)
    assert done.stderr == sheaf("--help").stdout == sheaf("-h").stdout
    for command in ("run", "stats"):
        done = sheaf(command, "-h")
        assert done.stdout == sheaf(command, "--help").stdout
        assert "Examples:" in done.stdout
        assert done.returncode == 0
    for name in options.table():
        assert f"\n  {name} (default " in sheaf("run", "-h").stdout
    assert "barn (default 512K)" in sheaf("run", "-h").stdout
    assert sheaf("--version").stdout.startswith("sheaf")


def test_completion(sheaf: Run) -> None:
    assert "complete" in sheaf(env={"_SHEAF_COMPLETE": "bash_source"}).stdout
    done = sheaf(env={"_SHEAF_COMPLETE": "bash_complete", "COMP_WORDS": "sheaf run --no", "COMP_CWORD": "2"})
    assert (done.stdout, done.stderr, done.returncode) == ("plain,--no-children\n", "", 0)


def manual() -> ModuleType:
    """The module docs/man/make.py, which belongs to no package."""
    spec = util.spec_from_file_location("make", ROOT / "docs/man/make.py")
    assert spec
    assert spec.loader
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_man_pages_are_up_to_date() -> None:
    made = manual().pages()
    assert {path.name for path in made} == {"sheaf.1", *(f"sheaf-{name}.1" for name in _COMMANDS)}
    assert {path.name for path in (ROOT / "docs/man").glob("*.1")} == {path.name for path in made}  # what is installed
    for path, text in made.items():
        assert path.read_text() == text, f"{path.name}: run python3 docs/man/make.py"


@pytest.mark.parametrize("name", _COMMANDS)
def test_man_pages_have_every_option(name: str) -> None:
    """Searches the page itself, independently of make.py."""
    command = getattr(import_module(_COMMANDS[name].module), name)
    assert isinstance(command, click.Command)
    page = (ROOT / f"docs/man/sheaf-{name}.1").read_text().replace("\\-", "-")
    for param in command.params:
        if isinstance(param, click.Option):
            assert re.search(rf"^\.TP\n\.B .*{param.opts[0]}\b", page, re.MULTILINE), param.opts[0]
    for option in options.table() if name == "run" else ():
        assert f"\n.TP\n.B {option}\n" in page


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_man_pages_are_well_formed() -> None:
    pages = sorted((ROOT / "docs/man").glob("*.1"))
    done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z", *pages], capture_output=True, text=True)
    assert (done.stderr, done.returncode) == ("", 0)


def test_caches_of_all_packages_are_left_out_of_the_installation() -> None:
    """cli/meson.build installs the folder as it is, but for the __pycache__ of each package that it names."""
    folder = Path(__file__).parents[2] / "cli"
    named = re.search(r"foreach folder : \[(.*)\]", (folder / "meson.build").read_text())
    packages = {file.parent.relative_to(folder / "sheaf").as_posix() for file in (folder / "sheaf").rglob("*.py")}
    assert named and set(re.findall("'(.*?)'", named[1])) == {"" if name == "." else name for name in packages}
