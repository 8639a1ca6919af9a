"""The loss on the assistant's tokens, with logits for those tokens only, a few at a time."""

from typing import Any, cast

import torch
from peft import PeftModel
from torch import Tensor, nn
from torch.nn import LinearCrossEntropyOptions, functional
from transformers import PreTrainedModel

from calyrex.training.batches import IGNORED

CHUNK_LABELS = 256
"""Labels whose logits exist at a time; of 64, 256 and torch's own choice the fastest on a CPU."""
_CHUNKED = LinearCrossEntropyOptions(batch_chunk_size=CHUNK_LABELS, chunking_method=None)


def answer_loss(
    model: nn.Module,
    head: nn.Linear,
    labels: Tensor,
    num_items: Tensor | int | None = None,
    *,
    is_chunked: bool = False,
    **inputs: Any,
) -> Tensor:
    """Return the mean cross-entropy over the assistant's tokens, a scalar in nats.

    Args:
        model: the model with blocks, wrapped for several devices or not.
        head: its output embeddings.
        labels: token ids to predict, -100 where there is none, ``[B, T]`` int64.
        num_items: what the sum is divided by; None takes the number of labels in this batch.
        is_chunked: work out logits and their gradient for a few labels at a time, so that ``[N, V]`` never exists;
            only for a model whose logits are what its head says (``has_plain_logits``).
        **inputs: handed to the model's forward.
    """
    shifted = functional.pad(labels[:, 1:], (0, 1), value=IGNORED)  # [B, T]
    is_predicting = shifted != IGNORED
    states: list[Tensor] = []

    def select(_module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        states.append(args[0][is_predicting.to(args[0].device)])  # [N, E]
        return (states[0][None, :1] if is_chunked else states[0][None], *args[1:])

    handle = head.register_forward_pre_hook(select)
    try:
        logits = model(**inputs, use_cache=False).logits[0]  # [N, V], or [1, V] for a chunked loss
    finally:
        handle.remove()
    targets = shifted[is_predicting].to(logits.device)
    if is_chunked:
        # torch sums in the dtype of the states: a sum of many labels overflows float16 and is coarse in bfloat16.
        reduction = "sum" if states[0].dtype == torch.float32 else "none"
        losses = functional.linear_cross_entropy(
            states[0], head.weight, targets, linear_bias=head.bias, reduction=reduction, options=_CHUNKED
        )
        total = losses.float().sum()
    else:
        total = functional.cross_entropy(logits.float(), targets, reduction="sum")
    return total / (max(1, targets.numel()) if num_items is None else torch.as_tensor(num_items, device=total.device))


@torch.no_grad()
def has_plain_logits(model: PeftModel) -> bool:
    """Tell whether the base's logits are its output embeddings applied to a state, neither scaled nor capped after."""
    base = cast(PreTrainedModel, model.get_base_model())
    head = base.get_output_embeddings()
    if type(head) is not nn.Linear or not head.weight.is_floating_point():
        return False
    said: list[Tensor] = []
    handle = head.register_forward_hook(lambda _module, _args, output: said.append(output))
    try:
        with model.disable_adapter():
            logits = base(input_ids=torch.ones(1, 1, dtype=torch.int64, device=model.device), use_cache=False).logits
    finally:
        handle.remove()
    return torch.equal(said[0], logits)
