"""/api/: everything that the page shows, as JSON. schema.py describes it."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sheaf.commands.serve import query
from sheaf.commands.serve.accounts import Account
from sheaf.commands.serve.guard import SESSION_SECONDS
from sheaf.commands.serve.history import VALUES, series_name
from sheaf.commands.serve.machine import Process, head_of, read
from sheaf.commands.serve.schema import document
from sheaf.commands.serve.state import Server, server_of
from sheaf.errors import SheafError, printable
from sheaf.records.state import States
from sheaf.rendering import memorytext, table

RANGES = ("hour", "day")
_ROWS = 1000  # of lists, unless `limit` says otherwise


def process_json(process: Process) -> dict[str, Any]:
    """What lists say of a process."""
    head = process.head
    return {
        "pid": process.pid,
        "parent_pid": head.parent_pid,
        "program": head.program,
        "uid": process.uid,
        "mode": head.mode,
        "sheaf_version": head.version,
        "start_time_ns": head.start_time_ns,
        "record": printable(str(head.path)),
        "live_bytes": process.memory.live,
        "warm_bytes": process.memory.warm,
        "resident_bytes": process.resident,
        "shown": process.shown,
    }


def _program_json(name: str, account: Account) -> dict[str, Any]:
    held = account.now.memory
    return {
        "program": name,
        "processes": account.now.processes,
        "started": account.started,
        "ended": sum(account.ends.values()),
        "live_bytes": held.get("live_objects", 0) + held.get("live_large", 0),
        "warm_bytes": sum(held.get(part, 0) for part in ("sheaves", "barns", "slabs", "span_cache", "region")),
        "resident_bytes": held.get("resident", 0),
    }


async def index(request: Request) -> Response:
    """The endpoints."""
    server = server_of(request)
    paths = sorted(document(server.version)["paths"])
    return JSONResponse({"name": "sheaf", "version": server.version, "schema": "/api/openapi.json", "paths": paths})


async def openapi(request: Request) -> Response:
    """The schema."""
    return JSONResponse(document(server_of(request).version))


async def summary(request: Request) -> Response:
    """All programs, and what cannot be read."""
    server = server_of(request)
    snapshot = await server.fresh()
    with server.machine.lock:
        programs = [_program_json(name, account) for name, account in server.machine.accounts.programs.items()]
    return JSONResponse(
        {
            "version": server.version,
            "time_ns": snapshot.time_ns,
            "interval_seconds": server.interval,
            "processes": len(snapshot.processes),
            "programs": sorted(programs, key=lambda one: -one["resident_bytes"]),
            "unrecorded": [{"pid": one.pid, "program": one.program} for one in snapshot.bare],
            "unrecorded_count": snapshot.bare_count,
            "unreadable": snapshot.unreadable,
            "unreadable_count": snapshot.unreadable_count,
            "directories": [
                {"path": room.path, "records": room.records, "size_bytes": room.size, "free_bytes": room.free}
                for room in snapshot.rooms
            ],
            "problems": snapshot.problems,
            "problem_count": snapshot.problem_count,
        }
    )


async def processes(request: Request) -> Response:
    """The running processes, the largest first."""
    limit = query.integer(request, "limit", _ROWS, 1, query.MOST_ROWS)
    program = query.name(request, "program")
    snapshot = await server_of(request).fresh()
    chosen = [process for process in snapshot.processes if program in (None, process.head.program)]
    return JSONResponse({"total": len(chosen), "processes": [process_json(process) for process in chosen[:limit]]})


async def chosen(request: Request) -> Process:
    """The running process that the path names."""
    pid = query.pid_of(request)
    server = server_of(request)
    await server.fresh()
    found = server.machine.find(pid)
    if found is None:
        raise query.fail(404, f"{pid}: no such process with a record, or it may not be read")
    return found


async def process(request: Request) -> Response:
    """One process with its caches."""
    one = await chosen(request)
    try:
        current = await asyncio.to_thread(read, one)
    except SheafError as error:
        raise query.fail(404, error.message) from error
    rows = sorted(table.cache_rows(current.caches), key=lambda row: -row["memory_bytes"])
    about = {"memory": memorytext.to_json(one.memory), "values": dict(current.process), "caches": rows}
    return JSONResponse({**process_json(one), **about})


async def history(request: Request) -> Response:
    """Memory over time: of all programs, of one, or of one process."""
    server = server_of(request)
    program, pid = query.name(request, "program"), query.integer(request, "pid", None, 1, query.MOST_PID)
    coarse = query.choice(request, "range", RANGES) == "day"
    await server.fresh()
    found = None
    with server.machine.lock:
        if pid is not None:
            one = server.machine.find(pid)
            chosen = one is not None and program in (None, one.head.program)
            found = server.history.of("process", series_name(one), coarse) if one and chosen else None
        else:
            found = server.history.of("program" if program is not None else "all", program or "", coarse)
    if found is None:
        raise query.fail(404, "no such program, or the process is not among those shown apart (--max-processes)")
    return JSONResponse({"times": found["times"], **{f"{name}_bytes": found[name] for name in VALUES}})


def _newest(directories: Iterable[Path], limit: int) -> tuple[list[Path], int]:
    """The records that changed last, and the number of all."""
    found: list[tuple[int, Path]] = []
    for directory in directories:
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    if entry.name.endswith(".sheaf"):
                        status = entry.stat(follow_symlinks=False)
                        if stat.S_ISREG(status.st_mode):
                            found.append((status.st_mtime_ns, Path(entry.path)))
        except OSError:
            continue
    found.sort(reverse=True)
    return [path for _, path in found[:limit]], len(found)


def _records(server: Server, limit: int) -> dict[str, Any]:
    paths, total = _newest(server.machine.directories(), limit)
    heads = [head for head in map(head_of, paths) if head]
    states = States(heads)
    rows = []
    for head in heads:
        state = states.of(head)
        rows.append(
            {
                "path": printable(str(head.path)),
                "program": head.program,
                "pid": head.pid,
                "state": state.name,
                "replaced_by": state.program or None,
                "start_time_ns": head.start_time_ns,
                "end_time_ns": head.end_time_ns,
            }
        )
    return {"total": total, "records": rows}


async def records(request: Request) -> Response:
    """The records in all known directories, those that changed last first."""
    limit = query.integer(request, "limit", _ROWS, 1, query.MOST_ROWS)
    server = server_of(request)
    await server.fresh()
    return JSONResponse(await asyncio.to_thread(_records, server, limit or _ROWS))


async def session(request: Request) -> Response:
    """What this client may do."""
    policy = server_of(request).policy
    known = policy.logged_in(request) or policy.bearer(request.headers)
    return JSONResponse(
        {"control": policy.control, "token": policy.token is not None, "private": policy.private, "logged_in": known}
    )


async def login(request: Request) -> Response:
    """Exchange the token for the cookie of a session."""
    policy = server_of(request).policy
    token = (await query.body(request)).get("token")
    if not isinstance(token, str):
        raise query.fail(400, "token: missing; send it as a text")
    if not policy.is_token(token):
        raise query.fail(401, "wrong token; it is the content of the file that --token-file names")
    answer = JSONResponse({"logged_in": True})
    answer.set_cookie(
        policy.cookie,
        policy.sessions.begin(),
        max_age=SESSION_SECONDS,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return answer


async def logout(request: Request) -> Response:
    """End the session."""
    policy = server_of(request).policy
    policy.sessions.end(request.cookies.get(policy.cookie, ""))
    answer = JSONResponse({"logged_in": False})
    answer.delete_cookie(policy.cookie, httponly=True, samesite="strict")
    return answer


ROUTES = [
    Route("/api/", index),
    Route("/api/openapi.json", openapi),
    Route("/api/summary", summary),
    Route("/api/processes", processes),
    Route("/api/processes/{pid}", process),
    Route("/api/history", history),
    Route("/api/records", records),
    Route("/api/session", session),
    Route("/api/login", login, methods=["POST"]),
    Route("/api/logout", logout, methods=["POST"]),
]
