"""Who may ask what: hosts, origins, the token, sessions."""

from __future__ import annotations

import hmac
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from serving import TOKEN, Fake, client_of, make_server
from sheaf.commands.serve import actions, guard
from sheaf.commands.serve.machine import Process
from starlette.testclient import TestClient

PAGES = ["/", "/metrics", "/healthz", "/api/", "/api/summary", "/api/processes", "/debug/pprof/", "/page/app.js"]
CHANGES = ["/api/processes/1/trim", "/api/processes/1/profile"]
BEARER = {"Authorization": f"Bearer {TOKEN}"}


def headers(**more: str) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in more.items()}


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil.example:9785",
        "",
        "localhost:port",
        "localhost:80:80",
        "[::1",
        "10.0.0.1",
        "LOCALHOST evil",
        "user@localhost",
    ],
)
def test_foreign_hosts_are_refused(tmp_path: Path, path: str, host: str) -> None:
    with client_of(make_server(tmp_path)) as client:
        answer = client.get(path, headers={"Host": host})
        assert answer.status_code == 421
        assert "error" in answer.json()


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9785", "127.0.0.1", "127.0.0.1:1", "testserver:80"])
def test_own_hosts_are_accepted(tmp_path: Path, host: str) -> None:
    with client_of(make_server(tmp_path)) as client:
        assert client.get("/healthz", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    ("bind", "host", "accepted"),
    [
        ("127.0.0.1", "127.0.0.1:9785", True),
        ("127.0.0.1", "[::1]:9785", True),
        ("127.0.0.1", "192.0.2.7", False),
        ("0.0.0.0", "192.0.2.7:9785", True),
        ("::", "[2001:db8::1]:9785", True),
        ("0.0.0.0", "evil.example", False),
        ("192.0.2.7", "192.0.2.7", True),
        ("192.0.2.7", "192.0.2.8", False),
        ("0.0.0.0", "db1.example.org", True),
        ("0.0.0.0", "DB1.example.org.:9785", True),
        ("db1", "db1:9785", True),
    ],
)
def test_hosts_of_an_address(bind: str, host: str, accepted: bool) -> None:
    hosts, any_address = guard.hosts_of(bind, ["db1.example.org"])
    assert guard.Policy(hosts, any_address).accepts_host(host) is accepted


@given(some.text())
def test_any_host_header_is_judged(host: str) -> None:
    hosts, any_address = guard.hosts_of("127.0.0.1", [])
    accepted = guard.Policy(hosts, any_address).accepts_host(host)
    assert accepted is False or host.lower().lstrip("[").startswith(("localhost", "127.0.0.1", "::1"))


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "http://testserver.evil.example",
        "http://testserver:81",
        "file://",
        "http://testserver, http://evil.example",
    ],
)
@pytest.mark.parametrize("path", ["/api/summary", "/metrics", "/"])
def test_foreign_origins_are_refused(tmp_path: Path, origin: str, path: str) -> None:
    with client_of(make_server(tmp_path, token=TOKEN, control=True)) as client:
        assert client.get(path, headers={"Origin": origin}).status_code == 403
        assert client.post("/api/processes/1/trim", headers={"Origin": origin, **BEARER}).status_code == 403


@pytest.mark.parametrize(
    ("site", "mode", "path", "status"),
    [
        ("cross-site", "cors", "/api/summary", 403),
        ("same-site", "no-cors", "/metrics", 403),
        ("cross-site", "navigate", "/", 200),
        ("cross-site", "navigate", "/api/summary", 403),
        ("same-origin", "cors", "/api/summary", 200),
        ("none", "navigate", "/metrics", 200),
    ],
)
def test_other_sites_may_only_link_here(tmp_path: Path, site: str, mode: str, path: str, status: int) -> None:
    with client_of(make_server(tmp_path)) as client:
        assert client.get(path, headers=headers(Sec_Fetch_Site=site, Sec_Fetch_Mode=mode)).status_code == status


def test_headers_of_every_answer(tmp_path: Path) -> None:
    with client_of(make_server(tmp_path)) as client:
        for path in [*PAGES, "/nothing", "/api/nothing"]:
            for answer in (client.get(path), client.get(path, headers={"Host": "evil.example"})):
                policy = answer.headers["content-security-policy"]
                assert "default-src 'none'" in policy
                assert "script-src 'self';" in policy
                assert "http" not in policy
                assert answer.headers["x-content-type-options"] == "nosniff"
                assert answer.headers["cross-origin-resource-policy"] == "same-origin"
                assert "access-control-allow-origin" not in answer.headers
                assert "no-" in answer.headers["cache-control"]


def post(client: TestClient, path: str, **more: Any) -> int:
    return client.post(path, json={"rate_bytes": 4096}, **more).status_code


@pytest.mark.parametrize("path", CHANGES)
def test_without_control_nothing_changes(tmp_path: Path, path: str) -> None:
    policies: list[dict[str, Any]] = [{}, {"token": TOKEN}]
    for policy in policies:
        with client_of(make_server(tmp_path, **policy)) as client:
            assert post(client, path) == 403
            assert post(client, path, headers=BEARER) == 403


@pytest.mark.parametrize("path", CHANGES)
@pytest.mark.parametrize(
    "given",
    [
        "",
        "Bearer",
        "Bearer ",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN}x",
        f"Basic {TOKEN}",
        TOKEN,
        f"Bearer x{TOKEN}",
        f"Bearer {TOKEN.upper()}",
        "Bearer é".encode("latin-1").decode("latin-1"),
    ],
)
def test_wrong_tokens(tmp_path: Path, path: str, given: str) -> None:
    with client_of(make_server(tmp_path, token=TOKEN, control=True)) as client:
        answer = client.post(path, json={}, headers={b"Authorization": given.encode("latin-1")} if given else {})
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")


def test_tokens_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    def compare(a: bytes, b: bytes) -> bool:
        compared.append((a, b))
        return a == b

    monkeypatch.setattr(hmac, "compare_digest", compare)
    policy = guard.Policy(frozenset(), token=TOKEN)
    assert policy.is_token(TOKEN)
    assert not policy.is_token("")
    assert all(len(a) == len(b) == 32 for a, b in compared)
    assert len(compared) == 2


def test_the_token_allows_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Fake(tmp_path)
    done: list[int] = []

    def trim(process: Process) -> dict[str, int]:
        done.append(process.pid)
        return {"returned_bytes": 4096}

    monkeypatch.setattr(actions, "_trim", trim)
    with client_of(make_server(tmp_path, token=TOKEN, control=True)) as client:
        pid = client.get("/api/processes").json()["processes"][0]["pid"]
        answer = client.post(f"/api/processes/{pid}/trim", headers=BEARER)
        assert answer.json() == {"returned_bytes": 4096}
        assert done == [pid]
    one.end()


def test_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Fake(tmp_path)
    monkeypatch.setattr(actions, "_trim", lambda process: {"returned_bytes": 1})
    own = {"Origin": "http://testserver"}
    with client_of(make_server(tmp_path, token=TOKEN, control=True)) as client:
        pid = client.get("/api/processes").json()["processes"][0]["pid"]
        path = f"/api/processes/{pid}/trim"
        assert client.post("/api/login", json={"token": "wrong"}).status_code == 401
        assert client.post(path, headers=own).status_code == 401
        answer = client.post("/api/login", json={"token": TOKEN})
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert TOKEN not in cookie
        assert client.get("/api/session").json()["logged_in"] is True
        assert client.post(path, headers=own).json() == {"returned_bytes": 1}
        assert client.post(path).status_code == 403, "a cookie without an Origin"
        assert client.post(path, headers={"Origin": "http://evil.example"}).status_code == 403
        value = client.cookies[next(iter(client.cookies))]
        client.post("/api/logout", json={})
        assert client.get("/api/session").json()["logged_in"] is False
        client.cookies.set("sheaf-session", value)
        assert client.post(path, headers=own).status_code == 401, "a cookie from before the logout"
    one.end()


def test_logins_from_forms_of_other_sites_fail(tmp_path: Path) -> None:
    with client_of(make_server(tmp_path, token=TOKEN, control=True)) as client:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
            answer = client.post("/api/login", content=f'{{"token": "{TOKEN}"}}', headers={"Content-Type": kind})
            assert answer.status_code == 415


def test_sessions_are_bounded_and_end() -> None:
    sessions = guard.Sessions()
    cookies = [sessions.begin() for _ in range(200)]
    assert not sessions.has(cookies[0])
    assert sessions.has(cookies[-1])
    assert sum(map(sessions.has, cookies)) == 64
    for key in sessions._ends:
        sessions._ends[key] = 0.0
    assert not sessions.has(cookies[-1])


def test_private_servers_need_the_token_for_reading(tmp_path: Path) -> None:
    with client_of(make_server(tmp_path, token=TOKEN, private=True)) as client:
        for path in ("/metrics", "/api/summary", "/api/openapi.json", "/debug/pprof/", "/nothing"):
            assert client.get(path).status_code == 401
            assert client.get(path, headers=BEARER).status_code in (200, 404)
        for path in ("/", "/page/app.js", "/healthz", "/api/session"):
            assert client.get(path).status_code == 200
        client.post("/api/login", json={"token": TOKEN})
        assert client.get("/metrics").status_code == 200, "a session may read without an Origin"
