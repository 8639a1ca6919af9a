"""How surprising a fixed answer is to a model, with its blocks and without them, in nats per token."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from peft import PeftModel
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from calyrex.benchmarks.benchmark import Case
from calyrex.benchmarks.repetition import repeat_system
from calyrex.generation import group_by_length
from calyrex.span import tokenize_chat
from calyrex.training.batches import IGNORED, Row, collate
from calyrex.tuner import hears_system

_BATCH_TOKENS = 2048


class Losses(NamedTuple):
    """How surprising the reference answer of a case is.

    Attributes:
        loss: Mean cross-entropy of its tokens, the end of the turn included, in nats.
        base_loss: The same with the adapter switched off.
    """

    loss: float
    base_loss: float


def measure_losses(
    model: PreTrainedModel | PeftModel,
    tokenizer: PreTrainedTokenizerBase,
    cases: Sequence[Case],
    on_case: Callable[[int], object] = lambda _count: None,
) -> list[Losses]:
    """Measure the loss of each case's ``reference["answer"]``, said after its messages, with and without the adapter.

    Args:
        model: The base, or the base with an adapter; a base is its own base, so that both losses are one number.
        tokenizer: Its tokenizer.
        cases: Cases with a reference answer.
        on_case: Called with the number of cases after each batch.

    Returns:
        The losses, in the order of the cases.
    """
    losses = answer_losses(model, tokenizer, cases, on_case)
    base_losses = losses
    if isinstance(model, PeftModel):
        with model.disable_adapter():
            base_losses = answer_losses(model, tokenizer, cases)
    return [Losses(*pair) for pair in zip(losses, base_losses, strict=True)]


@torch.inference_mode()
def answer_losses(
    model: PreTrainedModel | PeftModel,
    tokenizer: PreTrainedTokenizerBase,
    cases: Sequence[Case],
    on_case: Callable[[int], object] = lambda _count: None,
) -> list[float]:
    """Return the loss of each reference answer in nats a token, for the model as it is; see ``measure_losses``."""
    rows = [_tokenize(tokenizer, case) for case in cases]
    measured = [0.0] * len(cases)
    for group in group_by_length([len(row["input_ids"]) for row in rows], _BATCH_TOKENS):
        # Padded on the right: a causal model sees nothing of it, and positions are as in training.
        batch = collate([rows[i] for i in group], pad_token_id=int(tokenizer.pad_token_id or 0))
        for i, loss in zip(group, _mean_losses(model, batch), strict=True):
            measured[i] = loss
        on_case(len(group))
    return measured


def _tokenize(tokenizer: PreTrainedTokenizerBase, case: Case) -> Row:
    messages = repeat_system(case.messages) if case.repeats_system else case.messages
    earlier = [{**message, "weight": 0} if message["role"] == "assistant" else message for message in messages]
    answer = {"role": "assistant", "content": case.reference["answer"]}
    chat = tokenize_chat(tokenizer, [*earlier, answer])
    return Row(input_ids=chat.input_ids, system_mask=chat.system_mask, assistant_mask=chat.assistant_mask)


def _mean_losses(model: PreTrainedModel | PeftModel, batch: dict[str, Tensor]) -> list[float]:
    """Return the mean loss over the labels of each row of a batch."""
    targets = functional.pad(batch["labels"][:, 1:], (0, 1), value=IGNORED).to(model.device)  # [B, T]
    is_predicting = targets != IGNORED
    columns = is_predicting.any(dim=0).nonzero()[:, 0]  # [K], the positions where some row predicts
    mask = {"system_mask": batch["system_mask"].to(model.device)} if hears_system(model) else {}
    input_ids = batch["input_ids"].to(model.device)
    logits = model(input_ids, **mask, logits_to_keep=columns, use_cache=False).logits  # [B, K, V]
    losses = functional.cross_entropy(
        logits.float().transpose(1, 2), targets[:, columns].to(logits.device), ignore_index=IGNORED, reduction="none"
    )  # [B, K]
    means: list[float] = (losses.sum(dim=1) / is_predicting.sum(dim=1).to(losses.device)).tolist()
    return means
