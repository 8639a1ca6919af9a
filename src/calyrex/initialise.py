"""Start a block from the weights of the decoder layer before it (``init="base"``)."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from calyrex.block import BlockShape


def copy_base_weights(modules: Mapping[str, nn.Module], layer: nn.Module, shape: BlockShape) -> None:
    """Copy W_Q, W_K, W_V, gate, up and the two norms of a decoder layer into a block that has them, in place.

    A narrower feed-forward takes the first ``F`` rows; rows that a wider one has beyond the base's stay as they are.
    Biases of the base are left out; the output projections stay zero.

    Args:
        modules: the modules to fill, by the names in ``BlockModules``.
        layer: the decoder layer before the block.
        shape: the sizes of the block.

    Raises:
        ValueError: the layer has no such weights, they are quantised, or the block's heads differ from the base's.
    """
    weights = _base_weights(layer, shape)
    for name in weights.keys() & modules.keys():
        weight, target = weights[name], modules[name].get_parameter("weight")
        if not weight.is_floating_point():
            raise ValueError("init='base' needs base weights that are not quantised; use init='random'")
        is_feed_forward = name in ("gate_proj", "up_proj")
        if weight.shape[1:] != target.shape[1:] or (weight.shape[0] < target.shape[0] and not is_feed_forward):
            raise ValueError(
                f"init='base' needs the heads of the base: {name} is {list(target.shape)} in the block and "
                f"{list(weight.shape)} in the base; leave the sizes out or use init='random'"
            )
        with torch.no_grad():
            target[: weight.shape[0]] = weight[: target.shape[0]]


def _base_weights(layer: nn.Module, shape: BlockShape) -> dict[str, Tensor]:
    """Return the weights by the names in ``BlockModules``, fused ones taken apart (phi3)."""
    parameters: dict[str, Tensor] = dict(layer.named_parameters())
    key_width = shape.num_key_value_heads * shape.head_dim
    if "self_attn.qkv_proj.weight" in parameters:
        fused = parameters["self_attn.qkv_proj.weight"]
        q, k, v = fused.split([fused.shape[0] - 2 * key_width, key_width, key_width])
        gate, up = parameters["mlp.gate_up_proj.weight"].chunk(2)
    else:
        names = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")
        missing = [name for name in names if f"{name}.weight" not in parameters]
        if missing:
            raise ValueError(
                f"init='base' is not available for {type(layer).__name__}: it has no {missing[0]}; use init='random'"
            )
        q, k, v, gate, up = (parameters[f"{name}.weight"] for name in names)
    return {
        "q_proj": q,
        "k_proj": k,
        "v_proj": v,
        "gate_proj": gate,
        "up_proj": up,
        **_norms(layer, parameters),
    }


def _norms(layer: nn.Module, parameters: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the two pre-norms; an architecture that only norms after its sublayers has none to copy (olmo2)."""
    gemma = type(layer).__name__.startswith("Gemma")  # its RMS norm multiplies by 1 + weight
    before_mlp = "pre_feedforward_layernorm" if gemma else "post_attention_layernorm"
    if "input_layernorm.weight" not in parameters:
        return {}
    norms = {
        "input_norm": parameters["input_layernorm.weight"],
        "post_attention_norm": parameters[f"{before_mlp}.weight"],
    }
    return {name: weight + 1 if gemma else weight for name, weight in norms.items()}
