"""``/v1/chat/completions`` and ``/v1/completions``."""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from calyrex.serve import replies
from calyrex.serve.calling import CallReader, require_free_choice
from calyrex.serve.errors import ApiError, JsonResponse, to_json
from calyrex.serve.exchange import Answered, Exchange, while_connected
from calyrex.serve.request import End
from calyrex.serve.schema import ChatRequest, CompletionRequest, SeveralRequest
from calyrex.serve.state import State, read_body

Choices = list[dict[str, Any]]


async def answer_chat(state: State, request: Request) -> Response:
    """Answer ``POST /v1/chat/completions``."""
    fields = await read_body(request, ChatRequest)
    state.note_messages(request, fields.messages)
    require_free_choice(fields.tool_choice)
    if fields.tools and not state.takes_tools:
        raise ApiError(400, "the chat template of this model has no place for tools", param="tools")
    asked = await state.prepare(request, state.asking.read_chat, fields)
    exchange = state.exchange(request, asked)
    names = frozenset(tool.function.name for tool in fields.tools or [] if fields.tool_choice != "none")
    if fields.stream:
        return event_stream(_stream_chat(state, request, exchange, fields, names))
    answers = await while_connected(request, exchange.collect(), exchange.cancel)
    state.note_end(request, exchange, [answer.text for answer in answers])
    envelope = replies.Envelope("chatcmpl", "chat.completion", fields.model)
    choices = [_chat_choice(state, index, answer, names) for index, answer in enumerate(answers)]
    return JsonResponse(envelope.wrap(choices, usage=replies.usage_of(exchange)))


async def answer_text(state: State, request: Request) -> Response:
    """Answer ``POST /v1/completions``."""
    fields = await read_body(request, CompletionRequest)
    state.note_messages(request, fields.prompt)
    asked = await state.prepare(request, state.asking.read_completion, fields)
    exchange = state.exchange(request, asked)
    if fields.stream:
        return event_stream(_stream_text(state, request, exchange, fields))
    answers = await while_connected(request, exchange.collect(), exchange.cancel)
    state.note_end(request, exchange, [answer.text for answer in answers])
    envelope = replies.Envelope("cmpl", "text_completion", fields.model)
    choices = [_text_choice(state, index, answer, exchange, 0) for index, answer in enumerate(answers)]
    return JsonResponse(envelope.wrap(choices, usage=replies.usage_of(exchange)))


def event_stream(lines: AsyncIterator[str]) -> Response:
    """Return server-sent events."""
    return StreamingResponse(lines, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


def _chat_choice(state: State, index: int, answer: Answered, names: frozenset[str]) -> dict[str, Any]:
    reader = CallReader(names)
    text = reader.add(answer.text)
    rest, calls = reader.finish()
    logprobs = replies.chat_logprobs(state.served.tokenizer, answer.chosen) if answer.chosen else None
    return replies.chat_choice(index, text + rest, calls, answer.reason, logprobs)


def _text_choice(state: State, index: int, answer: Answered, exchange: Exchange, offset: int) -> dict[str, Any]:
    is_asked = exchange.asked.sampling.num_likely is not None
    logprobs = replies.text_logprobs(state.served.tokenizer, answer.chosen, offset) if is_asked else None
    return replies.text_choice(index, answer, logprobs)


async def _stream_chat(
    state: State, request: Request, exchange: Exchange, fields: ChatRequest, names: frozenset[str]
) -> AsyncIterator[str]:
    envelope = replies.Envelope("chatcmpl", "chat.completion.chunk", fields.model)
    readers = [CallReader(names) for _ in range(exchange.asked.num_answers)]

    async def choices() -> AsyncGenerator[Choices, None]:
        for index in range(len(readers)):
            yield [replies.chat_delta(index, {"role": "assistant", "content": ""})]
        async with contextlib.aclosing(exchange.parts()) as parts:
            async for index, event in parts:
                if isinstance(event, End):
                    rest, calls = readers[index].finish()
                    if rest:
                        yield [replies.chat_delta(index, {"content": rest})]
                    if calls:
                        described = enumerate(replies.describe_calls(calls))
                        numbered = [{"index": number, **call} for number, call in described]
                        yield [replies.chat_delta(index, {"tool_calls": numbered})]
                    yield [replies.chat_delta(index, {}, "tool_calls" if calls else event.reason)]
                    continue
                text = readers[index].add(event.text)
                logprobs = replies.chat_logprobs(state.served.tokenizer, event.chosen) if event.chosen else None
                if text or logprobs:
                    yield [replies.chat_delta(index, {"content": text}, logprobs=logprobs)]

    async for line in _stream(state, request, exchange, envelope, fields, choices()):
        yield line


async def _stream_text(
    state: State, request: Request, exchange: Exchange, fields: CompletionRequest
) -> AsyncIterator[str]:
    envelope = replies.Envelope("cmpl", "text_completion", fields.model)

    async def choices() -> AsyncGenerator[Choices, None]:
        lengths: dict[int, int] = {}
        async with contextlib.aclosing(exchange.parts()) as parts:
            async for index, event in parts:
                if isinstance(event, End):
                    yield [replies.text_choice(index, Answered("", event.reason, []), None)]
                    continue
                answer = Answered(event.text, "", list(event.chosen))
                yield [_text_choice(state, index, answer, exchange, lengths.get(index, 0))]
                lengths[index] = lengths.get(index, 0) + len(event.text)

    async for line in _stream(state, request, exchange, envelope, fields, choices()):
        yield line


async def _stream(
    state: State,
    request: Request,
    exchange: Exchange,
    envelope: replies.Envelope,
    fields: SeveralRequest,
    choices: AsyncGenerator[Choices, None],
) -> AsyncIterator[str]:
    """Yield the events of a stream, the usage where it is asked for, and the end."""
    has_usage = bool(fields.stream_options and fields.stream_options.include_usage)
    more: dict[str, Any] = {"usage": None} if has_usage else {}
    texts: list[str] = []
    try:
        async with contextlib.aclosing(choices):
            async for some in choices:
                texts += [str(each.get("text", each.get("delta", {}).get("content") or "")) for each in some]
                yield f"data: {to_json(envelope.wrap(some, **more))}\n\n"
        if has_usage:
            yield f"data: {to_json(envelope.wrap([], usage=replies.usage_of(exchange)))}\n\n"
        yield "data: [DONE]\n\n"
    except ApiError as error:
        yield f"data: {to_json(error.body())}\n\n"
    finally:
        exchange.cancel()
        state.note_end(request, exchange, ["".join(texts)])
