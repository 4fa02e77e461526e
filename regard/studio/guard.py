"""The door of the service: who may ask from where, how much may be sent and how slowly; headers, log and metrics of all.

A page of another site can make a browser send requests to a service on this machine. Three things keep it from using one:
the name that a request is for must be one of ours (`Host`; otherwise any name that is made to point here would do), a
request that changes or computes something must not come from another page (`Sec-Fetch-Site`, `Origin`), and no other page
may read an answer (no CORS, unless its origin was named).
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import sys
import time
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.studio.config import ServeConfig
from regard.studio.metrics import Metrics
from regard.studio.refusals import LIBRETRANSLATE, Refusal, as_refusal, full, refused, too_late
from regard.studio.visit import KEY, Visit

POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
OPEN_PATHS = (
    "/",
    "/health",
    "/ready",
    "/docs",
    "/openapi.json",
)  # for which no token is asked: they tell nothing of anyone
OPEN_FOLDERS = ("/static/",)
ASKED_BY_ROUTE = frozenset(LIBRETRANSLATE)  # whose key may stand in the body
SAFE = ("GET", "HEAD", "OPTIONS")
READ_BY_ROUTE = (("POST", "/api/models"),)  # whose body is a large file: the route reads it piece by piece
CUT = "regard.cut"  # in the scope: a function that ends the connection at once, with what is still to be sent
LINGER = 2.0  # seconds in which the rest of a refused body is read and forgotten, so that its sender hears why

Log = Callable[[dict[str, object]], None]


def log_line(line: dict[str, object]) -> None:
    print(json.dumps(line, ensure_ascii=True), file=sys.stderr, flush=True)


class Guard:
    """An ASGI application around another one."""

    def __init__(self, app: ASGIApp, config: ServeConfig, metrics: Metrics, log: Log = log_line) -> None:
        self.app, self.config, self.metrics, self.log = app, config, metrics, log
        self.limits = config.limits
        self.held = 0  # bytes of all bodies that are being read or used

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        visit = Visit(scope["method"], scope["path"], time.monotonic() + self.limits.seconds, receive)
        scope[KEY] = visit
        answer = _Answer(send, visit, self._headers(scope))
        try:
            async with asyncio.timeout(self._patience(scope)):
                await self._answer(scope, receive, answer)
        except _ClientGoneError:
            visit.status = 499  # as nginx writes it
        except Exception as error:
            await self._failed(error, scope, receive, answer)
        finally:
            self._told(scope, visit)

    def _patience(self, scope: Scope) -> float:
        """Seconds for a request from its first to its last byte."""
        arriving = self.limits.archive_seconds if _is_read_by_route(scope) else self.limits.read_seconds
        return arriving + self.limits.seconds + self.limits.send_seconds

    async def _answer(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        try:
            early = self._check(scope)
        except Refusal as refusal:
            await self._refuse(refusal, scope, receive, answer)
            return
        if early is not None:
            await early(scope, receive, answer)
            return
        if _is_read_by_route(scope):
            await self.app(scope, receive, answer)
            return
        body = bytearray()
        try:
            await self._read(scope, receive, body)
            await self.app(scope, _replayed(bytes(body), receive), answer)
        except Refusal as refusal:
            await self._refuse(refusal, scope, receive, answer)
        finally:
            self.held -= len(body)

    # --- Who asks

    def _check(self, scope: Scope) -> Response | None:
        """Refuse who may not ask; a browser's question whether it may is answered at once."""
        headers = Headers(scope=scope)
        name = _host_name(headers.get("host", ""))
        if name not in self.config.known_names:
            raise self._refusal(
                "host", 421, f"this service is not for the host {name[:100]!r}", "name it when it starts"
            )
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        known = origin is not None and origin in self.config.origins
        if known and scope["method"] == "OPTIONS":
            return Response(status_code=204, headers=PREFLIGHT)
        own = origin is None or origin in (f"http://{headers['host']}", f"https://{headers['host']}")
        if scope["method"] not in SAFE and not known and (not own or site not in (None, "same-origin", "none")):
            raise self._refusal(
                "cross-site", 403, "a page of another site asks", "name its origin when the service starts"
            )
        if not self._may_pass(scope["path"]) and not shows_token(self.config.token, scope, headers):
            raise self._refusal("token", 401, "a token is needed", "send it as Authorization: Bearer TOKEN")
        return None

    def _may_pass(self, path: str) -> bool:
        return path in OPEN_PATHS or path.startswith(OPEN_FOLDERS) or path in ASKED_BY_ROUTE

    def _refusal(self, reason: str, status: int, message: str, hint: str) -> Refusal:
        self.metrics.refused.add(reason)
        return Refusal(status, message, hint)

    # --- How much is sent

    async def _read(self, scope: Scope, receive: Receive, body: bytearray) -> None:
        """Read the whole body into `body`, within the limits of its size, of all bodies, and of time."""
        declared = Headers(scope=scope).get("content-length", "0")
        if declared.isdecimal() and int(declared) > self.limits.body_bytes:
            raise self._too_large()
        try:
            async with asyncio.timeout(self.limits.read_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _ClientGoneError
                    self._take(message.get("body", b""), body)
                    if not message.get("more_body", False):
                        return
        except TimeoutError:
            told = f"the request did not come in whole within {self.limits.read_seconds:g} s"
            raise self._refusal("slow", 408, told, "send it faster") from None

    def _take(self, chunk: bytes, body: bytearray) -> None:
        if len(body) + len(chunk) > self.limits.body_bytes:
            raise self._too_large()
        if self.held + len(chunk) > self.limits.held_bytes:
            self.metrics.refused.add("held")
            raise full()
        self.held += len(chunk)
        body += chunk

    def _too_large(self) -> Refusal:
        most = self.limits.body_bytes
        return self._refusal("body", 413, f"the body is larger than {most:,} bytes", "send less at once")

    async def _refuse(self, refusal: Refusal, scope: Scope, receive: Receive, answer: _Answer) -> None:
        """Answer a request whose body may not have been read: what is left of it is not wanted."""
        answer.headers["Connection"] = "close"
        if "expect" not in Headers(scope=scope):
            await _forget(receive)
        await refused(scope["path"], refusal)(scope, receive, answer)

    # --- What is told

    def _headers(self, scope: Scope) -> dict[str, str]:
        origin = Headers(scope=scope).get("origin")
        if origin is None or origin not in self.config.origins:
            return dict(HEADERS)
        allowed = {"Access-Control-Allow-Origin": origin, "Vary": "Origin"}
        return {**HEADERS, **allowed, "Cross-Origin-Resource-Policy": "cross-origin"}

    async def _failed(self, error: Exception, scope: Scope, receive: Receive, answer: _Answer) -> None:
        """Something that nobody foresaw, or a client that takes its answer away too slowly: that is cut off."""
        late = isinstance(error, TimeoutError)
        if not late:
            logging.getLogger("regard.studio").error("%s %s failed", scope["method"], scope["path"], exc_info=error)
        if answer.begun:
            scope.get(CUT, lambda: None)()
        else:
            refusal = too_late(self.limits.seconds) if late else as_refusal(error)
            await refused(scope["path"], refusal)(scope, receive, answer)

    def _told(self, scope: Scope, visit: Visit) -> None:
        route = getattr(scope.get("route"), "path", "other")
        self.metrics.requests.add(visit.method, route, str(visit.status))
        self.metrics.seconds.observe(time.monotonic() - visit.began, route)
        if visit.model is not None:
            self.metrics.tokens.add(visit.model, "read", by=visit.read)
            self.metrics.tokens.add(visit.model, "written", by=visit.written)
        self.log(visit.line())


PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, POST, DELETE",
    "Access-Control-Allow-Headers": "Authorization, Content-Type",
    "Access-Control-Max-Age": "600",
}


class _ClientGoneError(Exception):
    """The client left before it had said what it wants."""


class _Answer:
    """What is sent, with the headers that every response has."""

    def __init__(self, send: Send, visit: Visit, headers: dict[str, str]) -> None:
        self.send, self.visit, self.headers, self.begun = send, visit, headers, False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.begun, self.visit.status = True, message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in self.headers.items():
                headers[name] = value
            headers.setdefault("Cache-Control", "no-store")
        await self.send(message)


def shows_token(token: str | None, scope: Scope, headers: Headers, key: str | None = None) -> bool:
    """Whether a request shows the token: as Bearer, or as `api_key` (`key` where it stood in a body)."""
    if token is None:
        return True
    kind, _, bearer = headers.get("authorization", "").partition(" ")
    query = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("api_key", [""])[0]
    shown = [bearer.strip() if kind.lower() == "bearer" else "", query, key or ""]
    return sum(hmac.compare_digest(each.encode(), token.encode()) for each in shown) > 0  # all are compared


def _is_read_by_route(scope: Scope) -> bool:
    return (scope["method"], scope["path"]) in READ_BY_ROUTE


def _host_name(host: str) -> str:
    """The name in a `Host` header, in lower case, without port and brackets."""
    name = host[1 : host.find("]")] if host.startswith("[") else host.rpartition(":")[0] if ":" in host else host
    return name.lower().rstrip(".")


def _replayed(body: bytes, receive: Receive) -> Callable[[], Awaitable[Message]]:
    """The body that was read, once; then whatever the server says: that the client has left."""
    told = False

    async def again() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


async def _forget(receive: Receive) -> None:
    try:
        async with asyncio.timeout(LINGER):
            while (message := await receive())["type"] == "http.request" and message.get("more_body", False):
                pass
    except TimeoutError:
        pass
