import math

import pytest
import torch
from peft import PeftModel
from torch import Tensor, nn

from calyrex.analysis.blocks import (
    SCALES,
    BlockStreams,
    find_blocks,
    join_forwards,
    map_attention,
    measure_norms,
    recorded,
    try_strengths,
)
from calyrex.analysis.causal import knock_out
from calyrex.analysis.forced import ForcedRun
from calyrex.training.filling import base_layers
from forced_runs import random_runs
from tiny import tiny_anchored, tiny_base

BLOCKS = (2, 3, 4)


@pytest.fixture(params=["llama", "gemma3_text", "gpt2"])
def model(request: pytest.FixtureRequest) -> PeftModel:
    return tiny_anchored(request.param).requires_grad_(False)


@pytest.fixture
def run() -> ForcedRun:
    return random_runs().with_rule


def record(model: PeftModel, run: ForcedRun) -> BlockStreams:
    with recorded(model) as kept:
        knock_out(model, run, [run.system_mask[0]])
    return join_forwards(kept)


def plain_forward(model: PeftModel, run: ForcedRun, **options: object) -> Tensor:
    ids = torch.cat([run.prompt, run.tail], dim=1)
    mask = nn.functional.pad(run.system_mask, (0, run.tail.shape[1]))
    return model(input_ids=ids, system_mask=mask, use_cache=False, **options).logits[0, -run.tail.shape[1] :]


def plain_score(model: PeftModel, run: ForcedRun, **options: object) -> float:
    told = plain_forward(model, run, **options).log_softmax(dim=-1)
    return float(told[torch.arange(len(run.targets)), run.targets].mean().detach())


def plain_streams(model: PeftModel, run: ForcedRun) -> dict[int, tuple[Tensor, Tensor]]:
    """Return the stream before and after each block at all tokens of one whole forward."""
    outputs: dict[nn.Module, Tensor] = {}

    def keep(module: nn.Module, _args: object, output: Tensor) -> None:
        outputs[module] = output[0]

    layers = {number: base_layers(model)[number - 1] for number in BLOCKS}
    modules = [module for layer in layers.values() for module in (layer.get_base_layer(), layer)]
    handles = [module.register_forward_hook(keep) for module in modules]
    plain_forward(model, run)
    for handle in handles:
        handle.remove()
    return {number: (outputs[layer.get_base_layer()], outputs[layer]) for number, layer in layers.items()}


def test_blocks_are_found_by_the_layer_before_them(model: PeftModel) -> None:
    assert tuple(find_blocks(model)) == BLOCKS
    assert find_blocks(tiny_base()) == {}


def test_recorded_streams_are_those_of_a_plain_forward(model: PeftModel, run: ForcedRun) -> None:
    streams = record(model, run)

    for number, (before, after) in plain_streams(model, run).items():
        torch.testing.assert_close(streams[number].before, before, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(streams[number].after, after, rtol=1e-4, atol=1e-5)


def test_norms_are_those_of_the_contributions_by_who_wrote_the_token(model: PeftModel, run: ForcedRun) -> None:
    norms = measure_norms(record(model, run), run.classes)

    for number, (before, after) in plain_streams(model, run).items():
        for name in ("system", "user", "answer", "template"):
            places = [place for place, own in enumerate(run.classes) if own == name]
            expected = sum(float((after[at] - before[at]).norm() / before[at].norm()) for at in places)
            assert norms[number][name] == (pytest.approx(expected, rel=1e-4), len(places))


def test_attention_maps_are_the_weights_of_the_block_s_own_heads(model: PeftModel, run: ForcedRun) -> None:
    maps = map_attention(model, record(model, run), run)

    system = run.system_mask[0].nonzero()[:, 0].tolist()
    for number, (before, _) in plain_streams(model, run).items():
        layer = base_layers(model)[number - 1]
        block, size = layer.block("default"), layer.head_dims["default"]
        queries, keys = block.q_proj(block.input_norm(before)), block.k_proj(block.input_norm(before))
        num_heads, num_keys = queries.shape[1] // size, keys.shape[1] // size
        for row, place in enumerate(range(run.prompt.shape[1], run.num_tokens)):
            expected = torch.zeros(len(system))
            for head in range(num_heads):
                key_head = head * num_keys // num_heads
                query = queries[place, head * size : (head + 1) * size]
                scores = [float(query @ keys[at, key_head * size : (key_head + 1) * size]) for at in system]
                expected += (torch.tensor(scores) / math.sqrt(size)).softmax(dim=0) / num_heads
            assert maps[number][row] == pytest.approx(expected.tolist(), abs=2e-5)


def test_scales_are_those_of_whole_forwards(model: PeftModel, run: ForcedRun) -> None:
    found = try_strengths(model, record(model, run), run)

    expected = [plain_score(model, run, scale=scale) for scale in SCALES]
    assert found.scaled == pytest.approx(expected, abs=1e-5)
    assert found.scaled[0] != pytest.approx(found.scaled[4], abs=1e-3)


def test_scale_0_is_the_base_and_all_on_the_adapter_s_own_scale(model: PeftModel, run: ForcedRun) -> None:
    model.base_model.set_scale(0.75)

    found = try_strengths(model, record(model, run), run)

    with model.disable_adapter():
        ids = torch.cat([run.prompt, run.tail], dim=1)
        told = model(input_ids=ids, use_cache=False).logits[0, -run.tail.shape[1] :].log_softmax(dim=-1)
    base = float(told[torch.arange(len(run.targets)), run.targets].mean())
    assert found.scaled[0] == pytest.approx(base, abs=1e-5)
    assert found.all_on == pytest.approx(plain_score(model, run), abs=1e-5)


def test_a_block_switched_off_passes_the_stream_on_as_it_came(model: PeftModel, run: ForcedRun) -> None:
    found = try_strengths(model, record(model, run), run)

    for number in BLOCKS:
        layer = base_layers(model)[number - 1]
        streams: list[Tensor] = []
        handles = [
            layer.get_base_layer().register_forward_hook(lambda *given, own=streams: own.append(given[-1])),
            layer.register_forward_hook(lambda *given, own=streams: own.pop()),
        ]
        expected = plain_score(model, run)
        for handle in handles:
            handle.remove()
        assert found.one_off[number] == pytest.approx(expected, abs=1e-5)
        assert found.one_off[number] != pytest.approx(found.all_on, abs=1e-4)
