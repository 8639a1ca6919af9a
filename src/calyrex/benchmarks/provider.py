"""A model provider for Inspect AI: a base with or without an adapter in this process, answering in batches.

Samples wait until all that can ask have asked; then those of similar length are answered together, the longest first.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, cast

import anyio
import anyio.to_thread
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    modelapi,
)
from inspect_ai.tool import ToolChoice, ToolInfo

from calyrex.base import base_sizes
from calyrex.errors import CalyrexError
from calyrex.generation import Generated, Prefill, answer_batch, context_length, group_by_length
from calyrex.masking import Message
from calyrex.models import load_anchored, load_base, load_tokenizer
from calyrex.options import Dtype
from calyrex.span import encode_chat
from calyrex.tuner import CalyrexModel

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_DEFAULT_NEW_TOKENS = 512
_CACHE_BYTES = 4 * 2**30
"""Keys and values of one batch at most, longest answers included: some 130 rows of 700 tokens in SmolLM2."""
_QUIET_S = 0.1
_NO_LIMIT = 2**30
MAX_CONNECTIONS = 100_000
"""Samples that may wait for their answer at a time: all, so that batches are chosen among all."""


class LocalModel(ModelAPI):
    """A model in this process; its prompts are encoded with the system prompt marked.

    Attributes:
        prefill: What fills the cache with prompts; None leaves it to the model.
    """

    def __init__(  # noqa: PLR0913 - Inspect hands these over by name
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig = GenerateConfig(),  # noqa: B008 - as Inspect's providers declare it
        base: str | None = None,
        adapter: str | None = None,
        scale: float | None = None,
        dtype: Dtype = "auto",
    ) -> None:
        """Name the model; it is loaded when it is first used, since Inspect makes instances only to ask their names.

        Args:
            model_name: Name in tables and logs; the base where none is given.
            base_url: Not used.
            api_key: Not used.
            config: Inspect's defaults for generation.
            base: Base model as for ``load_base``.
            adapter: Folder or hub name of an adapter; None takes the base alone.
            scale: Strength of the blocks; None takes the adapter's own.
            dtype: Number format of the base.
        """
        super().__init__(model_name, base_url, api_key, config=config)
        self.base = base or model_name
        self.adapter = adapter
        self.scale = scale
        self.dtype: Dtype = dtype
        self.prefill: Prefill | None = None
        self._pending: list[_Request] = []
        self._leader: _Request | None = None

    @cached_property
    def tokenizer(self) -> "PreTrainedTokenizerBase":
        """The base's tokenizer.

        Raises:
            CalyrexError: There is no such model, or its tokenizer cannot be read.
        """
        return load_tokenizer(self.base)

    @cached_property
    def model(self) -> "PreTrainedModel | PeftModel":
        """The base, with the adapter if there is one.

        Raises:
            CalyrexError: Base or adapter is missing or damaged, they do not fit, or there are no blocks to scale.
        """
        if not self.adapter:
            return load_base(self.base, dtype=self.dtype)
        model = load_anchored(self.base, self.adapter, dtype=self.dtype)
        if self.scale is not None:
            if not isinstance(model.base_model, CalyrexModel):
                raise CalyrexError(f"scale is the strength of blocks, and the adapter {self.adapter} has none")
            model.base_model.set_scale(self.scale)
        return model

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        """Answer a conversation greedily.

        Raises:
            CalyrexError: Sampling, stop texts or tools are asked for, or the chat template cannot hold the messages.
        """
        if tools or config.temperature or config.stop_seqs or (config.num_choices or 1) > 1:
            raise CalyrexError("models in this process answer greedily and call no tools; use a served model for those")
        messages = [_plain(message) for message in input]
        length = encode_chat(self.tokenizer, messages)["input_ids"].shape[1]
        room = (context_length(self.model) or length + _NO_LIMIT) - length
        if room < 1:
            return ModelOutput.from_content(self.model_name, "", stop_reason="model_length")
        max_new_tokens = min(config.max_tokens or _DEFAULT_NEW_TOKENS, room)
        request = _Request(messages, length, max_new_tokens, place=(-length, str(messages)))
        answer = await self._await_answer(request)
        output = ModelOutput.from_content(
            self.model_name, answer.text, stop_reason="max_tokens" if answer.is_cut else "stop"
        )
        total = answer.num_prompt_tokens + answer.num_new_tokens
        output.usage = ModelUsage(
            input_tokens=answer.num_prompt_tokens, output_tokens=answer.num_new_tokens, total_tokens=total
        )
        return output

    def max_connections(self) -> int:
        """Return how many samples may wait for an answer at a time: all of them."""
        return MAX_CONNECTIONS

    @cached_property
    def _batch_tokens(self) -> int:
        sizes = base_sizes(cast("PreTrainedModel", self.model))  # an adapter shows its base's configuration
        values_per_token = 2 * self.model.config.get_text_config().num_hidden_layers * sizes["num_key_value_heads"]
        bytes_per_token = values_per_token * sizes["head_dim"] * self.model.dtype.itemsize
        return int(_CACHE_BYTES // bytes_per_token)

    async def _await_answer(self, request: "_Request") -> Generated:
        """Wait for an answer; one of those who wait leads, and answers batch after batch until it has its own."""
        self._pending.append(request)
        try:
            if self._leader is None:
                self._leader = request
            if self._leader is not request:
                await request.is_called.wait()
            while request.answer is None:
                await self._answer_next()
            return request.answer
        finally:
            if request in self._pending:
                self._pending.remove(request)
            if self._leader is request:
                self._leader = self._pending[0] if self._pending else None
                if self._leader is not None:
                    self._leader.is_called.set()

    async def _answer_next(self) -> None:
        num_waiting = -1
        while num_waiting != len(self._pending):  # a batch is best chosen among all, and then is always the same
            num_waiting = len(self._pending)
            await anyio.sleep(_QUIET_S)
        group = _choose_group(self._pending, self._batch_tokens)
        cancelled = threading.Event()
        try:
            answers = await anyio.to_thread.run_sync(self._answer, group, cancelled, abandon_on_cancel=True)
        finally:
            cancelled.set()
        for request, answer in zip(group, answers, strict=True):
            request.answer = answer
            request.is_called.set()
        self._pending = [request for request in self._pending if request.answer is None]

    def _answer(self, group: Sequence["_Request"], cancelled: threading.Event) -> list[Generated]:
        return answer_batch(
            self.model,
            self.tokenizer,
            [request.messages for request in group],
            max_new_tokens=group[0].max_new_tokens,
            is_cancelled=cancelled.is_set,
            prefill=self.prefill,
        )


@dataclass(eq=False)
class _Request:
    """A conversation that waits for its answer."""

    messages: list[Message]
    num_prompt_tokens: int
    max_new_tokens: int
    place: tuple[int, str]
    """Where it stands among others, whenever it arrived: the longest first, then by its text."""

    answer: Generated | None = None
    is_called: anyio.Event = field(default_factory=anyio.Event)
    """Set when it has its answer, or is to lead."""

    @property
    def num_tokens(self) -> int:
        """Tokens of the conversation with its longest answer."""
        return self.num_prompt_tokens + self.max_new_tokens


def _choose_group(pending: Sequence[_Request], batch_tokens: int) -> list[_Request]:
    """Choose the longest prompt and those next to it that may grow by as many tokens and are half as long at least."""
    ordered = sorted(pending, key=lambda request: request.place)
    first = ordered[0]
    alike = [
        request
        for request in ordered
        if request.max_new_tokens == first.max_new_tokens and 2 * request.num_tokens >= first.num_tokens
    ]
    lengths = [request.num_tokens for request in alike]
    return [alike[i] for i in next(group_by_length(lengths, batch_tokens))]


def _plain(message: ChatMessage) -> Message:
    if message.role == "tool" or (isinstance(message, ChatMessageAssistant) and message.tool_calls):
        raise CalyrexError("models in this process call no tools; use a served model for conversations with tool calls")
    return {"role": message.role, "content": message.text}


@modelapi(name="calyrex")
def calyrex() -> type[ModelAPI]:
    """Give Inspect the provider ``calyrex/<base>``; ``-M adapter=FOLDER`` puts an adapter on it."""
    return LocalModel
