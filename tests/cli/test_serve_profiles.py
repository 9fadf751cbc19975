"""Heap profiles over HTTP, of a process that behaves as if it were sampled, and what --control does to it."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from areas import Area, One, sums
from conftest import until
from serving import TOKEN, client_of, make_server
from sheaf.commands.profile import pprof as format
from sheaf.commands.serve import pprof
from sheaf.records import layout
from sheaf.system import elf, places
from starlette.testclient import TestClient
from test_profile_command import Sampled, sampled
from test_serve_command import get, serving

OLD = [
    One((0x1001, 0x2001, 0x3001), 100_000),
    One((0x1101, 0x2001, 0x3001), 3_000_000),
    One((0x1201, 0x3001), 500_000, live=False),
]
NEW = [*OLD, One((0x1301, 0x3001), 2_000_000, time_ms=70_000)]
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Sampled]:
    """A process that is sampled; with a line on its input, its profile becomes that of NEW."""
    with sampled(tmp_path, [Area(NEW, on=1, now_ms=80_000)], Area(OLD, on=1)) as process:
        yield process


@pytest.fixture
def client(tmp_path: Path, one: Sampled) -> Iterator[TestClient]:
    """A server that shows it."""
    with client_of(make_server(tmp_path, token=TOKEN, control=True)) as client:
        yield client


def parse(data: bytes) -> Any:
    """The message of a profile."""
    profile = format.message()()
    profile.ParseFromString(gzip.decompress(data))
    return profile


def totals(profile: Any) -> dict[str, int]:
    """The sum of each column."""
    text = profile.string_table
    return {text[kind.type]: sum(sample.value[i] for sample in profile.sample) for i, kind in enumerate(profile.sample_type)}


def test_heap_and_allocs(client: TestClient, one: Sampled) -> None:
    for path, chosen in (("heap", "inuse_space"), ("allocs", "alloc_space")):
        for query in ("", f"?pid={one.process.pid}", "?name=victim", f"?name=victim&pid={one.process.pid}"):
            answer = client.get(f"/debug/pprof/{path}{query}")
            assert answer.status_code == 200, answer.text
            profile = parse(answer.content)
            assert profile.string_table[profile.default_sample_type] == chosen
            found = totals(profile)
            assert found["inuse_space"] == pytest.approx(sums(OLD[:2])[1], rel=1e-3)
            assert found["alloc_space"] == pytest.approx(sums(OLD)[1], rel=1e-3)


def test_seconds(client: TestClient, one: Sampled, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was allocated between two snapshots."""
    waited = []

    async def pause(seconds: float) -> None:
        waited.append(seconds)
        one.say()

    monkeypatch.setattr(pprof, "_pause", pause)
    found = totals(parse(client.get("/debug/pprof/allocs?seconds=7").content))
    assert waited == [7]
    assert found["alloc_space"] == pytest.approx(sums(NEW[3:])[1], rel=1e-3)


def test_flame_tree(client: TestClient, one: Sampled) -> None:
    answer = client.get(f"/api/processes/{one.process.pid}/profile")
    assert answer.status_code == 200, answer.text
    profile = answer.json()
    assert profile["sampling"] is True
    assert profile["samples"] == 3
    tree = profile["tree"]
    assert tree["value"] == pytest.approx(sums(OLD[:2])[1], rel=1e-3)
    assert [child["name"] for child in tree["children"]] == ["0x3001"]
    outer = tree["children"][0]["children"][0]
    assert sum(child["value"] for child in outer["children"]) == pytest.approx(outer["value"], abs=2)
    for kind in ("allocated", "peak"):
        assert client.get(f"/api/processes/{one.process.pid}/profile?kind={kind}").json()["kind"] == kind


def test_an_ended_process_has_no_profile(client: TestClient, one: Sampled) -> None:
    pid = one.process.pid
    client.get("/api/processes")
    one.process.kill()
    one.process.wait()
    assert client.get(f"/api/processes/{pid}/profile").status_code == 404
    assert client.get(f"/debug/pprof/heap?pid={pid}").status_code == 404


def test_sampling_is_switched(client: TestClient, one: Sampled) -> None:
    path = f"/api/processes/{one.process.pid}/profile"
    assert client.post(path, json={"rate_bytes": 0}, headers=BEARER).json() == {"rate_bytes": 0}
    assert one.line() == "rate 0"
    assert client.get(path).json()["sampling"] is False
    assert client.post(path, json={"rate_bytes": 65536.0}, headers=BEARER).json() == {"rate_bytes": 65536}
    assert one.line() == "rate 65536"
    assert client.get(path).json()["sampling"] is True


def test_trim(client: TestClient, one: Sampled) -> None:
    answer = client.post(f"/api/processes/{one.process.pid}/trim", headers=BEARER)
    assert answer.json() == {"returned_bytes": 8 << 20}
    assert one.line() == "trim"


def test_a_process_that_refuses(tmp_path: Path) -> None:
    with sampled(tmp_path, [], refusal=1) as one, client_of(make_server(tmp_path, token=TOKEN, control=True)) as client:
        answer = client.post(f"/api/processes/{one.process.pid}/profile", json={"rate_bytes": 4096}, headers=BEARER)
        assert answer.status_code == 409
        assert "refuses to sample" in answer.json()["error"]


def test_trim_of_a_real_process(tmp_path: Path, library: str) -> None:
    """A process that holds free memory returns it."""
    # It goes on allocating, because a process answers when it allocates.
    code = """
import time
x = [bytearray(2000) for _ in range(50000)]
del x
print("ready", flush=True)
while True:
    x = [bytearray(2000) for _ in range(300)]
    time.sleep(0.01)
"""
    env = {**os.environ, "LD_PRELOAD": library, "SHEAF_RECORD": str(tmp_path), "SHEAF_DECAY": "100000", "SHEAF_KEEP": "64M"}
    program = [os.path.realpath(sys.executable), "-S", "-c", code]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as one:
        try:
            assert one.stdout and one.stdout.readline() == b"ready\n"
            reader = layout.Reader(next(tmp_path.glob("*.sheaf")))
            reader.file.close()
            if not reader.optional("control_offset"):
                pytest.skip("the object has no control area")
            with client_of(make_server(tmp_path, token=TOKEN, control=True)) as client:
                until(lambda: client.get("/api/processes").json()["processes"])
                answer = client.post(f"/api/processes/{one.pid}/trim", headers=BEARER)
                assert answer.status_code == 200, answer.text
                assert answer.json()["returned_bytes"] > 1 << 20
        finally:
            one.kill()


STRIPPED = [(0x1000, 0x2000, 0x1000, b"", "/no/such/victim")]


@pytest.mark.parametrize("policy", [{}, {"token": TOKEN, "control": True}])
def test_names_of_addresses(tmp_path: Path, policy: dict[str, Any]) -> None:
    """Of those in profiles that were given; anybody may ask, unless reading needs the token."""
    question = "0x1000+0x1100+0x2000+0xffffffffffffffff+x"
    with sampled(tmp_path, [], Area(OLD, on=1, modules=STRIPPED)), client_of(make_server(tmp_path, **policy)) as client:
        assert client.get("/debug/pprof/symbol").text == "num_symbols: 1\n"
        assert client.post("/debug/pprof/symbol", content=question).text == ""
        client.get("/debug/pprof/heap")
        for answer in (client.post("/debug/pprof/symbol", content=question), client.get(f"/debug/pprof/symbol?{question}")):
            assert (answer.status_code, answer.text) == (200, "0x1000\tvictim+0x1\n0x1100\tvictim+0x101\n")
        assert client.post("/debug/pprof/symbol", content=b"+" * ((4 << 20) + 1)).status_code == 413
        assert client.post("/debug/pprof/heap", content=question).status_code in (401, 403)
        assert client.post("/debug/pprof/symbol", content=question, headers={"Origin": "http://evil"}).status_code == 403
    with client_of(make_server(tmp_path, token=TOKEN, private=True)) as client:
        assert client.post("/debug/pprof/symbol", content=question).status_code == 401
        assert client.post("/debug/pprof/symbol", content=question, headers=BEARER).status_code == 200


def test_names_from_symbol_tables(tmp_path: Path) -> None:
    """A program whose symbols are known to the server."""
    program = Path(shutil.which("python3") or sys.executable).resolve()
    path, library = str(program), elf.build_id(program)
    found = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True).stdout
    names = [line.split() for line in found.splitlines() if line.endswith(" T PyObject_Malloc")]
    if not names or not places.tool():
        pytest.skip("this Python has no symbols that can be found")
    at = int(names[0][0], 16) + 8
    modules = [(0x1000, 0x1000 + (1 << 40), 0x1000, library, path)]
    samples = [One((0x1000 + at, 0x1000 + at), 100_000)]
    with sampled(tmp_path, [], Area(samples, on=1, modules=modules)), client_of(make_server(tmp_path)) as client:
        client.get("/debug/pprof/heap")
        assert client.post("/debug/pprof/symbol", content=f"{0x1000 + at - 1:#x}").text.split("\t")[1:] == ["PyObject_Malloc\n"]


@pytest.mark.skipif(shutil.which("go") is None, reason="go is not installed")
def test_go_tool_pprof(tmp_path: Path) -> None:
    """The address that the help names works with the tool that it names, also where nothing has symbols."""
    area = Area(OLD, on=1, modules=STRIPPED)
    with sampled(tmp_path, [], area) as one, serving("--only", str(tmp_path)) as (_, url):
        until(lambda: get(url, f"/api/processes/{one.process.pid}")[0] == 200)
        done = subprocess.run(
            ["go", "tool", "pprof", "-top", f"{url}debug/pprof/heap?name=victim"],
            capture_output=True,
            text=True,
            timeout=300,
            cwd=tmp_path,
            env={**os.environ, "PPROF_TMPDIR": str(tmp_path), "GOPROXY": "off"},
        )
        assert done.returncode == 0, done.stderr
        assert "Type: inuse_space" in done.stdout
        assert "victim+0x" in done.stdout
        with urllib.request.urlopen(f"{url}debug/pprof/") as answer:
            assert f"heap?pid={one.process.pid}" in answer.read().decode()
