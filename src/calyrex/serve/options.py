"""What ``calyrex serve`` can be told."""

import ipaddress
import os
import re
from dataclasses import dataclass

from calyrex.errors import CalyrexError
from calyrex.options import MAX_SIZE, Dtype, require_at_least, require_at_most

KEY_VARIABLE = "CALYREX_API_KEY"
_MAX_PORT = 65535
_NAME = re.compile(r"[\w.:-]+(?:/[\w.:-]+)*", re.ASCII)


@dataclass(frozen=True)
class ServeOptions:
    """Serve a base and its adapters to every OpenAI client, with a playground at /.

    Attributes:
        model: Base model: smollm2-135m (built in), a hub name, a folder or a GGUF file; null takes the first adapter's
            own, or the built-in one where there is no adapter.
        adapter: Adapters as name=path, the path a folder or a hub name; several with commas or as several flags.
        host: Address to listen on; one that other machines reach needs an API key.
        port: Port to listen on; 0 takes a free one.
        api_key_env: Environment variable that holds the API key; null takes CALYREX_API_KEY where it is set.
        max_batch: Answers that are generated at the same time at most.
        max_batch_tokens: Tokens of their prompts and answers at most, padding included; it bounds the memory they take.
        max_waiting: Answers that may wait for a place at most; further requests get the status 429.
        max_new_tokens: Longest answer in tokens, also where a request asks for more or names no number.
        context: Longest conversation with its answer in tokens; null takes the model's own.
        max_body: Largest request in bytes.
        shutdown_seconds: How long running answers may go on after a request to stop.
        log_messages: Write what is asked and answered into the log.
        dtype: Number format of the base.
    """

    model: str | None = None
    adapter: list[str] | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    api_key_env: str | None = None
    max_batch: int = 32
    max_batch_tokens: int = 65536
    max_waiting: int = 64
    max_new_tokens: int = 1024
    context: int | None = None
    max_body: int = 2**20
    shutdown_seconds: float = 30.0
    log_messages: bool = False
    dtype: Dtype = "auto"

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        require_at_least(self, 1, "max_batch", "max_batch_tokens", "max_waiting")
        require_at_least(self, 1, "max_new_tokens", "max_body")
        require_at_least(self, 2, "context")
        require_at_least(self, 0, "port", "shutdown_seconds")
        require_at_most(self, _MAX_PORT, "port")
        require_at_most(self, MAX_SIZE, "max_batch", "max_batch_tokens", "max_waiting", "max_new_tokens", "context")
        if self.model is not None and not self.model.strip():
            raise CalyrexError("model must name a base model, got an empty text")
        self.adapters()

    def adapters(self) -> dict[str, str]:
        """Return the path of each adapter by its name.

        Raises:
            CalyrexError: One is not of the form ``name=path``, or two have the same name.
        """
        paths: dict[str, str] = {}
        for given in self.adapter or []:
            name, _, path = given.partition("=")
            if not _NAME.fullmatch(name) or not path.strip():
                raise CalyrexError(f"adapter must be name=path, such as mine=runs/mine, got {given!r}")
            if name in paths:
                raise CalyrexError(f"two adapters have the name {name}: give each its own")
            paths[name] = path
        return paths

    def api_key(self) -> str | None:
        """Return the API key, None where there is none.

        Raises:
            CalyrexError: The named variable is not set, or other machines could reach a server without a key.
        """
        key = os.environ.get(self.api_key_env or KEY_VARIABLE, "").strip()
        if self.api_key_env and not key:
            raise CalyrexError(f"api_key_env names {self.api_key_env}, which is not set or empty")
        if not key.isascii() or not key.isprintable():
            raise CalyrexError("an API key may hold printable ASCII characters only, as HTTP headers do")
        if not key and not is_loopback(self.host):
            raise CalyrexError(
                f"a server on {self.host} can be reached from other machines and needs an API key: "
                f"set {KEY_VARIABLE}, or listen on 127.0.0.1"
            )
        return key or None


def is_loopback(host: str) -> bool:
    """Tell whether an address is one that only this machine reaches."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
