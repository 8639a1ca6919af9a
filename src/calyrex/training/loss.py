"""The loss on the assistant's tokens, with logits for those tokens only."""

from typing import Any

import torch
from torch import Tensor, nn

from calyrex.training.batches import IGNORED


def answer_logits(model: nn.Module, head: nn.Module, labels: Tensor, **inputs: Any) -> tuple[Tensor, Tensor]:
    """Run the model, with the output head on the positions that predict a label only.

    Args:
        model: the model with blocks, wrapped for several devices or not.
        head: its output embeddings.
        labels: token ids to predict, -100 where there is none, ``[B, T]`` int64.
        **inputs: handed to the model's forward.

    Returns:
        Logits ``[N, V]`` in the base's dtype, and their labels ``[N]`` int64; ``N`` labels in all.
    """
    shifted = nn.functional.pad(labels[:, 1:], (0, 1), value=IGNORED)  # [B, T]
    is_predicting = shifted != IGNORED

    def select(_module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (args[0][is_predicting.to(args[0].device)][None], *args[1:])  # [1, N, E]

    handle = head.register_forward_pre_hook(select)
    try:
        logits = model(**inputs, use_cache=False).logits[0]  # [N, V]
    finally:
        handle.remove()
    return logits, shifted[is_predicting].to(logits.device)


def answer_loss(
    model: nn.Module, head: nn.Module, labels: Tensor, num_items: Tensor | int | None = None, **inputs: Any
) -> Tensor:
    """Return the mean cross-entropy over the assistant's tokens, a scalar in nats.

    Args:
        model: the model with blocks, wrapped for several devices or not.
        head: its output embeddings.
        labels: token ids to predict, -100 where there is none, ``[B, T]`` int64.
        num_items: what the sum is divided by; None takes the number of labels in this batch.
        **inputs: handed to the model's forward.
    """
    logits, targets = answer_logits(model, head, labels, **inputs)
    total = nn.functional.cross_entropy(logits.float(), targets, reduction="sum")
    return total / (max(1, targets.numel()) if num_items is None else torch.as_tensor(num_items, device=total.device))
