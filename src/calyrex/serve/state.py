"""What the endpoints of one server share."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import ValidationError
from starlette.requests import Request

from calyrex.serve.asking import Asked, Asking
from calyrex.serve.engine import Engine
from calyrex.serve.errors import from_validation
from calyrex.serve.exchange import Exchange, refusals, while_connected
from calyrex.serve.metrics import Metrics
from calyrex.serve.schema import Fields
from calyrex.serve.served import Served

AnyFields = TypeVar("AnyFields", bound=Fields)
Result = TypeVar("Result")
_MAX_READERS = 2


@dataclass(eq=False)
class State:
    """What the endpoints of one server share.

    Attributes:
        served: the models.
        engine: answers requests.
        asking: brings requests into the engine's form.
        metrics: what is counted.
        takes_tools: whether the chat template takes tools.
        log_messages: whether what is said goes into the log.
        is_draining: whether the server finishes what runs and takes nothing new.
    """

    served: Served
    engine: Engine
    asking: Asking
    metrics: Metrics
    takes_tools: bool
    log_messages: bool = False
    is_draining: bool = False
    _readers: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_MAX_READERS, "calyrex-reader"))
    _reading: set[Future[Any]] = field(default_factory=set)

    @property
    def num_preparing(self) -> int:
        """Requests that are read, or wait for it."""
        return len(self._reading)

    async def prepare(self, request: Request, read: Callable[[AnyFields], Result], fields: AnyFields) -> Result:
        """Bring a request into the engine's form on a thread; few at a time, and none that could not wait.

        Raises:
            ApiError: the request cannot be answered, too many wait, or the server stops.
            LeftError: the client has left.
        """
        with refusals():
            self.engine.require_room(1 + self.num_preparing)
        future = self._readers.submit(read, fields)
        self._reading.add(future)
        future.add_done_callback(self._reading.discard)  # a thread that reads cannot be stopped, and counts to its end
        return await while_connected(request, asyncio.wrap_future(future))

    def exchange(self, request: Request, asked: Asked) -> Exchange:
        """Let a request wait for its answers, and note in the log who is asked.

        Raises:
            ApiError: too many wait, or the server stops.
        """
        note(request, model=asked.model.name, prompt_tokens=asked.num_prompt_tokens)
        return Exchange(self.engine, asked, self.metrics)

    def note_end(self, request: Request, exchange: Exchange, texts: list[str]) -> None:
        """Note in the log how much was answered, and with ``log_messages`` what."""
        note(request, completion_tokens=exchange.num_new_tokens)
        if self.log_messages:
            note(request, answers=texts)

    def note_messages(self, request: Request, messages: object) -> None:
        """Note what was asked, with ``log_messages`` only."""
        if self.log_messages:
            note(request, messages=messages)


async def read_body(request: Request, kind: type[AnyFields]) -> AnyFields:
    """Read the fields of a request.

    Raises:
        ApiError: the body is no JSON, or a field does not fit.
    """
    try:
        return kind.model_validate_json(await request.body())
    except ValidationError as error:
        raise from_validation(error, kind) from None


def note(request: Request, **facts: Any) -> None:
    """Add facts to the line that the log gets of a request."""
    request.scope.setdefault("calyrex.facts", {}).update(facts)
