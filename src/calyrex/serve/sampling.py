"""The next token of each row of a batch, by transformers' logits processors."""

import copy
import secrets
from typing import Any, cast

import torch
from torch import Tensor
from transformers import LogitsProcessorList, PreTrainedModel, TemperatureLogitsWarper, TopPLogitsWarper

from calyrex.serve.answer import Answer
from calyrex.serve.request import Chosen, Likely, Sampling

MIN_TEMPERATURE = 1e-3
"""Below it the likeliest token is taken."""

_SEED_BITS = 63
_SEED_STEP = 0x9E3779B97F4A7C15


def read_processors(base: PreTrainedModel) -> LogitsProcessorList:
    """Return what the base's own generation config does to logits, also where nothing is sampled."""
    config = copy.deepcopy(base.generation_config)
    config.update(
        do_sample=False,
        min_length=None,
        min_new_tokens=None,
        begin_suppress_tokens=None,
        forced_eos_token_id=None,
        forced_bos_token_id=None,
    )
    model: Any = base
    processors: LogitsProcessorList = model._get_logits_processor(
        config, input_ids_seq_length=1, device=base.device, model_kwargs={}
    )
    return processors


class Chooser:
    """Chooses the tokens of one answer, whatever else is in the batch."""

    def __init__(self, sampling: Sampling, index: int, processors: LogitsProcessorList, device: torch.device) -> None:
        """Create the chooser.

        Args:
            sampling: what the request asks for.
            index: which of its answers; each draws on its own.
            processors: what the base does to logits.
            device: where the logits are.
        """
        self.processors = processors
        self.is_sampling = sampling.temperature >= MIN_TEMPERATURE
        self.num_likely = sampling.num_likely
        self.warpers = LogitsProcessorList()
        if self.is_sampling and sampling.temperature != 1.0:
            self.warpers.append(TemperatureLogitsWarper(sampling.temperature))
        if self.is_sampling and sampling.top_p < 1.0:
            self.warpers.append(TopPLogitsWarper(sampling.top_p))
        self.generator = torch.Generator(device)
        seed = secrets.randbits(_SEED_BITS) if sampling.seed is None else sampling.seed
        self.generator.manual_seed((seed + index * _SEED_STEP) % 2**_SEED_BITS)

    def choose(self, logits: Tensor, prompt_ids: list[int], answer: Answer) -> tuple[int, Chosen | None]:
        """Choose the next token.

        Args:
            logits: ``[V]`` float32.
            prompt_ids: tokens of the prompt.
            answer: the answer so far.

        Returns:
            The token, and its probability where it was asked for.
        """
        scores = logits[None]  # [1, V]
        if self.processors:
            seen = torch.tensor([prompt_ids + answer.ids], device=logits.device)
            scores = self.processors(cast(torch.LongTensor, seen), cast(torch.FloatTensor, scores))
        token_id = int(self._draw(scores[0]) if self.is_sampling else scores[0].argmax())
        return token_id, None if self.num_likely is None else _look_up(logits, token_id, self.num_likely)

    def _draw(self, scores: Tensor) -> Tensor:
        nothing = torch.empty(1, 0, dtype=torch.int64, device=scores.device)
        warped = self.warpers(cast(torch.LongTensor, nothing), cast(torch.FloatTensor, scores[None]))
        return torch.multinomial(warped[0].softmax(dim=-1), 1, generator=self.generator)


def _look_up(logits: Tensor, token_id: int, num_likely: int) -> Chosen:
    log_probabilities = logits.log_softmax(dim=-1)
    values, ids = log_probabilities.topk(min(num_likely, len(logits)))
    likeliest = (Likely(each, value) for each, value in zip(ids.tolist(), values.tolist(), strict=True))
    return Chosen(Likely(token_id, float(log_probabilities[token_id])), tuple(likeliest))
