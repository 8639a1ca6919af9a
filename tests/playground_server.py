"""A small server that speaks what the playground asks for, and what it was asked."""

import json
import re
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import calyrex

PAGE = Path(calyrex.__file__).parent / "serve" / "page"
FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/playground.css": ("playground.css", "text/css; charset=utf-8"),
    "/playground.js": ("playground.js", "text/javascript; charset=utf-8"),
    "/playground.svg": ("playground.svg", "image/svg+xml"),
}
HOLD, CUT, BREAK = "<hold>", "<cut>", "<break>"
"""In the pieces of an answer: wait for the test, end without an end, and fall short of what was announced."""

BASE, MINE, BLOCKS = "smollm2-135m", "mine", [26, 28, 30]
PATIENCE_S = 20


def describe_model(name: str, scale: float | None = None) -> dict[str, Any]:
    own = {"is_base": scale is None, "base": BASE, "blocks": [] if scale is None else BLOCKS, "scale": scale}
    return {"id": name, "object": "model", "created": 0, "owned_by": "calyrex", "calyrex": own}


def cut_tokens(text: str) -> list[str]:
    """Cut a text as a tokenizer does: words in parts with the space before them, rare signs in halves."""
    parts = re.findall(r" ?\w{1,4}| ?[^\w\s]|\s", text)
    return [half for part in parts for half in (["\ufffd"] * 2 if max(part) > "\uffff" else [part])]


def weigh(block: int, token: int, num_system: int) -> list[float]:
    raw = [1 + (block * 7 + token * 5 + place * place * 3) % 23 for place in range(num_system)]
    return [value / sum(raw) for value in raw]


def check_rules(system: str, answer: str) -> list[dict[str, Any]]:
    kept = {"Answer in capital letters only.": answer == answer.upper()}
    kept['End every answer with "ROGER".'] = answer.rstrip(".").endswith("ROGER")
    return [{"text": text, "family": "form", "kept": value} for text, value in kept.items() if text in system]


@dataclass
class Served:
    """What the server says, and what it was asked.

    Attributes:
        pieces: The pieces of each model's answer; an error object is sent as one.
        refusals: Status, ``Retry-After`` and message for the next requests of a path.
        asked: Path and body of each POST, in the order of arrival.
        gone: Models whose readers went away in the middle of an answer.
    """

    pieces: dict[str, list[Any]]
    models: list[dict[str, Any]] = field(default_factory=lambda: [describe_model(BASE), describe_model(MINE, 1.0)])
    key: str | None = None
    ending: str = "stop"
    refusals: dict[str, deque[tuple[int, str | None, str]]] = field(default_factory=dict)
    gate: threading.Event = field(default_factory=threading.Event)
    rules: list[dict[str, Any]] | None = None
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    address: str = ""

    def bodies(self, path: str, model: str | None = None) -> list[dict[str, Any]]:
        return [body for asked, body in self.asked if asked == path and model in (None, body.get("model"))]

    def refuse(self, path: str, status: int, after: str | None = None, message: str = "no", times: int = 1) -> None:
        self.refusals[path] = deque([(status, after, message)] * times)

    def listen(self, body: dict[str, Any]) -> dict[str, Any]:
        (system,) = [message["content"] for message in body["messages"] if message["role"] == "system"]
        heard, said = cut_tokens(system), [*cut_tokens(body["answer"]), "<|im_end|>"]
        weights = {str(block): [weigh(block, token, len(heard)) for token in range(len(said))] for block in BLOCKS}
        return {"blocks": BLOCKS, "system_tokens": heard, "answer_tokens": said, "weights": weights}


class Handler(BaseHTTPRequestHandler):
    served: Served

    def do_GET(self) -> None:
        if self.path in FILES:
            name, kind = FILES[self.path]
            self.reply(200, (PAGE / name).read_bytes(), {"Content-Type": kind})
        elif self.path == "/v1/models":
            if not self.is_refused():
                self.say({"object": "list", "data": self.served.models})
        else:
            self.reply(204, b"", {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.served.asked.append((self.path, body))
        if self.is_refused():
            return
        if self.path == "/v1/chat/completions":
            self.stream(body["model"])
        elif self.path == "/v1/calyrex/listen":
            self.say(self.served.listen(body))
        else:
            rules = self.served.rules
            self.say({"rules": check_rules(body["system"], body["answer"]) if rules is None else rules})

    def is_refused(self) -> bool:
        waiting = self.served.refusals.get(self.path)
        wrong_key = self.served.key and self.headers["Authorization"] != f"Bearer {self.served.key}"
        if not waiting and not wrong_key:
            return False
        status, after, message = waiting.popleft() if waiting else (401, None, "wrong key")
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
        self.say({"error": error}, status, {"Retry-After": after} if after else {})
        return True

    def stream(self, model: str) -> None:
        pieces = self.served.pieces[model]
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        if BREAK in pieces:
            self.send_header("Content-Length", "1000000")
        self.end_headers()
        try:
            for piece in pieces:
                if piece in (CUT, BREAK):
                    return
                if piece == HOLD:
                    self.served.gate.wait(PATIENCE_S)
                else:
                    self.send(piece if isinstance(piece, dict) else self.delta({"content": piece}))
            self.send(self.delta({}, self.served.ending))
            self.wfile.write(b"data: [DONE]\n\n")
        except (BrokenPipeError, ConnectionResetError):
            self.served.gone.append(model)

    def delta(self, delta: dict[str, Any], ending: str | None = None) -> dict[str, Any]:
        return {"choices": [{"index": 0, "delta": delta, "finish_reason": ending}]}

    def send(self, chunk: dict[str, Any]) -> None:
        """Send an event in two pieces, cut wherever it falls, after a comment that keeps the line open."""
        event = (
            b": here\n\ndata: " + json.dumps(chunk, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\r\n\r\n"
        )
        for part in (event[: len(event) // 2], event[len(event) // 2 :]):
            self.wfile.write(part)
            self.wfile.flush()

    def say(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.reply(status, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})})

    def reply(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        headers |= {"Content-Length": str(len(body)), "Content-Security-Policy": "default-src 'self'"}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serve_playground(**pieces: list[Any]) -> Iterator[Served]:
    """Serve the page on a free port; ``base`` and ``mine`` are the pieces of the answers."""
    served = Served({BASE: pieces.pop("base", ["The capital", " is Paris."]), **pieces})
    served.pieces.setdefault(MINE, ["THE CAPITAL", " IS PARIS.", " ROGER"])
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Mine", (Handler,), {"served": served}))
    served.address = f"http://127.0.0.1:{server.server_port}/"
    thread = threading.Thread(target=server.serve_forever, daemon=True, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield served
    finally:
        served.gate.set()
        server.shutdown()
        server.server_close()
        thread.join()
