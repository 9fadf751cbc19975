"""Endpoints of single processes that go beyond counters: their profile, and with --control what changes them."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sheaf.commands.serve import query
from sheaf.commands.serve.api import chosen
from sheaf.commands.serve.machine import Process, read
from sheaf.errors import SheafError

KINDS = ("live", "allocated", "peak")


async def flame(request: Request) -> Response:
    """The profile of a process as a tree."""
    kind = query.choice(request, "kind", KINDS)
    process = await chosen(request)

    def make() -> dict[str, Any]:
        from sheaf.commands.serve import profiles  # needs protobuf, which takes time to import

        return profiles.tree(profiles.take(process), kind)

    try:
        return JSONResponse(await asyncio.to_thread(make))
    except SheafError as error:
        raise query.fail(409, error.message) from error


def _trim(process: Process) -> dict[str, Any]:
    from sheaf.records import control

    read(process)  # whether it is still the same process
    with control.connect(str(process.head.path)) as connection:
        answer = connection.ask(control.TRIM)
    if answer.status != control.DONE:
        raise SheafError(f"{process.pid}: the process cannot trim: its Sheaf is too old; start it again with this one")
    return {"returned_bytes": answer.results[0]}


def _sample(process: Process, rate: int) -> dict[str, Any]:
    from sheaf.commands.profile import switch

    read(process)
    switch.sample(process.head.path, rate)
    return {"rate_bytes": rate}


async def trim(request: Request) -> Response:
    """Ask a process to return free memory to the system."""
    process = await chosen(request)
    try:
        return JSONResponse(await asyncio.to_thread(_trim, process))
    except SheafError as error:
        raise query.fail(409, error.message) from error


async def sample(request: Request) -> Response:
    """Switch sampling on, off, or to another rate."""
    rate = (await query.body(request)).get("rate_bytes")
    if isinstance(rate, float) and rate.is_integer():  # JSON does not tell 4096.0 from 4096
        rate = int(rate)
    if not isinstance(rate, int) or isinstance(rate, bool) or not (rate == 0 or query.LEAST_RATE <= rate <= query.MOST_RATE):
        raise query.fail(400, f"rate_bytes: not 0 and not a number from {query.LEAST_RATE} to {query.MOST_RATE}")
    process = await chosen(request)
    try:
        return JSONResponse(await asyncio.to_thread(_sample, process, rate))
    except SheafError as error:
        raise query.fail(409, error.message) from error


ROUTES = [
    Route("/api/processes/{pid}/profile", flame, methods=["GET"]),
    Route("/api/processes/{pid}/profile", sample, methods=["POST"]),
    Route("/api/processes/{pid}/trim", trim, methods=["POST"]),
]
