"""The application: all routes, the page and its files, and how errors are answered."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gzip
import hashlib
from collections.abc import AsyncIterator
from importlib import resources

from prometheus_client import exposition
from prometheus_client.openmetrics import exposition as openmetrics
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from sheaf.commands.serve import actions, api, pprof
from sheaf.commands.serve.guard import Guard
from sheaf.commands.serve.metrics import Metrics
from sheaf.commands.serve.state import Server, server_of
from sheaf.commands.serve.symbolz import Given
from sheaf.errors import SheafError

_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_FLAME = "flame.js"  # of sheaf.commands.profile


async def metrics(request: Request) -> Response:
    """Prometheus' text format; OpenMetrics for clients that ask for it."""
    server = server_of(request)
    await server.fresh()
    asked = "application/openmetrics-text" in request.headers.get("accept", "")
    generate = openmetrics.generate_latest if asked else exposition.generate_latest
    kind = openmetrics.CONTENT_TYPE_LATEST if asked else exposition.CONTENT_TYPE_LATEST
    text = await asyncio.to_thread(generate, request.app.state.registry)
    if "gzip" in request.headers.get("accept-encoding", ""):
        packed = await asyncio.to_thread(gzip.compress, text, 4)
        return Response(packed, headers={"Content-Encoding": "gzip", "Content-Type": kind})
    return Response(text, headers={"Content-Type": kind})


async def healthz(request: Request) -> Response:
    """Whether the server answers and scans: status 503 if the last scan is too long ago."""
    server = server_of(request)
    if server.stalled:
        return PlainTextResponse("stalled: no scan of processes has succeeded recently\n", 503)
    return PlainTextResponse("ok\n")


@functools.cache
def _file(name: str) -> tuple[bytes, str]:
    """A compressed file of the page and its tag. Raises FileNotFoundError."""
    if name == _FLAME:
        raw = resources.files("sheaf.commands.profile").joinpath(name).read_bytes()
    else:
        raw = resources.files("sheaf.commands.serve").joinpath("page", name).read_bytes()
    return gzip.compress(raw, 6, mtime=0), f'"{hashlib.sha256(raw).hexdigest()[:24]}"'


_NAMES = frozenset({"index.html", "style.css", "icon.svg", "app.js", "view.js", "plots.js", "table.js", _FLAME})


async def page(request: Request) -> Response:
    """A file of the page. Browsers ask again each time and are answered with 304 while it is the same."""
    name = request.path_params.get("name", "index.html")
    if name not in _NAMES:
        raise HTTPException(404, "no such file")
    packed, tag = await asyncio.to_thread(_file, name)
    headers = {
        "ETag": tag,
        "Cache-Control": "no-cache",
        "Vary": "Accept-Encoding",
        "Content-Type": f"{_TYPES[name.rpartition('.')[2]]}; charset=utf-8",
    }
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(packed, headers={**headers, "Content-Encoding": "gzip"})
    return Response(gzip.decompress(packed), headers=headers)


async def _failed(request: Request, error: Exception) -> Response:
    """Errors as JSON for programs, and as a line of text elsewhere."""
    status, why, headers = 500, "internal error; see the output of the server", None
    if isinstance(error, HTTPException):
        status, why, headers = error.status_code, error.detail, error.headers
    elif isinstance(error, SheafError):
        status, why = 503, error.message
    if request.url.path.startswith("/api/"):
        return JSONResponse({"error": why}, status, headers)
    return PlainTextResponse(f"sheaf: {why}\n", status, headers)


@contextlib.asynccontextmanager
async def _watching(app: Starlette) -> AsyncIterator[None]:
    task = asyncio.create_task(app.state.server.watch())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def make(server: Server) -> ASGIApp:
    """The application for a server, with its guard around it."""
    routes = [
        Route("/", page),
        Route("/page/{name}", page),
        Route("/healthz", healthz),
        Route("/metrics", metrics),
        *pprof.ROUTES,
        *actions.ROUTES,
        *api.ROUTES,
    ]
    app = Starlette(
        routes=routes, lifespan=_watching, exception_handlers={HTTPException: _failed, SheafError: _failed, Exception: _failed}
    )
    app.router.redirect_slashes = False
    app.state.server = server
    app.state.given = Given()
    app.state.registry = Metrics(server.machine, server.version, server.policy.control).registry()
    return Guard(app, server.policy)
