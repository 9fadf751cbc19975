"""Who may ask what: hosts, origins, the token, sessions, and the headers that tell browsers to stay strict.

Threats, and what meets them:

- A web page elsewhere makes the browser of a user of this machine send requests here. Such requests have an Origin or a
  Sec-Fetch-Site of another site and are refused. Changes need the token or a session, whose cookie is SameSite=Strict and
  is accepted only together with the Origin of this server.
- A name of the attacker's is made to resolve to this address (DNS rebinding), so that the browser takes both for the same
  origin. Its Host header is that name, and only names that belong to this server are accepted.
- Other users of this machine connect to the port. They may read, unless --private is given, and change nothing without the
  token. A UNIX socket with its permissions keeps them out altogether.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SESSION_SECONDS = 12 * 3600
_MOST_SESSIONS = 64
_SAFE = ("GET", "HEAD", "OPTIONS")
# Reachable without the token under --private: what the login needs.
_QUESTIONS = ("/api/login", "/api/logout", "/debug/pprof/symbol")  # are sent by POST and change no process
_OPEN = ("/", "/healthz", "/api/session", "/api/login")
# Plotly writes style attributes and rules, so styles cannot be limited to files. Scripts are.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()


class Sessions:
    """Logged-in browsers, at most _MOST_SESSIONS; the oldest is dropped for a new one. Only digests are kept."""

    def __init__(self) -> None:
        self._ends: dict[bytes, float] = {}

    def begin(self) -> str:
        """A new session; returns the value of its cookie."""
        while len(self._ends) >= _MOST_SESSIONS:
            del self._ends[next(iter(self._ends))]
        value = secrets.token_urlsafe(32)
        self._ends[_digest(value)] = time.monotonic() + SESSION_SECONDS
        return value

    def has(self, value: str) -> bool:
        """Whether this is the cookie of a session. What is looked up is a digest, so timing tells nothing of the cookie."""
        return self._ends.get(_digest(value), 0.0) > time.monotonic()

    def end(self, value: str) -> None:
        """Log out."""
        self._ends.pop(_digest(value), None)


@dataclass
class Policy:
    """
    What the user allowed. `hosts` are names and addresses in lower case; `any_address` accepts every literal address, which
    is safe, because rebinding needs a name. `token` is None if nobody can log in.
    """

    hosts: frozenset[str]
    any_address: bool = False
    token: str | None = None
    control: bool = False
    private: bool = False
    cookie: str = "sheaf-session"
    sessions: Sessions = field(default_factory=Sessions)

    def is_token(self, given: str) -> bool:
        """Whether this is the token. The time that this takes does not depend on where the two differ."""
        return self.token is not None and hmac.compare_digest(_digest(given), _digest(self.token))

    def bearer(self, headers: Headers) -> bool:
        """Whether the request has the token in its Authorization header."""
        scheme, _, given = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and self.is_token(given.strip())

    def logged_in(self, connection: HTTPConnection) -> bool:
        """Whether the request has the cookie of a session."""
        return self.sessions.has(connection.cookies.get(self.cookie, ""))

    def accepts_host(self, header: str) -> bool:
        """Whether the value of a Host header names this server."""
        host = header.lower()
        if host.startswith("["):
            host, bracket, port = host[1:].partition("]")
            port = port.removeprefix(":") if bracket and port[:1] in ("", ":") else "x"
        else:
            host, _, port = host.partition(":")
        if port and not (port.isascii() and port.isdecimal()):
            return False
        if host.rstrip(".") in self.hosts:
            return True
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return False
        return self.any_address


def hosts_of(bind: str, more: Iterable[str]) -> tuple[frozenset[str], bool]:
    """The names that a server bound to this address has, and whether it may be asked by any address."""
    try:
        address = ipaddress.ip_address(bind)
    except ValueError:
        return frozenset({bind.lower(), "localhost", *(one.lower() for one in more)}), False
    names = {"localhost", "127.0.0.1", "::1", bind.lower(), *(one.lower() for one in more)}
    return frozenset(names), address.is_unspecified


class Guard:
    """The outermost layer of the server: answers what is refused, and adds HEADERS to every answer."""

    def __init__(self, app: ASGIApp, policy: Policy) -> None:
        self.app, self.policy = app, policy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection, as ASGI defines it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def strict(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refused = self._refuse(HTTPConnection(scope), scope["method"], scope["path"])
        await (refused or self.app)(scope, receive, strict)

    def _refuse(self, connection: HTTPConnection, method: str, path: str) -> JSONResponse | None:
        """The answer to a request that is not allowed; None for one that is."""
        headers = connection.headers
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self.policy.accepts_host(hosts[0]):
            return refusal(421, "this server does not have the name in the Host header; name it with --allow-host")
        own = {f"http://{hosts[0].lower()}", f"https://{hosts[0].lower()}"}
        origins = headers.getlist("origin")
        if any(origin.lower() not in own for origin in origins) or len(origins) > 1:
            return refusal(403, "requests from other sites are refused")
        site, mode = headers.get("sec-fetch-site", "none"), headers.get("sec-fetch-mode", "navigate")
        if site not in ("none", "same-origin") and not (mode == "navigate" and method == "GET" and path == "/"):
            return refusal(403, "requests from other sites are refused")
        return self._unauthorised(connection, method, path, bool(origins))

    def _unauthorised(self, connection: HTTPConnection, method: str, path: str, same_origin: bool) -> JSONResponse | None:
        policy = self.policy
        changes = method not in _SAFE and path not in _QUESTIONS
        if changes and not policy.control:
            return refusal(403, "this server changes nothing; start it with --control and --token-file")
        if not changes and (not policy.private or path in _OPEN or path.startswith("/page/")):
            return None
        if policy.bearer(connection.headers):
            return None
        if policy.logged_in(connection):
            if changes and not same_origin:
                return refusal(403, "a session changes something only with an Origin header; scripts use the token")
            return None
        answer = refusal(401, "a token is needed: log in, or send Authorization: Bearer TOKEN")
        answer.headers["WWW-Authenticate"] = 'Bearer realm="sheaf"'
        return answer


def refusal(status: int, why: str) -> JSONResponse:
    """An answer that says what is wrong."""
    return JSONResponse({"error": why}, status)
