"""What blocks add to a prefill and to a decoded token, beside the plain base in a model of its own."""

from functools import partial
from statistics import median
from typing import cast

import torch
from peft import PeftModel
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from bench.limits import Batch, decode_percent, prefill_percent, read_shape
from bench.measure import Figure, Side, alternate, at_both_widths, paired_ratio
from bench.models import Sizes, attach_blocks, load
from calyrex.context import Request
from calyrex.placement import DEFAULT_PLACEMENT, resolve_placement
from calyrex.tuner import CalyrexModel

MILLISECOND = 1e3


class Conversation:
    """A model and the cache of some conversations with it, called as ``generate`` calls it."""

    def __init__(self, model: PreTrainedModel | PeftModel, num_rows: int, num_tokens: int, num_system: int) -> None:
        """Create the conversation; nothing is computed yet.

        Args:
            model: the base, or the base with blocks.
            num_rows: ``B``.
            num_tokens: ``T``, tokens of the prompt.
            num_system: ``S``, the first tokens, which are the system prompt.
        """
        self.model = model
        self.base = cast(PreTrainedModel, model.get_base_model()) if isinstance(model, PeftModel) else model
        generator = torch.Generator().manual_seed(0)
        ids = torch.randint(3, self.base.config.vocab_size, (num_rows, num_tokens), generator=generator)
        self.input_ids = ids.to(self.base.device)
        self.attention_mask = torch.ones(num_rows, num_tokens + 1, dtype=torch.int64, device=self.base.device)
        self.system_mask = torch.zeros_like(self.input_ids, dtype=torch.bool)
        self.system_mask[:, :num_system] = True
        self.cache = DynamicCache(config=self.base.config)

    def prefill(self) -> None:
        """Run the whole prompt into a new cache, with logits of its last token."""
        self.cache = DynamicCache(config=self.base.config)
        self._run(self.input_ids, self.attention_mask[:, :-1])

    def decode(self) -> None:
        """Run one more token for each row."""
        self._run(self.input_ids[:, -1:], self.attention_mask)

    def forget_token(self) -> None:
        """Take the last token out of the cache."""
        self.cache.crop(-1)

    @torch.no_grad()
    def _run(self, input_ids: Tensor, attention_mask: Tensor) -> None:
        forward = partial(
            self.base, input_ids=input_ids, attention_mask=attention_mask, cache=self.cache, logits_to_keep=1
        )
        if isinstance(self.model, PeftModel):
            with cast(CalyrexModel, self.model.base_model).context.serve(
                Request(self.system_mask, spans_sequence=True)
            ):
                forward(use_cache=True)
        else:
            forward(use_cache=True)


def compare_prefill(sizes: Sizes) -> dict[str, Figure]:
    """Measure what blocks add to a prefill, less what their arithmetic adds, in percentage points."""
    batch = Batch.causal(1, sizes.prefill_tokens, sizes.system_tokens, 1)

    def measure(width: int | None) -> Figure:
        base, anchored = load(sizes), attach_blocks(load(sizes), width).eval()
        shape = read_shape(base)
        sides = {
            name: Side(Conversation(model, 1, sizes.prefill_tokens, sizes.system_tokens).prefill)
            for name, model in (("base", base), ("calyrex", anchored))
        }
        num_blocks = len(resolve_placement(DEFAULT_PLACEMENT, shape.num_layers))
        limit = prefill_percent(shape, batch, num_blocks, width or shape.intermediate_size)
        return _overhead(alternate(sides, sizes.prefill_rounds), limit, str(base.dtype))

    return at_both_widths("prefill_overhead_points", sizes.demo_width, measure)


def compare_decode(sizes: Sizes, num_rows: int) -> dict[str, Figure]:
    """Measure what blocks add to a decode step, less what reading their weights adds, in percentage points."""

    def measure(width: int | None) -> Figure:
        base, anchored = load(sizes), attach_blocks(load(sizes), width).eval()
        shape = read_shape(base)
        sides = {
            name: decode_side(model, sizes, sizes.context, num_rows)
            for name, model in (("base", base), ("calyrex", anchored))
        }
        num_blocks = len(resolve_placement(DEFAULT_PLACEMENT, shape.num_layers))
        limit = decode_percent(
            shape, num_blocks, width or shape.intermediate_size, rows=num_rows, context=sizes.context
        )
        return _overhead(alternate(sides, sizes.decode_rounds), limit, str(base.dtype))

    return at_both_widths(f"decode_overhead_points_b{num_rows}", sizes.demo_width, measure)


def decode_side(model: PreTrainedModel | PeftModel, sizes: Sizes, context: int, num_rows: int) -> Side:
    """Fill a cache with ``context`` tokens and return decode steps that leave it as long as it is."""
    conversation = Conversation(model, num_rows, context, sizes.system_tokens)
    conversation.prefill()
    return Side(conversation.decode, conversation.forget_token)


def _overhead(seconds: dict[str, list[float]], limit: float, dtype: str) -> Figure:
    percent = 100 * (paired_ratio(seconds["calyrex"], seconds["base"]) - 1)
    return Figure(
        value=percent - limit,
        unit="points",
        limit=limit,
        sides={name: [MILLISECOND * each for each in values] for name, values in seconds.items()},
        side_unit="ms",
        dtype=dtype,
        details={"overhead_percent": percent},
    )


def compare_contexts(sizes: Sizes) -> dict[str, Figure]:
    """Measure what blocks add to a decoded token after a long conversation, over the same after a short one."""
    base, anchored = load(sizes), attach_blocks(load(sizes), sizes.demo_width).eval()
    sides = {
        f"{name} at {context}": decode_side(model, sizes, context, 1)
        for context in (sizes.context, sizes.long_context)
        for name, model in (("base", base), ("calyrex", anchored))
    }
    seconds = alternate(sides, sizes.long_rounds)
    short, long = (
        median(
            ours - plain
            for ours, plain in zip(seconds[f"calyrex at {context}"], seconds[f"base at {context}"], strict=True)
        )
        for context in (sizes.context, sizes.long_context)
    )
    figure = Figure(
        value=long / short,
        unit="x",
        limit=1.0,
        sides={name: [MILLISECOND * each for each in values] for name, values in seconds.items()},
        side_unit="ms",
        dtype=str(base.dtype),
        details={"added_ms": {"short": MILLISECOND * short, "long": MILLISECOND * long}},
    )
    return {"decode_8k_vs_512": figure}
