"""The field's tooling works unchanged: TRL, transformers' own adapters, masks from token ids."""

from pathlib import Path

import pytest
import torch
from datasets import Dataset
from peft import PeftModel

from calyrex.base import find_layers
from calyrex.config import CalyrexConfig
from calyrex.layer import CalyrexLayer
from calyrex.span import encode_chat
from calyrex.template import read_template
from chat_tokenizers import chatml
from tiny import train_blocks

CHAT = [{"role": "system", "content": "Say abc."}, {"role": "user", "content": "Now"}]
PLAIN_CHAT = CHAT[1:]


def anchored_from(folder: Path, **options: object) -> PeftModel:
    from peft import get_peft_model
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(folder)
    model = get_peft_model(base, CalyrexConfig(placement=[3, 4], **options)).eval()
    train_blocks(model)
    return model


def test_the_mask_is_inferred_from_the_ids_like_the_one_that_is_passed(base_folder: Path) -> None:
    model, tokenizer = anchored_from(base_folder), chatml()
    encoded = encode_chat(tokenizer, [CHAT, PLAIN_CHAT])
    system_mask = encoded.pop("system_mask")

    inferred = model(**encoded).logits

    assert torch.equal(inferred, model(**encoded, system_mask=system_mask).logits)
    assert model.peft_config["default"].system_template == read_template(tokenizer).to_dict()


def test_generation_infers_the_mask_too(base_folder: Path) -> None:
    model = anchored_from(base_folder, system_template=read_template(chatml()).to_dict())
    encoded = encode_chat(chatml(), [CHAT, PLAIN_CHAT])
    system_mask = encoded.pop("system_mask")

    inferred = model.generate(**encoded, max_new_tokens=5, do_sample=False)
    passed = model.generate(**encoded, system_mask=system_mask, max_new_tokens=5, do_sample=False)

    assert torch.equal(inferred, passed)


def test_transformers_own_adapters_load_and_apply_the_blocks(base_folder: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = anchored_from(base_folder)
    encoded = encode_chat(chatml(), CHAT)
    expected = model(**encoded).logits
    model.save_pretrained(tmp_path / "adapter")

    native = AutoModelForCausalLM.from_pretrained(base_folder)
    native.load_adapter(str(tmp_path / "adapter"))

    assert torch.equal(native(**encoded).logits, expected)
    system_mask = encoded.pop("system_mask")
    assert system_mask.any()
    assert torch.equal(native(**encoded).logits, expected)
    for layer in filter(lambda module: isinstance(module, CalyrexLayer), native.modules()):
        layer.enable_adapters(enabled=False)  # what transformers' disable_adapters does, given the PEFT it asks for
    embedded = native.get_input_embeddings()(encoded["input_ids"])
    plain = AutoModelForCausalLM.from_pretrained(base_folder)
    without = native(inputs_embeds=embedded, attention_mask=encoded["attention_mask"]).logits  # asks for no mask
    assert torch.equal(without, plain(**encoded).logits)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # TRL's own are not ours to mend
@pytest.mark.parametrize("options", [{}, {"packing": True}, {"padding_free": True, "max_length": None}], ids=str)
def test_trl_trains_the_blocks_and_only_them(base_folder: Path, tmp_path: Path, options: dict[str, object]) -> None:
    from trl import SFTConfig, SFTTrainer

    rows = [{"messages": [*CHAT, {"role": "assistant", "content": "abc"}]}] * 8
    args = SFTConfig(
        output_dir=str(tmp_path / "trl"), max_steps=3, per_device_train_batch_size=2, learning_rate=1e-2, use_cpu=True,
        report_to="none", bf16=False, **{"max_length": 64, **options},
    )  # fmt: skip
    trainer = SFTTrainer(
        str(base_folder),
        args=args,
        train_dataset=Dataset.from_list(rows),
        processing_class=chatml(),
        peft_config=CalyrexConfig(placement=[3, 4]),
    )
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    records: list[bool] = []
    layers = find_layers(trainer.model.get_base_model())
    layers[1].register_forward_hook(lambda _layer, _args, output: records.append(output.requires_grad))

    trainer.train()

    assert records and not any(records)  # TRL's gradient checkpointing starts no graph below the blocks
    moved = {name for name, p in trainer.model.named_parameters() if not torch.equal(p, before[name])}
    assert moved
    assert all("calyrex_" in name for name in moved)
    assert {name.split(".calyrex_")[1].split(".")[0] for name in moved} >= {"o_proj", "down_proj", "k_proj"}
