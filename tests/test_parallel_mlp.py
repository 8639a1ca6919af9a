"""ParallelMLP is a PEFT method: the identity when fresh, a plain SwiGLU when trained, saved and loaded as any."""

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel, get_peft_model
from torch.nn import functional

from calyrex.base import find_layers
from calyrex.models import load_anchored
from calyrex.parallel_mlp import ParallelMLPConfig, ParallelMLPLayer
from saved import save_base
from tiny import ARCHITECTURES, batch, tiny_base


def with_feed_forwards(architecture: str = "llama", **options: Any) -> PeftModel:
    return get_peft_model(tiny_base(architecture), ParallelMLPConfig(placement=[2, 4], **options)).eval()


def train(model: PeftModel) -> None:
    generator = torch.Generator().manual_seed(1)
    for layer in model.modules():
        if isinstance(layer, ParallelMLPLayer):
            weight = layer.parallel_mlp_down_proj["default"].weight
            weight.data.copy_(0.3 * torch.randn(weight.shape, generator=generator))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_fresh_adapter_is_the_identity_bit_for_bit(architecture: str) -> None:
    input_ids, _ = batch()
    expected = tiny_base(architecture)(input_ids=input_ids).logits

    model = with_feed_forwards(architecture)

    assert torch.equal(model(input_ids=input_ids).logits, expected)


def test_what_is_added_is_a_plain_swiglu_of_the_normed_stream() -> None:
    model = with_feed_forwards(intermediate_size=24)
    train(model)
    layer = find_layers(model.get_base_model())[1]
    stream = torch.randn(2, 5, 32)
    norm, gate, up, down = (
        getattr(layer, f"parallel_mlp_{name}")["default"].weight
        for name in ("post_attention_norm", "gate_proj", "up_proj", "down_proj")
    )

    acted = layer.act(stream, "default", None)

    n = stream / (stream.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * norm
    expected = stream + (functional.silu(n @ gate.T) * (n @ up.T)) @ down.T
    torch.testing.assert_close(acted, expected)


def test_only_the_feed_forwards_are_trained() -> None:
    model = with_feed_forwards(intermediate_size=24)

    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}

    assert len(trained) == 2 * 4
    assert all("parallel_mlp_" in name for name in trained)
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == 2 * (3 * 32 * 24 + 32)


def test_a_saved_adapter_says_the_same_when_it_is_loaded(tmp_path: Path) -> None:
    input_ids, _ = batch()
    base = save_base(tmp_path / "base")
    model = with_feed_forwards()
    train(model)
    model.save_pretrained(str(tmp_path / "adapter"))

    loaded = load_anchored(base, tmp_path / "adapter", allow_other_base=True)

    torch.testing.assert_close(loaded(input_ids=input_ids).logits, model(input_ids=input_ids).logits)


def test_disabled_and_unloaded_it_is_the_base() -> None:
    input_ids, _ = batch()
    expected = tiny_base()(input_ids=input_ids).logits
    model = with_feed_forwards()
    train(model)

    with model.disable_adapter():
        disabled = model(input_ids=input_ids).logits
    unloaded = model.unload()

    assert torch.equal(disabled, expected)
    assert torch.equal(unloaded(input_ids=input_ids).logits, expected)


def test_cached_generation_is_that_of_the_whole_forward() -> None:
    input_ids, _ = batch()
    model = with_feed_forwards()
    train(model)

    answer = model.generate(input_ids=input_ids, attention_mask=torch.ones_like(input_ids), max_new_tokens=5)

    for length in range(12, 17):
        torch.testing.assert_close(model(input_ids=answer[:, :length]).logits[:, -1].argmax(-1), answer[:, length])


def test_it_starts_from_the_layer_before_where_that_is_asked_for() -> None:
    model = with_feed_forwards(init="base", intermediate_size=24)

    layer = find_layers(model.get_base_model())[1]

    assert torch.equal(layer.parallel_mlp_gate_proj["default"].weight, layer.mlp.gate_proj.weight[:24])


def test_it_cannot_be_merged() -> None:
    with pytest.raises(NotImplementedError, match="PARALLEL_MLP blocks cannot be merged"):
        with_feed_forwards().merge_and_unload()


def test_a_size_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="intermediate_size must be a whole number of at least 1, got 0"):
        ParallelMLPConfig(intermediate_size=0)
