"""What every request passes before it is read: size, time, key, origin; and the line that the log gets of it."""

import asyncio
import contextlib
import hmac
import logging
import time
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from calyrex.serve.errors import ApiError, stopping
from calyrex.serve.exchange import LeftError

logger = logging.getLogger("calyrex.serve.requests")

BODY_SECONDS = 30.0
"""How long a request may take to arrive."""

SEND_SECONDS = 60.0
"""How long a client may take to read a part of an answer."""

_OPEN_PATHS = ("/", "/health", "/playground.css", "/playground.js", "/playground.svg")
_ALWAYS_PATHS = ("/health", "/metrics")
_MAX_DRAINED = 2**24
"""Bytes beyond the limit that are read and dropped, since a client that still sends does not hear the answer."""

CLIENT_LEFT = 499
_HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-store",
    b"content-security-policy": (
        b"default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
    ),
}


class Rules(NamedTuple):
    """What the gate asks for.

    Attributes:
        api_key: key that requests must bring; None asks for none.
        max_body: largest body in bytes.
        names: the only hosts that are answered to, so that no web page can reach the server by another name; None
            answers to all.
    """

    api_key: str | None
    max_body: int
    names: tuple[str, ...] | None


class Gate:
    """Lets requests through to the application that keep the rules, and answers the others.

    Attributes:
        num_open: requests that are not answered yet, but for those that a server answers to its end.
    """

    def __init__(
        self,
        app: ASGIApp,
        rules: Rules,
        is_draining: Callable[[], bool],
        on_end: Callable[[str, int, float], None],
    ) -> None:
        """Create the gate.

        Args:
            app: the application.
            rules: what is asked for.
            is_draining: tells whether new requests are refused.
            on_end: gets path, status and seconds of each request.
        """
        self.app = app
        self.rules = rules
        self.is_draining = is_draining
        self.on_end = on_end
        self.num_open = 0
        self._is_ended = False
        self._limits: set[asyncio.Timeout] = set()

    def end_reading(self) -> None:
        """Read no request any further."""
        if self._is_ended:
            return
        self._is_ended = True
        for limit in self._limits:
            limit.reschedule(0.0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        if scope["type"] != "http":
            return
        start = time.monotonic()
        status = CLIENT_LEFT

        async def guarded_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [(name, value) for name, value in message["headers"] if name.lower() not in _HEADERS]
                message = {**message, "headers": [*headers, *_HEADERS.items()]}
            async with asyncio.timeout(SEND_SECONDS):
                await send(message)

        scope["calyrex.facts"] = {}
        num_counted = int(scope["path"] not in _ALWAYS_PATHS)
        self.num_open += num_counted
        try:
            with contextlib.suppress(LeftError, TimeoutError):
                await self._answer(scope, receive, guarded_send)
        finally:
            self.num_open -= num_counted
            seconds = time.monotonic() - start
            self.on_end(scope["path"], status, seconds)
            facts = {"method": scope["method"], "path": scope["path"], "status": status, "seconds": round(seconds, 4)}
            logger.info("request", extra={"facts": {**facts, **scope["calyrex.facts"]}})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._check(scope)
            body = await self._read(scope, receive)
        except ApiError as error:
            await error.response()(scope, receive, send)
            return
        await self.app(scope, _replay(body, receive), send)

    def _check(self, scope: Scope) -> None:
        """Check what is known before the body.

        Raises:
            ApiError: a rule is not kept.
        """
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        path = scope["path"]
        if self.is_draining() and path not in _ALWAYS_PATHS:
            raise stopping()
        host = headers.get(b"host", "")
        names = self.rules.names
        if names is not None and _host_name(f"//{host}") not in names:
            raise ApiError(403, f"this server answers to {', '.join(names)} only", code="forbidden_host")
        origin = headers.get(b"origin")
        if origin is not None and _net_location(origin) != host:
            raise ApiError(403, "requests from other web pages are refused", code="forbidden_origin")
        key = self.rules.api_key
        if key is None or path in _OPEN_PATHS:
            return
        scheme, _, given = headers.get(b"authorization", "").partition(" ")
        is_right = hmac.compare_digest(given.strip().encode("latin-1"), key.encode())
        if scheme.lower() != "bearer" or not is_right:
            raise ApiError(
                401,
                "expected the API key of this server as 'Authorization: Bearer KEY', got none or another",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        """Read a whole body.

        Raises:
            ApiError: it is too large, comes too slowly, or the server ends.
            LeftError: the client has left before its end.
        """
        most = self.rules.max_body
        too_large = ApiError(
            413, f"a request may have {most} bytes at most", code="request_too_large", headers={"Connection": "close"}
        )
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"")
        most_read = most if b"expect" in headers else most + _MAX_DRAINED  # who expects an answer has not sent yet
        if length.isdigit() and int(length[:20]) > most_read:
            raise too_large
        body = bytearray()
        limit = asyncio.timeout(BODY_SECONDS)
        self._limits.add(limit)
        try:
            async with limit:
                size = await _read_parts(receive, body, most, most_read)
        except TimeoutError as error:
            if self._is_ended:
                raise stopping() from error
            message = f"the request did not arrive within {BODY_SECONDS:g} seconds"
            raise ApiError(408, message, code="request_timeout", headers={"Connection": "close"}) from error
        finally:
            self._limits.discard(limit)
        if size > most:
            raise too_large
        return bytes(body)


async def _read_parts(receive: Receive, body: bytearray, most: int, most_read: int) -> int:
    """Read a body of at most ``most`` bytes; of a larger one the rest is dropped up to ``most_read``.

    Returns:
        The number of bytes that came.

    Raises:
        LeftError: the client has left before its end.
    """
    size = 0
    while size <= most_read:
        message = await receive()
        if message["type"] != "http.request":
            raise LeftError
        part = message.get("body", b"")
        size += len(part)
        if size <= most:
            body += part
        if not message.get("more_body", False):
            break
    return size


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a ``receive`` that gives a body that was read before, and then what still comes."""
    is_read = False

    async def replayed() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed


def _host_name(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None


def _net_location(origin: str) -> str | None:
    """Return host and port of an origin, None where it has none."""
    try:
        return urlsplit(origin).netloc or None
    except ValueError:
        return None
