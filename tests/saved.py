"""Tiny models, tokenizers, adapters and GGUF files on disk, and what the tests of loading share."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf as gguf_format
import pytest
import torch
from peft import get_peft_model
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TokenizersBackend

from calyrex.config import CalyrexConfig
from calyrex.errors import CalyrexError
from chat_tokenizers import chatml
from tiny import SIZES, tiny_base, train_blocks

SPECIAL = ["<unk>", "<|im_start|>", "<|im_end|>"]
VOCABULARY = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())[:96], "12"]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}"


def save_base(folder: Path, *, seed: int = 0, dtype: torch.dtype = torch.float32) -> Path:
    tiny_base("llama", dtype, seed).save_pretrained(folder)
    return folder


def save_chat_base(folder: Path) -> Path:
    """A tiny base with a tokenizer that has a chat template, long enough for conversations of many turns."""
    tokenizer = chatml()
    base = tiny_base(vocab_size=len(tokenizer))
    base.config.eos_token_id = base.generation_config.eos_token_id = tokenizer.eos_token_id
    base.config.max_position_embeddings = 2048
    base.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_tokenizer(folder: Path, **special: str) -> Path:
    tokenizer = Tokenizer(BPE({token: i for i, token in enumerate(VOCABULARY)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast: PreTrainedTokenizerBase = TokenizersBackend(tokenizer_object=tokenizer, **special)  # type: ignore[no-untyped-call]
    fast.save_pretrained(folder)
    return folder


def save_adapter(folder: Path, base: PreTrainedModel, **options: Any) -> Path:
    model = get_peft_model(base, CalyrexConfig(**{"placement": [2, 3, 4], **options}))
    train_blocks(model)
    model.save_pretrained(str(folder))
    return folder


def interleave(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Order the rows of a query or key projection as GGUF does."""
    return weight.reshape(heads, 2, weight.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(weight.shape)


def gguf_tensors(base: PreTrainedModel) -> Iterator[tuple[str, torch.Tensor]]:
    names = gguf_format.get_tensor_name_map(gguf_format.MODEL_ARCH.LLAMA, SIZES["num_hidden_layers"])
    heads = {"q_proj": SIZES["num_attention_heads"], "k_proj": SIZES["num_key_value_heads"]}
    for name, weight in base.state_dict().items():
        kind = name.split(".")[-2]
        file_name = names.get_name(name, try_suffixes=(".weight",)) or name
        yield file_name, interleave(weight, heads[kind]) if kind in heads else weight


def write_gguf(path: Path, base: PreTrainedModel) -> Path:
    """Write a tiny llama and its tokenizer as a GGUF file."""
    writer = gguf_format.GGUFWriter(path, "llama")
    writer.add_block_count(SIZES["num_hidden_layers"])
    writer.add_context_length(SIZES["max_position_embeddings"])
    writer.add_embedding_length(SIZES["hidden_size"])
    writer.add_feed_forward_length(SIZES["intermediate_size"])
    writer.add_head_count(SIZES["num_attention_heads"])
    writer.add_head_count_kv(SIZES["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(base.config.rms_norm_eps)
    writer.add_rope_freq_base(base.config.rope_parameters["rope_theta"])
    writer.add_vocab_size(SIZES["vocab_size"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(VOCABULARY)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(VOCABULARY) - len(SPECIAL)))
    writer.add_token_merges(["1 2"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(TEMPLATE)
    for name, weight in gguf_tensors(base):
        writer.add_tensor(name, weight.float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def message_of(error: pytest.ExceptionInfo[CalyrexError]) -> str:
    message = str(error.value)
    assert "\n" not in message
    return message
