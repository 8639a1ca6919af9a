"""ParallelMLP, the structural control: the same place and budget as a block, and no attention to the system prompt.

After a decoder layer, every token of the residual stream ``x`` goes through

    x' = x + W_D ( silu(W_G n) * (W_U n) ),   n = RMSNorm(x)

with ``W_D`` zero at the start. What it learns less well than CALYREX is what the path to the system prompt is worth.

Source: arXiv 2605.09737, the baseline of the same name.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from peft import PeftConfig
from peft.utils import PeftType, TaskType
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from calyrex.base import base_sizes
from calyrex.block import CastLinear, CastRMSNorm
from calyrex.config import CalyrexConfig, check_choice, check_sizes
from calyrex.initialise import copy_base_weights
from calyrex.options import Init
from calyrex.placement import DEFAULT_PLACEMENT
from calyrex.registration import register
from calyrex.wrapping import InsertedLayer, InsertingModel

PREFIX = "parallel_mlp_"


@dataclass
class ParallelMLPConfig(PeftConfig):
    """Where the feed-forwards of an adapter sit and how wide they are.

    Attributes:
        placement: as in ``CalyrexConfig``.
        num_blocks: as in ``CalyrexConfig``.
        intermediate_size: width of a feed-forward; None takes the base's.
        init: ``"random"``, or ``"base"`` to copy gate, up and the norm from the layer before. ``W_D`` is zero either
            way.
        target_modules: names of the decoder layers; worked out from ``placement``, not for the user.
    """

    placement: str | list[int] = field(default=DEFAULT_PLACEMENT)
    num_blocks: int = field(default=5)
    intermediate_size: int | None = field(default=None)
    init: Init = field(default="random")
    target_modules: list[str] | None = field(default=None)

    def __post_init__(self) -> None:
        """Set the PEFT type and check the choices.

        Raises:
            ValueError: ``init`` is none of its choices, or a size is below 1.
        """
        super().__post_init__()  # type: ignore[no-untyped-call]
        self.peft_type = PeftType("PARALLEL_MLP")  # a member that ``calyrex.registration`` adds
        self.task_type = self.task_type or TaskType.CAUSAL_LM
        check_choice(self, "init", Init)
        check_sizes(self, "num_blocks", "intermediate_size")


class FeedForward(NamedTuple):
    """The modules of one feed-forward; the names are those of the parameters in an adapter file."""

    post_attention_norm: nn.Module
    gate_proj: nn.Module
    up_proj: nn.Module
    down_proj: nn.Module


class ParallelMLPLayer(InsertedLayer):
    """A decoder layer with a feed-forward after it, one for each adapter."""

    prefix = PREFIX
    adapter_layer_names = tuple(PREFIX + name for name in FeedForward._fields)

    def act(self, x: Tensor, adapter_name: str, cache: Cache | None) -> Tensor:
        """Apply the feed-forward of an adapter to the residual stream ``[B, T, E]``."""
        modules = FeedForward(*(getattr(self, name)[adapter_name] for name in self.adapter_layer_names))
        n = modules.post_attention_norm(x)
        out: Tensor = x + modules.down_proj(functional.silu(modules.gate_proj(n)) * modules.up_proj(n))
        return out


class ParallelMLPModel(InsertingModel):
    """A frozen causal language model with feed-forwards after some layers, made by ``peft.get_peft_model``."""

    prefix = PREFIX
    tuner_layer_cls = ParallelMLPLayer

    def wrap(self, layer: nn.Module, number: int) -> ParallelMLPLayer:
        """Wrap a decoder layer, whose number counts from 0."""
        return ParallelMLPLayer(layer, number)

    def insert(self, layer: InsertedLayer, adapter_name: str, peft_config: ParallelMLPConfig) -> None:
        """Insert the fresh feed-forward of an adapter after a wrapped layer."""
        feed_forward = build_feed_forward(peft_config, self.model, layer.get_base_layer())
        layer.insert(adapter_name, peft_config, feed_forward)


def build_feed_forward(config: ParallelMLPConfig, base: PreTrainedModel, layer: nn.Module) -> FeedForward:
    """Make the modules of a fresh feed-forward, for the place after a decoder layer of a base.

    Raises:
        ValueError: ``init="base"`` does not fit the decoder layer.
    """
    shape = CalyrexConfig(intermediate_size=config.intermediate_size).block_shape(base_sizes(base))
    modules = FeedForward(
        post_attention_norm=CastRMSNorm(shape.hidden_size, eps=shape.norm_eps),
        gate_proj=CastLinear(shape.hidden_size, shape.intermediate_size),
        up_proj=CastLinear(shape.hidden_size, shape.intermediate_size),
        down_proj=CastLinear(shape.intermediate_size, shape.hidden_size),
    )
    nn.init.zeros_(modules.down_proj.get_parameter("weight"))
    if config.init == "base":
        copy_base_weights(modules._asdict(), layer, shape)
    return modules


register()
