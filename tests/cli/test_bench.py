"""`sheaf bench`: statistics on known values, and the choice of contestants and tests with stand-ins for allocators."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Run
from sheaf.commands.bench import exports, figures, real, report, text
from sheaf.commands.bench.against import changes, machine_differs, render_changes, slower_than_best, worse_than_old
from sheaf.commands.bench.contestants import Choice, Contestant, find_contestants, parse_peer, verify
from sheaf.commands.bench.exports import Report
from sheaf.commands.bench.figures import Ratio
from sheaf.commands.bench.native import listed_tests, parse_result, run_native
from sheaf.commands.bench.progress import Progress
from sheaf.commands.bench.runs import KEYS, Outcome, Plan, Result, run_all
from sheaf.commands.bench.runs import Test as Runnable
from sheaf.errors import SheafError


def runs(*times: float, rss: int = 1000) -> list[Result]:
    """Runs with these times that are equal otherwise."""
    fixed = {"peak_rss_kib": rss, "minor_faults": 3, "wall_us": 100, "user_us": 150, "system_us": 50}
    return [{"ns_per_op_median": ns, "ns_per_op_min": ns / 2, **fixed} for ns in times]


# ---- figures ----


def test_the_interval_of_a_median_is_the_extremes_for_few_values() -> None:
    assert figures.median_interval([3.0, 1.0, 2.0]) == (1.0, 3.0)
    assert figures.median_interval([7.0]) == (7.0, 7.0)


def test_the_interval_of_a_median_drops_one_at_each_end_from_eight_values() -> None:
    # P(Binomial(8, 1/2) < 2) = 9/256: 93% for the second, 71% for the third.
    assert figures.median_interval([float(i) for i in range(8)]) == (1.0, 6.0)
    # P(Binomial(7, 1/2) < 2) = 8/128: only 87.5% for the second.
    assert figures.median_interval([float(i) for i in range(7)]) == (0.0, 6.0)


def test_the_interval_of_a_median_narrows_with_the_values() -> None:
    low, high = figures.median_interval([float(i) for i in range(101)])
    assert 40 <= low <= 43
    assert 57 <= high <= 60


def test_ratios_are_taken_within_rounds() -> None:
    ratio = figures.paired_ratio([2.0, 20.0, 200.0, 2.0, 2.0], [1.0, 10.0, 100.0, 1.0, 1.0])
    assert (ratio.value, ratio.low, ratio.high) == (2.0, 2.0, 2.0)
    assert not ratio.tie


@pytest.mark.parametrize(
    ("values", "tie"),
    [([1.0, 2.0, 3.0, 2.0, 2.0], True), ([3.0] * 5, False), ([3.0] * 4, True)],
    ids=["contains 1", "above 1", "too few rounds"],
)
def test_a_tie_is_indistinguishable_from_noise(values: list[float], tie: bool) -> None:
    assert figures.paired_ratio(values, [2.0] * len(values)).tie is tie


def test_unpaired_ratio_compares_all_pairs() -> None:
    apart = figures.unpaired_ratio([2.0, 2.1, 2.2, 2.3, 2.4], [1.0, 1.0, 1.0, 1.0, 1.0])
    assert (apart.value, apart.tie) == (2.2, False)
    assert 2.0 <= apart.low < apart.high <= 2.4
    assert figures.unpaired_ratio([1.0, 3.0, 1.0, 3.0, 2.0], [2.0] * 5).tie
    alone = figures.unpaired_ratio([3.0], [2.0])
    assert (alone.value, alone.low, alone.high) == (1.5, 1.5, 1.5)


def test_spread_mean_and_order() -> None:
    assert figures.spread([9.0, 10.0, 12.0]) == pytest.approx(0.3)
    assert figures.geometric_mean([0.5, 2.0, 8.0]) == pytest.approx(2.0)
    orders = [figures.shuffled("abcde", 7, number) for number in range(50)]
    assert all(sorted(order) == list("abcde") for order in orders)
    assert orders == [figures.shuffled("abcde", 7, number) for number in range(50)]
    assert orders != [figures.shuffled("abcde", 8, number) for number in range(50)]
    before_b = {order[order.index("b") - 1] for order in orders if order[0] != "b"}
    assert before_b == set("acde")  # each other item precedes b in some order


# ---- reports ----


@pytest.fixture
def contestants() -> list[Contestant]:
    return [Contestant("glibc"), Contestant("mimalloc"), Contestant("sheaf-a"), Contestant("sheaf")]


@pytest.fixture
def outcome() -> Outcome:
    found = Outcome("t", ("micro",), "what")
    found.runs = {
        "glibc": runs(8, 8, 8, 8, 8),
        "mimalloc": runs(4, 4, 4, 4, 4, rss=2000),
        "sheaf-a": runs(1, 1, 1, 1, 1),
        "sheaf": runs(3, 5, 4, 3, 5, rss=500),
    }
    return found


def test_a_variant_of_sheaf_is_not_its_own_peer(outcome: Outcome, contestants: list[Contestant]) -> None:
    assert {row.fastest for row in report.rows_of(outcome, contestants)} == {"mimalloc"}
    assert {row.leanest for row in report.rows_of(outcome, contestants)} == {"glibc"}


def test_rows_have_the_ratio_of_the_subject_to_each_contestant(outcome: Outcome, contestants: list[Contestant]) -> None:
    glibc, mimalloc, _, sheaf = report.rows_of(outcome, contestants)
    assert glibc.time_ratio and mimalloc.time_ratio and sheaf.time_ratio and sheaf.memory_ratio
    assert (glibc.time_ratio.value, glibc.time_ratio.tie) == (0.5, False)
    assert mimalloc.time_ratio == sheaf.time_ratio  # mimalloc is the best peer
    assert sheaf.time_ratio.tie
    assert sheaf.memory_ratio.value == 0.5
    assert (sheaf.ns_per_op, sheaf.ns_per_op_least, sheaf.cpu_us, sheaf.peak_rss_kib) == (4.0, 1.5, 200.0, 500.0)


def test_a_failed_contestant_has_no_row_and_its_test_no_mean(outcome: Outcome, contestants: list[Contestant]) -> None:
    lame = Outcome("u", ("micro",), runs={"glibc": runs(1), "mimalloc": runs(1)}, failures={"sheaf": "killed by signal 11"})
    other = Outcome("v", ("micro",), runs=outcome.runs)
    assert len(report.rows_of(lame, contestants)) == 2
    assert {mean.tests for mean in report.means([outcome, lame, other], contestants)} == {2}
    assert "u: sheaf failed: killed by signal 11" in report.notes([lame])


def test_a_test_can_be_excluded_from_means(outcome: Outcome, contestants: list[Contestant]) -> None:
    out = Outcome("v", ("micro",), in_means=False, runs=outcome.runs)
    assert report.means([outcome, out], contestants) == []
    assert len(report.rows_of(out, contestants)) == 4


def test_verdict_and_losses_name_the_best(outcome: Outcome, contestants: list[Contestant]) -> None:
    other = Outcome("v", ("micro",), runs={**outcome.runs, "sheaf": runs(8, 8, 8, 8, 8, rss=1500)})
    said = report.verdicts(report.means([outcome, other], contestants), contestants)
    assert said == ["micro, 2 tests: sheaf takes 1.414 of the time of mimalloc and 0.866 of the peak memory of glibc"]
    rows = report.findings([outcome, other], contestants).rows
    assert report.losses(rows, "sheaf") == ["v: 2.00 of the time of mimalloc", "v: 1.50 of the peak memory of glibc"]


def test_programs_have_a_mean_with_the_real_ones(outcome: Outcome, contestants: list[Contestant]) -> None:
    outcomes = [Outcome(name, (suite,), runs=outcome.runs) for name, suite in (("a", "programs"), ("b", "real"), ("c", "real"))]
    tests = {mean.suite: mean.tests for mean in report.means(outcomes, contestants)}
    assert tests == {"real": 2, "programs+real": 3}


def test_formats() -> None:
    assert [text.format_ns(ns) for ns in (5.44, 15400.0, 1.96e6, 3e9)] == ["5.4 ns", "15.4 us", "2.0 ms", "3.00 s"]
    assert [text.format_kib(kib) for kib in (1536, 20480, 204800)] == ["1.50", "20.0", "200"]
    assert text.format_ratio(Ratio(0.98, 0.9, 1.1, 5)) == "tie 0.90..1.10"
    assert text.format_ratio(Ratio(0.9, 0.85, 0.95, 5)) == "0.90 0.85..0.95"
    assert text.format_ratio(Ratio(0.9, 0.85, 0.95, 3)) == "0.90 ?"
    assert text.format_ratio(None) == "-"
    assert text.text_table(["a", "n"], [["x", "1"], ["x", "10"]], 1) == "a   n\nx   1\n   10"


def test_memory_at_named_moments(contestants: list[Contestant]) -> None:
    named = (("start", 1024), ("", 1), ("1 s", 2048))
    points = [{"moment": moment, "ms": 0, "rss_kib": kib} for moment, kib in named]
    found = Outcome("idle", ("programs",), runs={"glibc": [{**run, "memory": points} for run in runs(1)]})
    moments = report.moments_of(found, contestants)
    assert text.memory_tables(moments) == {"idle": (["allocator", "start", "1 s"], [["glibc", "1.00", "2.00"]])}


# ---- exports and comparing ----


@pytest.fixture
def made(outcome: Outcome, contestants: list[Contestant]) -> Report:
    return Report(["sheaf", "bench"], {"cpu": "one", "cpus": 2}, contestants, [outcome])


def test_an_export_is_read_back_as_it_was(made: Report, tmp_path: Path) -> None:
    exports.write(tmp_path / "out.json", made)
    assert exports.read(tmp_path / "out.json") == made
    assert json.loads((tmp_path / "out.json").read_text())["tests"][0]["rows"][0]["time_ratio"]["value"] == 0.5
    exports.write(tmp_path / "out.csv", made)
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert len(lines) == 5 and lines[1].startswith("micro,t,glibc,8.0,")
    exports.write(tmp_path / "out.md", made)
    assert "| t | sheaf |" in (tmp_path / "out.md").read_text()


def test_other_files_are_refused_as_exports(tmp_path: Path) -> None:
    for content, said in (("{}", "not an export"), ("[1", "not an export"), ('{"schema_version": 1}', "schema version 1")):
        (tmp_path / "x.json").write_text(content)
        with pytest.raises(SheafError, match=said):
            exports.read(tmp_path / "x.json")
    with pytest.raises(SheafError, match="No such file"):
        exports.read(tmp_path / "none.json")


def _slower(made: Report, factor: float, **others: float) -> Report:
    """The same run with the times multiplied by a factor, which `others` gives for single contestants."""
    (outcome,) = made.outcomes
    changed = {
        name: [{**run, "ns_per_op_median": run["ns_per_op_median"] * others.get(name, factor)} for run in found]
        for name, found in outcome.runs.items()
    }
    return Report(made.command, made.machine, made.contestants, [Outcome("t", ("micro",), runs=changed)])


def test_a_slower_machine_is_no_regression(made: Report) -> None:
    (change,) = changes(_slower(made, 3.0), made)
    assert change.time and change.time.value == pytest.approx(1.0)
    assert worse_than_old([change], 1.05) == []


def test_a_regression_is_reported(made: Report) -> None:
    found = changes(_slower(made, 1.0, sheaf=3.0), made)
    assert found[0].time and found[0].time.value == pytest.approx(3.0)
    assert len(worse_than_old(found, 1.05)) == 1
    assert worse_than_old(found, 3.5) == []
    assert "geometric mean" in render_changes(found, "sheaf")
    assert slower_than_best(made, 1.05) == []
    assert slower_than_best(_slower(made, 1.0, sheaf=3.0), 1.05) == ["t: time 3.000 of mimalloc"]


def test_another_machine_is_reported(made: Report) -> None:
    other = Report(made.command, {"cpu": "two", "cpus": 2}, made.contestants, made.outcomes)
    assert "cpu" in machine_differs(made, other)
    assert machine_differs(made, made) == ""


# ---- runs ----


def script(code: str) -> Callable[[Contestant, float], Result]:
    return lambda contestant, timeout_s: run_native([sys.executable, "-c", code], "t", contestant, timeout_s)


def test_a_result_without_a_key_is_refused() -> None:
    whole = {key: 1 for key in KEYS}
    assert parse_result(json.dumps(whole), "t") == whole
    with pytest.raises(SheafError, match="lacks wall_us"):
        parse_result(json.dumps({key: 1 for key in KEYS if key != "wall_us"}), "t")
    with pytest.raises(SheafError, match="no JSON"):
        parse_result("hello", "t")


@pytest.mark.parametrize(
    ("code", "timeout_s", "said"),
    [
        ("import os; os.kill(os.getpid(), 9)", 60, "killed by signal 9"),
        ("import sys; sys.exit('no room')", 60, "no room"),
        ("import time; time.sleep(60)", 0.3, "took more than"),
    ],
)
def test_the_failure_of_a_program_is_reported(code: str, timeout_s: float, said: str) -> None:
    with pytest.raises(SheafError, match=said):
        script(code)(Contestant("glibc"), timeout_s)


def test_a_child_of_a_program_that_hangs_ends_with_it(tmp_path: Path) -> None:
    code = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.fork() or os.getpid())); time.sleep(60)"
    with pytest.raises(SheafError, match="took more than"):
        script(code)(Contestant("glibc"), 1)
    for _ in range(100):  # an orphan is a zombie until init has reaped it
        stat = Path(f"/proc/{(tmp_path / 'pid').read_text()}/stat")
        if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.05)
    pytest.fail("the child still runs")


def test_undecodable_output_of_a_program_is_reported() -> None:
    code = "import os, sys; os.write(2, b'no \\xff room'); sys.exit(1)"
    with pytest.raises(SheafError, match="no \ufffd room"):
        script(code)(Contestant("glibc"), 60)


def test_programs_that_cannot_be_executed_are_reported(tmp_path: Path) -> None:
    program = tmp_path / "bench-micro"
    program.write_bytes(b"\x7fELF of another machine")
    program.chmod(0o755)
    with pytest.raises(SheafError, match=r"--list failed .*Exec format error.*; rebuild"):
        listed_tests(program, "micro", None, False)


def test_rounds_are_shuffled_and_failed_contestants_drop_out(tmp_path: Path) -> None:
    line = json.dumps({key: 1 for key in KEYS})
    code = f"import os; me = os.environ['ME']; open({str(tmp_path / 'log')!r}, 'a').write(me); assert me != 'b'; print({line!r})"
    taking_part = [Contestant(name, variables={"ME": name}) for name in "abc"]
    said: list[tuple[int, int, str]] = []
    plan = Plan(rounds=3, retries=0, load_limit=0, wait_s=0, timeout_s=60, seed=3)
    (found,) = run_all([Runnable("t", ("micro",), "", script(code))], taking_part, plan, lambda *what: said.append(what))
    orders = ["".join(figures.shuffled("abc", 3, number)) for number in range(3)]
    assert (tmp_path / "log").read_text() == orders[0] + "".join(order.replace("b", "") for order in orders[1:])
    assert {name: len(results) for name, results in found.runs.items()} == {"a": 3, "c": 3}
    assert list(found.failures) == ["b"]
    assert said == [(0, 0, "t"), (1, 0, "t"), (2, 0, "t")]


def test_a_disturbed_round_is_repeated_and_the_quietest_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = iter([0.9, 0.5, 0.7])

    class Meter:
        def other_cpus(self) -> float:
            return next(loads)

    monkeypatch.setattr("sheaf.commands.bench.runs.LoadMeter", Meter)
    numbers = iter(range(1, 9))
    test = Runnable("t", ("micro",), "", lambda *_: {**{key: 1 for key in KEYS}, "ns_per_op_median": next(numbers)})
    (found,) = run_all([test], [Contestant("glibc")], Plan(1, 2, 0.1, 0, 60), lambda *_: None)
    assert (found.repeated, found.disturbed, found.other_cpus) == (2, 1, [0.5])
    assert found.runs["glibc"][0]["ns_per_op_median"] == 2


def test_an_interrupt_keeps_the_rounds_that_are_complete() -> None:
    calls = iter([False, False, False, True])

    def run(*_: Any) -> Result:
        if next(calls):
            raise KeyboardInterrupt
        return {key: 1 for key in KEYS}

    both = [Contestant("a"), Contestant("b")]
    found = run_all([Runnable("t", ("micro",), "", run)], both, Plan(5, 0, 9, 0, 60), lambda *_: None)
    assert {name: len(results) for name, results in found[0].runs.items()} == {"a": 1, "b": 1}


def test_the_remaining_time_follows_the_previous_round(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 0.0, 2.0, 5.0])
    monkeypatch.setattr("sheaf.commands.bench.progress.time.monotonic", lambda: next(clock))
    progress = Progress(rounds=3, tests=2)
    progress(0, 0, "a")  # at 0
    progress(0, 1, "b")  # at 2: a took 2
    assert progress.left(0, 1) == 2 + 2 * 4
    progress(1, 0, "a")  # at 5: b took 3
    assert progress.left(1, 0) == 2 * 5


# ---- contestants, programs, descriptions ----


def test_a_peer_with_variables() -> None:
    peer = parse_peer(f"mine={__file__},A=1,B=x=y")
    assert (peer.name, peer.path, peer.variables) == ("mine", Path(__file__).resolve(), {"A": "1", "B": "x=y"})
    assert peer.environment()["LD_PRELOAD"] == str(peer.path)
    assert parse_peer("tuned=,A=1").environment() == {"A": "1"}


@pytest.mark.parametrize(
    ("peer", "said"), [("mine", "NAME=PATH"), ("a b=", "NAME of letters"), ("m=/no", "no such file"), ("m=,A", "VAR=VALUE")]
)
def test_errors_in_a_peer_are_reported(peer: str, said: str) -> None:
    with pytest.raises(SheafError, match=said):
        parse_peer(peer)


def test_a_missing_allocator_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sheaf.commands.bench.contestants.library_directories", lambda: [tmp_path])
    said: list[str] = []
    found = find_contestants(lambda: Path(__file__), Choice(), lambda *_: [], said.append)
    assert [contestant.name for contestant in found] == ["glibc", "sheaf"]
    assert [line for line in said if "apt install libjemalloc2" in line]
    with pytest.raises(SheafError, match="apt install libmimalloc"):
        find_contestants(lambda: Path(__file__), Choice(only=["mimalloc"]), lambda *_: [], said.append)


def test_an_object_without_malloc_is_no_contestant() -> None:
    with pytest.raises(SheafError, match="cannot be preloaded"):
        verify(Contestant("text", Path(__file__)))
    libm = next(Path("/").glob("lib/*-linux-gnu/libm.so.6"), None)
    if libm:
        with pytest.raises(SheafError, match="malloc comes from"):
            verify(Contestant("libm", libm))
    verify(Contestant("glibc"))


def test_the_descriptions_of_real_programs_are_sound() -> None:
    names = [name for name, _ in real.names(ROOT / "bench" / "real")]
    assert len(names) == len(set(names)) >= 18


def test_a_wrong_description_is_reported(tmp_path: Path) -> None:
    for content, said in (
        ("package = 3 = 4", "correct the file"),
        ('package = "x"', "the tests are missing"),
        ('package = "x"\n[[test]]\nname = "a"\nwhat = "b"', "command"),
        ('package = "x"\n[[test]]\nname = "a"\nwhat = "b"\ncommand = ["c"]\nother = 1', "other"),
    ):
        (tmp_path / "x.toml").write_text(content)
        with pytest.raises(SheafError, match=said):
            real.describe(tmp_path / "x.toml")


def test_a_missing_program_is_named_with_its_package_and_left_out(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text('package = "some-package"\n[[test]]\nname = "a"\nwhat = "b"\ncommand = ["no-such-program"]')
    said: list[str] = []
    assert real.real_tests(tmp_path, tmp_path / "work", lambda _: True, said.append) == []
    assert said == ["a: left out: no-such-program not found; run apt install some-package"]


def test_a_preparation_that_hangs_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sheaf.commands.bench.real.PREPARE_S", 0.1)
    description = 'package = "p"\n[[test]]\nname = "a"\nwhat = "b"\ncommand = ["true"]\nprepare = "exec sleep 60"'
    (tmp_path / "x.toml").write_text(description)
    said: list[str] = []
    assert real.real_tests(tmp_path, tmp_path / "work", lambda _: True, said.append) == []
    assert said == ["a: left out: the preparation took more than 0.1 s"]


# ---- scripts in bench/ ----


@pytest.mark.parametrize(
    "words",
    [
        ["seeds/tables.py", "--programs", "/no/such", "batch"],
        ["seeds/tables.py", "--rounds", "0", "batch"],
        ["seeds/tables.py", "--scale", "0", "batch"],
        ["counts/counts.py", "check", "/no/such.so"],
    ],
)
def test_a_wrong_call_of_a_script_gives_one_line(words: list[str]) -> None:
    done = subprocess.run([sys.executable, ROOT / "bench" / words[0], *words[1:]], capture_output=True, text=True)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert re.match(r"\w+\.py: (error: )?\S", done.stderr.splitlines()[-1])


# ---- the command ----


def _bench(sheaf: Run, *args: str, **env: str) -> tuple[int, str, str]:
    done = sheaf("bench", *args, env=env)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["no-such"], "no-such"),
        (["--peer", "nothing"], "NAME=PATH"),
        (["--export", "out.txt"], "must end with"),
        (["--export", "/nowhere/out.json"], "no such directory"),
        (["--from", "/nowhere.json"], "No such file"),
        (["--against", "/nowhere.json"], "No such file"),
        (["--"], "not followed by a command"),
        (["--ronds", "3"], "--rounds"),
    ],
)
def test_a_wrong_command_line_gives_one_line(sheaf: Run, args: list[str], said: str) -> None:
    status, out, err = _bench(sheaf, *args)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_a_directory_without_programs_is_refused(sheaf: Run, tmp_path: Path) -> None:
    status, _, err = _bench(sheaf, "micro", "--list", SHEAF_BENCH_DIR=str(tmp_path))
    assert status == 1
    assert "SHEAF_BENCH_DIR" in err and err.count("\n") == 1


def test_an_export_is_rendered_and_compared_without_running(sheaf: Run, made: Report, tmp_path: Path) -> None:
    exports.write(tmp_path / "old.json", made)
    exports.write(tmp_path / "new.json", _slower(made, 1.0, sheaf=3.0))
    status, out, err = _bench(sheaf, "--from", str(tmp_path / "new.json"), "--against", str(tmp_path / "old.json"))
    assert status == 0 and "Ratio of the new run to the old one" in out and err == ""
    against = ["--from", str(tmp_path / "new.json"), "--against", str(tmp_path / "old.json"), "--fail-above", "1.5"]
    status, _, err = _bench(sheaf, *against)
    assert status == 3 and "t: time 3.000 of the older run" in err


def test_plots_without_matplotlib_are_refused_at_once(sheaf: Run, made: Report, tmp_path: Path) -> None:
    exports.write(tmp_path / "run.json", made)
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['matplotlib'] = None\n")
    path = os.pathsep.join((str(tmp_path), str(ROOT / "cli")))
    status, _, err = _bench(sheaf, "--from", str(tmp_path / "run.json"), "--plot", str(tmp_path / "p"), PYTHONPATH=path)
    assert status == 1 and "pip install" in err and err.count("\n") == 1


def test_plots_are_drawn(made: Report, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from sheaf.commands.bench.plots import draw

    draw(made, tmp_path)
    for kind in ("svg", "png"):
        assert (tmp_path / f"micro-time.{kind}").stat().st_size > 1000


def test_one_contestant_has_no_means(outcome: Outcome) -> None:
    """With --only sheaf there is nothing to which a mean could be relative."""
    alone = [Contestant("sheaf")]
    outcomes = [Outcome(name, ("micro",), runs={"sheaf": outcome.runs["sheaf"]}) for name in "ab"]
    shown = text.render(report.findings(outcomes, alone), alone, markdown=False)
    assert "glibc" not in shown
    assert "Geometric means" not in shown


def test_means_without_glibc_name_what_they_are_relative_to(outcome: Outcome) -> None:
    both = [Contestant("mimalloc"), Contestant("sheaf")]
    outcomes = [Outcome(name, ("micro",), runs={c.name: outcome.runs[c.name] for c in both}) for name in "ab"]
    shown = text.render(report.findings(outcomes, both), both, markdown=False)
    assert "Geometric means relative to mimalloc\n" in shown
    assert "glibc" not in shown


@pytest.mark.skipif(shutil.which("hyperfine") is None, reason="hyperfine is not installed")
def test_a_program_in_the_current_directory(library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    for words in (["./program"], ["program"]):
        monkeypatch.setenv("PATH", os.environ["PATH"] + (":." if words == ["program"] else ""))
        assert real.command_test(words, dict(os.environ)).run(Contestant("glibc"), 60)["ops"] == 1


def test_a_command_without_hyperfine_is_refused_at_once(sheaf: Run, tmp_path: Path) -> None:
    status, out, err = _bench(sheaf, "--", "true", PATH=str(tmp_path))
    assert (status, out, err) == (
        1,
        "",
        "sheaf: hyperfine: not found; run apt install hyperfine, which measures the time of commands\n",
    )
