"""The suite rest of `sheaf bench`: memory over time, on runs with known numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sheaf.commands.bench import exports, facts, report, runs, text
from sheaf.commands.bench.against import changes, render_changes, worse_than_old
from sheaf.commands.bench.contestants import Contestant
from sheaf.commands.bench.exports import Report
from sheaf.commands.bench.runs import KEYS, Outcome, Plan, Result, run_round
from sheaf.commands.bench.runs import Test as Runnable

MIB = 1024  # in KiB
BOTH = [Contestant("glibc"), Contestant("mimalloc"), Contestant("sheaf")]


def curve(*points: tuple[str, int, int]) -> list[dict[str, Any]]:
    """The memory of a run from tuples of moment, resident MiB and live MiB."""
    return [
        {"moment": name, "ms": 100 * i, "rss_kib": rss * MIB, "live_kib": live * MIB}
        for i, (name, rss, live) in enumerate(points)
    ]


def burst(peak: int, rest: int, ns: float = 100) -> Result:
    """A run that measures only memory."""
    fixed = {"minor_faults": 3, "wall_us": 100, "user_us": 150, "system_us": 50, "peak_rss_kib": peak * MIB, "timing": "none"}
    memory = curve(("start", 1, 0), ("peak", peak, 90), ("freed", peak, 0), ("", peak, 0), ("1 s", rest, 0))
    return {"ns_per_op_median": ns, "ns_per_op_min": ns, **fixed, "memory": memory}


def sawtooth(cpu_ns: float) -> Result:
    """A run that measures CPU time."""
    memory = curve(("peak", 110, 100), ("before the next", 20, 0))
    return {**burst(110, 20, cpu_ns), "timing": "cpu", "memory": memory}


@pytest.fixture
def outcomes() -> list[Outcome]:
    """A burst, in which Sheaf is slow (ignored) and keeps much memory, and a sawtooth."""
    first = {"glibc": [burst(100, 4)], "mimalloc": [burst(200, 50)], "sheaf": [burst(110, 40, 1e9)]}
    second = {"glibc": [sawtooth(10)], "mimalloc": [sawtooth(40)], "sheaf": [sawtooth(20)]}
    return [Outcome("burst-a", ("rest",), runs=first), Outcome("sawtooth-a", ("rest",), runs=second)]


@pytest.fixture
def made(outcomes: list[Outcome]) -> Report:
    return Report(["sheaf", "bench"], {"cpu": "one", "cpus": 2}, BOTH, outcomes)


def test_a_burst_measures_only_memory(outcomes: list[Outcome]) -> None:
    glibc, _, sheaf = report.rows_of(outcomes[0], BOTH)
    assert (sheaf.timed, sheaf.time_ratio, sheaf.fastest) == (False, None, "")
    assert (sheaf.rest_rss_kib, sheaf.rest_live_kib, sheaf.least_resting) == (40 * MIB, 0, "glibc")
    assert sheaf.rest_ratio and glibc.rest_ratio
    assert (sheaf.rest_ratio.value, glibc.rest_ratio.value) == (10.0, 10.0)
    assert sheaf.memory_ratio and sheaf.memory_ratio.value == pytest.approx(1.1)
    timed = report.rows_of(outcomes[1], BOTH)[2]
    assert timed.timed and timed.time_ratio and timed.time_ratio.value == 2.0
    assert (timed.rest_rss_kib, timed.rest_ratio) == (None, None)


def test_the_mean_of_time_is_over_the_tests_that_measure_it(outcomes: list[Outcome]) -> None:
    glibc, mimalloc, sheaf = report.means(outcomes, BOTH)
    assert sheaf.tests == 2
    assert [sheaf.time, sheaf.rest, glibc.time, glibc.rest, mimalloc.rest] == pytest.approx([2.0, 10.0, 1.0, 1.0, 12.5])
    only = report.means([outcomes[0], Outcome("burst-b", ("rest",), runs=outcomes[0].runs)], BOTH)
    assert [(mean.time, mean.cpu) for mean in only] == [(None, None)] * 3
    said = report.verdicts(only, BOTH)
    assert said == ["rest, 2 tests: sheaf takes 1.100 of the peak memory of glibc and 10.000 of the memory at rest of glibc"]


def test_other_suites_have_no_memory_at_rest(outcomes: list[Outcome]) -> None:
    """The suite programs has moments of the same names."""
    for outcome in outcomes:
        outcome.suites = ("programs",)
    assert {mean.rest for mean in report.means(outcomes, BOTH)} == {None}
    assert {row.rest_ratio for outcome in outcomes for row in report.rows_of(outcome, BOTH)} == {None}
    assert "Resident MiB, burst-a" in text.render(report.findings(outcomes, BOTH), BOTH, markdown=False)


def test_only_much_memory_at_rest_is_a_loss(outcomes: list[Outcome]) -> None:
    rows = report.findings(outcomes, BOTH).rows
    assert report.losses(rows, "sheaf")[0] == "burst-a: 10.00 of the memory at rest of glibc"
    outcomes[0].runs |= {"glibc": [burst(100, 3)], "sheaf": [burst(100, 6)]}
    rows = report.findings(outcomes, BOTH).rows
    assert report.losses(rows, "sheaf") == ["sawtooth-a: 2.00 of the time of glibc"]


def test_the_table_has_the_moments_and_the_live_memory(outcomes: list[Outcome]) -> None:
    tables = text.rest_tables(report.findings(outcomes, BOTH), "sheaf")
    heads, lines = tables["burst"]
    assert heads == ["test", "allocator", "start", "peak", "freed", "1 s", "sheaf/this peak", "sheaf/this 1 s"]
    assert lines[0] == ["burst-a", "glibc", "1.00", "100", "100", "4.00", "1.10", "10.00"]
    assert lines[-1] == ["burst-a", "(live)", "0.00", "90.0", "0.00", "0.00", "", ""]
    assert tables["sawtooth"][1][0] == ["sawtooth-a", "glibc", "110", "20.0", "1.00"]
    shown = text.render(report.findings(outcomes, BOTH), BOTH, markdown=False)
    assert "Resident MiB at rest, burst" in shown
    assert shown.split("\n\n")[0].count("burst-a") == 0  # the table of times


def test_tests_with_different_moments_share_a_table(outcomes: list[Outcome]) -> None:
    longer = burst(100, 4)
    longer["memory"] += curve(("3 s", 3, 0))
    outcomes.append(Outcome("burst-b", ("rest",), runs={"glibc": [longer]}))
    heads, lines = text.rest_tables(report.findings(outcomes, BOTH), "sheaf")["burst"]
    assert heads[5:7] == ["1 s", "3 s"]
    assert [line[6] for line in lines if line[1] == "glibc"] == ["-", "3.00"]


def test_exports_and_pages_are_read_back(made: Report, tmp_path: Path) -> None:
    exports.write(tmp_path / "out.json", made)
    assert exports.read(tmp_path / "out.json") == made
    exports.write(tmp_path / "out.csv", made)
    heads = (tmp_path / "out.csv").read_text().splitlines()[0].split(",")
    assert {"rest_rss_kib", "rest_ratio", "rest_ratio_low", "timed"} <= set(heads)
    found = facts.facts_of(made.command, made.machine, made.contestants, made.outcomes)
    read = facts.from_json(facts.to_json(found), "x")
    assert (read.findings.rows, read.findings.moments) == (found.findings.rows, found.findings.moments)
    assert [mean.rest for mean in read.findings.means] == pytest.approx([1.0, 12.5, 10.0])


def test_two_runs_are_compared_in_memory_at_rest(made: Report, outcomes: list[Outcome]) -> None:
    worse = {**outcomes[0].runs, "sheaf": [burst(110, 80, 5e9)]}
    after = Report(made.command, made.machine, BOTH, [Outcome("burst-a", ("rest",), runs=worse), outcomes[1]])
    found = changes(after, made)
    assert (found[0].time, found[0].rest and found[0].rest.value, found[1].rest) == (None, 2.0, None)
    assert worse_than_old(found, 1.05) == ["burst-a: memory at rest 2.000 of the older run"]
    assert "at rest" in render_changes(found, "sheaf")


def test_other_load_does_not_repeat_tests_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    class Meter:
        def other_cpus(self) -> float:
            return 0.9

    monkeypatch.setattr(runs, "LoadMeter", Meter)
    for timing, repeated in (("none", 0), ("cpu", 3)):
        outcome = Outcome("t", ("rest",))
        test = Runnable("t", ("rest",), "", lambda *_, timing=timing: {**{key: 1 for key in KEYS}, "timing": timing})
        run_round(test, [Contestant("glibc")], Plan(1, 3, 0.1, 0, 60), outcome)
        assert (outcome.repeated, outcome.disturbed) == (repeated, repeated // 3)


def test_curves_are_drawn(made: Report, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from sheaf.commands.bench.plots import draw

    names = {file.name for file in draw(made, tmp_path)}
    assert {"rest-over-time.svg", "rest-memory.svg", "rest-time.svg"} <= names
    assert "memory-over-time.svg" not in names
