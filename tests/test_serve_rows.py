"""Rows of caches: one that joins takes the place of one that has left."""

import pytest
import torch
from transformers import DynamicCache

from calyrex.serve.prefill import Prefill
from calyrex.serve.prefixes import PrefixStore
from calyrex.serve.rows import Piece, join_rows, replace_row
from calyrex.serve.served import Served
from serving import Asked, load_models, save_models

SHORT, MIDDLE, LONG = "Obey now.", "Obey now, here.", "Obey now, here and always, and never stop."


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    return load_models(save_models(tmp_path_factory.mktemp("served")))


@torch.inference_mode()
def read(served: Served, system: str | None, question: str, name: str = "mine0") -> Piece:
    chat = [{"role": "user", "content": question}]
    chat = chat if system is None else [{"role": "system", "content": system}, *chat]
    prefill = Prefill(served, PrefixStore(), [Asked(served, name, chat).generation])
    while not prefill.is_done:
        prefill.advance()
    return prefill.pieces()[0]


@torch.inference_mode()
def next_logits(served: Served, cache: DynamicCache, lengths: list[int], name: str = "mine0") -> torch.Tensor:
    columns = torch.arange(int(cache.get_seq_length()) + 1)
    rows = torch.tensor(lengths)[:, None]
    return served.forward(
        served.models[name],
        torch.full_like(rows, 5),
        cache,
        attention_mask=(columns >= len(columns) - 1 - rows).long(),
        position_ids=rows,
        scales=[1.0] * len(lengths),
    )


@pytest.mark.parametrize("system", [MIDDLE, SHORT, None])
@pytest.mark.parametrize("name", ["mine0", "base"])
def test_a_row_in_anothers_place_goes_on_as_in_a_new_cache(served: Served, system: str | None, name: str) -> None:
    old, stays, new = (
        read(served, each, question, name)
        for each, question in ((MIDDLE, "What is this?"), (MIDDLE, "What now, then?"), (system, "Who?"))
    )
    cache = join_rows([old, stays])
    keys = cache.layers[0].keys

    with torch.inference_mode():
        assert replace_row(cache, 0, new)

    assert cache.layers[0].keys is keys
    lengths = [new.length, stays.length]
    expected = next_logits(served, join_rows([new, stays]), lengths, name)
    torch.testing.assert_close(next_logits(served, cache, lengths, name), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("system", "question"), [(SHORT, "What is this, and what was it then?"), (LONG, "Who?")])
def test_a_row_that_does_not_fit_changes_nothing(served: Served, system: str, question: str) -> None:
    cache = join_rows([read(served, SHORT, "What is this?"), read(served, SHORT, "What now?")])
    before = [layer.keys.clone() for layer in cache.layers if layer.keys is not None]

    assert not replace_row(cache, 0, read(served, system, question))

    after = [layer.keys for layer in cache.layers if layer.keys is not None]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
