"""A model that answers conversations token by token, and remembers what it has read of them."""

import contextlib
import itertools
from dataclasses import dataclass
from typing import Any

import torch
from peft import PeftModel
from transformers import BatchEncoding, DynamicCache, PreTrainedTokenizerBase, TextStreamer

from calyrex.chat.terminal import write
from calyrex.errors import CalyrexError
from calyrex.generation import context_length, end_ids
from calyrex.masking import Message
from calyrex.models import BUILTIN, load_anchored, load_base, load_tokenizer, recorded_base
from calyrex.options import ChatOptions
from calyrex.span import encode_chat
from calyrex.tuner import CalyrexModel


@dataclass(frozen=True)
class Answer:
    """What a model said.

    Attributes:
        text: the answer, without control tokens.
        note: why it ends early, None if it does not.
        input_ids: token ids of the conversation and the answer; empty if the answer was stopped.
    """

    text: str
    note: str | None
    input_ids: list[int]


@dataclass(frozen=True)
class Reading:
    """What a model has read so far.

    Attributes:
        cache: keys and values of the tokens.
        tokens: id of each token in the cache, and whether it belongs to the system prompt.
        scale: strength of the blocks that read them.
    """

    cache: DynamicCache
    tokens: list[tuple[int, bool]]
    scale: float


class Speaker:
    """A model that answers conversations on standard output, token by token."""

    def __init__(self, options: ChatOptions) -> None:
        """Load model and tokenizer.

        Raises:
            CalyrexError: base or adapter is missing or damaged, or they do not fit.
        """
        base = options.base or (recorded_base(options.adapter) if options.adapter else BUILTIN)
        self.tokenizer = load_tokenizer(base)
        self.model: Any  # what PEFT's generate takes and returns is not typed
        if options.adapter:
            self.model = load_anchored(base, options.adapter, dtype=options.dtype)
        else:
            self.model = load_base(base, dtype=options.dtype)
        self.name = f"{base} with {options.adapter}" if options.adapter else base
        self.has_adapter = isinstance(self.model, PeftModel)
        self.has_blocks = self.has_adapter and isinstance(self.model.base_model, CalyrexModel)
        self.own_scale = self.model.base_model.active_scale if self.has_blocks else 1.0
        self.options = options
        self.reading: Reading | None = None

    def answer(self, messages: list[Message], scale: float) -> Answer:
        """Answer the last question, without reading again what an earlier answer has read.

        Raises:
            CalyrexError: the template cannot render the conversation, or it is too long for the model.
        """
        encoded = self._encode(messages)
        is_system = encoded["system_mask"][0].tolist()
        cache = self._take_cache(list(zip(encoded["input_ids"][0].tolist(), is_system, strict=True)), scale)
        answer = self._generate(encoded, cache, scale)
        if answer.input_ids:
            # The last token of an answer is chosen, but not read.
            tokens = itertools.zip_longest(answer.input_ids[: cache.get_seq_length()], is_system, fillvalue=False)
            self.reading = Reading(cache, list(tokens), scale)
        return answer

    def answer_as_base(self, messages: list[Message]) -> Answer:
        """Answer the last question without the adapter.

        Raises:
            CalyrexError: the conversation is too long for the model.
        """
        with self.model.disable_adapter() if self.has_adapter else contextlib.nullcontext():
            return self._generate(self._encode(messages), DynamicCache(config=self.model.config), scale=0.0)

    def _encode(self, messages: list[Message]) -> BatchEncoding:
        return encode_chat(self.tokenizer, messages).to(self.model.device)

    def _take_cache(self, tokens: list[tuple[int, bool]], scale: float) -> DynamicCache:
        """Return the cache if all that it has read begins this conversation, else an empty one."""
        reading, self.reading = self.reading, None  # an answer that is stopped leaves a cache half filled
        if reading is None or reading.scale != scale or len(reading.tokens) >= len(tokens):
            return DynamicCache(config=self.model.config)
        begins = tokens[: len(reading.tokens)] == reading.tokens
        return reading.cache if begins else DynamicCache(config=self.model.config)

    @torch.inference_mode()
    def _generate(self, encoded: BatchEncoding, cache: DynamicCache, scale: float) -> Answer:
        num_tokens = encoded["input_ids"].shape[1]
        max_new_tokens = self._count_new_tokens(num_tokens)
        inputs = dict(encoded)
        system_mask = inputs.pop("system_mask")
        if self.has_blocks:
            inputs |= {"system_mask": system_mask, "scale": scale}
        stream = _Stream(self.tokenizer)
        try:
            output = self.model.generate(
                **inputs,
                cache=cache,
                **_sampling(self.options.temperature),
                max_new_tokens=max_new_tokens,
                pad_token_id=self.tokenizer.pad_token_id,
                streamer=stream,
            )
        except KeyboardInterrupt:
            stream.end()  # type: ignore[no-untyped-call]
            return Answer(stream.text, "stopped", [])
        input_ids: list[int] = output[0].tolist()
        is_whole = len(input_ids) < num_tokens + max_new_tokens or input_ids[-1] in end_ids(self.model)
        return Answer(stream.text, None if is_whole else f"cut after {max_new_tokens} tokens", input_ids)

    def _count_new_tokens(self, num_tokens: int) -> int:
        """Return the longest answer that a conversation leaves room for, in tokens.

        Raises:
            CalyrexError: it leaves none.
        """
        limit = context_length(self.model)
        if limit is None:
            return self.options.max_new_tokens
        if num_tokens >= limit:
            raise CalyrexError(
                f"a conversation must be shorter than the model's context of {limit} tokens, "
                f"got {num_tokens}: /reset starts anew"
            )
        return int(min(limit - num_tokens, self.options.max_new_tokens))


def _sampling(temperature: float) -> dict[str, Any]:
    if temperature > 0:
        return {"do_sample": True, "temperature": temperature}
    # A model's own defaults for sampling make transformers warn when nothing is sampled.
    return {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}


class _Stream(TextStreamer):
    """Writes an answer to standard output as it comes, and keeps what it wrote."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        super().__init__(tokenizer, skip_prompt=True, skip_special_tokens=True)
        self.text = ""

    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
        self.text += text
        write(text, end="\n" if stream_end else "")
