"""Answers to many chats, in batches of similar length."""

from collections.abc import Callable, Iterator, Sequence

import torch
from peft import PeftModel
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from calyrex.masking import Message
from calyrex.span import encode_chat


@torch.inference_mode()
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
    is_anchored = isinstance(model, PeftModel)
    lengths = [encode_chat(tokenizer, list(chat))["input_ids"].shape[1] for chat in chats]
    answers = [""] * len(chats)
    for group in group_by_length(lengths, batch_tokens):
        encoded = encode_chat(tokenizer, [list(chats[i]) for i in group]).to(model.device)
        system_mask = encoded.pop("system_mask")
        generated = model.generate(  # type: ignore[operator]
            **encoded,
            **({"system_mask": system_mask} if is_anchored else {}),
            max_new_tokens=max_new_tokens,
            do_sample=False,
            temperature=None,
            top_p=None,
            top_k=None,
            pad_token_id=tokenizer.pad_token_id,
        )
        texts = tokenizer.batch_decode(generated[:, encoded["input_ids"].shape[1] :], skip_special_tokens=True)
        for i, text in zip(group, texts, strict=True):
            answers[i] = text
        on_batch(len(group))
    return answers


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
