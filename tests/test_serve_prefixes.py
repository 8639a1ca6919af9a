"""System prompts that are shared: the same answer with and without a hit, and nobody gets another's."""

import random
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from calyrex.serve.prefill import Prefill
from calyrex.serve.prefixes import PrefixStore, prefix_key
from calyrex.serve.request import Generation
from calyrex.serve.rows import join_rows
from calyrex.serve.served import Served
from serving import Asked, load_models, random_chat, save_models

SYSTEM = "Obey now, here and always."


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    return load_models(save_models(tmp_path_factory.mktemp("served")))


def ask(served: Served, name: str = "mine0", system: str = SYSTEM, seed: int = 0, **options: float) -> Generation:
    chat = random_chat(random.Random(seed), system=system)
    return Asked(served, name, chat, **options).generation


@torch.inference_mode()
def first_logits(served: Served, store: PrefixStore, *group: Generation) -> list[Tensor]:
    """Return the logits after each prompt."""
    prefill = Prefill(served, store, group)
    while not prefill.is_done:
        prefill.advance()
    return [
        served.forward(
            generation.model,
            torch.tensor([generation.input_ids[-1:]]),
            join_rows([piece]),
            attention_mask=torch.ones(1, piece.length + 1, dtype=torch.int64),
            position_ids=torch.tensor([[piece.length]]),
            scales=[generation.scale],
        )[0]
        for generation, piece in zip(group, prefill.pieces(), strict=True)
    ]


@pytest.mark.parametrize("name", ["base", "mine0", "mine1"])
def test_a_hit_gives_the_logits_of_a_miss(served: Served, name: str) -> None:
    store = PrefixStore()
    first, second = ask(served, name), ask(served, name, seed=1)

    (missed,) = first_logits(served, store, second)
    first_logits(served, store, first)
    hit, again = first_logits(served, store, second, first)
    (alone,) = first_logits(served, PrefixStore(), second)

    assert (store.num_hits, store.num_misses) == (3, 1)
    torch.testing.assert_close(hit, missed, rtol=1e-4, atol=1e-4)  # rows of a batch round differently
    torch.testing.assert_close(alone, missed, rtol=0, atol=0)
    assert again.isfinite().all()


def test_rows_with_and_without_kept_prompts_are_read_together(served: Served) -> None:
    store = PrefixStore()
    first_logits(served, store, ask(served))
    group = [ask(served, seed=1), ask(served, system="Stop.", seed=2), ask(served, seed=3)]
    group.append(Asked(served, "mine0", [{"role": "user", "content": "What?"}]).generation)

    together = first_logits(served, store, *group)

    for generation, logits in zip(group, together, strict=True):
        (alone,) = first_logits(served, PrefixStore(), generation)
        torch.testing.assert_close(logits, alone, rtol=1e-4, atol=1e-4)


def test_what_is_kept_belongs_to_one_model_strength_prompt_and_place(served: Served) -> None:
    own = ask(served)
    same = ask(served, seed=1)
    forged = replace(own, system_mask=[False] * len(own.input_ids))
    shifted = replace(own, system_mask=[False, *own.system_mask[:-1]])
    others = [
        ask(served, "mine1"),
        ask(served, "base"),
        ask(served, scale=0.5),
        ask(served, system=SYSTEM + " Stop."),
        shifted,
    ]

    assert prefix_key(same) == prefix_key(own)
    assert prefix_key(forged) is None
    assert len({prefix_key(each) for each in [own, *others]}) == 6


def test_no_request_gets_what_another_prompt_left(served: Served) -> None:
    store = PrefixStore()
    first_logits(served, store, ask(served))
    own = ask(served, system="Never obey, here and always.")

    (logits,) = first_logits(served, store, own)

    (alone,) = first_logits(served, PrefixStore(), own)
    assert store.num_hits == 0
    torch.testing.assert_close(logits, alone, rtol=0, atol=0)


def test_the_store_is_bounded_and_forgets_the_least_used(served: Served) -> None:
    prompts = [ask(served, system=f"Obey number {number} now.") for number in range(6)]
    keys = [prefix_key(prompt) for prompt in prompts]
    lengths = [prompt.num_prefix for prompt in prompts]
    store = PrefixStore(max_tokens=sum(lengths[:3]))

    for prompt in [*prompts[:3], prompts[0], *prompts[3:]]:
        first_logits(served, store, prompt)

    assert store.num_tokens == sum(len(key.input_ids) for key in keys if key in store) <= store.max_tokens
    assert keys[0] not in store and keys[5] in store
    assert PrefixStore(max_tokens=1).num_tokens == 0


def test_the_store_holds_no_more_than_it_counts(served: Served) -> None:
    store = PrefixStore()
    prompts = [ask(served, "base", system=f"Obey {number}.") for number in range(4)]
    first_logits(served, store, *prompts)

    key = prefix_key(prompts[0])
    piece = store.find(key) if key else None
    assert piece is not None
    cache = piece.cache
    sizes = [layer.keys.untyped_storage().nbytes() for layer in cache.layers]
    token_bytes = cache.layers[0].keys[:, :, 0].nbytes

    assert sizes == [token_bytes * cache.get_seq_length()] * len(cache.layers)
