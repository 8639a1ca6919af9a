import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from calyrex.analysis.measuring import describe_map, measure, measure_shift, pack, unpack
from calyrex.training.filling import base_layers
from chat_tokenizers import chatml
from forced_runs import random_runs
from test_forced import CONVERSATION, force
from tiny import tiny_anchored, tiny_base

NUM_LAYERS = 4


def plain_streams(model: Any, run: Any) -> Tensor:
    """Return what leaves each layer at the answer's positions, blocks included, by one whole forward."""
    streams: list[Tensor] = []
    layers = base_layers(model)
    handles = [layers[0].register_forward_pre_hook(lambda _, args: streams.append(args[0]))]
    handles += [layer.register_forward_hook(lambda *given: streams.append(given[-1])) for layer in layers]
    system = {"system_mask": nn.functional.pad(run.system_mask, (0, run.tail.shape[1]))}
    model(torch.cat([run.prompt, run.tail], dim=1), **(system if hasattr(model, "peft_config") else {}))
    for handle in handles:
        handle.remove()
    return torch.stack([stream[0, -run.tail.shape[1] :] for stream in streams])


@pytest.mark.parametrize("make", [tiny_base, tiny_anchored])
def test_record_holds_the_shifts_and_the_stream_at_the_last_prompt_token(make: Callable[[], Any]) -> None:
    model, runs = make().requires_grad_(False), random_runs()

    record = measure(model, runs, "seed")

    with_rule, other, neutral = (plain_streams(model, run) for run in runs)
    for name, streams in (("other_rule", other), ("neutral", neutral)):
        for layer in range(NUM_LAYERS + 1):
            pairs = list(zip(with_rule[layer], streams[layer], strict=True))
            cosine = [1 - float(one @ two / (one.norm() * two.norm())) for one, two in pairs]
            norm = [float((one - two).norm() / one.norm()) for one, two in pairs]
            assert record["shift"][f"{name}/cosine"][layer] == pytest.approx(np.mean(cosine), abs=1e-5)
            assert record["shift"][f"{name}/norm"][layer] == pytest.approx(np.mean(norm), abs=1e-5)
    features = unpack(record["stream"], NUM_LAYERS)
    np.testing.assert_allclose(features, with_rule[:, 0].numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [tiny_base, tiny_anchored])
def test_record_measures_the_three_runs_the_patches_and_the_knock_outs(make: Callable[[], Any]) -> None:
    model = make().requires_grad_(False)

    record = measure(model, random_runs(), "seed")

    told = record["log_probability"]
    assert len(set(told.values())) == 3
    assert record["patching"]["value"][0] == pytest.approx(told["neutral"], abs=1e-5)
    assert record["patching"]["value"][-1] == pytest.approx(told["with_rule"], abs=1e-5)
    assert record["patching"]["control"][-1] == pytest.approx(told["other_rule"], abs=1e-5)
    assert len(record["knock_out"]["value"]) == len(record["knock_out"]["control"]) == NUM_LAYERS
    assert (record["blocks"] is None) == (make is tiny_base)


def test_measuring_twice_gives_the_same_record() -> None:
    model = tiny_anchored()

    assert measure(model, random_runs(), "seed") == measure(model, random_runs(), "seed")


def test_equal_streams_are_not_apart() -> None:
    stream = torch.randn(3, 2, 8)

    assert measure_shift(stream, stream)["norm"] == [0.0] * 3
    assert measure_shift(stream, 2 * stream)["cosine"] == pytest.approx([0.0] * 3, abs=1e-12)
    assert measure_shift(stream, -stream)["cosine"] == pytest.approx([2.0] * 3)


def test_token_without_a_vector_shifts_nowhere() -> None:
    stream = torch.randn(3, 4, 8)
    stream[0, 1] = 0

    shift = measure_shift(stream, stream.clone())

    assert shift == {"cosine": [0.0] * 3, "norm": [0.0] * 3}


def test_packed_numbers_come_back() -> None:
    stream = torch.randn(3, 8)

    assert torch.equal(torch.tensor(unpack(pack(stream), 2)), stream)


def test_map_names_the_tokens_of_both_sides() -> None:
    run = force().with_rule

    size = len(run.targets), int(run.system_mask.sum())
    weights = torch.rand(size, generator=torch.Generator().manual_seed(0)).round(decimals=5).tolist()

    shown = describe_map({"blocks": {"weights": {"2": weights}}}, CONVERSATION, run, chatml())

    assert "".join(shown["system_tokens"]) == "Say yes."
    assert "".join(shown["answer_tokens"]) == "Yes!<|im_end|>"
    assert shown["question"] == "Is it?"
    assert shown["id"] == "rule-1"
    assert np.allclose(shown["weights"]["2"], weights)


def test_tokens_that_are_a_character_together_stand_as_one() -> None:
    messages = [{"role": "system", "content": "Sag ü 日."}, {"role": "user", "content": "Is it?"}]
    run = force(dataclasses.replace(CONVERSATION, messages=messages, answer="日!")).with_rule
    size = len(run.targets), int(run.system_mask.sum())

    shown = describe_map({"blocks": {"weights": {"2": torch.ones(size).tolist()}}}, CONVERSATION, run, chatml())

    assert shown["system_tokens"][-5:] == [" ", "ü", " ", "日", "."]
    assert shown["answer_tokens"][:2] == ["日", "!"]
    assert len(shown["weights"]["2"]) == len(shown["answer_tokens"])
    assert shown["weights"]["2"][0][-5:] == [1, 2, 1, 3, 1]
