"""Tiny random models of ten architectures, and the inputs that the tests share."""

import torch
from peft import PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from calyrex.config import CalyrexConfig
from calyrex.layer import CalyrexLayer

VOCABULARY = 100
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
EXTRAS = {
    "gemma2": {"head_dim": 8, "sliding_window": 6, "query_pre_attn_scalar": 8},
    "gemma3_text": {"head_dim": 8, "sliding_window": 6, "query_pre_attn_scalar": 8},
    "qwen3": {"head_dim": 8},
    "mistral": {"sliding_window": None},
    "mixtral": {"num_local_experts": 2, "num_experts_per_tok": 1},
    "gpt2": {"n_embd": 32, "n_layer": 4, "n_head": 4, "n_positions": 256},
}
ARCHITECTURES = (
    "llama", "qwen2", "qwen3", "gemma2", "gemma3_text", "mistral", "phi3", "gpt2", "olmo2", "mixtral"
)  # fmt: skip


def tiny_base(
    architecture: str = "llama", dtype: torch.dtype = torch.float32, seed: int = 0, vocab_size: int = VOCABULARY
) -> PreTrainedModel:
    """Make a random model of four layers."""
    torch.manual_seed(seed)
    sizes = (
        {key: SIZES[key] for key in ("vocab_size", "bos_token_id", "eos_token_id")} if architecture == "gpt2" else SIZES
    )
    sizes = {**sizes, "vocab_size": vocab_size}
    config = CONFIG_MAPPING[architecture](**sizes, **EXTRAS.get(architecture, {}))
    return AutoModelForCausalLM.from_config(config, dtype=dtype).eval()


def tiny_anchored(
    architecture: str = "llama",
    *,
    trained: bool = True,
    dtype: torch.dtype = torch.float32,
    **options: object,
) -> PeftModel:
    """Put blocks on a tiny model; ``trained`` gives their output projections random weights."""
    base = tiny_base(architecture, dtype)
    model = get_peft_model(base, CalyrexConfig(placement=[2, 3, 4], **options)).eval()
    if trained:
        train_blocks(model)
    return model


def train_blocks(model: PeftModel, seed: int = 1) -> None:
    """Give the output projections of the active adapter random weights, as if they had been trained."""
    generator = torch.Generator().manual_seed(seed)
    for layer in model.modules():
        if isinstance(layer, CalyrexLayer):
            for name in layer.active_adapters:
                if name in layer.head_dims:
                    for module in (layer.calyrex_o_proj[name], layer.calyrex_down_proj[name]):
                        module.weight.data.copy_(torch.randn(module.weight.shape, generator=generator) * 0.3)


def batch(rows: int = 2, tokens: int = 12, seed: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """Return token ids and a system mask of positions 2 .. 4 (row 0) and 1 .. 6 (the others)."""
    generator = torch.Generator().manual_seed(seed)
    input_ids = torch.randint(3, VOCABULARY, (rows, tokens), generator=generator)
    system_mask = torch.zeros(rows, tokens, dtype=torch.bool)
    system_mask[0, 2:5] = True
    system_mask[1:, 1:7] = True
    return input_ids, system_mask
