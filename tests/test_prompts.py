"""The frozen part of prompts is computed once, shared by contenders, and changes no answer."""

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import PreTrainedModel

from calyrex.config import CalyrexConfig
from calyrex.generation import answer_batch
from calyrex.parallel_mlp import ParallelMLPConfig
from calyrex.studies.prompts import FrozenPrompts
from calyrex.training.filling import base_layers
from chat_tokenizers import chatml
from tiny import tiny_base, train_blocks

CHATS = [
    [{"role": "system", "content": "ab"}, {"role": "user", "content": "What is it?"}],
    [{"role": "system", "content": "cd ef"}, {"role": "user", "content": "No."}],
]


TOKENIZER = chatml()
NEW = 12


def base() -> PreTrainedModel:
    return tiny_base(vocab_size=len(TOKENIZER))


def lora() -> PeftModel:
    config = LoraConfig(target_modules=["layers.2.mlp.up_proj", "layers.3.self_attn.q_proj"], init_lora_weights=False)
    return get_peft_model(base(), config).eval()


def calyrex() -> PeftModel:
    model = get_peft_model(base(), CalyrexConfig(placement=[3, 4])).eval()
    train_blocks(model)
    return model


def parallel_mlp() -> PeftModel:
    model = get_peft_model(base(), ParallelMLPConfig(placement=[3, 4])).eval()
    generator = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        if "down_proj.default" in name:
            parameter.data.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model


CONTENDERS: dict[str, Callable[[], Any]] = {
    "base": base,
    "lora": lora,
    "calyrex": calyrex,
    "parallel_mlp": parallel_mlp,
}


def answer(model: Any, prompts: FrozenPrompts | None) -> list[str]:
    prefill = None if prompts is None else prompts.prefill
    generated = answer_batch(model, TOKENIZER, CHATS, max_new_tokens=NEW, prefill=prefill)
    return [one.text for one in generated]


@pytest.mark.parametrize("name", CONTENDERS)
def test_answers_from_stored_prompts_are_the_same(name: str, tmp_path: Path) -> None:
    model = CONTENDERS[name]()
    expected = answer(model, None)

    first = answer(model, FrozenPrompts(tmp_path, 1, "tiny"))
    again = answer(model, FrozenPrompts(tmp_path, 1, "tiny"))

    assert first == again == expected
    assert len(set(expected)) == 2


def test_contenders_share_what_one_of_them_has_computed(tmp_path: Path) -> None:
    prompts = FrozenPrompts(tmp_path, 1, "tiny")
    answer(calyrex(), prompts)
    written = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    expected = [answer(make(), None) for make in CONTENDERS.values()]

    answers = [answer(make(), prompts) for make in CONTENDERS.values()]

    assert answers == expected
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == written


def test_the_frozen_layers_are_not_run_again(tmp_path: Path) -> None:
    model, prompts = calyrex(), FrozenPrompts(tmp_path, 1, "tiny")
    answer(model, prompts)
    lengths: list[int] = []
    attention = base_layers(model)[0].self_attn
    attention.register_forward_hook(
        lambda _module, _args, inputs, _output: lengths.append(inputs["hidden_states"].shape[1]), with_kwargs=True
    )

    answer(model, prompts)

    assert set(lengths) == {1}


def test_another_base_and_another_depth_have_prompts_of_their_own(tmp_path: Path) -> None:
    model = calyrex()
    expected = answer(model, None)
    answer(base(), FrozenPrompts(tmp_path, 2, "another"))
    answer(model, FrozenPrompts(tmp_path, 2, "tiny"))

    answers = answer(model, FrozenPrompts(tmp_path, 1, "tiny"))

    assert answers == expected
    assert len(list(tmp_path.iterdir())) == 3


def test_a_cut_off_file_is_computed_again(tmp_path: Path) -> None:
    model, prompts = calyrex(), FrozenPrompts(tmp_path, 1, "tiny")
    expected = answer(model, prompts)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])

    assert answer(model, prompts) == expected
    assert path.stat().st_size == len(whole)


def test_a_disk_without_room_keeps_nothing_and_answers_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=2**20))
    model = calyrex()

    answers = answer(model, FrozenPrompts(tmp_path, 1, "tiny"))

    assert answers == answer(model, None)
    assert list(tmp_path.iterdir()) == []


def test_a_base_whose_layers_forget_is_run_as_a_whole(tmp_path: Path) -> None:
    model = tiny_base("gemma2", vocab_size=len(TOKENIZER))

    answers = answer(model, FrozenPrompts(tmp_path, 1, "tiny"))

    assert answers == answer(model, None)
    assert list(tmp_path.iterdir()) == []
