"""The formats of profiles, read by the tools that they are for where these are installed."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from areas import Area, One, sums
from sheaf.commands.profile import collapsed, document, export, page, pprof, speedscope, table, views
from sheaf.commands.profile.area import Snapshot, read_area
from sheaf.commands.profile.observe import Observed
from sheaf.commands.profile.symbols import Symbolizer, symbolizer
from sheaf.errors import SheafError
from sheaf.system import elf
from test_profile_symbols import BIAS, LLVM, calls, cpp  # noqa: F401 (a fixture)

# The facts of www.speedscope.app/file-format-schema.json that concern profiles of the type `sampled`.
FRAME = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "file": {"type": "string"}, "line": {"type": "number"}, "col": {"type": "number"}},
}
FIELDS = ["type", "name", "unit", "startValue", "endValue", "samples", "weights"]
PROFILE = {
    "type": "object",
    "required": FIELDS,
    "properties": {
        "type": {"const": "sampled"},
        "name": {"type": "string"},
        "unit": {"enum": ["bytes", "microseconds", "milliseconds", "nanoseconds", "none", "seconds"]},
        "startValue": {"type": "number"},
        "endValue": {"type": "number"},
        "samples": {"type": "array", "items": {"type": "array", "items": {"type": "integer", "minimum": 0}}},
        "weights": {"type": "array", "items": {"type": "number", "minimum": 0}},
    },
}
SPEEDSCOPE = {
    "type": "object",
    "required": ["$schema", "shared", "profiles"],
    "properties": {
        "$schema": {"const": "https://www.speedscope.app/file-format-schema.json"},
        "name": {"type": "string"},
        "exporter": {"type": "string"},
        "activeProfileIndex": {"type": "number"},
        "shared": {"type": "object", "required": ["frames"], "properties": {"frames": {"type": "array", "items": FRAME}}},
        "profiles": {"type": "array", "items": PROFILE, "minItems": 1},
    },
}


def go_pprof() -> list[str] | None:
    """The command `go tool pprof`; None if Go is not installed, or without it."""
    if not shutil.which("go"):
        return None
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GOPROXY": "off"}
    found = subprocess.run(["go", "tool", "-n", "pprof"], capture_output=True, text=True, env=environment)
    return ["go", "tool", "pprof"] if found.returncode == 0 else None


@pytest.fixture(scope="module")
def profiled(cpp: Path, tmp_path_factory: pytest.TempPathFactory) -> Snapshot:  # noqa: F811
    """Samples in shop::store, which inlined shop::Box::make, and in main; one of them has no known stack."""
    store, main = BIAS + calls(cpp, "shop::store", "malloc")[0], BIAS + calls(cpp, "(?<=<)main(?=>)", "store")[0]
    samples = [One((store, main), 3 << 20), One((store, main), 1 << 20, live=False), One((main,), 1 << 19, time_ms=59_000)]
    module = (BIAS, BIAS + (1 << 30), BIAS, elf.build_id(cpp), str(cpp))
    area = Area([*samples, One((), 4096)], [module], lifetimes={(4, 3): 10.0})
    return read_area(area.write(tmp_path_factory.mktemp("area") / "made.7.sheaf", 7))


@pytest.fixture
def names(profiled: Snapshot) -> Symbolizer:
    if not LLVM:
        pytest.skip("there is no llvm-symbolizer")
    return symbolizer(profiled)


@pytest.fixture
def tool() -> list[str]:
    command = go_pprof()
    if command is None:
        pytest.skip("there is no go tool pprof")
    return command


def shown(tool: list[str], file: Path, *options: str) -> str:
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GOPROXY": "off", "PPROF_TMPDIR": str(file.parent)}
    command = [*tool, "-symbolize=none", *options, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_pprof(profiled: Snapshot, names: Symbolizer, tool: list[str], tmp_path: Path) -> None:
    file = tmp_path / "p.pb.gz"
    file.write_bytes(export.dump(Observed(profiled), "live", "pprof", names))
    raw = shown(tool, file, "-raw")
    assert "inuse_objects/count inuse_space/bytes[dflt] alloc_objects/count alloc_space/bytes peak_objects/count peak" in raw
    assert "Period: 524288" in raw
    assert elf.build_id(Path(profiled.modules[0].path)).hex() in raw
    assert re.search(r"Duration: 1m0|Duration: 60", raw)
    top = shown(tool, file, "-top", "-unit=B")
    rows = {line.split(None, 5)[5]: line.split() for line in top.splitlines() if re.match(r" +\d", line)}
    store, make = (next(name for name in rows if part in name) for part in ("store", "make"))  # versions shorten differently
    assert set(rows) == {make, store, "main", "(unknown stack)"}
    assert make.endswith(" (inline)")
    size = sums([One((), 3 << 20)])[1]
    assert float(rows[make][0].removesuffix("B")) == pytest.approx(size, abs=1)
    assert float(rows[store][3].removesuffix("B")) == pytest.approx(size, abs=1)
    allocated = shown(tool, file, "-top", "-unit=B", "-sample_index=alloc_space")
    total = sums([One((), 3 << 20), One((), 1 << 20), One((), 1 << 19), One((), 4096)])[1]
    found = re.search(r"Total samples = (\d+)B", allocated)
    assert found
    assert int(found[1]) == pytest.approx(total, abs=4)
    peek = shown(tool, file, "-peek", "make", "-lines")
    assert "shop.cpp:5" in peek
    assert "shop.cpp:6" in peek


def test_pprof_of_every_view(profiled: Snapshot, names: Symbolizer, tool: list[str], tmp_path: Path) -> None:
    for view in views.VIEWS:
        observed = Observed(profiled, profiled if view == "growth" else None)
        (tmp_path / view).write_bytes(export.dump(observed, view, "pprof", names))
        assert "PeriodType: space bytes" in shown(tool, tmp_path / view, "-raw")
    ages = shown(tool, tmp_path / "age", "-tags")
    assert "1 s to 10 s" in ages
    assert "up to 256 bytes" in shown(tool, tmp_path / "lifetimes", "-top")


def test_pprof_without_symbols(profiled: Snapshot, tmp_path: Path) -> None:
    message = pprof.message()()
    with Symbolizer([]) as nothing:
        message.ParseFromString(gzip.decompress(pprof.dump(views.heap(profiled), nothing)))
    assert {len(location.line) for location in message.location if location.address} == {0}
    assert [list(sample.value)[1] for sample in message.sample] == sorted((s.value[1] for s in message.sample), reverse=True)
    assert message.string_table[0] == ""


def test_collapsed(profiled: Snapshot, names: Symbolizer) -> None:
    lines = collapsed.dump(views.live(profiled), names).decode().splitlines()
    size = round(sums([One((), 3 << 20)])[1])
    store = "double* shop::store<double>(std::vector<double, std::allocator<double> >&)"
    assert lines[0] == f"main;{store};shop::Box<double>::make(unsigned long) {size}"
    assert {line.rsplit(" ", 1)[0] for line in lines[1:]} == {"main", "(unknown stack)"}


def test_speedscope(profiled: Snapshot, names: Symbolizer) -> None:
    schema = pytest.importorskip("jsonschema")
    for profile in (views.live(profiled), views.heap(profiled), views.age(profiled), views.lifetimes(profiled)):
        made = json.loads(speedscope.dump(profile, names))
        schema.validate(made, SPEEDSCOPE)
        for one in made["profiles"]:
            assert len(one["samples"]) == len(one["weights"])
            assert one["endValue"] == pytest.approx(sum(one["weights"]))
            assert max((i for stack in one["samples"] for i in stack), default=0) < len(made["shared"]["frames"])
    made = json.loads(speedscope.dump(views.live(profiled), names))
    frames = [frame["name"] for frame in made["shared"]["frames"]]
    assert frames[made["profiles"][1]["samples"][0][0]] == "main"
    assert made["profiles"][1]["unit"] == "bytes"


def test_json(profiled: Snapshot, names: Symbolizer) -> None:
    made = json.loads(document.dump(views.live(profiled), names))
    assert made["schema_version"] == 2
    assert (made["pid"], made["view"], made["main"]) == (7, "live", "inuse_space")
    first = made["rows"][0]
    assert [frame["inlined"] for frame in first["frames"]] == [True, False, False]
    assert first["frames"][0]["line"] == 5
    assert first["values"][1] == pytest.approx(sums([One((), 3 << 20)])[1])
    assert [row["unreliable"] for row in made["rows"]] == [[False, False], [True, True], [False, False]]
    assert made["rows"][0]["errors"] == [0, 0]
    assert made["totals"][1] == pytest.approx(sum(row["values"][1] for row in made["rows"]))
    assert sum(1 for row in made["rows"] if not row["frames"]) == 1


def data_of(text: str) -> Any:
    """What a page draws."""
    return json.loads(re.search(r"^const data = (.*);$", text, re.M)[1])  # type: ignore[index]


def test_flame_graphs_add_up(profiled: Snapshot, names: Symbolizer) -> None:
    for profile in views.available(profiled):
        data = data_of(page.dump([profile], names, profile.view).decode())
        waiting = [data["views"][0]["tree"]]
        assert waiting[0][1] == pytest.approx(sum(row.values[profile.main] for row in profile.rows), abs=1)
        while waiting:
            _, value, _, *below = waiting.pop()
            assert sum(one[1] for one in below[0]) <= value + 2 if below else True
            waiting += below[0] if below else []
    functions = data_of(page.dump([views.live(profiled)], names, "live").decode())["functions"]
    assert "shop::store" in {name for name, *_ in functions}


def test_a_page_needs_no_network_and_escapes_names(profiled: Snapshot, names: Symbolizer) -> None:
    hostile = views.live(profiled)
    rows = [views.Row(("</script><script>alert(1)</script>",), hostile.rows[0].pcs, (1.0, 5.0), (None, None))]
    hostile = views.Profile(**{**vars(hostile), "rows": rows})
    text = page.dump([hostile, views.age(profiled)], names, "age").decode()
    assert "</script><script>alert(1)" not in text
    assert "@DATA@" not in text
    assert not re.search(r"<(?:script|link|img)[^>]+(?:src|href)=", text)
    data = data_of(text)
    assert data["chosen"] == "age"
    assert [one["view"] for one in data["views"]] == ["live", "age"]
    assert "</script><script>alert(1)</script>" in {name for _, *names in data["functions"] for name in names} | {
        name for name, *_ in data["functions"]
    }


def test_a_page_has_at_most_a_megabyte(tmp_path: Path) -> None:
    draw = random.Random(1)
    samples = [One(tuple(draw.randrange(1 << 40) for _ in range(4)), (1 << 20) + i) for i in range(300)]
    big = read_area(Area(samples).write(tmp_path / "p.1.sheaf"))
    rows = [replace(row, pcs=(*(1000 * i + j for j in range(60)), *row.pcs)) for i, row in enumerate(views.live(big).rows)]
    profile = replace(views.live(big), rows=rows)
    with Symbolizer([]) as nothing:
        text = page.dump([profile] * 6, nothing, "live")
    assert len(text) < 1 << 20
    assert data_of(text.decode())["views"][0]["tree"][1] == pytest.approx(profile.total()[0], abs=1)


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_script_of_a_page_is_valid(profiled: Snapshot, tmp_path: Path) -> None:
    with Symbolizer([]) as nothing:
        text = page.dump([views.live(profiled)], nothing, "live").decode()
    script = re.search(r'<script type="module">(.*)</script>', text, re.S)
    assert script
    (tmp_path / "page.mjs").write_text(script[1])
    done = subprocess.run(["node", "--check", str(tmp_path / "page.mjs")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("width", [20, 40, 60, 80, 200])
@pytest.mark.parametrize("view", list(views.VIEWS))
def test_tables_fit(profiled: Snapshot, names: Symbolizer, width: int, view: str) -> None:
    profile = views.VIEWS[view](profiled, profiled if view == "growth" else None)
    text = table.text(profile, names, width)
    assert max(map(len, text.splitlines())) <= width, text
    assert text.startswith("made (7): ")


def test_a_table(profiled: Snapshot, names: Symbolizer) -> None:
    text = table.text(views.live(profiled), names, 100)
    assert re.search(r"^ *514K ±2.3M +12.5% unreliable: \(unknown stack\)$", text, re.M)
    assert "1 of 3 stacks, with 12.5% of the total, are unreliable" in " ".join(text.split())
    size = table.amount(sums([One((), 3 << 20)])[1], "bytes")
    assert re.search(rf"{size} .*shop::store$", text, re.M)
    assert re.search(rf"^ *{size} +[0-9.]+% +{size} .* shop::Box::make$", text, re.M)
    assert "shop::Box::make < shop::store < main" in text


@pytest.mark.parametrize(
    "value, unit, shown_as",
    [
        (0, "bytes", "0B"),
        (999, "bytes", "999B"),
        (1000, "bytes", "1.0K"),
        (1024, "bytes", "1.0K"),
        (99.9 * 1024, "bytes", "99.9K"),
        (100 * 1024, "bytes", "100K"),
        (-5 << 20, "bytes", "-5.0M"),
        (5, "count", "5"),
        (123_456, "count", "123k"),
        (1.5e9, "count", "1.5G"),
    ],
)
def test_amounts(value: float, unit: str, shown_as: str) -> None:
    assert table.amount(value, unit) == shown_as


@pytest.mark.parametrize(
    "output, form",
    [
        ("a.pb.gz", "pprof"),
        ("a.pprof", "pprof"),
        ("a.txt", "collapsed"),
        ("a.collapsed", "collapsed"),
        ("a.html", "html"),
        ("a.speedscope.json", "speedscope"),
        ("a.json", "json"),
        (None, "table"),
    ],
)
def test_suffixes(output: str | None, form: str) -> None:
    assert export.format_of(output, None) == form
    assert export.format_of(output, "json") == "json"


@pytest.mark.parametrize("form, module, package", [("pprof", "google.protobuf", "protobuf")])
def test_a_missing_library_is_named(
    profiled: Snapshot, monkeypatch: pytest.MonkeyPatch, form: str, module: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "sheaf.commands.profile.pprof", raising=False)
    with Symbolizer([]) as nothing, pytest.raises(SheafError, match=f"{form}: the Python module {package} is missing"):
        export.dump(Observed(profiled), "live", form, nothing)


DRAWN = """
class Element {
  constructor() { this.style = {}; this.clientWidth = 500; this.heard = {}; this.parts = []; }
  addEventListener(name, heard) { this.heard[name] = heard; }
  replaceChildren(...parts) { this.parts = parts; }
}
globalThis.document = { createElement: () => new Element() };
globalThis.ResizeObserver = class { observe() {} disconnect() {} };
const { drawFlame } = await import("./flame.mjs");
const leaf = (name, value, children = []) => ({ name, value, error: 2 * value, unreliable: true, children });
const tree = leaf("all", 1000, [leaf("a long name that does not fit", 20, [leaf("c", 20)]), leaf("b", 979), leaf("d", 1)]);
const chart = new Element();
const said = () => chart.parts.map(({ textContent, style }) => [textContent, style.left, style.top, style.opacity]);
drawFlame(chart, tree, (value) => `${value} B`, (node) => node.name === "b");
const first = said(), height = chart.style.height, title = chart.parts[1].title;
chart.parts.find((box) => box.title.includes("a long name")).heard.click();
const zoomed = said();
drawFlame(chart, tree, (value) => `${value} B`);
console.log(JSON.stringify({ first, height, title, zoomed, again: said().length }));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_flame_graphs_are_drawn(tmp_path: Path) -> None:
    """In a browser that has as little as the script needs."""
    (tmp_path / "flame.mjs").write_text((Path(page.__file__).parent / "flame.js").read_text())
    (tmp_path / "drawn.mjs").write_text(DRAWN)
    done = subprocess.run(["node", "drawn.mjs"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    boxes = {(text, left, top): opacity for text, left, top, opacity in made["first"]}
    assert boxes == {("all", "0%", "0px"): 1, ("b", "2%", "22px"): 0.25, ("", "0%", "22px"): 1, ("", "0%", "44px"): 1}
    assert made["height"] == "66px"  # d is less than a pixel wide
    assert made["title"] == "979 B ± 1958 B (97.90%)\nunreliable: too few samples\nb"
    assert [text for text, *_ in made["zoomed"]] == ["all", "a long name that does not fit", "c"]
    assert made["again"] == 3  # a new picture of the same tree keeps what is zoomed in on
