"""Parameters of requests, checked. The bounds are those that the OpenAPI schema publishes (schema.py)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request

MOST_PID = 4_194_304  # the largest that Linux allows
MOST_SECONDS = 300
MOST_ROWS = 10_000
LEAST_RATE, MOST_RATE = 1 << 10, 1 << 30  # bytes for each sample
MOST_NAME = 255
MOST_BODY = 4096
_NUMBER = re.compile("[0-9]{1,15}")


def fail(status: int, why: str) -> HTTPException:
    """The exception that answers with an error."""
    return HTTPException(status, why)


def _one(request: Request, name: str) -> str | None:
    values = request.query_params.getlist(name)
    if len(values) > 1:
        raise fail(400, f"{name}: given {len(values)} times; give it once")
    return values[0] if values else None


def number(name: str, text: str, least: int, most: int) -> int:
    """A decimal number within bounds."""
    if not _NUMBER.fullmatch(text) or not least <= int(text) <= most:
        raise fail(400, f"{name}: not a number from {least} to {most}")
    return int(text)


def integer(request: Request, name: str, default: int | None, least: int, most: int) -> int | None:
    """A number in the query, or the default."""
    text = _one(request, name)
    return default if text is None else number(name, text, least, most)


def choice(request: Request, name: str, words: Sequence[str]) -> str:
    """One of several words in the query; the first one if there is none."""
    text = _one(request, name)
    if text is not None and text not in words:
        raise fail(400, f"{name}: not one of {', '.join(words)}")
    return words[0] if text is None else text


def name(request: Request, key: str) -> str | None:
    """The name of a program in the query."""
    text = _one(request, key)
    if text is not None and not 0 < len(text) <= MOST_NAME:
        raise fail(400, f"{key}: not a name of 1 to {MOST_NAME} characters")
    return text


def pid_of(request: Request) -> int:
    """The process that the path names."""
    return number("pid", request.path_params["pid"], 1, MOST_PID)


async def body(request: Request) -> dict[str, Any]:
    """The JSON object in the body. Only application/json is accepted, because forms of other sites cannot send it."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise fail(415, "the body is not application/json; send a JSON object")
    raw = bytearray()
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > MOST_BODY:
            raise fail(413, f"the body is larger than {MOST_BODY} bytes")
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise fail(400, "the body is not JSON; send a JSON object") from error
    if not isinstance(content, dict):
        raise fail(400, "the body is not a JSON object")
    return content
