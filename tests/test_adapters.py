import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import get_peft_model
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from calyrex import gguf, models
from calyrex.adapters import check_adapter, read_adapter
from calyrex.config import CalyrexConfig
from calyrex.errors import CalyrexError
from calyrex.models import BUILTIN, load_anchored, load_base, recorded_base
from saved import message_of, save_adapter, save_base, write_gguf
from tiny import SIZES, tiny_base, train_blocks


def edit_json(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def other_base(**changes: int) -> PreTrainedModel:
    sizes: dict[str, Any] = {**SIZES, **changes}
    model: PreTrainedModel = LlamaForCausalLM(LlamaConfig(**sizes))
    return model


def test_adapter_finds_its_recorded_base_and_loads_exactly(tmp_path: Path) -> None:
    base = load_base(save_base(tmp_path / "base"), device="cpu")
    model = get_peft_model(base, CalyrexConfig(placement=[2, 4])).eval()
    train_blocks(model)
    model.save_pretrained(str(tmp_path / "adapter"))
    input_ids = torch.arange(3, 20)[None]
    system_mask = torch.arange(17)[None] < 5

    loaded = load_anchored(None, tmp_path / "adapter", device="cpu")

    assert not loaded.training
    assert not any(parameter.requires_grad for parameter in loaded.parameters())
    inputs = {"input_ids": input_ids, "system_mask": system_mask}
    assert torch.equal(loaded(**inputs).logits, model(**inputs).logits)


def test_trainable_adapter_leaves_the_base_frozen(tmp_path: Path) -> None:
    adapter = save_adapter(tmp_path / "adapter", load_base(save_base(tmp_path / "base"), device="cpu"), placement=[4])

    loaded = load_anchored(None, adapter, device="cpu", is_trainable=True)

    trainable = [name for name, parameter in loaded.named_parameters() if parameter.requires_grad]
    assert len(trainable) == 9
    assert all("calyrex_" in name for name in trainable)


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_adapter_without_one_of_its_files_is_refused_by_name(tmp_path: Path, name: str) -> None:
    adapter = save_adapter(tmp_path, tiny_base())
    (adapter / name).unlink()

    with pytest.raises(CalyrexError) as error:
        read_adapter(adapter)

    assert message_of(error) == f"no adapter at {adapter}: {name} is missing"


@pytest.mark.parametrize("path", ["nowhere", "/no/such/adapter"])
def test_adapter_that_does_not_exist_is_refused_by_name(path: str) -> None:
    with pytest.raises(CalyrexError, match=f"no adapter at {path}"):
        read_adapter(path)


@pytest.mark.parametrize("size", [0, 4, 100, -1])
def test_cut_adapter_weights_are_refused_by_name(tmp_path: Path, size: int) -> None:
    weights = save_adapter(tmp_path, tiny_base()) / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:size])

    with pytest.raises(CalyrexError) as error:
        read_adapter(tmp_path)

    assert message_of(error).startswith(f"{weights} is damaged")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"peft_type": "CALYREX", ', "is damaged: no JSON"),
        ('{"peft_type": "ABACUS"}', "names a peft_type that PEFT does not know: 'ABACUS'"),
        (
            '{"peft_type": "CALYREX", "num_blocks": 0}',
            "is no PEFT config: num_blocks must be a whole number of at least 1",
        ),
        ("[]", "is no PEFT config"),
    ],
)
def test_broken_adapter_config_is_refused_by_name(tmp_path: Path, text: str, complaint: str) -> None:
    config = save_adapter(tmp_path, tiny_base()) / "adapter_config.json"
    config.write_text(text)

    with pytest.raises(CalyrexError) as error:
        read_adapter(tmp_path)

    assert message_of(error).startswith(f"{config} {complaint}")


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"hidden_size": 64}, "must be"),
        ({"intermediate_size": 40}, "must be [32, 40], got [32, 48]"),
        ({"num_hidden_layers": 3}, "4"),
    ],
    ids=["hidden size", "feed-forward size", "layers"],
)
def test_adapter_of_another_base_is_refused_before_anything_changes(
    tmp_path: Path, changes: dict[str, int], complaint: str
) -> None:
    adapter = save_adapter(tmp_path, tiny_base())
    base = other_base(**changes)
    modules = [name for name, _ in base.named_modules()]

    with pytest.raises(CalyrexError) as error:
        load_anchored(base, adapter)

    assert message_of(error).startswith(f"the adapter {adapter} does not fit LlamaForCausalLM (")
    assert complaint in message_of(error)
    assert [name for name, _ in base.named_modules()] == modules


@pytest.mark.parametrize(
    ("placement", "complaint"),
    [
        ([2, 3, 4], "the file lacks 9 of its tensors, such as base_model.model.model.layers.1.calyrex_"),
        ([4], "the base has no place for 9 of its tensors, such as base_model.model.model.layers.2.calyrex_"),
    ],
)
def test_missing_or_surplus_tensors_are_refused_by_name(tmp_path: Path, placement: list[int], complaint: str) -> None:
    adapter = save_adapter(tmp_path, tiny_base(), placement=[3, 4])
    edit_json(adapter / "adapter_config.json", placement=placement, target_modules=None)

    with pytest.raises(CalyrexError) as error:
        check_adapter(adapter, tiny_base())

    assert complaint in message_of(error)


def test_base_of_another_name_is_refused_unless_allowed(tmp_path: Path) -> None:
    adapter = save_adapter(tmp_path / "adapter", load_base(save_base(tmp_path / "one"), device="cpu"))
    other = load_base(save_base(tmp_path / "two", seed=1), device="cpu")

    with pytest.raises(CalyrexError) as error:
        check_adapter(adapter, other)

    assert f"trained on {tmp_path / 'one'}, was not trained on {tmp_path / 'two'}" in message_of(error)
    check_adapter(adapter, other, allow_other_base=True)


def test_adapter_with_values_that_are_no_numbers_is_refused(tmp_path: Path) -> None:
    adapter = save_adapter(tmp_path, tiny_base())
    file = adapter / "adapter_model.safetensors"
    tensors = load_file(file)
    name = max(tensors)
    tensors[name][0] = torch.nan
    save_file(tensors, file)

    with pytest.raises(CalyrexError) as error:
        check_adapter(adapter, tiny_base())

    assert f"{name} holds values that are no finite numbers" in message_of(error)


def test_hub_base_of_another_owner_is_refused(tmp_path: Path) -> None:
    base = tiny_base()
    adapter = save_adapter(tmp_path, base)
    base.name_or_path = "ann/llama"
    edit_json(adapter / "adapter_config.json", base_model_name_or_path="bob/llama")

    with pytest.raises(CalyrexError) as error:
        check_adapter(adapter, base)

    assert "trained on bob/llama, was not trained on ann/llama" in message_of(error)


def test_base_whose_folder_moved_is_the_same_base(tmp_path: Path) -> None:
    adapter = save_adapter(tmp_path / "adapter", load_base(save_base(tmp_path / "base"), device="cpu"))
    moved = tmp_path / "moved"
    moved.mkdir()
    (tmp_path / "base").rename(moved / "base")

    load_anchored(moved / "base", adapter, device="cpu")


def test_checking_an_adapter_changes_neither_it_nor_the_base(tmp_path: Path) -> None:
    base = load_base(save_base(tmp_path / "base"), device="cpu")
    adapter = save_adapter(
        tmp_path / "adapter", load_base(tmp_path / "base", device="cpu"), init="base", placement=[3, 4]
    )
    state = {name: tensor.clone() for name, tensor in base.state_dict().items()}
    config = base.config.to_dict()

    check_adapter(adapter, base)

    assert base.config.to_dict() == config
    assert base.state_dict().keys() == state.keys()
    assert all(torch.equal(tensor, state[name]) for name, tensor in base.state_dict().items())


def test_adapter_without_a_recorded_base_asks_for_it(tmp_path: Path) -> None:
    adapter = save_adapter(tmp_path, tiny_base())

    with pytest.raises(CalyrexError, match="does not record its base: name the base it was trained on"):
        recorded_base(adapter)


@pytest.mark.parametrize("cache", [".", "/home/ann/.cache/calyrex/models"])
def test_builtin_base_is_recognised_on_every_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: str
) -> None:
    package = tmp_path / "package"
    package.mkdir()
    file = write_gguf(package / "tiny.gguf", tiny_base())
    monkeypatch.setattr(models, "_find_builtin", lambda: file)
    adapter = save_adapter(tmp_path / "adapter", tiny_base())
    (tmp_path / gguf.folder_name(file)).mkdir()
    recorded = str(tmp_path / cache / gguf.folder_name(file))
    edit_json(adapter / "adapter_config.json", base_model_name_or_path=recorded)

    assert recorded_base(adapter) == BUILTIN
