"""Tests with real programs. A TOML file describes each: preparation, command, and package."""

from __future__ import annotations

import functools
import os
import subprocess
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sheaf.commands.bench.contestants import fixed_environment
from sheaf.commands.bench.progress import note
from sheaf.commands.bench.runs import Test
from sheaf.commands.bench.server import Server, run_server
from sheaf.commands.bench.whole import Command, brings_malloc, require_tools, run_whole
from sheaf.errors import SheafError
from sheaf.system.program import locate, obstacle

PREPARE_S = 300
_KEYS = {"name", "what", "command", "environment", "prepare", "server"}
_SERVER_KEYS = {"ready", "load", "stop", "rate"}


class Unfit(Exception):
    """The program is missing or cannot run on other allocators; its test is left out."""


def _program(name: str, package: str) -> Path:
    """The file of a program. Raises Unfit."""
    try:
        path = locate(name)
    except SheafError:
        raise Unfit(f"{name} not found; run apt install {package}") from None
    why = obstacle(path)
    if why:
        raise Unfit(f"{name} cannot be preloaded into: {why.reason}")
    return path


def _prepare(script: str, directory: Path, environment: dict[str, str]) -> None:
    """Run the preparation of a test, without a contestant. Raises Unfit."""
    directory.mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=directory,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=PREPARE_S,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise Unfit(f"the preparation took more than {PREPARE_S} s") from None
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise Unfit(f"the preparation failed: {said[-1]}")


def describe(file: Path) -> tuple[str, list[dict[str, Any]]]:
    """The package and the tests of a description file. Raises SheafError if a key is unknown or missing."""
    try:
        found = tomllib.loads(file.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise SheafError(f"{file}: {error}; correct the file") from None
    tests = found.get("test", [])
    for test in tests:
        wrong = set(test) - _KEYS | set(test.get("server", {})) - _SERVER_KEYS
        lacking = {"name", "what", "command"} - set(test) | (_SERVER_KEYS - set(test["server"]) if "server" in test else set())
        if wrong or lacking:
            named = ", ".join(sorted(wrong | lacking))
            raise SheafError(f"{file}: {test.get('name', '?')}: unknown or missing keys: {named}; correct the file")
    if "package" not in found or not tests:
        raise SheafError(f"{file}: the package or the tests are missing; add package and at least one [[test]]")
    return found["package"], tests


def _test(row: dict[str, Any], package: str, top: Path) -> Test:
    """The test of one table of a description, prepared in the directory `top`. Raises Unfit."""
    name = row["name"]
    path = _program(row["command"][0], package)
    directory = top / name
    environment = {**fixed_environment(), "HOME": str(directory), "TMPDIR": str(directory), **row.get("environment", {})}
    _prepare(row.get("prepare", ":"), directory, environment)
    command = Command(tuple(row["command"]), environment, directory, brings_malloc(path))
    if "server" not in row:
        require_tools()
        return Test(name, ("real",), row["what"], functools.partial(run_whole, command), warm_up=True)
    parts = row["server"]
    for tool in ("ready", "load", "stop"):
        _program(parts[tool][0], package)
    server = Server(command, tuple(parts["ready"]), tuple(parts["load"]), tuple(parts["stop"]), parts["rate"])
    return Test(name, ("real",), row["what"], functools.partial(run_server, server))


def names(descriptions: Path) -> list[tuple[str, str]]:
    """Names and descriptions of all tests, whether or not this machine can run them."""
    return [(row["name"], row["what"]) for file in sorted(descriptions.glob("*.toml")) for row in describe(file)[1]]


def real_tests(descriptions: Path, top: Path, wanted: Callable[[str], bool], notify: Callable[[str], None]) -> list[Test]:
    """The wanted tests that this machine can run, prepared in the directory `top`. The others are reported."""
    tests: list[Test] = []
    for file in sorted(descriptions.glob("*.toml")):
        package, rows = describe(file)
        for row in rows:
            if not wanted(row["name"]):
                continue
            note(f"preparing {row['name']}")
            try:
                tests.append(_test(row, package, top))
            except Unfit as reason:
                note("")
                notify(f"{row['name']}: left out: {reason}")
    return tests


def command_test(words: Sequence[str], environment: dict[str, str]) -> Test:
    """The test that runs the user's command, in the current directory and the given environment. Raises SheafError."""
    require_tools()
    path = locate(words[0])
    why = obstacle(path)
    if why:
        raise SheafError(f"{words[0]}: cannot be compared: {why.reason}; {why.advice}")
    plain = {name: value for name, value in environment.items() if name != "LD_PRELOAD"}
    file = os.path.join(os.curdir, path)  # a name without a slash would be searched for in PATH
    command = Command((file, *words[1:]), plain, Path.cwd(), brings_malloc(path))
    return Test("command", ("command",), " ".join(words), functools.partial(run_whole, command), warm_up=True)
