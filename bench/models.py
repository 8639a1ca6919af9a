"""The models that are measured, and the rows that they train on."""

from dataclasses import dataclass
from typing import cast

import torch
from datasets import Dataset
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, LlamaConfig, PretrainedConfig, PreTrainedModel, Qwen2Config, set_seed

from bench.limits import BaseShape
from calyrex.config import CalyrexConfig
from calyrex.models import BUILTIN, load_base
from calyrex.options import DemoOptions
from calyrex.placement import DEFAULT_PLACEMENT

QWEN_1_5B = Qwen2Config(
    vocab_size=151936,
    hidden_size=1536,
    intermediate_size=8960,
    num_hidden_layers=28,
    num_attention_heads=12,
    num_key_value_heads=2,
    max_position_embeddings=32768,
    tie_word_embeddings=True,
)
TINY = LlamaConfig(
    vocab_size=128,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=8,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
    tie_word_embeddings=True,
)


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Attributes:
        is_tiny: take a tiny random base, to try the benchmarks themselves.
        demo_width: ``F`` of the blocks of the main figures.
        batch_size: rows of a training step.
        tokens: tokens of a training row.
        system_tokens: tokens of the system prompt, everywhere.
        answer_tokens: tokens of a training row that carry a label.
        prefill_tokens: tokens of a prefill.
        context: tokens in the cache before a decode step.
        long_context: the same for the figure about long conversations.
        train_rounds: measurements of each side of a training figure.
        memory_rounds: pairs of processes of the memory figure.
        prefill_rounds: measurements of each side of the prefill figure.
        decode_rounds: the same for decode steps.
        long_rounds: the same for decode steps after contexts of two lengths.
        study_rows: rows of the study of placements.
        study_batch: rows of its steps.
        study_tokens: tokens of its rows; a quarter of them carry a label.
        study_epochs: its epochs.
        study_rounds: how often the whole study is run each way.
        serve_clients: clients of a server at the same time.
        serve_company: the same for the figure about first tokens.
        serve_requests: requests of each client in one round, one after the other.
        serve_tokens: tokens of an answer.
        serve_rounds: rounds of each side.
        widths: values of ``F`` of the curve of costs; the last one counts as 1.
    """

    is_tiny: bool = False
    demo_width: int = DemoOptions.intermediate_size
    batch_size: int = 8
    tokens: int = 512
    system_tokens: int = 64
    answer_tokens: int = 128
    prefill_tokens: int = 2048
    context: int = 512
    long_context: int = 8000
    train_rounds: int = 3
    memory_rounds: int = 1
    prefill_rounds: int = 11
    decode_rounds: int = 100
    long_rounds: int = 500
    study_rows: int = 8
    study_batch: int = 4
    study_tokens: int = 256
    study_epochs: int = 2
    study_rounds: int = 1
    serve_clients: int = 32
    serve_company: int = 8
    serve_requests: int = 3
    serve_tokens: int = 64
    serve_rounds: int = 3
    widths: tuple[int, ...] = (64, 128, 256, 512, 1536)


QUICK = Sizes(
    is_tiny=True,
    demo_width=16,
    batch_size=2,
    tokens=32,
    system_tokens=8,
    answer_tokens=8,
    prefill_tokens=64,
    context=32,
    long_context=128,
    train_rounds=2,
    memory_rounds=1,
    prefill_rounds=2,
    decode_rounds=3,
    long_rounds=3,
    study_rows=4,
    study_batch=2,
    study_tokens=32,
    serve_clients=4,
    serve_company=2,
    serve_requests=2,
    serve_tokens=8,
    serve_rounds=1,
    widths=(16, 32),
)


def load(sizes: Sizes) -> PreTrainedModel:
    """Load the base: SmolLM2-135M on a CPU, Qwen2.5-1.5B's shape with random weights in bf16 on a GPU."""
    if sizes.is_tiny:
        return _random(TINY, torch.float32)
    if torch.cuda.is_available():
        return _random(QWEN_1_5B, torch.bfloat16)
    return load_base(BUILTIN)


def _random(config: PretrainedConfig, dtype: torch.dtype) -> PreTrainedModel:
    set_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=dtype)
    model.requires_grad_(False)
    model.eval()
    return model


def attach_blocks(
    base: PreTrainedModel, width: int | None, placement: str | list[int] = DEFAULT_PLACEMENT
) -> PeftModel:
    """Put fresh blocks on a base, ``width`` wide in their feed-forward; None takes the base's own width."""
    set_seed(0)
    return cast(PeftModel, get_peft_model(base, CalyrexConfig(placement=placement, intermediate_size=width)))


def attach_lora(base: PreTrainedModel, rank: int) -> PeftModel:
    """Put LoRA on all linear maps of a base."""
    set_seed(0)
    config = LoraConfig(task_type="CAUSAL_LM", r=rank, lora_alpha=2 * rank, target_modules="all-linear")
    return cast(PeftModel, get_peft_model(base, config))


def matching_rank(shape: BaseShape, num_blocks: int, width: int) -> int:
    """Return the rank with which LoRA trains as many weights as blocks do, as nearly as a whole number can."""
    return max(1, round(num_blocks * shape.block_parameters(width) / (shape.num_layers * shape.lora_weights(1))))


def count_trainable(model: PeftModel) -> int:
    """Return the number of weights that are trained."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def make_rows(vocab_size: int, num_rows: int, tokens: int, *, system_tokens: int, answer_tokens: int) -> Dataset:
    """Make rows of random tokens: a system prompt first, an answer last."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, vocab_size, (num_rows, tokens), generator=generator)
    rest = tokens - system_tokens
    return Dataset.from_dict(
        {
            "input_ids": ids.tolist(),
            "system_mask": [[True] * system_tokens + [False] * rest] * num_rows,
            "assistant_mask": [[False] * (tokens - answer_tokens) + [True] * answer_tokens] * num_rows,
            "length": [tokens] * num_rows,
            "row": list(range(num_rows)),
        }
    )
