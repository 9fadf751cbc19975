"""Every endpoint: what it answers, and what it says to bad input."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import write_record
from serving import TOKEN, Fake, client_of, make_server
from sheaf.commands.serve import app, history
from sheaf.commands.serve.machine import Limits
from starlette.testclient import TestClient

PID = os.getpid()


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    """A server with one running process."""
    one = Fake(tmp_path, alloc_fastpath=20, free_fastpath=3)
    server = make_server(tmp_path, token=TOKEN, control=True)
    with client_of(server) as client:
        client.headers["X-Keep"] = str(one.number)
        yield client
    one.end()


def test_healthz(client: TestClient) -> None:
    assert client.get("/healthz").text == "ok\n"


def test_healthz_of_a_server_that_does_not_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = make_server(tmp_path)
    monkeypatch.setattr(server.machine, "scan", lambda: 1 / 0)
    with client_of(server) as client:
        assert client.get("/healthz").status_code == 200
        server._began = float("-inf")
        assert client.get("/healthz").status_code == 503


def test_index_and_schema(client: TestClient) -> None:
    paths = client.get("/api/").json()["paths"]
    schema = client.get("/api/openapi.json").json()
    assert sorted(schema["paths"]) == paths
    routed = {route.path for route in app.make(make_server(Path())).app.routes}  # type: ignore[attr-defined]
    assert {path for path in routed if path.startswith("/api/")} - set(paths) == {"/api/openapi.json"}


def test_summary(client: TestClient, tmp_path: Path) -> None:
    (tmp_path / "broken.1.sheaf").write_bytes(b"nothing of this kind" * 100)
    one = client.get("/api/summary").json()
    assert one["processes"] == 1
    assert one["programs"][0]["program"] == "server"
    assert one["programs"][0]["live_bytes"] == 17 * 64
    assert one["directories"][0]["records"] == 2
    assert "not a Sheaf record" in one["problems"][0]


def test_processes(client: TestClient) -> None:
    found = client.get("/api/processes").json()
    assert found["total"] == 1
    assert found["processes"][0]["pid"] == PID
    assert client.get("/api/processes?program=server").json()["total"] == 1
    assert client.get("/api/processes?program=other").json()["total"] == 0
    assert client.get("/api/processes?limit=1").json()["total"] == 1


def test_one_process(client: TestClient) -> None:
    one = client.get(f"/api/processes/{PID}").json()
    assert one["memory"]["live_objects_bytes"] == 17 * 64
    assert one["caches"][0]["name"] == "malloc-64"
    assert one["caches"][0]["in_use"] == 17
    assert one["values"]["slab_bytes"] == 65536


def test_history(client: TestClient) -> None:
    for query in ("", "?program=server", f"?pid={PID}", "?range=day"):
        one = client.get(f"/api/history{query}").json()
        assert one["live_bytes"][-1] == 17 * 64
        assert len(one["times"]) == len(one["warm_bytes"]) == len(one["resident_bytes"]) >= 1
    assert client.get("/api/history?program=other").status_code == 404
    assert client.get("/api/history?pid=1").status_code == 404


def test_history_of_a_process_that_is_not_shown(tmp_path: Path) -> None:
    one = Fake(tmp_path)
    with client_of(make_server(tmp_path, limits=Limits(processes=0))) as client:
        assert client.get("/api/history").status_code == 200
        answer = client.get(f"/api/history?pid={PID}")
        assert answer.status_code == 404
        assert "--max-processes" in answer.json()["error"]
    one.end()


def test_records(client: TestClient, tmp_path: Path) -> None:
    write_record(tmp_path / "old.7.sheaf", {"malloc-64": {}}, pid=7)
    found = client.get("/api/records").json()
    assert found["total"] == 2
    assert {one["program"]: one["state"] for one in found["records"]} == {"server": "running", "old": "ended"}
    assert len(client.get("/api/records?limit=1").json()["records"]) == 1


@pytest.mark.parametrize(
    "path",
    [
        "/api/processes?limit=0",
        "/api/processes?limit=-1",
        "/api/processes?limit=x",
        "/api/processes?limit=",
        "/api/processes?limit=1e3",
        "/api/processes?limit=10001",
        "/api/processes?limit=1&limit=2",
        "/api/processes?program=",
        f"/api/processes?program={'x' * 256}",
        "/api/processes/0",
        "/api/processes/-1",
        "/api/processes/x",
        "/api/processes/99999999999999999999",
        "/api/processes/1%00",
        "/api/processes/4194305",
        "/api/history?range=week",
        "/api/history?pid=0",
        "/api/records?limit=x",
        f"/api/processes/{PID}/profile?kind=x",
        "/api/processes/x/profile",
        "/debug/pprof/heap?seconds=301",
        "/debug/pprof/heap?seconds=-1",
        "/debug/pprof/heap?pid=x",
        "/debug/pprof/allocs?seconds=x",
        "/api/processes?limit=%D9%A1",
    ],
)
def test_bad_parameters(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 400, answer.text
    text = answer.json()["error"] if path.startswith("/api") else answer.text
    assert "\n" not in text.rstrip("\n")


@pytest.mark.parametrize(
    "path",
    [
        "/api/processes/4194304",
        "/api/processes/4194304/profile",
        "/debug/pprof/heap?pid=4194304",
        "/debug/pprof/heap?name=other",
        f"/debug/pprof/heap?pid={PID}&name=other",
        f"/api/history?pid={PID}&program=other",
        "/api/nothing",
        "/nothing",
        "/page/nothing.js",
        "/page/..%2Fapp.py",
        "/page/__init__.py",
        "/api",
        "/debug/pprof",
        "/page/",
    ],
)
def test_what_is_not_there(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/summary"),
        ("DELETE", "/api/processes/1"),
        ("GET", "/api/login"),
        ("PUT", "/metrics"),
        ("GET", f"/api/processes/{PID}/trim"),
        ("OPTIONS", "/api/"),
    ],
)
def test_wrong_methods(client: TestClient, method: str, path: str) -> None:
    answer = client.request(method, path, headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 405
    assert answer.headers["allow"]


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b"null", 400),
        (b'{"rate_bytes": "1"}', 400),
        (b'{"rate_bytes": true}', 400),
        (b'{"rate_bytes": 1023}', 400),
        (b'{"rate_bytes": 1e99}', 400),
        (b'{"rate_bytes": -1}', 400),
        (b'{"rate": 4096}', 400),
        (b"[" * 4000, 400),
        (b" " * 5000, 413),
        (b"\xff\xfe", 400),
    ],
)
def test_bad_bodies(client: TestClient, content: bytes, status: int) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    answer = client.post(f"/api/processes/{PID}/profile", content=content, headers=headers)
    assert answer.status_code == status, answer.text


def test_processes_that_were_not_sampled(client: TestClient) -> None:
    for path in (f"/api/processes/{PID}/profile", "/debug/pprof/heap", "/debug/pprof/allocs?name=server"):
        answer = client.get(path)
        assert answer.status_code == 409
        assert "sheaf run --profile" in answer.text


def test_several_processes_need_a_choice(client: TestClient, tmp_path: Path) -> None:
    one = Fake(tmp_path)
    assert client.get("/debug/pprof/heap").status_code == 400
    one.end()


def test_the_page(client: TestClient) -> None:
    page = client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    for name in app._NAMES:
        answer = client.get(f"/page/{name}")
        assert answer.status_code == 200
        assert client.get(f"/page/{name}", headers={"Accept-Encoding": "identity"}).content == answer.content
        again = client.get(f"/page/{name}", headers={"If-None-Match": answer.headers["etag"]})
        assert again.status_code == 304
    for name in app._NAMES:  # nothing comes from the network
        text = client.get(f"/page/{name}").text.replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text and "https:" not in text


def test_the_page_names_all_of_its_files() -> None:
    here = Path(app.__file__).parent / "page"
    assert {path.name for path in here.iterdir()} == app._NAMES - {"flame.js"}


def test_a_failing_scan_does_not_stop_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = make_server(tmp_path, max_age=3600)
    with client_of(server) as client:
        assert client.get("/api/summary").status_code == 200
        monkeypatch.setattr(server.machine, "scan", lambda: 1 / 0)
        assert client.get("/api/summary").status_code == 200


def test_the_history_is_bounded() -> None:
    ring = history._Ring(5)
    for second in range(0, 5 * 3000):
        ring.add(float(second), (second, 2.0, 3.0))
    times, live, _, _ = ring.points()
    assert len(times) == len(live) == history.POINTS
    assert times == sorted(times) == live
    assert times[-1] == 5 * 3000 - 1
