"""``calyrex serve``: load the models, listen, and finish what runs before the end."""

import contextlib
import json
import logging
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from calyrex.errors import CalyrexError
from calyrex.serve.app import build_app, build_state
from calyrex.serve.errors import ApiError, to_json
from calyrex.serve.gate import Gate
from calyrex.serve.options import ServeOptions
from calyrex.serve.served import load_served
from calyrex.serve.state import State

logger = logging.getLogger("calyrex.serve")

HEAD_SECONDS = 15.0
"""How long a connection may stay open without a complete head of a request."""

_MAX_CONNECTIONS = 1024
_CLOSE_SECONDS = 5


def serve(options: ServeOptions) -> None:
    """Serve until SIGTERM or Ctrl-C; what runs then is finished.

    Raises:
        CalyrexError: The base cannot be loaded, the address is taken, or it needs a key.
        RuntimeError: The engine has failed for good; its own traceback came before.
    """
    options.api_key()  # before models are loaded
    listener = _listen(options)
    with contextlib.closing(listener):
        state = build_state(load_served(options), options)
        server = _make_server(state, options)
        try:
            with json_logs(has_messages=options.log_messages):
                _say_start(state, listener)
                server.run(sockets=[listener])
            if state.engine.has_failed:
                raise RuntimeError("the engine has failed, and with it the server ends")
        finally:
            state.engine.stop(is_waiting=not server.force_exit)


def _make_server(state: State, options: ServeOptions) -> "Server":
    gate = build_app(state, options)
    config = uvicorn.Config(
        gate,
        http=ImpatientProtocol,
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=_MAX_CONNECTIONS,
        limit_concurrency=_MAX_CONNECTIONS,
        timeout_graceful_shutdown=_CLOSE_SECONDS,
    )
    return Server(config, state, gate, options.shutdown_seconds)


class Server(uvicorn.Server):
    """A server that finishes what runs after the first signal, and ends at the second or when its time is over."""

    def __init__(self, config: uvicorn.Config, state: State, gate: Gate, shutdown_seconds: float) -> None:
        super().__init__(config)
        self.state = state
        self.gate = gate
        self.shutdown_seconds = shutdown_seconds
        self._deadline = 0.0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take no new requests any more; the second signal ends at once."""
        if self.state.is_draining:
            self.should_exit = self.force_exit = True
            return
        self.state.is_draining = True
        self._deadline = time.monotonic() + self.shutdown_seconds

    async def on_tick(self, counter: int) -> bool:
        """Tell whether to end."""
        engine = self.state.engine
        if self.state.is_draining and time.monotonic() > self._deadline:
            engine.stop(is_waiting=False)  # whoever still waits is told so
            self.gate.end_reading()
        is_over = self.state.is_draining and self.gate.num_open == 0
        return bool(await super().on_tick(counter)) or is_over or not engine.is_alive


class ImpatientProtocol(H11Protocol):
    """HTTP that closes connections on which no request begins in time, and answers broken ones in JSON."""

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        """Take data; where they do not complete a head, go on waiting for it."""
        self._head_timer.cancel()
        deadline = self._head_deadline
        super().data_received(data)
        if self._is_without_request() and not self.transport.is_closing():
            self._wait_for_head(deadline)

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        super().on_response_complete()
        self._head_timer.cancel()
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._head_timer.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP."""
        body = to_json(ApiError(400, msg).body()).encode()
        head = (
            "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    def _wait_for_head(self, deadline: float | None = None) -> None:
        self._head_deadline = self.loop.time() + HEAD_SECONDS if deadline is None else deadline
        self._head_timer = self.loop.call_at(self._head_deadline, self._close_without_request)

    def _close_without_request(self) -> None:
        if self._is_without_request():
            self.transport.close()

    def _is_without_request(self) -> bool:
        return self.cycle is None or self.cycle.response_complete


class JsonFormatter(logging.Formatter):
    """One line of JSON for each record; messages of errors, which may quote a request, only where asked for."""

    def __init__(self, *, has_messages: bool = False) -> None:
        super().__init__()
        self.has_messages = has_messages

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        facts: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            facts["traceback"] = (
                self.formatException(record.exc_info) if self.has_messages else _trace(record.exc_info[1])
            )
        return json.dumps(facts)


def _trace(error: BaseException | None) -> str:
    """Return where an error and its causes were raised, without their messages."""
    lines: list[str] = []
    while error is not None:
        lines = [*traceback.format_tb(error.__traceback__), f"{type(error).__qualname__}\n", *lines]
        error = error.__cause__ or error.__context__
    return "".join(lines)


@contextlib.contextmanager
def json_logs(*, has_messages: bool) -> Iterator[None]:
    """Write all logs, and what ends a thread, as JSON lines to standard error inside the ``with``."""
    root = logging.getLogger()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(has_messages=has_messages))
    before, root.handlers = root.handlers, [handler]
    hook, threading.excepthook = threading.excepthook, _log_thread
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    try:
        yield
    finally:
        root.handlers, threading.excepthook = before, hook


def _log_thread(failure: threading.ExceptHookArgs) -> None:
    logger.error("a thread has failed", exc_info=failure.exc_value)


def _listen(options: ServeOptions) -> socket.socket:
    """Return a socket that is bound to the address."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((options.host, options.port))
    except OSError as error:
        listener.close()
        reason = error.strerror or str(error)
        raise CalyrexError(f"cannot listen on {options.host}, port {options.port}: {reason}") from error
    return listener


def _say_start(state: State, listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    logger.info("ready", extra={"facts": {"address": f"http://{shown}:{port}", "models": list(state.served.models)}})
