"""`sheaf serve`: metrics, profiles and a live page of all processes on Sheaf over HTTP."""

from __future__ import annotations

import os
import socket
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sheaf.commands.arguments import DIRECTORY, FILE
from sheaf.errors import SheafError
from sheaf.system import extras

if TYPE_CHECKING:
    from starlette.types import ASGIApp

PORT = 9785
_NEEDED = ("starlette", "uvicorn", "prometheus_client")
_SHORTEST_TOKEN = 16


@dataclass(frozen=True)
class Place:
    """Where a server listens: an address and a port, or the path of a UNIX socket."""

    bind: str
    port: int
    path: str | None

    @property
    def url(self) -> str:
        """Where a browser finds it."""
        if self.path:
            return f"unix:{self.path}"
        host = f"[{self.bind}]" if ":" in self.bind else self.bind
        return f"http://{host}:{self.port}/"


def _read_token(name: str) -> str:
    """The token in a file. The file must not be readable by everyone."""
    try:
        with open(name, encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            token = file.read(4097).strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "not a text"
        raise SheafError(f"--token-file {name}: {why}; name a file that contains the token") from error
    if stat.S_ISREG(mode) and mode & stat.S_IROTH:
        raise SheafError(f"--token-file {name}: every user may read it; run chmod 600 {name}")
    if not _SHORTEST_TOKEN <= len(token) <= 4096 or any(one.isspace() for one in token):
        raise SheafError(
            f"--token-file {name}: not one word of at least {_SHORTEST_TOKEN} characters; make one with `openssl rand -hex 32`"
        )
    return token


def _remove_stale(path: str) -> None:
    """Remove a socket that no server listens on any more."""
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        raise SheafError(f"--unix {path}: exists and is not a socket; choose another path")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except OSError as error:
            raise SheafError(f"--unix {path}: {error.strerror}; choose another path") from error
    raise SheafError(f"--unix {path}: another server listens there; stop it, or choose another path")


def _listen_unix(path: str, mode: int) -> socket.socket:
    if len(os.fsencode(path)) > 107:
        raise SheafError(f"--unix {path}: longer than the 107 bytes that the system allows; choose a shorter path")
    try:
        if os.path.lexists(path):
            _remove_stale(path)
        sock = socket.socket(socket.AF_UNIX)
        before = os.umask(0o777)  # until the mode is set, nobody may connect
        try:
            sock.bind(path)
        finally:
            os.umask(before)
        os.chmod(path, mode)
    except OSError as error:
        raise SheafError(f"--unix {path}: {error.strerror}; choose a path in a directory that you may write to") from error
    return sock


def listen(place: Place, mode: int = 0o660) -> tuple[socket.socket, Place]:
    """A bound socket, and where it listens; port 0 chooses a free one. Raises SheafError."""
    if place.path:
        return _listen_unix(place.path, mode), place
    try:
        kind, _, _, _, address = socket.getaddrinfo(place.bind, place.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        sock = socket.socket(kind, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if kind == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise SheafError(f"{place.bind}:{place.port}: {why}; choose another address with --bind or --port") from error
    return sock, Place(place.bind, sock.getsockname()[1], None)


def _run(app: ASGIApp, sock: socket.socket, place: Place) -> None:
    """Serve until SIGTERM or SIGINT."""
    import asyncio
    import signal

    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            click.echo(f"sheaf: serving on {place.url}", err=True)

    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        loop="asyncio",
        lifespan="on",
        access_log=False,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        limit_concurrency=128,
        timeout_keep_alive=20,
        timeout_graceful_shutdown=2,
        backlog=128,
    )
    server = Server(config)

    def stop() -> None:
        server.should_exit = True

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        await server._serve([sock])  # serve() would handle the signals itself, and end this process by them

    asyncio.run(main())
    if server.started is False:
        raise SheafError(f"{place.url}: the server did not start; the reason is printed above")


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("sheaf")
    except metadata.PackageNotFoundError:
        return "source"


def _check_installed() -> None:
    from importlib import util

    missing = [name for name in _NEEDED if util.find_spec(name) is None]
    if missing:
        raise SheafError(f"serve: the Python module {missing[0]} is missing; run {extras.install_module(*missing)}")


def _existing(directories: tuple[str, ...]) -> list[Path]:
    for name in directories:
        if not os.path.isdir(name):
            raise SheafError(f"{name}: not a directory; name one that holds records, or none to find all", 2)
    return [Path(name).resolve() for name in directories]


@click.command()
@click.argument("directories", nargs=-1, type=DIRECTORY, metavar="[DIR]...")
@click.option("--bind", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Listen on this address.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    metavar="PORT",
    help="Listen on this port; 0 chooses a free one.",
)
@click.option("--unix", "unix", type=FILE, metavar="PATH", help="Listen on a UNIX socket instead, with the permissions 0660.")
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Accept requests for this host name as well, such as the one that a reverse proxy has.",
)
@click.option("--only", is_flag=True, help="Show only the records in DIR, not those of all running processes.")
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 3600),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="Read the records this often between requests, for the history and for processes that end.",
)
@click.option(
    "--max-processes",
    type=click.IntRange(0, 1000),
    default=20,
    show_default=True,
    metavar="N",
    help="Give the N largest processes metrics and a history of their own.",
)
@click.option(
    "--max-programs",
    type=click.IntRange(1, 1000),
    default=50,
    show_default=True,
    metavar="N",
    help="Give the first N programs metrics of their own, and add up all others.",
)
@click.option(
    "--max-caches",
    type=click.IntRange(0, 1000),
    default=0,
    show_default=True,
    metavar="N",
    help="Give the first N caches of each program metrics of their own, some 25 series each, and add up all others; 0 for none.",
)
@click.option("--control", is_flag=True, help="Allow clients with the token to trim processes and to sample their allocations.")
@click.option("--token-file", type=FILE, metavar="FILE", help="Read the token from FILE, one word of at least 16 characters.")
@click.option("--private", is_flag=True, help="Require the token for reading as well, except for /healthz.")
def serve(
    directories: tuple[str, ...],
    bind: str,
    port: int,
    unix: str | None,
    hosts: tuple[str, ...],
    only: bool,
    interval: float,
    max_processes: int,
    max_programs: int,
    max_caches: int,
    control: bool,
    token_file: str | None,
    private: bool,
) -> None:
    """Serve metrics, heap profiles and a live page of all processes on Sheaf over HTTP.

    One server is enough for a machine. It finds the processes that run on Sheaf and the directories of their records; DIR
    names further directories. Processes of other users can be read by root only, unless their records are in DIR and
    readable. SIGTERM ends the server.

    \b
    /              a page with memory over time, caches, and flame graphs
    /metrics       metrics for Prometheus
    /debug/pprof/  heap profiles for pprof, Pyroscope and Parca
    /api/          the same as JSON; the schema is /api/openapi.json
    /healthz       whether the server works

    \b
    Examples:
      sheaf serve
      sheaf serve --bind 0.0.0.0 --allow-host db1.example.org /var/lib/sheaf/*
      sheaf serve --control --token-file ~/.sheaf-token
      go tool pprof http://127.0.0.1:9785/debug/pprof/heap?name=redis-server
    """
    if control and token_file is None:
        raise SheafError("--control: needs --token-file FILE, so that not everyone can change processes", 2)
    if private and token_file is None:
        raise SheafError("--private: needs --token-file FILE", 2)
    if only and not directories:
        raise SheafError("--only: names no directory; give DIR as well", 2)
    places = _existing(directories)
    token = _read_token(token_file) if token_file is not None else None
    _check_installed()
    sock, place = listen(Place(bind, port, unix))
    try:
        from sheaf.commands.serve import app, guard
        from sheaf.commands.serve.machine import Limits, Machine
        from sheaf.commands.serve.state import Server

        machine = Machine(places, Limits(max_processes, max_programs, max_caches), discover=not only)
        names, any_address = guard.hosts_of(place.bind, hosts)
        cookie = "sheaf-session" if place.path else f"sheaf-session-{place.port}"  # ports of one host share cookies
        policy = guard.Policy(names, any_address, token, control, private, cookie)
        _run(app.make(Server(machine, policy, _version(), interval)), sock, place)
    finally:
        sock.close()
        if place.path and os.path.exists(place.path):
            os.unlink(place.path)
    sys.exit(0)
