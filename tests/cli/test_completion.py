"""Completion: what the command answers, and what real shells make of it."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT, Run
from sheaf.commands import completion
from sheaf.errors import SheafError
from sheaf.system import debugspec

pytest.importorskip("pyte")
from terminal import Display

SHELLS = ("bash", "zsh", "fish")


# ---- answers ----


def answers(sheaf: Run, line: str, shell: str = "fish", **environment: str) -> dict[str, str]:
    """What may follow a line, with descriptions."""
    done = sheaf(env={"_SHEAF_COMPLETE": f"{shell}_complete", "COMP_WORDS": line, **environment})
    assert done.stderr == ""
    pairs = (answer.partition("\t") for answer in done.stdout.splitlines())
    return {word: text for word, _, text in pairs}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("sheaf ", "plain,run"),
        ("sheaf to", "plain,top"),
        ("sheaf run --deb", "plain,--debug"),
        ("sheaf stats --format ", "plain,jsonl"),
        ("sheaf stats --format=js", "plain,--format=json"),
        ("sheaf stats --sort in", "plain,in_use"),
        ("sheaf top --sort re", "plain,resident"),
        ("sheaf run --option de", "open,decay="),
        ("sheaf run --option debug_action=a", "plain,debug_action=abort"),
        ("sheaf run --option=mode=", "plain,--option=mode=tiny"),
        ("sheaf run --option huge=", "plain,huge=1"),
        ("sheaf run --option barn=", "plain,barn=512K"),
        ("sheaf run --option record=/tm", "dir,/tm"),
        ("sheaf run --debug FZ", "open,FZPU"),
        ("sheaf run --debug 'FZPU;", "open,FZPU;-"),
        ("sheaf run --option debug=U,malloc-l", "open,debug=U,malloc-large"),
        ("sheaf run --record /tm", "dir,/tm"),
        ("sheaf run -- l", "program,l"),
        ("sheaf run l", "program,l"),
        ("sheaf run ls ", "file,"),
        ("sheaf run ls -", "file,-"),
        ("sheaf report fi", "file,fi"),
        ("sheaf records ", "dir,"),
        ("sheaf doctor l", "program,l"),
        ("sheaf stats fi", "file,fi"),
        ("sheaf completion b", "plain,bash"),
        ("sheaf set 1 de", "open,decay="),
        ("sheaf set 1 helper=a", "plain,helper=auto"),
        ("sheaf dump --output m", "file,m"),
    ],
)
def test_what_may_follow(sheaf: Run, line: str, expected: str) -> None:
    assert expected in answers(sheaf, line)


def test_caches_may_follow(sheaf: Run, library: str) -> None:
    assert "open,FZ,malloc-64,malloc-128" in answers(sheaf, "sheaf run --debug FZ,malloc-64,malloc-1", SHEAF_LIBRARY=library)


def test_values_are_described(sheaf: Run) -> None:
    assert answers(sheaf, "sheaf run --option mode=")["plain,mode=tiny"]
    assert answers(sheaf, "sheaf top --sort ")["plain,resident"] == "resident memory of the whole process"


@pytest.mark.parametrize(
    "line", ["sheaf nothing ", "sheaf run --option nothing=", "sheaf run --option 'a", "sheaf run --format ", ""]
)
def test_lines_that_cannot_be_completed(sheaf: Run, line: str) -> None:
    answers(sheaf, line)


def test_bash_gets_what_follows_its_word_breaks(sheaf: Run) -> None:
    for breaks, expected in ((" =:", "abort"), (" ", "debug_action=abort"), (" :", "debug_action=abort")):
        found = answers(sheaf, "sheaf run --option debug_action=a", "bash", COMP_BREAKS=breaks)
        assert found == {f"plain,{expected}": ""}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_printed(sheaf: Run, shell: str) -> None:
    done = sheaf("completion", shell)
    assert done.stdout == (ROOT / "cli/completion" / completion.SCRIPTS[shell]).read_text()
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=done.stdout, text=True, check=True)


def test_caches_of_the_library(library: str, tmp_path: Path) -> None:
    """The size classes in the object's note are those that its processes have."""
    code = "keep = [bytes(n) for n in range(1, 33000, 7)]; import time; print('ready', flush=True); time.sleep(600)"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "LD_PRELOAD": library, "SHEAF_RECORD": str(tmp_path), "PYTHONMALLOC": "malloc"},
    )
    try:
        assert process.stdout
        process.stdout.readline()
        from sheaf.records import record

        found = record.read(next(tmp_path.iterdir()))
        sizes = [cache.object_size for cache in found.parts if cache.name.startswith("malloc-")]
        assert sorted(sizes) == list(debugspec.class_sizes())
        assert {cache.name for cache in found.parts} <= set(debugspec.cache_names())
    finally:
        process.kill()
        process.communicate()


# ---- mistyped caches ----


@pytest.mark.parametrize(
    ("spec", "near"),
    [("FZ,malloc-65", "malloc-80"), ("U;FZ,malloc-64,malloc-1", "malloc-8"), ("FZPU,malloc-40000", "malloc-large")],
)
def test_a_cache_that_malloc_does_not_have(sheaf: Run, library: str, spec: str, near: str) -> None:
    for args in (["--debug", spec], ["--option", f"debug={spec}"]):
        done = sheaf("run", *args, "true")
        assert done.returncode == 125
        assert done.stderr.endswith(f"; did you mean {near}?\n")
        assert len(done.stderr.splitlines()) == 1


def test_classes_are_those_of_the_object(sheaf: Run, library: str, tmp_path: Path) -> None:
    """An object with another table of size classes, or with none: then names are not checked."""
    raw, other = Path(library).read_bytes(), tmp_path / "libsheaf-preload.so"
    owner = b"Sheaf\0\0\0"
    start = raw.index(owner + b"\x08\x00\x10\x00") + len(owner)
    other.write_bytes(raw[:start] + struct.pack("<2H", 8, 24) + raw[start + 4 :])
    said = sheaf("run", "--debug", "FZ,malloc-16", "true", env={"SHEAF_LIBRARY": str(other)}).stderr
    assert said == "sheaf: --debug FZ,malloc-16: malloc has no cache malloc-16; did you mean malloc-24?\n"
    other.write_bytes(raw.replace(owner, b"Other\0\0\0"))
    for name in ("malloc-65", "malloc-16"):
        done = sheaf("run", "--debug", f"FZ,{name}", "true", env={"SHEAF_LIBRARY": str(other)})
        assert (done.returncode, done.stderr) == (0, "")


def test_a_name_that_is_only_similar_is_a_warning(sheaf: Run, library: str) -> None:
    done = sheaf("run", "--debug", "FZ,maloc-64", "true")
    said = "malloc has no cache maloc-64, only malloc-64; correct it unless the program has maloc-64"
    assert (done.returncode, done.stderr) == (0, f"sheaf: --debug FZ,maloc-64: {said}\n")
    for spec in ("FZ,malloc-64", "FZ,malloc-6*", "FZ,requests", "FZ,malloc-large", "-"):
        assert debugspec.check(spec) is None
    for spec in ("", "FX", "FZ,", "FZ;;,", "F Z"):
        with pytest.raises(SheafError):
            debugspec.check(spec)


# ---- shells ----

START = {"bash": ["bash", "--norc", "--noprofile", "-i"], "zsh": ["zsh", "-f", "-i"], "fish": ["fish", "--no-config", "-i"]}
LOAD = {
    "bash": "PS1='> '; source <(sheaf completion bash); bind 'set bell-style none' 'set show-all-if-ambiguous on'\n",
    "zsh": "PS1='> '; autoload -Uz compinit; compinit -D; source <(sheaf completion zsh)\n",
    "fish": "function fish_prompt; echo -n '> '; end; source (sheaf completion fish | psub)\n",
}


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Display]:
    """An interactive shell that has loaded the completion, in an empty directory."""
    name = request.param
    if not shutil.which(name):
        pytest.skip(f"{name} is not installed")
    bin = tmp_path / "bin"
    bin.mkdir()
    (bin / "sheaf").write_text(f'#!/bin/sh\nPYTHONPATH={ROOT / "cli"} exec {sys.executable} -m sheaf "$@"\n')
    (bin / "sheaf").chmod(0o755)
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "longish.sheaf").write_text("")
    (tmp_path / "work" / "recordings").mkdir()
    env = {
        "PATH": f"{bin}:{os.environ['PATH']}",
        "TERM": "xterm",
        "HOME": str(tmp_path),
        "LC_ALL": "C.UTF-8",
        "SHEAF_LIBRARY": os.environ.get("SHEAF_LIBRARY", ""),
    }
    with Display(["env", "-C", str(tmp_path / "work"), *START[name]], env) as display:
        display.type(LOAD[name])
        display.type("clear; echo load''ed\n")
        display.wait(lambda now: "loaded\n>" in now)
        yield display


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("sheaf sta\t", "sheaf stats"),
        ("sheaf stats --by no\t", "sheaf stats --by node"),
        ("sheaf run --option debug_action=con\t", "sheaf run --option debug_action=continue"),
        ("sheaf run --option deca\t", "sheaf run --option decay="),
        ("sheaf run --debug FZ,malloc-358\t", "sheaf run --debug FZ,malloc-3584"),
        ("sheaf stats long\t", "sheaf stats longish.sheaf"),
        ("sheaf records rec\t", "sheaf records recordings/"),
        ("sheaf run --stats=j\t", "sheaf run --stats=json"),
    ],
)
def test_a_shell_completes(library: str, shell: Display, typed: str, completed: str) -> None:
    shell.type(typed)
    shell.wait(lambda now: f"> {completed}" in now)
    assert "Traceback" not in shell.text()
