"""A loaded model in lm-eval's hands, whose blocks hear exactly the system prompt.

lm-eval knows no system mask, drops a system prompt silently where a chat template refuses it, and cuts the beginning of
what is too long for the model. Here each of these is checked before the model runs.
"""

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import jinja2
import torch
from lm_eval.models.huggingface import HFLM
from peft import PeftModel
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from calyrex.benchmarks.repetition import repeat_system
from calyrex.errors import CalyrexError
from calyrex.generation import group_by_length
from calyrex.span import encode_chat
from calyrex.tuner import hears_system

NOT_MEASURED = (math.nan, False)
"""Answer to a request that is too long for the model."""

_BATCH_TOKENS = 2048  # the logits of that many tokens are 1.2 GB for a vocabulary of 150,000

Request = tuple[tuple[str, str], list[int], list[int]]
"""Context and continuation, the token ids of the context, those of the continuation."""


class Head(NamedTuple):
    """The beginning of a conversation up to the end of its system prompt.

    Attributes:
        input_ids: Token ids.
        system_mask: True at system tokens, of equal length.
    """

    input_ids: list[int]
    system_mask: tuple[bool, ...]


class HarnessModel(HFLM):  # type: ignore[misc] # lm-eval is not typed
    """A base, or a base with blocks, as a model of lm-eval."""

    def __init__(
        self,
        model: PreTrainedModel | PeftModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        has_system: bool,
        repeats_system: bool = False,
        on_batch: Callable[[int], object],
    ) -> None:
        """Wrap a model.

        Args:
            model: The base, or the base with an adapter.
            tokenizer: Its tokenizer.
            has_system: Whether every request is a conversation with a system prompt; else none has one.
            repeats_system: Whether the system prompt is said again right before the question.
            on_batch: Called after each batch with the number of requests still to come.
        """
        # A chat template writes the beginning-of-sequence token itself.
        super().__init__(
            model, backend="causal", tokenizer=tokenizer, add_bos_token=False if has_system else None, device=None
        )
        self.has_blocks = hears_system(model)
        self.has_system = has_system
        self.repeats_system = repeats_system
        self.on_batch = on_batch
        self.heads: dict[str, Head] = {}
        self.system_mask: tuple[bool, ...] = ()

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Render a conversation, and note where its system prompt is.

        Raises:
            CalyrexError: The chat template cannot render it, or leaves the system prompt out.
        """
        if self.repeats_system:
            chat_history = repeat_system(chat_history)
        encoded = encode_chat(self.tokenizer, chat_history, add_generation_prompt=add_generation_prompt)
        system_mask = encoded["system_mask"][0].tolist()
        if not any(system_mask):
            raise CalyrexError("the chat template leaves the system prompt out: measure this model without one")
        end = len(system_mask) - system_mask[::-1].index(True)
        try:
            text: str = self.tokenizer.apply_chat_template(
                chat_history, tokenize=False, add_generation_prompt=add_generation_prompt
            )
        except jinja2.TemplateError as error:
            raise CalyrexError(f"the chat template refuses the conversation: {error}") from error
        self.heads[text] = Head(encoded["input_ids"][0, :end].tolist(), tuple(system_mask[:end]))
        return text

    def loglikelihood(self, requests: list[Any], disable_tqdm: bool = True) -> list[tuple[float, bool]]:
        """Answer requests; the progress is shown by the caller."""
        answers: list[tuple[float, bool]] = super().loglikelihood(requests, disable_tqdm=True)
        return answers

    def _model_call(self, inps: Tensor, attn_mask: Tensor | None = None, labels: Tensor | None = None) -> Tensor:
        """Run the model on ``[B, T]`` int64 ids, padded on the right."""
        if not self.has_blocks:
            logits: Tensor = super()._model_call(inps, attn_mask, labels)
            return logits
        system_mask = torch.zeros_like(inps, dtype=torch.bool)
        system_mask[:, : len(self.system_mask)] = torch.tensor(self.system_mask, dtype=torch.bool, device=inps.device)
        with torch.no_grad():
            logits = self.model(inps, system_mask=system_mask).logits
        return logits

    def _loglikelihood_tokens(
        self, requests: list[Request], disable_tqdm: bool = False, override_bs: int | None = None
    ) -> list[tuple[float, bool]]:
        """Answer requests, those with the system prompt in the same place together.

        Raises:
            CalyrexError: A system prompt is not where it should be, or the model gives no numbers.
        """
        lengths = [len(context) + len(continuation) - 1 for _, context, continuation in requests]
        answers = [NOT_MEASURED] * len(requests)
        places = defaultdict(list)
        for at, request in enumerate(requests):
            if lengths[at] <= self.max_length:
                places[self._find_system(request)].append(at)
        num_left = sum(map(len, places.values()))
        for self.system_mask, rows in places.items():
            for group in group_by_length([lengths[at] for at in rows], _BATCH_TOKENS):
                self.batch_size_per_gpu = len(group)
                chosen = [rows[i] for i in group]
                given: Any = super()._loglikelihood_tokens([requests[at] for at in chosen], disable_tqdm=True)
                for at, answer in zip(chosen, given, strict=True):
                    answers[at] = answer
                if any(math.isnan(log_likelihood) for log_likelihood, _ in given):
                    raise CalyrexError("the model's log-likelihoods are not numbers (NaN): try another --dtype")
                num_left -= len(group)
                self.on_batch(num_left)
        return answers

    def _find_system(self, request: Request) -> tuple[bool, ...]:
        """Return the system mask of a request up to the end of its system prompt."""
        if not self.has_system:
            return ()
        (text, _), context, _ = request
        head = self.heads[text]
        if context[: len(head.input_ids)] != head.input_ids:
            raise CalyrexError(
                "lm-eval's tokens of the system prompt differ from those of encode_chat: "
                "measure this model without a system prompt"
            )
        return head.system_mask
