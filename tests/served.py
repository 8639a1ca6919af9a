"""A small OpenAI-compatible server for tests, and what it was asked."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Chat = list[dict[str, Any]]


@contextmanager
def serve(answer: Callable[[Chat], str | dict[str, Any]]) -> Iterator[tuple[str, list[Chat]]]:
    """Serve chat completions on a free port; yields its address and the conversations that arrived.

    An answer is a text, a whole message, or ``{"status": .., "error": ..}``.
    """
    asked: list[Chat] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append(request["messages"])
            given = answer(request["messages"])
            message = {"role": "assistant", **(given if isinstance(given, dict) else {"content": given})}
            status = message.pop("status", 200)
            reply = {
                "id": "1",
                "object": "chat.completion",
                "created": 0,
                "model": request["model"],
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6},
            }
            body = json.dumps(reply if status == 200 else {"error": message["error"]}).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
