"""All contenders train as many parameters as whole numbers allow, and their costs are what arithmetic says."""

import pytest
from torch import nn

from calyrex.base import base_sizes
from calyrex.config import CalyrexConfig
from calyrex.studies.budget import added_flops_per_token, count_trainable, fit_blocks, size_contender, solve
from calyrex.studies.contenders import attach, make_config, parse_contender
from tiny import tiny_base

BLOCKS = CalyrexConfig(placement=[3, 4], intermediate_size=40)
ROW = {"input_ids": list(range(3, 23)), "system_mask": [False] * 2 + [True] * 6 + [False] * 12, "assistant_mask": []}


@pytest.mark.parametrize(("first", "step", "budget"), [(10, 7, 100), (10, 7, 101), (10, 7, 3), (5, 5, 5), (900, 1, 40)])
def test_the_closest_whole_number_is_found(first: int, step: int, budget: int) -> None:
    size = solve(lambda size: first + step * (size - 1), budget)

    assert size == min(range(1, 200), key=lambda size: abs(first + step * (size - 1) - budget))


@pytest.mark.parametrize("name", ["lora", "lora_late", "parallel_mlp"])
def test_a_contender_misses_the_budget_by_half_a_step_at_most(name: str) -> None:
    base, contender = tiny_base(), parse_contender(name)
    budget = count_trainable(base, BLOCKS)

    sized = size_contender(contender, base, BLOCKS, budget)

    step = count_trainable(base, make_config(contender, base, BLOCKS, 2)) - count_trainable(
        base, make_config(contender, base, BLOCKS, 1)
    )
    assert abs(sized.trainable_parameters - budget) <= step / 2
    assert sized.budget_difference == sized.trainable_parameters / budget - 1
    model = attach(contender, base, sized.config, 0)
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == sized.trainable_parameters


def test_the_frozen_part_ends_where_the_adapter_begins() -> None:
    base = tiny_base()

    depths = [
        size_contender(parse_contender(name), base, BLOCKS, 10_000).last_frozen_layer
        for name in ("calyrex", "parallel_mlp", "lora_late", "lora")
    ]

    assert depths == [2, 2, 1, None]


def test_counting_leaves_the_base_as_it_is() -> None:
    base = tiny_base()
    names = [name for name, _ in base.named_modules()]

    size_contender(parse_contender("lora"), base, BLOCKS, 10_000)

    assert [name for name, _ in base.named_modules()] == names


def test_feed_forwards_add_six_operations_per_weight_triple() -> None:
    base = tiny_base()
    contender = parse_contender("parallel_mlp")
    model = attach(contender, base, make_config(contender, base, BLOCKS, 24), 0)

    assert added_flops_per_token(model, ROW) == 2 * (2 * 3 * 32 * 24)


def test_lora_adds_two_operations_for_each_of_its_weights() -> None:
    base = tiny_base()
    contender = parse_contender("lora")
    model = attach(contender, base, make_config(contender, base, BLOCKS, 3), 0)
    linears = [module for module in base.modules() if isinstance(module, nn.Linear)]
    assert linears

    added = added_flops_per_token(model, ROW)

    assert added == 2 * sum(p.numel() for p in model.parameters() if p.requires_grad)


def test_blocks_add_their_maps_and_their_attention_to_the_system_tokens() -> None:
    base = tiny_base()
    model = attach(parse_contender("calyrex"), base, BLOCKS, 0)
    sizes = base_sizes(base)
    width = sizes["num_attention_heads"] * sizes["head_dim"]
    key_width = sizes["num_key_value_heads"] * sizes["head_dim"]
    tokens, system = 20, 6

    added = added_flops_per_token(model, ROW)

    maps = tokens * (2 * 32 * width + 3 * 32 * 40) + system * 2 * 32 * key_width
    attention = 2 * tokens * system * width
    assert added == 2 * 2 * (maps + attention) / tokens


@pytest.mark.parametrize(
    ("placement", "budget"), [([1, 2, 3, 4], 6_000), ([1, 2, 3, 4], 30_000), ([4], 30_000), ([2, 4], 12_345)]
)
def test_blocks_are_narrowed_or_widened_to_the_budget(placement: list[int], budget: int) -> None:
    base = tiny_base()
    contender = parse_contender(f"calyrex:placement={','.join(map(str, placement))}")

    sized = size_contender(contender, base, BLOCKS, budget, is_equal=True)

    step = 3 * base.config.hidden_size * len(placement)  # one more column in the feed-forward of each block
    assert abs(sized.trainable_parameters - budget) <= step / 2
    assert sized.layers == placement


def test_blocks_keep_all_heads_while_the_feed_forward_keeps_a_sixteenth_of_the_hidden_size() -> None:
    base = tiny_base()
    sizes = base_sizes(base)
    whole = fit_blocks(CalyrexConfig(placement=[1, 2, 3, 4]), base, 40_000)
    narrow = fit_blocks(CalyrexConfig(placement=[1, 2, 3, 4]), base, 9_000)

    assert (whole.num_heads, whole.num_key_value_heads) == (
        sizes["num_attention_heads"],
        sizes["num_key_value_heads"],
    )
    assert narrow.num_heads is not None and narrow.num_heads < sizes["num_attention_heads"]
    assert narrow.intermediate_size is not None and 16 * narrow.intermediate_size >= sizes["hidden_size"]


def test_a_width_that_the_user_has_set_stays() -> None:
    contender = parse_contender("calyrex:placement=4:intermediate_size=24")

    config = size_contender(contender, tiny_base(), BLOCKS, 30_000, is_equal=True).config

    assert isinstance(config, CalyrexConfig)
    assert config.intermediate_size == 24
