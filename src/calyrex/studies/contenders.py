"""The contenders of a comparison: what each one is, and how it is put on the base.

A contender is named ``method`` or ``method:setting=value:...``; ``shuffled`` as a setting makes it a control, which is
trained on the system prompts of other chats.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from peft import LoraConfig, PeftConfig, PeftModel, get_peft_model
from torch import nn
from transformers import PreTrainedModel, set_seed
from transformers.pytorch_utils import Conv1D

from calyrex.base import find_layers
from calyrex.config import CalyrexConfig
from calyrex.errors import CalyrexError
from calyrex.flags import convert, kind_text, read_options
from calyrex.options import TrainOptions
from calyrex.parallel_mlp import ParallelMLPConfig
from calyrex.placement import resolve_placement

METHODS = {
    "base": "Base",
    "repetition": "Prompt repetition",
    "lora": "LoRA, all layers",
    "lora_late": "LoRA, layers of the blocks",
    "parallel_mlp": "ParallelMLP",
    "calyrex": "CALYREX",
}
"""The methods by name, in words."""

REFERENCE = "calyrex"
"""The contender that the others are compared with, and whose size is the budget."""

UNTRAINED = ("base", "repetition")
_SHUFFLED = "shuffled"
_SETTINGS = ("placement", "num_blocks", "intermediate_size", "init", "without_system")
"""Options of the blocks that a variant of CALYREX may set, as ``calyrex train`` has them."""


@dataclass(frozen=True)
class Contender:
    """One contender.

    Attributes:
        name: as the user wrote it; the key in all results.
        method: one of ``METHODS``.
        settings: options of the blocks that differ from the study's.
        is_shuffled: whether it is trained on shuffled system prompts, a control and not in the race.
    """

    name: str
    method: str
    settings: Mapping[str, Any]
    is_shuffled: bool

    @property
    def is_trained(self) -> bool:
        """Whether it has anything to train."""
        return self.method not in UNTRAINED

    @property
    def has_budget(self) -> bool:
        """Whether its size is chosen so that it trains as many parameters as the reference."""
        return self.method in ("lora", "lora_late", "parallel_mlp")

    @property
    def folder(self) -> str:
        """A name for its folder."""
        return self.name.replace(":", "--").replace("=", "-").replace("/", "-")

    @property
    def label(self) -> str:
        """What it is called in tables and figures."""
        settings = [f"{name} {value}" for name, value in self.settings.items()]
        words = [*settings, *(["shuffled system prompts"] if self.is_shuffled else [])]
        return f"{METHODS[self.method]} ({', '.join(words)})" if words else METHODS[self.method]


def parse_contender(name: str) -> Contender:
    """Read the name of a contender, such as ``lora``, ``calyrex:init=random`` or ``calyrex:shuffled``.

    Raises:
        CalyrexError: there is no such method or setting, or the method has none.
    """
    method, *words = name.split(":")
    if method not in METHODS:
        raise CalyrexError(f"no contender {name!r}: expected one of {', '.join(METHODS)}")
    is_shuffled = _SHUFFLED in words
    words = [word for word in words if word != _SHUFFLED]
    if (is_shuffled and method in UNTRAINED) or (words and method != REFERENCE):
        raise CalyrexError(f"contender {name!r}: {method} has no setting {name.partition(':')[2]!r}")
    return Contender(name, method, dict(_parse_setting(name, word) for word in words), is_shuffled)


def _parse_setting(contender: str, word: str) -> tuple[str, Any]:
    name, _, text = word.partition("=")
    kinds = {option.name: option.kind for option in read_options(TrainOptions) if option.name in _SETTINGS}
    if name not in kinds:
        raise CalyrexError(f"contender {contender!r}: no setting {name!r}, expected one of {', '.join(_SETTINGS)}")
    try:
        return name, convert(kinds[name], text)
    except ValueError as error:
        raise CalyrexError(f"contender {contender!r}: {name} must be {kind_text(kinds[name])}, got {text!r}") from error


def make_config(
    contender: Contender, base: PreTrainedModel, blocks: CalyrexConfig, size: int | None = None
) -> PeftConfig:
    """Make the configuration of a contender's adapter.

    Args:
        contender: a trained contender.
        base: the base, for the names of its layers.
        blocks: the blocks of the reference.
        size: rank of LoRA or width of ParallelMLP; CALYREX has its own.

    Raises:
        ValueError: a setting does not fit.
    """
    if contender.method == "parallel_mlp":
        return ParallelMLPConfig(
            placement=blocks.placement, num_blocks=blocks.num_blocks, intermediate_size=size, init=blocks.init
        )
    if contender.method == REFERENCE:
        return dataclasses.replace(blocks, **contender.settings)
    layers = find_layers(base)
    chosen = resolve_placement(blocks.placement, len(layers), blocks.num_blocks)
    late = _linear_names(base, [layers[layer - 1] for layer in chosen])
    return LoraConfig(
        task_type="CAUSAL_LM",
        r=size or 1,
        lora_alpha=2 * (size or 1),
        target_modules=late if contender.method == "lora_late" else "all-linear",
        fan_in_fan_out=any(isinstance(module, Conv1D) for module in layers.modules()),  # gpt2
    )


def _linear_names(base: PreTrainedModel, layers: list[nn.Module]) -> list[str]:
    inside = {id(module) for layer in layers for module in layer.modules() if isinstance(module, nn.Linear | Conv1D)}
    return [name for name, module in base.named_modules() if id(module) in inside]


def attach(contender: Contender, base: PreTrainedModel, config: PeftConfig, seed: int) -> PeftModel:
    """Put a contender's fresh adapter on a base; it is the same for the same seed.

    Raises:
        CalyrexError: the configuration does not fit the base.
    """
    set_seed(seed)
    try:
        return cast(PeftModel, get_peft_model(base, config))
    except (ValueError, RuntimeError) as error:
        raise CalyrexError(f"contender {contender.name!r}: {str(error).splitlines()[0]}") from error


def describe(contender: Contender, config: PeftConfig | None) -> str:
    """Say in a few words what is trained."""
    if isinstance(config, LoraConfig):
        places = (
            "all linear maps"
            if config.target_modules == "all-linear"
            else "the linear maps of the layers of the blocks"
        )
        return f"rank {config.r} on {places}, alpha {config.lora_alpha}"
    if isinstance(config, ParallelMLPConfig):
        return f"feed-forwards of width {config.intermediate_size}, init {config.init}"
    if isinstance(config, CalyrexConfig):
        return f"blocks of width {config.intermediate_size}, init {config.init}, without system {config.without_system}"
    return "the system prompt again right before the last user turn" if contender.method == "repetition" else "as it is"
