"""Answers to many chats, in batches of similar length."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from peft import PeftModel
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from calyrex.span import encode_chat

Message = dict[str, Any]


@torch.inference_mode()
def answer_chats(
    model: PreTrainedModel | PeftModel,
    tokenizer: PreTrainedTokenizerBase,
    chats: Sequence[Sequence[Message]],
    *,
    max_new_tokens: int,
    batch_size: int = 64,
    on_batch: Callable[[int], object] = lambda _count: None,
) -> list[str]:
    """Answer the last user turn of each chat greedily.

    Args:
        model: the base, or the base with blocks.
        tokenizer: its tokenizer.
        chats: messages of each chat, the last one from the user.
        max_new_tokens: longest answer in tokens.
        batch_size: chats of one batch.
        on_batch: called with the number of chats after each batch.

    Returns:
        The answers, in the order of the chats, without control tokens.
    """
    is_anchored = isinstance(model, PeftModel)
    by_length = sorted(range(len(chats)), key=lambda i: sum(len(message["content"]) for message in chats[i]))
    answers = [""] * len(chats)
    for start in range(0, len(chats), batch_size):
        group = by_length[start : start + batch_size]
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
