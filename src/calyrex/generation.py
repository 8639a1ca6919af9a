"""Answers to many chats, in batches of similar length."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import torch
from peft import PeftModel
from torch import Tensor, nn
from transformers import BatchEncoding, DynamicCache, PreTrainedModel, PreTrainedTokenizerBase
from transformers.cache_utils import DynamicLayer

from calyrex.masking import Message
from calyrex.span import encode_chat
from calyrex.tuner import hears_system

_STEP = 8
"""Tokens between two looks at which rows of a batch have ended."""

_ROOM = 64
"""Tokens that a cache keeps room for."""


Prefill = Callable[[PreTrainedModel | PeftModel, BatchEncoding, DynamicCache], None]
"""Fills an empty cache with all but the last token of a batch of prompts, or leaves it empty."""


class RoomyLayer(DynamicLayer):
    """A dynamic cache layer that keeps room for coming tokens, so that one more is written and not all copied."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append keys and values, ``[B, K, T, D]`` each, and return all so far."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._rooms: dict[str, Tensor] = {}
        self.keys = keys = self._append("keys", cast(Tensor, self.keys), key_states)
        self.values = values = self._append("values", cast(Tensor, self.values), value_states)
        return keys, values

    def hold(self, keys: Tensor, values: Tensor, num_tokens: int) -> None:
        """Begin with keys and values ``[B, K, T, D]`` that are filled up to ``num_tokens``."""
        self.lazy_initialization(keys, values)
        self._rooms = {"keys": keys, "values": values}
        self.keys, self.values = keys[:, :, :num_tokens], values[:, :, :num_tokens]

    def _append(self, name: str, seen: Tensor, new: Tensor) -> Tensor:
        start = seen.shape[-2] if seen.numel() else 0
        end = start + new.shape[-2]
        room = self._rooms.get(name, new[:, :, :0])
        is_ours = start > 0 and room.data_ptr() == seen.data_ptr()  # not after rows were selected
        if not is_ours or room.shape[-2] < end:
            room = new.new_empty(*new.shape[:2], end + _ROOM, new.shape[3])
            if start:
                room[:, :, :start] = seen
            self._rooms[name] = room
        room[:, :, start:end] = new
        return room[:, :, :end]


class Generated(NamedTuple):
    """An answer and its cost.

    Attributes:
        text: The answer, without control tokens.
        num_prompt_tokens: Tokens of the conversation before it.
        num_new_tokens: Tokens of the answer, the one that ends it included.
        is_cut: Whether it ends because it may not be longer.
    """

    text: str
    num_prompt_tokens: int
    num_new_tokens: int
    is_cut: bool


def answer_chats(
    model: PreTrainedModel | PeftModel,
    tokenizer: PreTrainedTokenizerBase,
    chats: Sequence[Sequence[Message]],
    *,
    max_new_tokens: int,
    batch_tokens: int = 8192,
    on_batch: Callable[[int], object] = lambda _count: None,
) -> list[str]:
    """Answer the last user turn of each chat greedily.

    Args:
        model: the base, or the base with blocks.
        tokenizer: its tokenizer.
        chats: messages of each chat, the last one from the user.
        max_new_tokens: longest answer in tokens.
        batch_tokens: tokens of one batch of prompts at most, padding included.
        on_batch: called with the number of chats after each batch.

    Returns:
        The answers, in the order of the chats, without control tokens.
    """
    lengths = [encode_chat(tokenizer, list(chat))["input_ids"].shape[1] for chat in chats]
    answers = [""] * len(chats)
    for group in group_by_length(lengths, batch_tokens):
        generated = answer_batch(model, tokenizer, [chats[i] for i in group], max_new_tokens=max_new_tokens)
        for i, answer in zip(group, generated, strict=True):
            answers[i] = answer.text
        on_batch(len(group))
    return answers


@torch.inference_mode()
def answer_batch(
    model: PreTrainedModel | PeftModel,
    tokenizer: PreTrainedTokenizerBase,
    chats: Sequence[Sequence[Message]],
    *,
    max_new_tokens: int,
    is_cancelled: Callable[[], bool] = lambda: False,
    prefill: Prefill | None = None,
) -> list[Generated]:
    """Answer the last user turn of each chat greedily, all chats in one batch.

    Args:
        model: the base, or the base with an adapter.
        tokenizer: its tokenizer.
        chats: messages of each chat, the last one from the user.
        max_new_tokens: longest answer in tokens.
        is_cancelled: asked every few tokens whether the answers are not wanted any more.
        prefill: fills the cache with all but the last token of the prompts; None leaves it to ``generate``.
    """
    encoded = encode_chat(tokenizer, [list(chat) for chat in chats]).to(model.device)
    rows = _generate(model, encoded, max_new_tokens, tokenizer.pad_token_id, is_cancelled, prefill)
    texts = tokenizer.batch_decode(rows, skip_special_tokens=True)
    answers: list[Generated] = []
    for prompt, tokens, text in zip(encoded["attention_mask"], rows, texts, strict=True):
        ends = [position for position, token in enumerate(tokens) if token in end_ids(model)]
        num_new_tokens = ends[0] + 1 if ends else len(tokens)
        answers.append(Generated(text, int(prompt.sum()), num_new_tokens, is_cut=not ends))
    return answers


def context_length(model: PreTrainedModel | PeftModel) -> int | None:
    """Return how many tokens a model can hold; None for one without a limit (recurrent, ALiBi)."""
    limit: int | None = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return limit


def _generate(
    model: PreTrainedModel | PeftModel,
    encoded: BatchEncoding,
    max_new_tokens: int,
    pad_token_id: int,
    is_cancelled: Callable[[], bool],
    prefill: Prefill | None,
) -> list[list[int]]:
    """Continue rows greedily, a few tokens at a time, so that rows that have ended leave the batch.

    Returns:
        The new token ids of each row.
    """
    input_ids, attention_mask, system_mask = (encoded[name] for name in ("input_ids", "attention_mask", "system_mask"))
    cache = DynamicCache(config=model.config)
    cache.layers = [RoomyLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]  # type: ignore[no-untyped-call]
    if prefill is not None:
        prefill(model, encoded, cache)
    answers: list[list[int]] = [[] for _ in input_ids]
    rows = torch.arange(len(input_ids), device=input_ids.device)
    for start in range(0, max_new_tokens, _STEP):
        length = input_ids.shape[1]
        input_ids = model.generate(  # type: ignore[operator]
            input_ids,
            attention_mask=attention_mask,
            **({"system_mask": system_mask} if hears_system(model) else {}),
            cache=cache,
            max_new_tokens=min(_STEP, max_new_tokens - start),
            do_sample=False,
            temperature=None,
            top_p=None,
            top_k=None,
            pad_token_id=pad_token_id,
        )
        new = input_ids[:, length:]
        for row, tokens in zip(rows.tolist(), new.tolist(), strict=True):
            answers[row] += tokens
        going = ~torch.isin(new, torch.tensor(end_ids(model), device=new.device)).any(dim=1)
        if not bool(going.any()) or is_cancelled():
            break
        cache.batch_select_indices(going.nonzero()[:, 0])
        rows, input_ids, system_mask = rows[going], input_ids[going], system_mask[going]
        attention_mask = nn.functional.pad(attention_mask[going], (0, new.shape[1]), value=1)
    return answers


def end_ids(model: PreTrainedModel | PeftModel) -> list[int]:
    """Return the tokens that end an answer."""
    ids: int | list[int] | None = model.generation_config.eos_token_id
    return [] if ids is None else ids if isinstance(ids, list) else [ids]


def group_by_length(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Group rows of similar length, longest first, so that little is lost on padding.

    Args:
        lengths: tokens of each row.
        batch_tokens: rows times longest row of a group at most; a longer row makes a group of its own.

    Yields:
        The numbers of the rows of one group.
    """
    group: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if group and (len(group) + 1) * lengths[group[0]] > batch_tokens:
            yield group
            group = []
        group.append(row)
    if group:
        yield group
