"""Where a base model keeps its decoder layers, and its sizes by transformers' names."""

from typing import Any

from torch import nn
from transformers import PreTrainedModel


def find_layers(model: PreTrainedModel) -> nn.ModuleList:
    """Return the list of decoder layers of a causal language model.

    Raises:
        ValueError: the model has no list as long as its configuration says.
    """
    num_layers = model.config.get_text_config().num_hidden_layers
    for child in model.get_decoder().children():
        if isinstance(child, nn.ModuleList) and len(child) == num_layers:
            return child
    raise ValueError(f"{type(model).__name__} has no list of {num_layers} decoder layers where blocks could sit")


def base_sizes(model: PreTrainedModel) -> dict[str, Any]:
    """Return the sizes of a base by transformers' names, with the defaults that architectures leave unsaid."""
    config = model.config.get_text_config()
    num_heads = config.num_attention_heads
    return {
        "hidden_size": config.hidden_size,
        "num_attention_heads": num_heads,
        "num_key_value_heads": getattr(config, "num_key_value_heads", None) or num_heads,
        "head_dim": getattr(config, "head_dim", None) or config.hidden_size // num_heads,
        "intermediate_size": _intermediate_size(config),
        "norm_eps": getattr(config, "rms_norm_eps", 1e-6),
    }


def _intermediate_size(config: Any) -> int:
    if config.model_type == "gpt2":
        return int(config.n_inner or 4 * config.hidden_size)
    return int(config.intermediate_size)
