"""How a server ends."""

import http.client
import json
import logging
import socket
import sys
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from calyrex.serve.engine import Engine
from calyrex.serve.options import ServeOptions
from calyrex.serve.running import JsonFormatter, serve
from serving import save_models


def find_port() -> int:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def ask(port: int) -> None:
    """Ask as soon as the server is there; its answer does not matter."""
    body = {"model": "base", "messages": [{"role": "user", "content": "What is this?"}]}
    for _ in range(600):
        with suppress(ConnectionRefusedError), closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
            connection.request("POST", "/v1/chat/completions", json.dumps(body))
            connection.getresponse()
            return
        time.sleep(0.1)


def test_a_server_whose_engine_has_failed_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, port = save_models(tmp_path, num_adapters=0), find_port()

    def fail(*_given: Any) -> None:
        raise KeyError("a mistake of the engine")

    monkeypatch.setattr(Engine, "_work", fail)
    client = threading.Thread(target=ask, args=(port,))
    client.start()
    try:
        with pytest.raises(RuntimeError, match="engine has failed"):
            serve(ServeOptions(model=str(folder / "base"), port=port))
    finally:
        client.join()

    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    assert [line["traceback"].splitlines()[-1] for line in lines if line["level"] == "error"] == ["KeyError"]


def test_the_log_tells_where_a_failure_was_and_no_text() -> None:
    said = " ".join(("zebra", "canary"))
    try:
        try:
            int(said)
        except ValueError as error:
            raise KeyError(said) from error
    except KeyError:
        record = logging.LogRecord("x", logging.ERROR, "", 1, "failed", None, sys.exc_info())

    line = JsonFormatter().format(record)

    assert said in JsonFormatter(has_messages=True).format(record)
    trace = json.loads(line)["traceback"]
    assert trace.index("ValueError\n") < trace.index("KeyError\n")
    assert __file__ in trace
    assert said not in line
