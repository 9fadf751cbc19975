"""Real programs, each described in a TOML file: what to prepare once, what to run, and which package brings it."""

from __future__ import annotations

import functools
import subprocess
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sheaf.bench.contestants import fixed_environment
from sheaf.bench.progress import note
from sheaf.bench.runs import Test
from sheaf.bench.server import Server, run_server
from sheaf.bench.whole import Command, brings_malloc, require_tools, run_whole
from sheaf.errors import SheafError
from sheaf.program import locate, obstacle

PREPARE_S = 300
_KEYS = {"name", "what", "command", "environment", "prepare", "server"}
_SERVER_KEYS = {"ready", "load", "stop", "rate"}


class Unfit(Exception):
    """A program that is not there or cannot be preloaded into; it is left out."""


def _program(name: str, package: str) -> Path:
    try:
        path = locate(name)
    except SheafError:
        raise Unfit(f"{name} not found: apt install {package}") from None
    why = obstacle(path)
    if why:
        raise Unfit(f"{name} {why.reason}")
    return path


def _prepare(name: str, script: str, directory: Path, environment: dict[str, str]) -> None:
    """Once, plain."""
    directory.mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script], cwd=directory, env=environment, capture_output=True, text=True,
            errors="replace", check=False, timeout=PREPARE_S, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Unfit(f"{name} could not be prepared (took more than {PREPARE_S} s)") from None
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise Unfit(f"{name} could not be prepared ({said[-1]})")


def describe(file: Path) -> tuple[str, list[dict[str, Any]]]:
    """The package and the tests of a description, checked."""
    try:
        found = tomllib.loads(file.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise SheafError(f"{file}: {error}; correct it") from None
    tests = found.get("test", [])
    for test in tests:
        wrong = set(test) - _KEYS | set(test.get("server", {})) - _SERVER_KEYS
        lacking = {"name", "what", "command"} - set(test) | (_SERVER_KEYS - set(test["server"]) if "server" in test else set())
        if wrong or lacking:
            named = ", ".join(sorted(wrong | lacking))
            raise SheafError(f"{file}: {test.get('name', '?')}: keys unknown or missing: {named}")
    if "package" not in found or not tests:
        raise SheafError(f"{file}: wants a package and at least one [[test]]")
    return found["package"], tests


def _test(row: dict[str, Any], package: str, top: Path) -> Test:
    name = row["name"]
    path = _program(row["command"][0], package)
    directory = top / name
    environment = {**fixed_environment(), "HOME": str(directory), "TMPDIR": str(directory), **row.get("environment", {})}
    _prepare(name, row.get("prepare", ":"), directory, environment)
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
    """Of all tests, with what they do; without looking at the machine."""
    return [(row["name"], row["what"]) for file in sorted(descriptions.glob("*.toml")) for row in describe(file)[1]]


def real_tests(
    descriptions: Path, top: Path, wanted: Callable[[str], bool], tell: Callable[[str], None]
) -> list[Test]:
    """The wanted ones that this machine can run, prepared under `top`; the others are named."""
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
                tell(f"{row['name']}: left out: {reason}")
    return tests


def command_test(words: Sequence[str], environment: dict[str, str]) -> Test:
    """The user's own command, in his directory and environment."""
    require_tools()
    path = locate(words[0])
    why = obstacle(path)
    if why:
        raise SheafError(f"{words[0]}: cannot be compared: {why.reason}; {why.advice}")
    plain = {name: value for name, value in environment.items() if name != "LD_PRELOAD"}
    command = Command((str(path), *words[1:]), plain, Path.cwd(), brings_malloc(path))
    return Test("command", ("command",), " ".join(words), functools.partial(run_whole, command), warm_up=True)
