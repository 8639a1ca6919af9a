"""Requests on their way into the engine."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.types import Message

from calyrex.serve.app import build_state
from calyrex.serve.errors import ApiError
from calyrex.serve.exchange import LeftError
from calyrex.serve.options import ServeOptions
from calyrex.serve.schema import CheckRequest
from calyrex.serve.state import State
from serving import load_models, save_models

FIELDS = CheckRequest(system="", question="", answer="")


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    served = load_models(save_models(tmp_path))
    state = build_state(served, ServeOptions(max_waiting=3))
    yield state
    state.engine.stop()


def request(leave: asyncio.Event) -> Request:
    async def receive() -> Message:
        await leave.wait()
        return {"type": "http.disconnect"}

    return Request({"type": "http"}, receive)


def blocked(state: State, count: int, then: Callable[[list[asyncio.Task[Any]], list[asyncio.Event]], Any]) -> Any:
    """Let requests be read that take until ``then`` is done, and return its result."""

    async def run() -> Any:
        go = threading.Event()
        leaves = [asyncio.Event() for _ in range(count)]
        tasks = [
            asyncio.create_task(state.prepare(request(leave), lambda _fields: go.wait(30), FIELDS)) for leave in leaves
        ]
        try:
            await asyncio.sleep(0.1)
            return await then(tasks, leaves)
        finally:
            go.set()
            await asyncio.gather(*tasks, return_exceptions=True)
            while state.num_preparing:
                await asyncio.sleep(0.01)

    return asyncio.run(run())


def test_requests_that_are_read_count_as_waiting(state: State) -> None:
    async def ask_another(_tasks: list[asyncio.Task[Any]], _leaves: list[asyncio.Event]) -> int:
        with pytest.raises(ApiError) as error:
            await state.prepare(request(asyncio.Event()), lambda fields: fields, FIELDS)
        return error.value.status

    assert blocked(state, 3, ask_another) == 429
    assert state.num_preparing == 0


def test_a_request_whose_client_has_left_is_not_read(state: State) -> None:
    async def leave_last(tasks: list[asyncio.Task[Any]], leaves: list[asyncio.Event]) -> BaseException | None:
        leaves[-1].set()
        await asyncio.wait({tasks[-1]}, timeout=10)
        assert state.num_preparing == 2
        return tasks[-1].exception()

    assert isinstance(blocked(state, 3, leave_last), LeftError)
    assert state.num_preparing == 0


def test_a_thread_that_reads_counts_to_its_end_though_its_client_has_left(state: State) -> None:
    async def leave_all(tasks: list[asyncio.Task[Any]], leaves: list[asyncio.Event]) -> int:
        for leave in leaves:
            leave.set()
        await asyncio.wait(tasks, timeout=10)
        return state.num_preparing

    assert blocked(state, 3, leave_all) == 2
