"""The command: where it listens, how it ends, what it says, and what it finds."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Run, as_nobody, until, write_record
from serving import command

TOKEN = "0123456789abcdef"


@contextlib.contextmanager
def serving(*args: str, **more: Any) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server on a free port, and its URL."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "cli")}
    process = subprocess.Popen([*command(), "serve", "--port", "0", *args], stderr=subprocess.PIPE, text=True, env=env, **more)
    try:
        assert process.stderr
        line = process.stderr.readline()
        found = re.match(r"sheaf: serving on (\S+)\n", line)
        assert found, line + process.stderr.read()
        yield process, found[1]
    finally:
        process.kill()
        process.wait()


def get(url: str, path: str, **headers: str) -> tuple[int, str]:
    """Status and body of a path below a URL."""
    address = re.fullmatch(r"http://(.*):(\d+)/", url)
    assert address
    connection = http.client.HTTPConnection(address[1].strip("[]"), int(address[2]), timeout=30)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it_cleanly(tmp_path: Path, number: int) -> None:
    with serving("--only", str(tmp_path)) as (process, url):
        assert get(url, "/healthz") == (200, "ok\n")
        process.send_signal(number)
        assert process.wait(30) == 0
        assert process.stderr and process.stderr.read() == ""


def test_a_request_in_progress_does_not_keep_it(tmp_path: Path) -> None:
    with serving("--only", str(tmp_path)) as (process, url):
        host, port = url.split("/")[2].rsplit(":", 1)
        with socket.create_connection((host, int(port))) as one:
            one.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n")  # without an end
            process.terminate()
            assert process.wait(30) == 0


def test_a_port_in_use(sheaf: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        done = sheaf("serve", "--port", port)
    assert done.returncode == 1
    assert done.stderr == f"sheaf: 127.0.0.1:{port}: Address already in use; choose another address with --bind or --port\n"


@pytest.mark.parametrize(
    "args",
    [
        ["--bind", "nowhere.invalid"],
        ["--bind", "192.0.2.1"],
        ["--port", "65536"],
        ["--port", "x"],
        ["--interval", "0"],
        ["/nonexistent"],
        ["--control"],
        ["--private"],
        ["--only"],
        ["--token-file", "/nonexistent"],
        ["--token-file", "/dev/null"],
        ["--token-file", "/"],
        ["--unix", "/nonexistent/socket"],
        ["--unix", "/etc/passwd"],
        ["--unix", "/tmp/" + "x" * 120],
        ["--max-programs", "0"],
        ["--bind", "a" * 300],
        ["--bind", "\udcff"],
    ],
)
def test_wrong_use_is_one_line(sheaf: Run, args: list[str]) -> None:
    done = sheaf("serve", *args)
    assert done.returncode in (1, 2)
    assert done.stderr.startswith("sheaf") and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize(
    ("content", "mode", "says"),
    [
        ("short\n", 0o600, "at least 16"),
        (f"{TOKEN} {TOKEN}", 0o600, "one word"),
        (TOKEN, 0o644, "chmod 600"),
        ("", 0o600, "at least"),
    ],
)
def test_bad_token_files(sheaf: Run, tmp_path: Path, content: str, mode: int, says: str) -> None:
    file = tmp_path / "token"
    file.write_text(content)
    file.chmod(mode)
    done = sheaf("serve", "--control", "--token-file", str(file))
    assert done.returncode == 1
    assert says in done.stderr and TOKEN not in done.stderr
    assert done.stderr.count("\n") == 1


def test_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    for _ in range(2):
        with serving("--only", str(tmp_path), "--unix", str(path)) as (process, url):
            assert url == f"unix:{path}"
            assert stat.S_IMODE(path.stat().st_mode) == 0o660
            with socket.socket(socket.AF_UNIX) as one:
                one.connect(str(path))
                one.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                assert b"200 OK" in one.makefile("rb").read()
            again = subprocess.run(
                [*command(), "serve", "--unix", str(path)],
                capture_output=True,
                text=True,
                env={**os.environ, "PYTHONPATH": str(ROOT / "cli")},
                timeout=60,
            )
            assert again.returncode == 1 and "another server listens there" in again.stderr
            process.terminate()
            assert process.wait(30) == 0
        assert not path.exists()
        with socket.socket(socket.AF_UNIX) as stale:  # the socket of a server that was killed is replaced
            stale.bind(str(path))


def test_ipv6(tmp_path: Path) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6")
    with serving("--only", str(tmp_path), "--bind", "::1") as (_, url):
        assert url.startswith("http://[::1]:")
        assert get(url, "/healthz")[0] == 200


def test_hosts_on_the_wire(tmp_path: Path) -> None:
    with serving("--only", str(tmp_path), "--allow-host", "db1.example.org") as (_, url):
        assert get(url, "/healthz", Host="db1.example.org")[0] == 200
        assert get(url, "/healthz", Host="evil.example")[0] == 421


def test_it_finds_processes_by_itself(tmp_path: Path, library: str) -> None:
    env = {**os.environ, "LD_PRELOAD": library, "SHEAF_RECORD": str(tmp_path)}
    code = "import sys; x = bytearray(200000); print('ready', flush=True); sys.stdin.read()"
    one = subprocess.Popen(
        [os.path.realpath(sys.executable), "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
    )
    bare = subprocess.Popen(["sleep", "1000"], env={**os.environ, "LD_PRELOAD": library})
    try:
        assert one.stdout and one.stdin
        assert one.stdout.readline() == b"ready\n"
        with serving("--interval", "0.1") as (_, url):

            def seen() -> Any:  # a process that has just started is left out until its values are complete
                found = [p for p in json.loads(get(url, "/api/processes")[1])["processes"] if p["pid"] == one.pid]
                summary = json.loads(get(url, "/api/summary")[1])
                return (found[0], summary) if found and bare.pid in [other["pid"] for other in summary["unrecorded"]] else None

            found, summary = until(seen)
            assert found["live_bytes"] >= 200000
            assert str(tmp_path) in [directory["path"] for directory in summary["directories"]]
            one.stdin.close()
            one.wait()
            line = f'sheaf_ended_processes_total{{how="ended",program="{found["program"]}"}} 1.0'
            until(lambda: line in get(url, "/metrics")[1])
    finally:
        one.kill()
        bare.kill()
        one.wait()
        bare.wait()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_without_privileges(tmp_path: Path) -> None:
    """A server of another user starts, says what it may not read, and shows records that it may read."""
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:-2]:
        parent.chmod(parent.stat().st_mode | 0o055)
    write_record(tmp_path / "old.7.sheaf", {"malloc-64": {}})
    secret = write_record(tmp_path / "secret.8.sheaf", {"malloc-64": {}})
    secret.chmod(0o600)

    def look() -> str:
        sys.path.insert(0, str(ROOT / "cli"))
        from sheaf.commands.serve.machine import Machine

        snapshot = Machine([tmp_path]).scan()
        return json.dumps(
            [os.getppid() in snapshot.unreadable or snapshot.unreadable_count > 0, snapshot.rooms[0].records, snapshot.problems]
        )

    unreadable, records, problems = json.loads(as_nobody(look))
    assert unreadable is True
    assert records == 2
    assert any("secret.8.sheaf: Permission denied" in problem for problem in problems)


def test_other_commands_do_not_load_the_server() -> None:
    code = (
        "import sys, sheaf.__main__, sheaf.commands.run, sheaf.commands.stats;"
        "print([m for m in sys.modules if m.split('.')[0] in ('starlette', 'uvicorn', 'prometheus_client', 'asyncio')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "cli")}
    )
    assert done.stdout == "[]\n"


def test_a_missing_library_is_one_line() -> None:
    code = "import sys; sys.modules['starlette'] = None; sys.argv = ['sheaf', 'serve']; from sheaf.__main__ import entry; entry()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT / "cli")},
    )
    assert done.returncode == 1
    assert " -m pip install 'starlette>=" in done.stderr and done.stderr.count("\n") == 1
