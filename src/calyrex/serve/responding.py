"""``/v1/responses``: OpenAI's newer form of a chat, without its store of conversations."""

import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from calyrex.serve.asking import Asked
from calyrex.serve.calling import Call, CallReader, require_free_choice
from calyrex.serve.completing import event_stream
from calyrex.serve.errors import ApiError, JsonResponse, to_json
from calyrex.serve.exchange import Exchange, while_connected
from calyrex.serve.replies import new_id
from calyrex.serve.request import End, Sampling
from calyrex.serve.schema import ResponsesRequest
from calyrex.serve.state import State, read_body
from calyrex.serve.unsupported import refuse_unsupported

_TEXT_PARTS = ("input_text", "output_text", "text")


async def respond(state: State, request: Request) -> Response:
    """Answer ``POST /v1/responses``."""
    fields = await read_body(request, ResponsesRequest)
    state.note_messages(request, {"instructions": fields.instructions, "input": fields.input})
    require_free_choice(fields.tool_choice)
    if fields.tools and not state.takes_tools:
        raise ApiError(400, "the chat template of this model has no place for tools", param="tools")
    asked = await state.prepare(request, partial(_read, state), fields)
    exchange = state.exchange(request, asked)
    answer = _Responding(fields)
    if fields.stream:
        return event_stream(_stream(state, request, exchange, answer))
    (answered,) = await while_connected(request, exchange.collect(), exchange.cancel)
    state.note_end(request, exchange, [answered.text])
    text = answer.reader.add(answered.text)
    rest, calls = answer.reader.finish()
    return JsonResponse(answer.describe(exchange, answer.items(text + rest, calls), answered.reason))


class _Responding:
    """One response: its name, and the shapes of its parts."""

    def __init__(self, fields: ResponsesRequest) -> None:
        self.fields = fields
        self.id, self.message_id = new_id("resp"), new_id("msg")
        self.created = int(time.time())
        names = frozenset(tool.name for tool in fields.tools or [] if fields.tool_choice != "none")
        self.reader = CallReader(names)

    def message(self, text: str, status: str = "completed") -> dict[str, Any]:
        """Return the message that is said."""
        content = [] if status == "in_progress" else [text_part(text)]
        return {
            "type": "message",
            "id": self.message_id,
            "status": status,
            "role": "assistant",
            "content": content,
        }

    def items(self, text: str, calls: Sequence[Call]) -> list[dict[str, Any]]:
        """Return all that is said: a message, calls, or both."""
        message = [self.message(text)] if text or not calls else []
        return message + [describe_call(call) for call in calls]

    def describe(self, exchange: Exchange | None, output: list[dict[str, Any]], reason: str | None) -> dict[str, Any]:
        """Return the response; without a reason it is not complete."""
        fields = self.fields
        is_cut = reason == "length"
        status = "in_progress" if reason is None else "incomplete" if is_cut else "completed"
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "instructions": fields.instructions,
            "max_output_tokens": fields.max_output_tokens,
            "model": fields.model,
            "output": output,
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "store": False,
            "temperature": 1.0 if fields.temperature is None else fields.temperature,
            "text": {"format": {"type": "text"}},
            "tool_choice": fields.tool_choice or "auto",
            "tools": [tool.model_dump() | {"strict": None} for tool in fields.tools or []],
            "top_p": 1.0 if fields.top_p is None else fields.top_p,
            "truncation": "disabled",
            "usage": None if exchange is None else _usage(exchange),
            "metadata": {},
        }


def text_part(text: str) -> dict[str, Any]:
    """Return a text as a part of a message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def describe_call(call: Call) -> dict[str, Any]:
    """Return a call as an item of a response."""
    return {
        "type": "function_call",
        "id": new_id("fc"),
        "call_id": new_id("call"),
        "name": call.name,
        "arguments": call.arguments,
        "status": "completed",
    }


def _usage(exchange: Exchange) -> dict[str, Any]:
    prompt, new = exchange.asked.num_prompt_tokens, exchange.num_new_tokens
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": new,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + new,
    }


def _read(state: State, fields: ResponsesRequest) -> Asked:
    """Bring a request into the engine's form.

    Raises:
        ApiError: it cannot be answered.
    """
    refuse_unsupported(fields)
    tools = [
        {"type": "function", "function": tool.model_dump(exclude_none=True, exclude={"type"})}
        for tool in fields.tools or []
        if fields.tool_choice != "none"
    ]
    prompt = state.asking.encode(read_input(fields), tools)
    return state.asking.ask(fields, [prompt], fields.max_output_tokens, Sampling(), 1)


def read_input(fields: ResponsesRequest) -> list[dict[str, Any]]:
    """Return the input as the messages of a chat, the instructions as its system prompt.

    Raises:
        ApiError: an item is none that a chat has.
    """
    messages: list[dict[str, Any]] = []
    if fields.instructions:
        messages.append({"role": "system", "content": fields.instructions})
    if isinstance(fields.input, str):
        return [*messages, {"role": "user", "content": fields.input}]
    for number, item in enumerate(fields.input):
        kind = item.get("type", "message")
        if kind == "message":
            messages.append({"role": item.get("role"), "content": _read_content(item.get("content"))})
        elif kind == "function_call":
            function = {"name": item.get("name"), "arguments": item.get("arguments", "{}")}
            call = {"id": item.get("call_id"), "type": "function", "function": function}
            if messages and messages[-1].get("tool_calls"):
                messages[-1]["tool_calls"].append(call)
            else:
                messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        elif kind == "function_call_output":
            output = _read_content(item.get("output"))
            messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": output})
        elif kind != "reasoning":
            raise ApiError(
                400, f"input.{number} has the type {str(kind)[:40]!r}, which is not supported", param="input"
            )
    return messages


def _read_content(content: object) -> object:
    if not isinstance(content, list):
        return content
    is_text = [isinstance(part, dict) and part.get("type") in _TEXT_PARTS for part in content]
    return [
        {"type": "text", "text": part.get("text")} if is_one else part
        for part, is_one in zip(content, is_text, strict=True)
    ]


class _Lines:
    """The events of one streamed response, numbered."""

    def __init__(self, answer: _Responding) -> None:
        self.answer = answer
        self.text = ""
        self._is_begun = False
        self._number = itertools.count()
        self._place = {"item_id": answer.message_id, "output_index": 0, "content_index": 0}

    def line(self, kind: str, **fields: Any) -> str:
        """Return one event."""
        data = to_json({"type": kind, "sequence_number": next(self._number), **fields})
        return f"event: {kind}\ndata: {data}\n\n"

    def begin(self) -> Iterator[str]:
        """Yield the events before the first text; none the second time."""
        if not self._is_begun:
            self._is_begun = True
            item = self.answer.message("", "in_progress")
            yield self.line("response.output_item.added", output_index=0, item=item)
            yield self.line("response.content_part.added", **self._place, part=text_part(""))

    def add(self, text: str) -> Iterator[str]:
        """Yield the events of new text."""
        if text:
            yield from self.begin()
            self.text += text
            yield self.line("response.output_text.delta", **self._place, delta=text, logprobs=[])

    def end(self, items: Sequence[dict[str, Any]]) -> Iterator[str]:
        """Yield the events that end each item."""
        for at, item in enumerate(items):
            if item["type"] == "message":
                yield from self.begin()
                yield self.line("response.output_text.done", **self._place, text=self.text, logprobs=[])
                yield self.line("response.content_part.done", **self._place, part=text_part(self.text))
            else:
                yield from self._call(at, item)
            yield self.line("response.output_item.done", output_index=at, item=item)

    def _call(self, at: int, item: dict[str, Any]) -> Iterator[str]:
        place = {"item_id": item["id"], "output_index": at}
        begun = {**item, "arguments": "", "status": "in_progress"}
        yield self.line("response.output_item.added", output_index=at, item=begun)
        yield self.line("response.function_call_arguments.delta", **place, delta=item["arguments"])
        yield self.line(
            "response.function_call_arguments.done", **place, arguments=item["arguments"], name=item["name"]
        )


async def _stream(state: State, request: Request, exchange: Exchange, answer: _Responding) -> AsyncIterator[str]:
    lines = _Lines(answer)
    reason = "stop"
    calls: list[Call] = []
    try:
        for kind in ("response.created", "response.in_progress"):
            yield lines.line(kind, response=answer.describe(None, [], None))
        async with contextlib.aclosing(exchange.parts()) as parts:
            async for _, event in parts:
                if isinstance(event, End):
                    reason = event.reason
                    new, calls = answer.reader.finish()
                else:
                    new = answer.reader.add(event.text)
                for line in lines.add(new):
                    yield line
        items = answer.items(lines.text, calls)
        for line in lines.end(items):
            yield line
        kind = "response.incomplete" if reason == "length" else "response.completed"
        yield lines.line(kind, response=answer.describe(exchange, items, reason))
    except ApiError as error:
        yield lines.line("error", code=error.code, message=error.message, param=error.param)
    finally:
        exchange.cancel()
        state.note_end(request, exchange, [lines.text])
