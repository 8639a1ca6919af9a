"""Equal terms: sizes with which all contenders train as many parameters, and what each costs at run time."""

import copy
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from peft import PeftConfig, PeftModel, get_peft_model
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import PreTrainedModel

from calyrex.base import base_sizes, find_layers
from calyrex.config import CalyrexConfig
from calyrex.errors import CalyrexError
from calyrex.parallel_mlp import ParallelMLPConfig
from calyrex.placement import resolve_placement
from calyrex.studies.contenders import Contender, make_config
from calyrex.training.activations import last_frozen_layer
from calyrex.training.batches import Row
from calyrex.tuner import hears_system


@dataclass(frozen=True)
class Sized:
    """A contender's adapter and its size.

    Attributes:
        config: its configuration.
        trainable_parameters: what is trained.
        budget_difference: relative difference to the budget; for those that follow the budget the least that a whole
            rank or width allows.
        last_frozen_layer: number of the last decoder layer that it leaves alone, from 0; None where it leaves none.
        layers: the layers, from 1, after which its modules sit; empty for LoRA.
    """

    config: PeftConfig
    trainable_parameters: int
    budget_difference: float
    last_frozen_layer: int | None
    layers: list[int]


def count_trainable(base: PreTrainedModel, config: PeftConfig) -> int:
    """Count the parameters that an adapter trains, on a copy of the base without weights.

    Raises:
        ValueError: the configuration does not fit the base.
    """
    model = _attach_without_weights(base, config)
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def _attach_without_weights(base: PreTrainedModel, config: PeftConfig) -> PeftModel:
    with torch.device("meta"):
        skeleton = type(base)(copy.deepcopy(base.config))
        return cast(PeftModel, get_peft_model(skeleton.requires_grad_(False), copy.deepcopy(config)))


def size_contender(
    contender: Contender, base: PreTrainedModel, blocks: CalyrexConfig, budget: int, is_equal: bool = False
) -> Sized:
    """Choose the rank or the width of a contender's adapter that comes closest to the budget.

    Args:
        contender: a trained contender.
        base: the base, without adapters.
        blocks: the blocks of the reference.
        budget: parameters that the reference trains.
        is_equal: whether variants of the blocks follow the budget too, where they do not set their own width.

    Raises:
        CalyrexError: an option of the contender does not fit the base.
    """
    try:
        config: PeftConfig
        if contender.has_budget:
            size = solve(lambda size: count_trainable(base, make_config(contender, base, blocks, size)), budget)
            config = make_config(contender, base, blocks, size)
        elif is_equal and contender.settings and "intermediate_size" not in contender.settings:
            config = fit_blocks(cast(CalyrexConfig, make_config(contender, base, blocks)), base, budget)
        else:
            config = make_config(contender, base, blocks)
        count = count_trainable(base, config)
        frozen = last_frozen_layer(_attach_without_weights(base, config))
    except ValueError as error:
        raise CalyrexError(f"contender {contender.name!r}: {error}") from error
    layers: list[int] = []
    if isinstance(config, CalyrexConfig | ParallelMLPConfig):
        layers = resolve_placement(config.placement, len(find_layers(base)), config.num_blocks)
    return Sized(config, count, count / budget - 1, frozen, layers)


def fit_blocks(config: CalyrexConfig, base: PreTrainedModel, budget: int) -> CalyrexConfig:
    """Narrow or widen blocks until they train as nearly as possible as many parameters as a budget.

    The feed-forward takes what the attention leaves. Where that is less than a sixteenth of the hidden size, the
    attention loses heads: whole groups of the base's grouped queries first, then the queries of the last group.

    Raises:
        ValueError: the configuration does not fit the base.
    """
    sizes = base_sizes(base)
    num_groups, group = sizes["num_key_value_heads"], sizes["num_attention_heads"] // sizes["num_key_value_heads"]
    whole_groups = [(group * groups, groups) for groups in range(num_groups, 0, -1)]
    for num_heads, num_key_value_heads in [*whole_groups, *((number, 1) for number in range(group - 1, 0, -1))]:
        narrowed = dataclasses.replace(config, num_heads=num_heads, num_key_value_heads=num_key_value_heads)
        width = solve(partial(_count_at_width, base, narrowed), budget)
        if 16 * width >= sizes["hidden_size"]:
            break
    return dataclasses.replace(narrowed, intermediate_size=width)


def _count_at_width(base: PreTrainedModel, config: CalyrexConfig, width: int) -> int:
    return count_trainable(base, dataclasses.replace(config, intermediate_size=width))


def solve(count: Callable[[int], int], budget: int) -> int:
    """Return the whole number of at least 1 whose count comes closest to a budget; the count grows by equal steps."""
    step = count(2) - count(1)
    below = max(1, 1 + (budget - count(1)) // step)
    return min((below, below + 1), key=lambda size: abs(count(size) - budget))


@torch.inference_mode()
def added_flops_per_token(model: PeftModel, row: Row) -> float:
    """Count the floating-point operations that an adapter adds to a forward, per token, by torch's own counter.

    Args:
        model: the base with the adapter; adapters that could be merged (LoRA) are counted as they are trained.
        row: a tokenised chat.
    """
    input_ids = torch.tensor([row["input_ids"]], device=model.device)
    mask = torch.tensor([row["system_mask"]], device=model.device)
    inputs = {"system_mask": mask} if hears_system(model) else {}

    def count(run: Callable[[], object]) -> int:
        # Only the plain kernel is counted everywhere; torch's counter does not know those of every device.
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            run()
        return int(counter.get_total_flops())

    anchored = count(lambda: model(input_ids=input_ids, use_cache=False, **inputs))
    with model.disable_adapter():
        base = count(lambda: model(input_ids=input_ids, use_cache=False, **inputs))
    return (anchored - base) / input_ids.shape[1]
