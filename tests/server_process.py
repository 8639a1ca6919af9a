"""A server in a process of its own, and what it logs."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from openai import OpenAI

CHAT: list[Any] = [{"role": "system", "content": "Obey now."}, {"role": "user", "content": "What is this?"}]


class Server:
    def __init__(self, folder: Path, port: int = 0, *more: str) -> None:
        adapters = [f"--adapter=mine{number}={folder / f'adapter{number}'}" for number in range(2)]
        command = [sys.executable, "-m", "calyrex", "serve", "--model", str(folder / "base"), *adapters]
        self.process = subprocess.Popen(
            [*command, "--port", str(port), "--max-body", "100000", *more], stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr is not None
        self.lines: list[dict[str, Any]] = []
        for line in self.process.stderr:
            with suppress(ValueError):
                self.lines.append(json.loads(line))
                if self.lines[-1]["event"] == "ready":
                    break
        self.address = self.lines[-1]["address"]
        self.port = int(self.address.rpartition(":")[2])
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.client = OpenAI(base_url=f"{self.address}/v1", api_key="any", max_retries=0, timeout=60)

    def _read(self) -> None:
        for line in self.process.stderr or ():
            self.lines.append(json.loads(line))

    def say(self, model: str = "mine0", **options: Any) -> str | None:
        asked = {"temperature": 0, "max_tokens": 8, "messages": CHAT, **options}
        return self.client.chat.completions.create(model=model, **asked).choices[0].message.content

    def memory_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) * 1024

    def end(self, sig: int = signal.SIGTERM) -> int:
        self.process.send_signal(sig)
        code = self.process.wait(60)
        self.reader.join(10)
        return code


@contextmanager
def served(folder: Path, *more: str, port: int = 0) -> Iterator[Server]:
    server = Server(folder, port, *more)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()
        server.reader.join(10)
        server.client.close()
        assert server.process.stderr is not None
        server.process.stderr.close()
