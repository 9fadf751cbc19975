"""`sheaf bench --peers`: the newest peers are fetched, built and found again, with a stand-in for cargo."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Run
from sheaf.commands.bench import contestants, exports, modes, newest
from sheaf.commands.bench.contestants import Choice, Contestant, find_contestants
from sheaf.commands.bench.recipes import RECIPES, Recipe, Workplace
from sheaf.commands.bench.runs import KEYS, Outcome
from sheaf.errors import SheafError

CARGO = """#!/bin/sh
[ "$1" = --version ] && echo "cargo ${FAKE_CARGO:-1.90.0}" && exit
echo "$PWD" >>"$FAKE_LOG"
mkdir -p vendor/some-sys && cp "$FAKE_OBJECT" vendor/some-sys/object.so
exit "${FAKE_STATUS:-0}"
"""


def _take(place: Workplace) -> Path:
    return place.source / "object.so"


def _recipe(make: Callable[[Workplace], Path] = _take, cargo: tuple[int, int] = (1, 63), tool: str = "nm") -> Recipe:
    return Recipe("some", "some-sys", "1.2.3+x", "9.8", (tool,), make, (("A", "1"),), cargo)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str) -> Path:
    """Put a stand-in for cargo into PATH, whose crates contain Sheaf's object as a peer. Returns the log of its calls."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "cargo").write_text(CARGO)
    (tmp_path / "bin" / "cargo").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("FAKE_OBJECT", library)
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "calls"))
    monkeypatch.setattr(newest, "RECIPES", (_recipe(),))
    return tmp_path / "calls"


def _find(*names: str) -> tuple[list[Contestant], list[str]]:
    said: list[str] = []
    found = newest.find_newest(names or ("some",), said.append)
    return found, said


def test_a_peer_is_built_once_and_found_again(tools: Path) -> None:
    (built,), said = _find()
    assert (built.name, built.version, built.variables) == ("some", "9.8 (some-sys 1.2.3)", {"A": "1"})
    assert built.path and built.path.parent == newest.cache() and built.path.is_file()
    assert said == ["building some, 1 of 1: 9.8 (some-sys 1.2.3)"]
    assert _find() == ([built], [])
    assert len(tools.read_text().splitlines()) == 1
    assert sorted(path.suffix for path in newest.cache().iterdir()) == ["", ".log", ".so"]  # no temporary file is left


def test_another_version_is_built_again(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _find()
    recipe = Recipe("some", "some-sys", "1.2.4", "9.9", (), _take)
    monkeypatch.setattr(newest, "RECIPES", (recipe,))
    (built,), said = _find()
    assert built.path and "1.2.4" in built.path.name
    assert len(said) == 1


def test_concurrent_runs_build_once(tools: Path) -> None:
    results: list[tuple[list[Contestant], list[str]]] = []
    threads = [threading.Thread(target=lambda: results.append(_find())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({found[0].path for found, _ in results}) == 1
    assert len(tools.read_text().splitlines()) == 1


def _no_object(place: Workplace) -> Path:
    return place.made("out/*.so")


def _no_malloc(_: Workplace) -> Path:
    return next(Path("/").glob("lib/*-linux-gnu/libm.so.6"))


@pytest.mark.parametrize(
    ("make", "status", "said"),
    [
        (_take, "3", "cargo failed with status 3"),
        (_no_object, "0", "the build produced no out/[*].so"),
        (_no_malloc, "0", "the object does not define malloc, free"),
    ],
)
def test_a_peer_that_does_not_build_is_named_with_its_log(
    tools: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Workplace], Path], status: str, said: str
) -> None:
    monkeypatch.setenv("FAKE_STATUS", status)
    monkeypatch.setattr(newest, "RECIPES", (_recipe(make),))
    found, lines = _find()
    assert found == []
    log = newest.cache() / f"{_recipe().key}.log"
    assert len(lines) == 2 and lines[1].endswith(f"; see {log}") and log.is_file()
    assert lines[1].startswith(f"some: left out: {said.replace('[*]', '*')}")


def test_missing_tools_are_named_once_with_what_to_install(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newest, "RECIPES", (_recipe(tool="no-such-compiler"),))
    found, said = _find()
    assert (found, said) == ([], ["some: left out: no-such-compiler not found; run apt install cargo cmake make g++"])


def test_a_cargo_that_is_too_old_is_named(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_CARGO", "1.65.0")
    monkeypatch.setattr(newest, "RECIPES", (_recipe(cargo=(1, 85)),))
    found, said = _find()
    assert found == []
    assert said == [
        "some: left out: cargo 1.65 is too old for some-sys, which needs 1.85; install a newer one from https://rustup.rs"
    ]


def test_scudo_is_that_of_the_newest_llvm(monkeypatch: pytest.MonkeyPatch) -> None:
    places = [Path(f"/usr/lib/llvm-{n}/lib/clang/{n}.0/lib/linux/libclang_rt.scudo_standalone-x.so") for n in (14, 9, 18)]
    monkeypatch.setattr(Path, "glob", lambda _, pattern: iter(places) if "llvm" in pattern else iter(()))
    assert newest.scudo() == places[2]
    monkeypatch.setattr(Path, "glob", lambda _, pattern: iter(()))
    said: list[str] = []
    assert newest.find_newest(["scudo"], said.append) == []
    assert said[0].startswith("scudo: not found; run apt install libclang-rt-14-dev")


def test_every_recipe_has_a_file_of_its_own() -> None:
    assert len({recipe.key for recipe in RECIPES}) == len(RECIPES)
    assert {recipe.name for recipe in RECIPES} == {"mimalloc2", "mimalloc3", "jemalloc", "snmalloc", "rpmalloc", "tcmalloc"}


# ---- the choice of peers ----


def _names(choice: Choice, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    for known in contestants.KNOWN:
        (tmp_path / known.files[0]).touch()
    monkeypatch.setattr(contestants, "library_directories", lambda: [tmp_path])
    made = [Contestant(name, Path(__file__)) for name in ("jemalloc", "tcmalloc")]
    return [found.name for found in find_contestants(lambda: Path(__file__), choice, lambda *_: made, lambda _: None)]


def test_the_choice_of_peers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed = _names(Choice(), monkeypatch, tmp_path)
    assert installed == ["glibc", "mimalloc", "jemalloc", "gperftools", "sheaf"]
    assert _names(Choice(kind="newest"), monkeypatch, tmp_path) == ["glibc", "jemalloc", "tcmalloc", "sheaf"]
    both = _names(Choice(kind="all"), monkeypatch, tmp_path)
    assert both == ["glibc", "mimalloc", "jemalloc-installed", "gperftools", "jemalloc", "tcmalloc", "sheaf"]
    with pytest.raises(SheafError, match="--only snmalloc: no such allocator; use --peers newest"):
        _names(Choice(only=["snmalloc"]), monkeypatch, tmp_path)
    with pytest.raises(SheafError, match="--only gperftools: not among the newest peers"):
        _names(Choice(kind="newest", only=["gperftools"]), monkeypatch, tmp_path)


def test_tcmalloc_of_an_older_export_becomes_gperftools(tmp_path: Path) -> None:
    run = {key: 1 for key in KEYS}
    outcome = Outcome("t", ("micro",), runs={"tcmalloc": [run], "sheaf": [run]}, failures={"tcmalloc": "x"})
    taking_part = [Contestant("tcmalloc", Path("/usr/lib/libtcmalloc_minimal.so.4")), Contestant("sheaf")]
    exports.write(tmp_path / "old.json", exports.Report([], {}, taking_part, [outcome]))
    found = exports.read(tmp_path / "old.json")
    assert [contestant.name for contestant in found.contestants] == ["gperftools", "sheaf"]
    assert list(found.outcomes[0].runs) == ["gperftools", "sheaf"] and list(found.outcomes[0].failures) == ["gperftools"]


def test_an_export_keeps_the_mode(tmp_path: Path) -> None:
    report = exports.Report([], {}, [Contestant("tcmalloc", mode="per-CPU")], [])
    exports.write(tmp_path / "run.json", report)
    assert exports.read(tmp_path / "run.json") == report
    old = json.loads((tmp_path / "run.json").read_text())
    del old["contestants"][0]["mode"]
    (tmp_path / "run.json").write_text(json.dumps(old))
    assert exports.read(tmp_path / "run.json").contestants[0].mode == ""


def test_the_mode_of_sheaf_is_found(library: str) -> None:
    assert modes.mode(Contestant("glibc")) == ""
    assert modes.mode(Contestant("sheaf", Path(library))) in ("rseq mm_cid", "rseq cpu_id", "rseq own", "lock")
    assert modes.with_mode(Contestant("sheaf", Path(library), {"SHEAF_SLOTS": "cpu_id"})).mode in ("rseq cpu_id", "lock")


def test_the_mode_of_tcmalloc_is_found(tmp_path: Path) -> None:
    source = "#include <stdbool.h>\nbool MallocExtension_Internal_GetPerCpuCachesActive(void) { return ACTIVE; }\n"
    (tmp_path / "x.c").write_text(source)
    for active, said in (("true", "per-CPU"), ("false", "per-thread")):
        made = tmp_path / f"{active}.so"
        command = ["cc", "-shared", "-fPIC", f"-DACTIVE={active}", str(tmp_path / "x.c"), "-o", str(made)]
        subprocess.run(command, check=True)
        assert modes.mode(Contestant("tcmalloc", made)) == said


def test_the_peers_are_listed(sheaf: Run, library: str) -> None:
    done = sheaf("bench", "--list-peers", "--only", "glibc,sheaf", env={"SHEAF_LIBRARY": library, "XDG_CACHE_HOME": "/no/such"})
    assert done.returncode == 0 and done.stderr == ""
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["allocator", "glibc", "sheaf"]
