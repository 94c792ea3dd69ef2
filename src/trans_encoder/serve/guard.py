"""Requests that are refused before they are read: no token, another origin, bodies that are too large or too slow."""

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_OPEN = frozenset({"/", "/page.css", "/page.js", "/health"})
"""What needs no token: the page without any data, and whether the server lives."""
_DISCARDED_BODIES = 16
"""A body that is too large is read to its end, so that its sender sees why it is refused; up to this many limits."""
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


@dataclass(frozen=True)
class Limits:
    """How much one request may ask for."""

    body_bytes: int = 1 << 20
    body_seconds: float = 10.0
    texts: int = 256
    characters: int = 10_000
    top: int = 100


class Guard:
    """ASGI middleware; see the module."""

    def __init__(self, app: App, *, limits: Limits, token: str | None, hosts: frozenset[str]) -> None:
        """Let through what has the token, if there is one, and names one of these hosts."""
        self._app, self._limits, self._token, self._hosts = app, limits, token, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on with its whole body."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refusal = self._refusal(scope, headers)
        body = b""
        if refusal is None:
            try:
                async with asyncio.timeout(self._limits.body_seconds):
                    body, refusal = await self._body(headers, receive)
            except TimeoutError:
                refusal = 408, "the body did not arrive in time"
        secured = _secured(send)
        if refusal is not None:
            await _refuse(secured, *refusal)
            return
        await self._app(scope, _replayed(body, receive), secured)

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        host = _name(headers.get("host", ""))
        # A page elsewhere can have its own name point to this machine (DNS rebinding); the host gives it away.
        if host not in self._hosts:
            return 421, "this server does not answer for that host; start it with --host NAME"
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != headers.get("host"):
            return 403, "requests from other origins are refused"
        if self._token is not None and scope["path"] not in _OPEN:
            given = headers.get("authorization", "")
            if not hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
                return 401, "send the server's token: Authorization: Bearer TOKEN"
        if (
            scope["method"] == "POST"
            and headers.get("content-type", "").partition(";")[0].strip() != "application/json"
        ):
            return 415, "expected Content-Type: application/json"
        return None

    async def _body(self, headers: dict[str, str], receive: Receive) -> tuple[bytes, tuple[int, str] | None]:
        too_large = 413, f"the body is larger than {self._limits.body_bytes:,} bytes"
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length[:20]) > self._limits.body_bytes:
            await self._discard(receive)
            return b"", too_large
        parts, size, more = [], 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return b"", (400, "the body ended early")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            more = message.get("more_body", False)
            if size > self._limits.body_bytes:
                await self._discard(receive)
                return b"", too_large
        return b"".join(parts), None

    async def _discard(self, receive: Receive) -> None:
        """Read on without keeping anything: a client that is still sending sees a broken pipe, not the refusal."""
        size, more = 0, True
        while more and size < _DISCARDED_BODIES * self._limits.body_bytes:
            message = await receive()
            size += len(message.get("body", b""))
            more = message.get("more_body", False)


def _name(host: str) -> str:
    """Return a Host header without its port."""
    return (host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0]).lower()


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives a body that was read already, and then what comes."""
    given = False

    async def again() -> MutableMapping[str, Any]:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _secured(send: Send) -> Send:
    async def with_headers(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            own = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
            message = {**message, "headers": [*message.get("headers", []), *own]}
        await send(message)

    return with_headers


async def _refuse(send: Send, status: int, reason: str) -> None:
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps({"error": reason}).encode()})
