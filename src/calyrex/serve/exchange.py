"""One HTTP request's talk with the engine: events from the engine's thread, and giving up when the client leaves."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeVar

from starlette.requests import Request

from calyrex.serve.asking import Asked
from calyrex.serve.engine import Engine, QueueFullError, StoppingError
from calyrex.serve.errors import ApiError, queue_full, stopping
from calyrex.serve.metrics import Metrics
from calyrex.serve.request import Chosen, Delta, End, Event, Failure, Generation

Result = TypeVar("Result")


class LeftError(Exception):
    """The client has closed the connection."""


class Part(NamedTuple):
    """Something new of one answer, counted over all prompts of a request.

    Attributes:
        answer: which answer, from 0.
        event: a part of its text, or its end.
    """

    answer: int
    event: Delta | End


class Answered(NamedTuple):
    """A complete answer.

    Attributes:
        text: what was said.
        reason: why it ends, ``stop`` or ``length``.
        chosen: its tokens, where they were asked for.
    """

    text: str
    reason: str
    chosen: list[Chosen]


class Exchange:
    """The answers to one HTTP request.

    Attributes:
        asked: what is asked.
        num_new_tokens: tokens of the answers that are complete.
    """

    def __init__(self, engine: Engine, asked: Asked, metrics: Metrics) -> None:
        """Let the request wait for its answers.

        Raises:
            ApiError: too many wait, or the server stops.
        """
        self.engine = engine
        self.asked = asked
        self.metrics = metrics
        self.num_new_tokens = 0
        self._start = time.monotonic()
        self._events: asyncio.Queue[tuple[int, Event]] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._generations = [
            Generation(
                asked.model,
                prompt.input_ids,
                prompt.system_mask,
                partial(self._receive, number),
                asked.scale,
                asked.sampling,
                asked.num_answers,
            )
            for number, prompt in enumerate(asked.prompts)
        ]
        try:
            with refusals():
                for generation in self._generations:
                    engine.submit(generation)
        except ApiError:
            self.cancel()
            raise
        metrics.prompt_tokens.labels(asked.model.name).inc(asked.num_prompt_tokens)

    def cancel(self) -> None:
        """Give up what is not answered yet."""
        for generation in self._generations:
            self.engine.cancel(generation)

    async def parts(self) -> AsyncGenerator[Part, None]:
        """Yield what is new until all answers are complete; gives up if it is not read to its end.

        Raises:
            ApiError: the engine fails.
        """
        num_open = len(self._generations) * self.asked.num_answers
        is_first = True
        try:
            while num_open:
                number, event = await self._events.get()
                if isinstance(event, Failure):
                    raise stopping() if event.is_stopping else ApiError(500, event.message)
                if is_first:
                    self.metrics.first_token.labels(self.asked.model.name).observe(time.monotonic() - self._start)
                    is_first = False
                if isinstance(event, End):
                    num_open -= 1
                    self.num_new_tokens += event.num_tokens
                    self.metrics.answer_tokens.labels(self.asked.model.name).inc(event.num_tokens)
                yield Part(number * self.asked.num_answers + event.answer, event)
        finally:
            if num_open:
                self.cancel()

    async def collect(self) -> list[Answered]:
        """Return all answers.

        Raises:
            ApiError: the engine fails.
        """
        num_answers = len(self._generations) * self.asked.num_answers
        texts: list[list[str]] = [[] for _ in range(num_answers)]
        chosen: list[list[Chosen]] = [[] for _ in range(num_answers)]
        reasons = [""] * num_answers
        async with contextlib.aclosing(self.parts()) as parts:
            async for index, event in parts:
                if isinstance(event, End):
                    reasons[index] = event.reason
                else:
                    texts[index].append(event.text)
                    chosen[index] += event.chosen
        return [
            Answered("".join(text), reason, tokens) for text, reason, tokens in zip(texts, reasons, chosen, strict=True)
        ]

    def _receive(self, number: int, event: Event) -> None:
        """Take an event from the engine's thread; after the loop has ended nobody waits for it."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._events.put_nowait, (number, event))


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Turn the engine's refusals inside the ``with`` into answers.

    Raises:
        ApiError: too many wait, or the server stops.
    """
    try:
        yield
    except QueueFullError as error:
        raise queue_full() from error
    except StoppingError as error:
        raise stopping() from error


async def while_connected(
    request: Request, work: Awaitable[Result], give_up: Callable[[], object] = lambda: None
) -> Result:
    """Wait for some work, and cancel and give it up when the client closes the connection.

    Raises:
        LeftError: the client has left.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_wait_for_leave(request.receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise LeftError
    finally:
        if not working.done():
            give_up()
        for task in (working, leaving):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, ApiError):
                await task


async def _wait_for_leave(receive: Callable[[], Awaitable[Any]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
