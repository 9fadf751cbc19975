"""/debug/pprof/: heap profiles at the addresses where Go programs have them, so that pprof, Pyroscope and Parca find them."""

from __future__ import annotations

import asyncio
import html

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from sheaf.commands.serve import query
from sheaf.commands.serve.machine import Process
from sheaf.commands.serve.state import server_of
from sheaf.commands.serve.symbolz import MOST_BYTES, Given, answer
from sheaf.errors import SheafError

_pause = asyncio.sleep


async def _chosen(request: Request) -> Process:
    """The process that `pid` and `name` name; without either, the only one that there is."""
    server = server_of(request)
    pid, name = query.integer(request, "pid", None, 1, query.MOST_PID), query.name(request, "name")
    snapshot = await server.fresh()
    if pid is not None:
        found = server.machine.find(pid)
        if found and name not in (None, found.head.program):
            found = None
    elif name is not None:
        found = server.machine.named(name)
    elif len(snapshot.processes) == 1:
        found = snapshot.processes[0]
    else:
        raise query.fail(400, f"{len(snapshot.processes)} processes run on Sheaf with a record; choose one with ?pid= or ?name=")
    if found is None:
        raise query.fail(404, "no such process with a record, or it may not be read; /api/processes lists them")
    return found


async def _profile(request: Request, allocated: bool) -> Response:
    from sheaf.commands.serve import profiles  # needs protobuf, which takes time to import

    seconds = query.integer(request, "seconds", 0, 0, query.MOST_SECONDS) or 0
    process = await _chosen(request)
    try:
        first = await asyncio.to_thread(profiles.take, process) if seconds else None
        await _pause(seconds)
        snapshot = await asyncio.to_thread(profiles.take, process)
        data = await asyncio.to_thread(profiles.encoded, snapshot, first, allocated)
        _given(request).remember(snapshot)
    except SheafError as error:
        raise query.fail(409, error.message) from error
    name = "allocs" if allocated else "heap"
    return Response(
        data,
        media_type="application/octet-stream",
        headers={"Content-Disposition": f'attachment; filename="{name}.{process.pid}.pb.gz"'},
    )


async def heap(request: Request) -> Response:
    """What is live; with `seconds`, how that changes in this time."""
    return await _profile(request, False)


async def allocs(request: Request) -> Response:
    """What was allocated since sampling began; with `seconds`, in this time."""
    return await _profile(request, True)


def _given(request: Request) -> Given:
    given = request.app.state.given
    assert isinstance(given, Given)
    return given


async def symbol(request: Request) -> Response:
    """
    Names of addresses. A GET without addresses is the question whether there are any; pprof sends addresses as the body of a
    POST, which changes nothing.
    """
    raw = bytearray(request.url.query.encode())
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > MOST_BYTES:
            raise query.fail(413, f"the question is larger than {MOST_BYTES} bytes")
    if not raw:
        return PlainTextResponse("num_symbols: 1\n")
    return PlainTextResponse(await asyncio.to_thread(answer, _given(request), raw.decode("ascii", "replace")))


async def index(request: Request) -> Response:
    """A list of the profiles of all processes."""
    snapshot = await server_of(request).fresh()
    rows = "".join(
        f"<tr><td>{process.pid}<td>{html.escape(process.head.program)}<td><a href='heap?pid={process.pid}'>heap</a> "
        f"<a href='allocs?pid={process.pid}'>allocs</a>"
        for process in snapshot.processes[: query.MOST_ROWS]
    )
    return HTMLResponse(f"<!doctype html><html lang=en><title>Profiles</title><h1>Profiles</h1><table>{rows}</table>")


ROUTES = [
    Route("/debug/pprof/", index),
    Route("/debug/pprof/heap", heap),
    Route("/debug/pprof/allocs", allocs),
    Route("/debug/pprof/symbol", symbol, methods=["GET", "POST"]),
]
