"""Inputs that fit and that violate the published schema; answers have to fit it in any case."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as some
from schemathesis.config import SchemathesisConfig
from serving import TOKEN, Fake, client_of, make_server, scrape
from sheaf.commands.serve import actions, app, pprof
from sheaf.commands.serve.accounts import Accounts, Tally
from sheaf.commands.serve.history import _Ring
from starlette.testclient import TestClient

_DIRECTORY = Path(tempfile.mkdtemp(prefix="sheaf-fuzz-"))
_FAKE = Fake(_DIRECTORY)
_SERVER = make_server(_DIRECTORY, token=TOKEN, control=True, max_age=3600)
_SCHEMA = schemathesis.openapi.from_asgi(
    "/api/openapi.json",
    app.make(_SERVER),
    config=SchemathesisConfig.from_dict({"headers": {"Authorization": f"Bearer {TOKEN}"}, "seed": 1}),
)
# Not reported by design: what a client without the token is told (test_serve_guard.py), and parameters that are unknown.
_EXCLUDED = [
    schemathesis.checks.CHECKS.get_one(name) for name in ("ignored_auth", "unsupported_method", "missing_required_header")
]


@pytest.fixture(autouse=True, scope="module")
def _harmless() -> Any:
    patch = pytest.MonkeyPatch()
    patch.setattr(actions, "_trim", lambda process: {"returned_bytes": 0})
    patch.setattr(actions, "_sample", lambda process, rate: {"rate_bytes": rate})
    patch.setattr(pprof, "_pause", _no_pause)
    yield
    patch.undo()


async def _no_pause(seconds: float) -> None:
    """Instead of the pause for ?seconds=."""


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    """One client for all examples."""
    with client_of(make_server(_DIRECTORY, token=TOKEN, control=True, max_age=3600)) as client:
        yield client


@_SCHEMA.parametrize()
@settings(max_examples=15, deadline=None, phases=[Phase.generate], derandomize=True, suppress_health_check=list(HealthCheck))
def test_the_schema(case: Any) -> None:
    if case.operation.path == "/api/processes/{pid}" or "{pid}" in case.operation.path:
        pid = (case.path_parameters or {}).get("pid")
        if isinstance(pid, int) and pid % 2:
            case.path_parameters["pid"] = os.getpid()  # one that exists
    case.call_and_validate(excluded_checks=_EXCLUDED)


_WORDS = some.text(max_size=300)


@given(
    path=some.sampled_from(sorted(_SCHEMA.raw_schema["paths"])),
    parameters=some.dictionaries(
        some.sampled_from(["pid", "name", "program", "range", "limit", "kind", "seconds", ""]),
        some.lists(_WORDS, max_size=3),
        max_size=4,
    ),
    pid=_WORDS,
)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_any_query_is_answered(client: TestClient, path: str, parameters: dict[str, list[str]], pid: str) -> None:
    answer = client.get(path.replace("{pid}", quote(pid, safe="") or "0"), params=parameters)
    assert answer.status_code < 500, answer.text


@given(
    content=some.binary(max_size=200) | some.text(max_size=200).map(str.encode),
    path=some.sampled_from(["login", "processes/1/profile"]),
)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_any_body_is_answered(client: TestClient, content: bytes, path: str) -> None:
    answer = client.post(
        f"/api/{path}", content=content, headers={"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
    )
    assert answer.status_code in (400, 401, 404, 409)


@given(some.binary(max_size=400), some.integers(0, 20000))
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_damage_to_a_record_is_survived(tmp_path: Path, damage: bytes, at: int) -> None:
    one = Fake(tmp_path)
    server = make_server(tmp_path)
    with client_of(server) as client:
        scrape(client)
        with open(one.path, "r+b") as file:
            file.seek(at)
            file.write(damage)
        scrape(client)
        assert client.get("/api/summary").status_code == 200
        assert client.get("/api/records").status_code == 200
        assert client.get(f"/api/processes/{os.getpid()}").status_code in (200, 404)
    one.end(remove=True)


@given(some.lists(some.floats(0, 1e6), max_size=50))
def test_rings_keep_their_order(seconds: list[float]) -> None:
    ring = _Ring(5)
    for second in sorted(seconds):
        ring.add(second, (1.0, 2.0, 3.0))
    times = ring.points()[0]
    assert times == sorted(times)
    assert len({second // 5 for second in seconds}) == len(times)


def test_counters_never_overflow() -> None:
    accounts = Accounts(1, 1)
    account = accounts.of("x")
    account.process[0] = (1 << 64) - 1
    from sheaf.commands.serve.accounts import _grow, _zeros

    now = _zeros(len(account.process))
    now[0] = 5
    _grow(account.process, _zeros(len(account.process)), now)
    assert account.process[0] == 4
    assert isinstance(Tally("x", now, {}).process[0], int)
