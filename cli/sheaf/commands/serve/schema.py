"""The OpenAPI schema of /api/, /metrics, /healthz and /debug/pprof/."""

from __future__ import annotations

from typing import Any

from sheaf.commands.serve import query

Schema = dict[str, Any]
_TEXT: Schema = {"type": "string"}
_FLAG: Schema = {"type": "boolean"}
_WHOLE: Schema = {"type": "integer", "minimum": 0}
_NUMBER: Schema = {"type": "number"}


def _maybe(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _object(**fields: Schema) -> Schema:
    """An object that has at least these fields. Later versions may add some."""
    return {"type": "object", "properties": fields, "required": list(fields)}


def _array(of: Schema) -> Schema:
    return {"type": "array", "items": of}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


_PROCESS = {
    "pid": _WHOLE,
    "parent_pid": _WHOLE,
    "program": _TEXT,
    "uid": _WHOLE,
    "mode": _TEXT,
    "sheaf_version": _TEXT,
    "start_time_ns": _WHOLE,
    "record": _TEXT,
    "live_bytes": _WHOLE,
    "warm_bytes": _WHOLE,
    "resident_bytes": _WHOLE,
    "shown": {"type": "boolean", "description": "whether /metrics and the history have it apart from its program"},
}
_SCHEMAS: dict[str, Schema] = {
    "Error": _object(error=_TEXT),
    "Index": _object(name=_TEXT, version=_TEXT, schema=_TEXT, paths=_array(_TEXT)),
    "Program": _object(
        program=_TEXT, processes=_WHOLE, started=_WHOLE, ended=_WHOLE, live_bytes=_WHOLE, warm_bytes=_WHOLE, resident_bytes=_WHOLE
    ),
    "Directory": _object(path=_TEXT, records=_WHOLE, size_bytes=_WHOLE, free_bytes=_WHOLE),
    "Unrecorded": _object(pid=_WHOLE, program=_TEXT),
    "Summary": _object(
        version=_TEXT,
        time_ns=_WHOLE,
        interval_seconds=_NUMBER,
        processes=_WHOLE,
        programs=_array(_ref("Program")),
        unrecorded=_array(_ref("Unrecorded")),
        unrecorded_count=_WHOLE,
        unreadable=_array(_WHOLE),
        unreadable_count=_WHOLE,
        directories=_array(_ref("Directory")),
        problems=_array(_TEXT),
        problem_count=_WHOLE,
    ),
    "Process": _object(**_PROCESS),
    "Processes": _object(total=_WHOLE, processes=_array(_ref("Process"))),
    "Cache": {
        **_object(
            name=_TEXT,
            object_size_bytes=_WHOLE,
            in_use=_WHOLE,
            in_sheaves=_WHOLE,
            in_barns=_WHOLE,
            free_in_slabs=_WHOLE,
            slabs=_WHOLE,
            memory_bytes=_WHOLE,
            in_use_bytes=_WHOLE,
            used_share=_maybe(_NUMBER),
            fast_share=_maybe(_NUMBER),
        ),
        "description": 'docs/schema.md, "JSON", describes the other fields, which are counters',
    },
    "ProcessDetail": _object(
        **_PROCESS,
        memory={"type": "object", "additionalProperties": _maybe(_WHOLE)},
        values={"type": "object", "additionalProperties": _WHOLE},
        caches=_array(_ref("Cache")),
    ),
    "History": _object(
        times=_array(_NUMBER), live_bytes=_array(_NUMBER), warm_bytes=_array(_NUMBER), resident_bytes=_array(_NUMBER)
    ),
    "Record": _object(
        path=_TEXT,
        program=_TEXT,
        pid=_WHOLE,
        replaced_by=_maybe(_TEXT),
        start_time_ns=_WHOLE,
        end_time_ns=_WHOLE,
        state={"enum": ["running", "ended", "replaced", "gone", "copy", "unknown"]},
    ),
    "Records": _object(total=_WHOLE, records=_array(_ref("Record"))),
    "Flame": {
        "type": "object",
        "properties": {
            "name": _TEXT,
            "value": _WHOLE,
            "error": _WHOLE,
            "unreliable": _FLAG,
            "function": _TEXT,
            "place": _TEXT,
            "module": _TEXT,
            "children": _array(_ref("Flame")),
        },
        "required": ["name", "value", "error", "unreliable", "children"],
    },
    "Profile": _object(
        kind=_TEXT,
        title=_TEXT,
        program=_TEXT,
        sampling=_FLAG,
        rate_bytes=_WHOLE,
        samples=_WHOLE,
        time_ns=_WHOLE,
        error_bytes=_maybe(_WHOLE),
        notes=_array(_TEXT),
        tree=_ref("Flame"),
    ),
    "Session": _object(control=_FLAG, token=_FLAG, private=_FLAG, logged_in=_FLAG),
    "LoggedIn": _object(logged_in=_FLAG),
    "Returned": _object(returned_bytes=_WHOLE),
    "Rate": _object(rate_bytes=_WHOLE),
}


def _parameter(name: str, schema: Schema, text: str, where: str = "query") -> Schema:
    return {"name": name, "in": where, "required": where == "path", "schema": schema, "description": text}


_PID_SCHEMA: Schema = {"type": "integer", "minimum": 1, "maximum": query.MOST_PID}
_PID = _parameter("pid", _PID_SCHEMA, "a running process", "path")
_LIMIT = _parameter("limit", {"type": "integer", "minimum": 1, "maximum": query.MOST_ROWS, "default": 1000}, "most rows")
_NAME: Schema = {"type": "string", "minLength": 1, "maxLength": query.MOST_NAME}
_ONE_PID = _parameter("pid", _PID_SCHEMA, "a running process")
_SECONDS = _parameter(
    "seconds", {"type": "integer", "minimum": 0, "maximum": query.MOST_SECONDS, "default": 0}, "cover only this time"
)
_ERRORS = {
    400: "a parameter is wrong",
    401: "the token is missing or wrong",
    403: "from another site, or without --control",
    404: "no such process",
    409: "the process cannot do this",
    413: "the body is too large",
    415: "the body is not JSON",
    421: "the Host header does not name this server",
    503: "a record cannot be read",
}


def _answers(content: str, schema: Schema, errors: tuple[int, ...]) -> Schema:
    answers: Schema = {"200": {"description": "success", "content": {content: {"schema": schema}}}}
    for status in sorted({*errors, 401, 403, 421}):
        answers[str(status)] = {"description": _ERRORS[status], "content": {"application/json": {"schema": _ref("Error")}}}
    return answers


def _get(text: str, schema: str, *parameters: Schema, errors: tuple[int, ...] = ()) -> Schema:
    errors = (*errors, 400) if parameters else errors
    return {
        "get": {"summary": text, "parameters": list(parameters), "responses": _answers("application/json", _ref(schema), errors)}
    }


def _post(text: str, schema: str, *parameters: Schema, body: Schema | None = None, token: bool = True) -> Schema:
    errors = (400, 404, 409, 413, 415) if parameters else (400, 413, 415)
    one: Schema = {
        "summary": text,
        "parameters": list(parameters),
        "responses": _answers("application/json", _ref(schema), errors),
    }
    if body:
        one["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    if token:
        one["security"] = [{"token": []}, {"session": []}]
    return {"post": one}


def _raw(text: str, content: str, *parameters: Schema, errors: tuple[int, ...] = ()) -> Schema:
    answers = _answers(content, {"type": "string"}, ())
    for status in errors:
        answers[str(status)] = {"description": _ERRORS[status], "content": {"text/plain": {"schema": {"type": "string"}}}}
    return {"get": {"summary": text, "parameters": list(parameters), "responses": answers}}


def _symbol() -> Schema:
    """Questions for the names of addresses, which pprof sends by POST."""
    answer = {"get": _raw("Whether addresses have names", "text/plain")["get"]}
    body: Schema = {"content": {"text/plain": {"schema": {"type": "string", "examples": ["0x1234+0x5678"]}}}}
    post = _raw("Names of addresses in profiles that were given, for pprof", "text/plain", errors=(413,))["get"]
    return {**answer, "post": {**post, "requestBody": body}}


def document(version: str) -> Schema:
    """The schema."""
    rate: Schema = {"anyOf": [{"const": 0}, {"type": "integer", "minimum": query.LEAST_RATE, "maximum": query.MOST_RATE}]}
    kinds = {"enum": ["live", "allocated", "peak"], "default": "live"}
    one_name = _parameter("name", _NAME, "the largest process of this program")
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "sheaf serve",
            "version": version,
            "license": {"name": "MIT", "identifier": "MIT"},
            "description": "Processes that run on Sheaf, their memory, caches, records and heap profiles. Sizes are in "
            "bytes, times in nanoseconds since 1970 unless a name says otherwise.",
        },
        "paths": {
            "/api/": _get("Endpoints", "Index"),
            "/api/summary": _get("Programs, directories, and what cannot be read", "Summary"),
            "/api/processes": _get(
                "Running processes, the largest first",
                "Processes",
                _LIMIT,
                _parameter("program", _NAME, "only processes of this program"),
            ),
            "/api/processes/{pid}": _get("A process with its caches", "ProcessDetail", _PID, errors=(404,)),
            "/api/processes/{pid}/profile": {
                **_get(
                    "A heap profile as a tree of functions",
                    "Profile",
                    _PID,
                    _parameter("kind", kinds, "what the values are"),
                    errors=(404, 409),
                ),
                **_post(
                    "Sample allocations at another rate; 0 stops",
                    "Rate",
                    _PID,
                    body={**_object(rate_bytes=rate), "description": "bytes for each sample, on average"},
                ),
            },
            "/api/processes/{pid}/trim": _post("Return free memory to the system", "Returned", _PID),
            "/api/history": _get(
                "Memory over time, of all programs, of one, or of a process",
                "History",
                _parameter("program", _NAME, "a program"),
                _ONE_PID,
                _parameter("range", {"enum": ["hour", "day"], "default": "hour"}, "which ring"),
                errors=(404,),
            ),
            "/api/records": _get("Records, those that changed last first", "Records", _LIMIT),
            "/api/session": _get("What this client may do", "Session"),
            "/api/login": _post(
                "Exchange the token for the cookie of a session", "LoggedIn", body=_object(token=_TEXT), token=False
            ),
            "/api/logout": _post("End the session", "LoggedIn", token=False),
            "/metrics": _raw("Metrics", "text/plain"),
            "/healthz": _raw("Whether the server scans", "text/plain", errors=(503,)),
            "/debug/pprof/heap": _raw(
                "Live memory, for pprof", "application/octet-stream", _ONE_PID, one_name, _SECONDS, errors=(400, 404, 409)
            ),
            "/debug/pprof/allocs": _raw(
                "Allocations, for pprof", "application/octet-stream", _ONE_PID, one_name, _SECONDS, errors=(400, 404, 409)
            ),
            "/debug/pprof/symbol": _symbol(),
        },
        "components": {
            "schemas": _SCHEMAS,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": "sheaf-session"},
            },
        },
    }
