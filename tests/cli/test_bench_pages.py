"""The facts about the machine in results, and the pages of results with their summary."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT, Run
from sheaf.commands.bench import exports, facts, machine, pages
from sheaf.commands.bench.contestants import Contestant
from sheaf.commands.bench.cpus import microarchitecture
from sheaf.commands.bench.exports import Report
from sheaf.commands.bench.runs import KEYS, Outcome
from sheaf.errors import SheafError

RESULTS = ROOT / "docs" / "results"
ZEN5: machine.Machine = {
    "date": "2026-11-22T01:02:03Z",
    "cpu": "AMD EPYC",
    "microarchitecture": "Zen 5",
    "cpu_family": "26",
    "cpu_model": "2",
    "mhz": 4108.0,
    "store_forward_cycles": 0.5,
    "store_forward_computed_cycles": 4.5,
    "cpus": 2,
}


@pytest.fixture
def made() -> Report:
    def runs(ns: float, kib: float) -> list[dict[str, object]]:
        points = [{"moment": "start", "ms": 0, "rss_kib": 2048}]
        changed = {"ns_per_op_median": ns, "peak_rss_kib": kib, "memory": points}
        return [{**{key: 1 for key in KEYS}, **changed} for _ in range(5)]

    outcomes = [
        Outcome(name, ("micro",), runs={"glibc": runs(8, 100), "tcmalloc": runs(4.123456789, 300), "sheaf": runs(ours, 90)})
        for name, ours in (("fast", 2), ("slow", 8.24))
    ]
    contestants = [Contestant("glibc", None, {}, "glibc 2.36"), Contestant("tcmalloc", mode="per-CPU"), Contestant("sheaf")]
    return Report(["sheaf", "bench", "micro"], dict(ZEN5), contestants, outcomes)


# ---- the machine ----


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"vendor_id": "AuthenticAMD", "cpu family": "26", "model": "2"}, "Zen 5"),
        ({"vendor_id": "AuthenticAMD", "cpu family": "25", "model": "1"}, "Zen 3"),
        ({"vendor_id": "AuthenticAMD", "cpu family": "25", "model": "17"}, "Zen 4"),
        ({"vendor_id": "GenuineIntel", "cpu family": "6", "model": "106"}, "Ice Lake server"),
        ({"vendor_id": "GenuineIntel", "cpu family": "6", "model": "143"}, "Sapphire Rapids"),
        ({"vendor_id": "GenuineIntel", "cpu family": "6", "model": "207"}, "Emerald Rapids"),
        ({"vendor_id": "GenuineIntel", "cpu family": "6", "model": "85", "stepping": "4"}, "Skylake server"),
        ({"vendor_id": "GenuineIntel", "cpu family": "6", "model": "85", "stepping": "7"}, "Cascade Lake"),
        ({"CPU implementer": "0x41", "CPU part": "0xd0c"}, "Neoverse N1"),
        ({"CPU implementer": "0x41", "CPU part": "0xd40"}, "Neoverse V1"),
        ({"CPU implementer": "0x41", "CPU part": "0xd4f"}, "Neoverse V2"),
        ({"vendor_id": "AuthenticAMD", "cpu family": "99", "model": "1"}, ""),
        ({"vendor_id": "GenuineIntel", "cpu family": "x"}, ""),
        ({}, ""),
    ],
)
def test_the_microarchitecture_follows_from_the_numbers(fields: dict[str, str], name: str) -> None:
    assert microarchitecture(fields) == name


def _program(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "bench-machine"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_figures_of_bench_machine_are_part_of_the_machine(tmp_path: Path) -> None:
    said = '{"mhz": 4108, "store_forward_cycles": 0.5, "store_forward_computed_cycles": 4.5}'
    found = machine.machine(_program(tmp_path, f"echo '{said}'"))
    assert (found["mhz"], found["store_forward_cycles"], found["store_forward_computed_cycles"]) == (4108.0, 0.5, 4.5)
    assert found["microarchitecture"]


@pytest.mark.parametrize("text", ["exit 1", "echo no JSON", "echo {}", "echo []"])
def test_figures_of_a_failed_bench_machine_are_omitted(tmp_path: Path, text: str) -> None:
    assert machine.measured(_program(tmp_path, text)) == {}
    assert machine.measured(tmp_path / "missing") == {}


def test_the_cpu_on_one_line() -> None:
    assert machine.cpu_line(ZEN5) == (
        "AMD EPYC, Zen 5 (family 26, model 2), 4.11 GHz under load; from a store to a dependent load 0.5 cycles through one "
        "register, 4.5 through computed addresses"
    )
    assert machine.cpu_line({"cpu": "x", "microarchitecture": "unknown"}) == "x"
    assert facts.machine_lines({"cpu": "x", "libc": "", "huge_pages": "never"}) == ["cpu: x", "huge pages: never"]


def test_every_report_names_machine_and_modes(sheaf: Run, made: Report, tmp_path: Path) -> None:
    exports.write(tmp_path / "run.json", made)
    done = sheaf("bench", "--from", str(tmp_path / "run.json"), "--export", str(tmp_path / "run.md"))
    assert done.returncode == 0 and done.stderr == ""
    for text in (done.stdout, (tmp_path / "run.md").read_text()):
        assert machine.cpu_line(ZEN5) in text and "tcmalloc: as built, mode per-CPU" in text


# ---- the pages ----


def test_the_figures_of_a_page_are_read_back(made: Report) -> None:
    found = facts.facts_of(made.command, made.machine, made.contestants, made.outcomes, ["x/a.svg"])
    text = facts.to_json(found)
    again = facts.from_json(text, "x.json")
    assert facts.to_json(again) == text
    assert facts.to_markdown(again) == facts.to_markdown(found)
    assert facts.to_page(again, "x.json") == facts.to_page(found, "x.json")


def test_figures_and_page_have_a_line_for_each_test(made: Report) -> None:
    found = facts.facts_of(made.command, made.machine, made.contestants, made.outcomes)
    lines = facts.to_json(found).splitlines()
    assert [sum(f'"{outcome.test}"' in line for line in lines) for outcome in made.outcomes] == [2, 2]  # its row, its memory
    page = facts.to_page(found, "x.json")
    assert "| fast | 8.0 ns 0% | 4.1 ns 0% | 2.0 ns 0% | 0.49 0.49..0.49 |" in page
    assert "| slow | 0.10 | 0.29 | 0.09 | 0.90 0.90..0.90 |" in page


def test_a_picture_has_few_lines_and_the_same_contents() -> None:
    pytest.importorskip("matplotlib")
    from sheaf.commands.bench.plots import compact

    chart, legend = '<g id="axes_1">\n  <path d="M 1 2 \nL 3 4 \n"/>\n </g>', '<g id="legend_1">\n  <text>a b</text>\n </g>'
    drawn = f"<svg>\n {chart}\n {legend}\n</svg>\n"
    wanted = ["<svg>", '<g id="axes_1"><path d="M 1 2 L 3 4 "/></g>', '<g id="legend_1"><text>a b</text></g></svg>']
    assert compact(drawn).splitlines() == wanted


def test_a_page_and_the_summary_over_all(sheaf: Run, made: Report, tmp_path: Path) -> None:
    exports.write(tmp_path / "run.json", made)
    results = tmp_path / "results"
    results.mkdir()
    other = replace(made, machine={**ZEN5, "microarchitecture": "Zen 4", "date": "2025-01-01"}, outcomes=made.outcomes[:1])
    pages.write(results / "zen-4.md", other)
    (results / "other.json").write_text("{}")
    done = sheaf("bench", "--from", str(tmp_path / "run.json"), "--page", str(results / "zen-5.md"))
    assert done.returncode == 0 and done.stderr == ""
    assert (results / "zen-5.md").read_text().startswith("# Benchmark results: Zen 5\n")
    shown = (results / "README.md").read_text()
    places = [
        shown.index(part)
        for part in (
            "## Where Sheaf loses",
            "### Zen 5",
            "- slow: 2.00 of the time of tcmalloc",
            "### Zen 4",
            "None.",
            "## Geometric means",
            "## Pages",
        )
    ]
    assert places == sorted(places)
    before = {path: path.read_text() for path in results.glob("*.md")}
    pages.write_all(results)
    assert {path: path.read_text() for path in results.glob("*.md")} == before


@pytest.mark.parametrize(
    ("page", "said"), [("README.md", "cannot be README.md"), ("x.json", "must end with .md"), ("none/x.md", "no such directory")]
)
def test_a_page_that_cannot_be_written_is_refused_at_once(sheaf: Run, tmp_path: Path, page: str, said: str) -> None:
    done = sheaf("bench", "--page", str(tmp_path / page))
    assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1


def test_damaged_figures_are_named(tmp_path: Path) -> None:
    for text, said in (
        (f'{{"kind": "{facts.KIND}"', "not the figures of a page"),
        (f'{{"kind": "{facts.KIND}", "schema_version": 9}}', "schema version 9"),
        (f'{{"kind": "{facts.KIND}", "schema_version": 2}}', "not the figures of a page"),
    ):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(SheafError, match=said):
            pages.read_all(tmp_path)


def test_the_pages_in_docs_match_their_figures(tmp_path: Path) -> None:
    shutil.copytree(RESULTS, tmp_path / "docs" / "results")
    (tmp_path / "cli").symlink_to(ROOT / "cli")
    subprocess.run([sys.executable, tmp_path / "docs" / "results" / "write.py"], check=True)
    written = [RESULTS / "README.md", *(RESULTS / f"{name}.md" for name in pages.read_all(RESULTS))]
    assert len(written) > 1
    for page in written:
        again = (tmp_path / "docs" / "results" / page.name).read_text()
        assert again == page.read_text(), f"{page}: run docs/results/write.py"
    for name, found in pages.read_all(RESULTS).items():
        assert [plot for plot in found.plots if not (RESULTS / plot).is_file()] == [], name
