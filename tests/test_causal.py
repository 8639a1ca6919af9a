import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from peft import PeftModel
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from calyrex.analysis.causal import draw_random_tokens, hide_keys, knock_out, patch
from calyrex.analysis.forced import ForcedRun
from calyrex.analysis.streams import require_analyzable
from calyrex.errors import CalyrexError
from calyrex.training.filling import base_layers
from forced_runs import random_runs
from tiny import EXTRAS, SIZES, tiny_anchored, tiny_base

Model = PreTrainedModel | PeftModel
WINDOW = EXTRAS["gemma3_text"]["sliding_window"]


def alternating_gemma3() -> PreTrainedModel:
    """A model with two kinds of layers, so that its masks come in a dict."""
    torch.manual_seed(0)
    kinds = ["sliding_attention", "full_attention"] * 2
    config = CONFIG_MAPPING["gemma3_text"](**SIZES, **EXTRAS["gemma3_text"], layer_types=kinds)
    return AutoModelForCausalLM.from_config(config).eval()


def eager_llama() -> PreTrainedModel:
    model = tiny_base("llama")
    model.set_attn_implementation("eager")
    return model


MODELS: dict[str, Callable[[], Model]] = {
    "llama": lambda: tiny_base("llama"),
    "eager": eager_llama,
    "qwen2": lambda: tiny_base("qwen2"),
    "gemma3": alternating_gemma3,
    "gpt2": lambda: tiny_base("gpt2"),
    "anchored llama": lambda: tiny_anchored("llama"),
    "anchored gemma3": lambda: tiny_anchored("gemma3_text"),
    "anchored gpt2": lambda: tiny_anchored("gpt2"),
}


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> Model:
    return MODELS[request.param]().requires_grad_(False)


def stream_in(output: Any) -> Tensor:
    return output[0] if isinstance(output, tuple) else output


def plain_forward(model: Model, run: ForcedRun, **options: Any) -> Tensor:
    """Return the logits at the answer's positions of one whole forward without a cache."""
    ids = torch.cat([run.prompt, run.tail], dim=1)
    if isinstance(model, PeftModel):
        options["system_mask"] = nn.functional.pad(run.system_mask, (0, run.tail.shape[1]))
    return model(input_ids=ids, use_cache=False, **options).logits[0, -run.tail.shape[1] :]


def plain_score(model: Model, run: ForcedRun) -> float:
    told = plain_forward(model, run).log_softmax(dim=-1)
    return float(told[torch.arange(len(run.targets)), run.targets].mean())


def plain_streams(model: Model, run: ForcedRun) -> Tensor:
    """Return what leaves each decoder layer, blocks included, and what enters the first, at the answer's positions."""
    layers, streams = base_layers(model), []
    handles = [layers[0].register_forward_pre_hook(lambda _, args: streams.append(args[0]))]
    handles += [layer.register_forward_hook(lambda *given: streams.append(stream_in(given[-1]))) for layer in layers]
    plain_forward(model, run)
    for handle in handles:
        handle.remove()
    return torch.stack([stream[0, -run.tail.shape[1] :] for stream in streams])


@contextmanager
def replaced(model: Model, layer: int, donor: Tensor) -> Iterator[None]:
    """Put the donor's stream ``[P, E]`` in after one layer."""

    def put(stream: Tensor) -> Tensor:
        return torch.cat([stream[:, : -len(donor)], donor[None]], dim=1)

    layers = base_layers(model)
    if layer == 0:
        handle = layers[0].register_forward_pre_hook(lambda _, args: (put(args[0]), *args[1:]))
    else:
        handle = layers[layer - 1].register_forward_hook(lambda *given: put(given[-1]))
    yield
    handle.remove()


@contextmanager
def blinded(model: Model, layer: int, run: ForcedRun, hidden: Tensor) -> Iterator[None]:
    """Give one layer's attention a whole mask of its own, in which the answer does not see the hidden tokens."""
    num_prompt, num_answer = run.prompt.shape[1], run.tail.shape[1]
    distance = torch.arange(num_prompt + num_answer)[:, None] - torch.arange(num_prompt + num_answer)[None]
    config = model.config
    is_sliding = config.model_type == "gemma3_text" and config.layer_types[layer - 1] == "sliding_attention"
    sees = (distance >= 0) & (distance < (WINDOW if is_sliding else 10_000))
    sees[num_prompt:, :num_prompt] &= ~hidden
    mask = sees[None, None]
    if config._attn_implementation == "eager":
        mask = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
    base = getattr(base_layers(model)[layer - 1], "base_layer", base_layers(model)[layer - 1])
    attention = base.attn if config.model_type == "gpt2" else base.self_attn
    handle = attention.register_forward_pre_hook(
        lambda _, args, kwargs: (args, {**kwargs, "attention_mask": mask}), with_kwargs=True
    )
    yield
    handle.remove()


def test_streams_are_those_of_a_plain_forward_with_blocks_included(model: Model) -> None:
    run = random_runs().with_rule

    found = patch(model, run, [])

    torch.testing.assert_close(found.streams, plain_streams(model, run), rtol=1e-4, atol=1e-5)
    assert found.log_probability == pytest.approx(plain_score(model, run), abs=1e-5)


def test_patching_equals_one_plain_forward_for_each_layer_and_donor(model: Model) -> None:
    runs = random_runs()
    donors = [plain_streams(model, runs.with_rule), plain_streams(model, runs.other_rule)]

    found = patch(model, runs.neutral, donors)

    for donor, patched in zip(donors, found.patched, strict=True):
        assert len(patched) == len(donor)
        for layer, score in enumerate(patched):
            with replaced(model, layer, donor[layer]):
                expected = plain_score(model, runs.neutral)
            assert score == pytest.approx(expected, abs=1e-5)


def test_knock_out_equals_one_plain_forward_for_each_layer_and_set_of_tokens(model: Model) -> None:
    run = random_runs().with_rule
    sets = [run.system_mask[0], draw_random_tokens(run, "0")]

    found = knock_out(model, run, sets)

    assert found.log_probability == pytest.approx(plain_score(model, run), abs=1e-5)
    torch.testing.assert_close(found.streams, plain_streams(model, run), rtol=1e-4, atol=1e-5)
    for hidden, knocked in zip(sets, found.knocked, strict=True):
        assert len(knocked) == len(base_layers(model))
        for layer, score in enumerate(knocked, start=1):
            with blinded(model, layer, run, hidden):
                expected = plain_score(model, run)
            assert score == pytest.approx(expected, abs=1e-5)


def test_patching_after_the_last_layer_recovers_all(model: Model) -> None:
    runs = random_runs()
    with_rule = patch(model, runs.with_rule, [])

    found = patch(model, runs.neutral, [with_rule.streams])

    # The same numbers in a batch of another size: a matrix product may add them up in another order.
    assert found.patched[0][-1] == pytest.approx(with_rule.log_probability, abs=1e-6)
    assert abs(found.log_probability - with_rule.log_probability) > 1e-3


def test_patching_a_run_with_its_own_stream_changes_nothing(model: Model) -> None:
    run = random_runs().neutral
    own = patch(model, run, [])

    found = patch(model, run, [own.streams])

    assert found.patched[0] == pytest.approx([own.log_probability] * len(own.streams), abs=1e-6)


@pytest.mark.parametrize("name", ["llama", "anchored llama", "gemma3"])
def test_an_answer_of_one_token_is_measured_too(name: str) -> None:
    model = MODELS[name]().requires_grad_(False)
    runs = random_runs(num_answer_tokens=1)
    donor = plain_streams(model, runs.with_rule)

    patched = patch(model, runs.neutral, [donor]).patched[0]
    knocked = knock_out(model, runs.with_rule, [runs.with_rule.system_mask[0]]).knocked[0]

    with replaced(model, 2, donor[2]):
        assert patched[2] == pytest.approx(plain_score(model, runs.neutral), abs=1e-5)
    with blinded(model, 2, runs.with_rule, runs.with_rule.system_mask[0]):
        assert knocked[1] == pytest.approx(plain_score(model, runs.with_rule), abs=1e-5)


def test_measuring_leaves_no_hook_behind(model: Model) -> None:
    run = random_runs().with_rule

    knock_out(model, run, [run.system_mask[0]])

    own = [module for module in model.modules() if "attention_mask" in inspect.signature(module.forward).parameters]
    left = [module for module in (*base_layers(model), *own) if module._forward_hooks]
    assert left == []
    assert plain_score(model, run) == pytest.approx(patch(model, run, []).log_probability, abs=1e-5)


def test_random_tokens_are_outside_the_system_prompt_and_as_many() -> None:
    run = random_runs().with_rule

    drawn = draw_random_tokens(run, "seed")

    assert drawn.sum() == run.system_mask.sum()
    assert not (drawn & run.system_mask[0]).any()
    assert torch.equal(drawn, draw_random_tokens(run, "seed"))
    assert not torch.equal(drawn, draw_random_tokens(run, "another"))


def test_all_other_tokens_are_drawn_where_there_are_not_enough() -> None:
    run = random_runs().with_rule
    run.system_mask[0, :-2] = True

    drawn = draw_random_tokens(run, "seed")

    assert torch.equal(drawn, ~run.system_mask[0])


def test_missing_mask_means_causal_and_is_kept_for_the_other_rows() -> None:
    hidden = torch.tensor([[True, False, False, False]])

    mask = hide_keys(None, hidden, num_rows=2, num_queries=2)

    assert mask[:, 0].tolist() == [
        [[True, True, True, False], [True, True, True, True]],
        [[False, True, True, False], [False, True, True, True]],
    ]


def test_additive_mask_gets_the_lowest_score() -> None:
    hidden = torch.tensor([[True, False]])

    mask = hide_keys(torch.zeros(1, 1, 1, 2), hidden, num_rows=2, num_queries=1)

    assert mask[:, 0, 0].tolist() == [[0.0, 0.0], [torch.finfo(torch.float32).min, 0.0]]


def test_mask_of_another_size_is_refused() -> None:
    with pytest.raises(CalyrexError, match=r"4 keys, got one of the shape \[1, 1, 1, 3\]"):
        hide_keys(torch.zeros(1, 1, 1, 3), torch.zeros(1, 4, dtype=torch.bool), num_rows=1, num_queries=1)


def test_attention_that_ignores_masks_is_refused() -> None:
    model = tiny_base("llama")
    model.config._attn_implementation = "flash_attention_2"

    with pytest.raises(CalyrexError, match=r"eager or sdpa.*got flash_attention_2"):
        require_analyzable(model)
