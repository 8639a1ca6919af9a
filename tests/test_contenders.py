"""Contenders are read from their names, put on the base where they belong, and the same for the same seed."""

import pytest
import torch
from peft import LoraConfig

from calyrex.config import CalyrexConfig
from calyrex.errors import CalyrexError
from calyrex.studies.contenders import METHODS, attach, describe, make_config, parse_contender
from saved import message_of
from tiny import tiny_base

BLOCKS = CalyrexConfig(placement=[3, 4], intermediate_size=16)
TRAINED = ("lora", "lora_late", "parallel_mlp", "calyrex", "calyrex:init=base", "calyrex:shuffled")


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_a_contender(name: str) -> None:
    contender = parse_contender(name)

    assert contender.method == name
    assert contender.is_trained == (name not in ("base", "repetition"))
    assert not contender.is_shuffled


def test_a_variant_sets_options_of_the_blocks() -> None:
    contender = parse_contender("calyrex:init=random:intermediate_size=64:placement=3,4")

    config = make_config(contender, tiny_base(), BLOCKS)

    assert (config.init, config.intermediate_size, config.placement) == ("random", 64, [3, 4])
    assert "intermediate_size 64" in contender.label


def test_a_control_is_marked_and_has_a_folder_of_its_own() -> None:
    contenders = [parse_contender(name) for name in ("calyrex", "calyrex:shuffled", "lora:shuffled")]

    assert [contender.is_shuffled for contender in contenders] == [False, True, True]
    assert len({contender.folder for contender in contenders}) == 3
    assert "shuffled system prompts" in contenders[1].label


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("lorra", "no contender 'lorra': expected one of base, repetition, lora"),
        ("base:shuffled", "base has no setting 'shuffled'"),
        ("lora:init=base", "lora has no setting 'init=base'"),
        ("calyrex:width=3", "no setting 'width', expected one of placement, num_blocks"),
        ("calyrex:init=zero", "init must be random|base, got 'zero'"),
        ("calyrex:intermediate_size=wide", "intermediate_size must be integer or null, got 'wide'"),
    ],
)
def test_a_name_that_says_nothing_is_refused_with_what_is_known(name: str, said: str) -> None:
    with pytest.raises(CalyrexError) as error:
        parse_contender(name)

    assert said in message_of(error)


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "gemma3_text"])
def test_late_lora_leaves_the_layers_below_alone(architecture: str) -> None:
    base = tiny_base(architecture)

    model = attach(parse_contender("lora_late"), base, make_config(parse_contender("lora_late"), base, BLOCKS, 2), 0)

    touched = {name.split("layers.")[-1].split(".h.")[-1][0] for name, p in model.named_parameters() if p.requires_grad}
    assert touched == {"2", "3"}


@pytest.mark.parametrize("name", TRAINED)
def test_the_same_seed_gives_the_same_fresh_adapter_and_the_base_unchanged(name: str) -> None:
    contender = parse_contender(name)
    input_ids = torch.arange(3, 20)[None]
    expected = tiny_base()(input_ids=input_ids).logits
    mask = {"system_mask": torch.arange(17)[None] < 5} if contender.method == "calyrex" else {}

    models = [
        attach(contender, (base := tiny_base()), make_config(contender, base, BLOCKS, 2), seed) for seed in (1, 1, 2)
    ]

    weights = [[p for p in model.parameters() if p.requires_grad] for model in models]
    assert all(torch.equal(a, b) for a, b in zip(weights[0], weights[1], strict=True))
    is_copied = name == "calyrex:init=base"
    assert is_copied or not all(torch.equal(a, b) for a, b in zip(weights[0], weights[2], strict=True))
    assert torch.equal(models[0](input_ids=input_ids, **mask).logits, expected)


def test_a_description_says_what_is_trained() -> None:
    base = tiny_base()

    texts = [describe(c, make_config(c, base, BLOCKS, 7)) for c in map(parse_contender, ("lora", "parallel_mlp"))]

    assert texts == ["rank 7 on all linear maps, alpha 14", "feed-forwards of width 7, init random"]
    assert isinstance(make_config(parse_contender("lora"), base, BLOCKS, 7), LoraConfig)
    assert "right before the last user turn" in describe(parse_contender("repetition"), None)
