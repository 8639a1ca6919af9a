"""``/v1/calyrex/listen``: which words of the system prompt the blocks listened to at each word of an answer."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from peft import PeftModel
from starlette.requests import Request
from starlette.responses import Response

from calyrex.analysis.blocks import join_forwards, map_attention, recorded
from calyrex.analysis.forced import ForcedRun
from calyrex.conversation import check_messages
from calyrex.errors import CalyrexError
from calyrex.masking import SYSTEM_ROLES
from calyrex.serve.asking import content_texts
from calyrex.serve.errors import ApiError, JsonResponse
from calyrex.serve.exchange import refusals, while_connected
from calyrex.serve.schema import ListenRequest
from calyrex.serve.served import Served, ServedModel
from calyrex.serve.state import State, note, read_body
from calyrex.vocabulary import encode_messages, fast_tokenizer

MAX_ANSWER_TOKENS = 1024
MAX_WEIGHTS = 2**20
"""Weights of one block that are returned at most."""


class Listened(NamedTuple):
    """A conversation with its answer, as tokens.

    Attributes:
        run: what the model is run on.
        system_tokens: text of the tokens of the system prompt.
        answer_tokens: text of the tokens of the answer.
    """

    run: ForcedRun
    system_tokens: list[str]
    answer_tokens: list[str]


async def listen(state: State, request: Request) -> Response:
    """Answer ``POST /v1/calyrex/listen``."""
    fields = await read_body(request, ListenRequest)
    state.note_messages(request, fields.messages)
    model = state.asking.find_model(fields.model)
    if model.adapter is None:
        raise ApiError(400, f"{model.name} is the base and has no blocks that listen", param="model")
    listened = await state.prepare(request, partial(_read, state), fields)
    scale = model.scale if fields.scale is None else fields.scale
    note(request, model=model.name, prompt_tokens=listened.run.num_tokens)
    with refusals():
        future = state.engine.run(lambda: measure(state.served, model, listened, scale))
        weights = await while_connected(request, asyncio.wrap_future(future), future.cancel)
    return JsonResponse(
        {
            "blocks": list(model.blocks),
            "system_tokens": listened.system_tokens,
            "answer_tokens": listened.answer_tokens,
            "weights": {str(number): rows for number, rows in weights.items()},
        }
    )


def measure(served: Served, model: ServedModel, listened: Listened, scale: float) -> dict[int, list[list[float]]]:
    """Return the weights of each answer token over the system tokens, by block, means over the heads."""
    run = listened.run
    if not listened.system_tokens:
        return {number: [[] for _ in listened.answer_tokens] for number in model.blocks}
    run = run.to(served.model.device)
    served.activate(model.adapter)
    tuner: Any = served.model.base_model
    ids = torch.cat([run.prompt, run.tail], dim=1)
    system_mask = torch.nn.functional.pad(run.system_mask, (0, run.tail.shape[1]))
    with recorded(served.model) as kept:
        tuner(ids, system_mask=system_mask, scale=scale, use_cache=False, logits_to_keep=1)
    return map_attention(cast(PeftModel, served.model), join_forwards(kept), run)


def _read(state: State, fields: ListenRequest) -> Listened:
    """Tokenise a conversation and its answer.

    Raises:
        ApiError: the template cannot render them, or they are too long.
    """
    served = state.served
    turns: list[dict[str, Any]] = [
        {key: message[key] for key in ("role", "content") if key in message} for message in fields.messages
    ]
    state.asking.refuse_long([*content_texts(turns), fields.answer], "messages")
    try:
        plain = check_messages([*turns, {"role": "assistant", "content": fields.answer}])
        tokenizer = fast_tokenizer(served.tokenizer)
        chat = encode_messages(tokenizer, plain, None, add_generation_prompt=False)
    except CalyrexError as error:
        raise ApiError(400, str(error), param="messages") from error
    is_system = {owner for owner, message in enumerate(plain) if message["role"] in SYSTEM_ROLES}
    system = [at for at, token in enumerate(chat.tokens) if token.owners and token.owners <= is_system]
    answer = [at for at, token in enumerate(chat.tokens) if token.owners == {len(plain) - 1}]
    if not answer or answer[0] < 2 or len(chat.tokens) > served.context:
        raise ApiError(400, f"the conversation has {len(chat.tokens)} tokens, at most {served.context} are possible")
    if len(answer) > MAX_ANSWER_TOKENS or len(answer) * len(system) > MAX_WEIGHTS:
        raise ApiError(
            400,
            f"system prompt and answer are too long for a map: {len(system)} and {len(answer)} tokens",
            param="answer",
        )
    first, last = answer[0], answer[-1]
    ids = torch.tensor([token.id for token in chat.tokens])
    mask = torch.zeros(1, first - 1, dtype=torch.bool)
    mask[0, [at for at in system if at < first - 1]] = True
    run = ForcedRun(ids[None, : first - 1], ids[None, first - 1 : last], ids[first : last + 1], mask, ())
    spans = [(chat.tokens[at].start, chat.tokens[at].end) for at in system if at < first - 1]
    said = [(chat.tokens[at].start, chat.tokens[at].end) for at in range(first, last + 1)]
    return Listened(run, _spell(chat.text, spans), _spell(chat.text, said))


def _spell(text: str, spans: Sequence[tuple[int, int]]) -> list[str]:
    """Return the characters of each token; the first of several tokens of one character gets it."""
    pieces: list[str] = []
    done = 0
    for start, end in spans:
        pieces.append(text[max(start, done) : end])
        done = max(done, end)
    return pieces
