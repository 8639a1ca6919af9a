"""``/v1/calyrex/listen``: which words of the system prompt the blocks listened to at each word of an answer."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

import torch
from peft import PeftModel
from starlette.requests import Request
from starlette.responses import Response
from torch import Tensor

from calyrex.analysis.blocks import join_forwards, map_attention, recorded
from calyrex.analysis.forced import ForcedRun
from calyrex.conversation import check_messages
from calyrex.errors import CalyrexError
from calyrex.masking import SYSTEM_ROLES
from calyrex.serve.asking import content_texts
from calyrex.serve.errors import ApiError, JsonResponse
from calyrex.serve.exchange import refusals, while_connected
from calyrex.serve.prefill import PART_TOKENS
from calyrex.serve.rows import empty_cache
from calyrex.serve.schema import ListenRequest
from calyrex.serve.served import Served, ServedModel
from calyrex.serve.state import State, note, read_body
from calyrex.vocabulary import encode_messages, fast_tokenizer

Result = TypeVar("Result")
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
    hearing = Hearing(state.served, model, listened, scale)
    with refusals():
        while not hearing.is_done:
            await _take_turn(state, request, hearing.advance)
        weights = await _take_turn(state, request, hearing.weights)
    return JsonResponse(
        {
            "blocks": list(model.blocks),
            "system_tokens": listened.system_tokens,
            "answer_tokens": listened.answer_tokens,
            "weights": {str(number): rows for number, rows in weights.items()},
        }
    )


class Hearing:
    """A conversation that is read in parts, between which running answers go on."""

    def __init__(self, served: Served, model: ServedModel, listened: Listened, scale: float) -> None:
        """Prepare; nothing is computed yet.

        Args:
            served: the models.
            model: the one whose blocks listen.
            listened: what is read.
            scale: strength of the blocks.
        """
        self.served = served
        self.model = model
        self.run = listened.run.to(served.model.device)
        self.scale = scale
        self.num_read = 0 if listened.system_tokens else listened.run.num_tokens  # nothing to listen to
        self._ids = torch.cat([self.run.prompt, self.run.tail], dim=1)
        self._system_mask = torch.nn.functional.pad(self.run.system_mask, (0, self.run.tail.shape[1]))
        self._cache = empty_cache(served.num_layers)
        self._kept: dict[int, tuple[list[Tensor], list[Tensor]]] = {}

    @property
    def is_done(self) -> bool:
        """Whether all is read."""
        return self.num_read >= self._ids.shape[1]

    def advance(self) -> None:
        """Read one part."""
        part = slice(self.num_read, min(self._ids.shape[1], self.num_read + PART_TOKENS))
        positions = torch.arange(part.stop, device=self._ids.device)[None]
        self.served.activate(self.model.adapter)
        with recorded(self.served.model) as kept:
            self.served.forward(
                self.model,
                self._ids[:, part],
                self._cache,
                attention_mask=torch.ones_like(positions),
                position_ids=positions[:, part],
                scales=[self.scale],
                system_mask=self._system_mask[:, part],
            )
        for number, streams in kept.items():
            for states, new in zip(self._kept.setdefault(number, ([], [])), streams, strict=True):
                states.extend(new)
        self.num_read = part.stop

    def weights(self) -> dict[int, list[list[float]]]:
        """Return the weights of each answer token over the system tokens, by block, means over the heads."""
        if not self._kept:
            return {number: [[] for _ in range(self.run.tail.shape[1])] for number in self.model.blocks}
        self.served.activate(self.model.adapter)
        return map_attention(cast(PeftModel, self.served.model), join_forwards(self._kept), self.run)


async def _take_turn(state: State, request: Request, task: Callable[[], Result]) -> Result:
    future = state.engine.run(task)
    return await while_connected(request, asyncio.wrap_future(future), future.cancel)


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
