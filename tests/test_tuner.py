"""The PEFT method keeps PEFT's promises on every architecture."""

import copy

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model

from calyrex.base import find_layers
from calyrex.config import CalyrexConfig
from calyrex.layer import CalyrexLayer
from tiny import ARCHITECTURES, batch, tiny_anchored, tiny_base, train_blocks

every_architecture = pytest.mark.parametrize("architecture", ARCHITECTURES)


@every_architecture
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fresh_block_is_the_base_bit_for_bit(architecture, dtype):
    input_ids, system_mask = batch()
    base = tiny_base(architecture, dtype)
    expected = base(input_ids).logits

    anchored = tiny_anchored(architecture, trained=False, dtype=dtype)

    assert torch.equal(anchored(input_ids, system_mask=system_mask).logits, expected)


@every_architecture
def test_trained_block_changes_only_rows_with_a_system_prompt(architecture):
    input_ids, system_mask = batch()
    system_mask[1] = False
    expected = tiny_base(architecture)(input_ids).logits

    logits = tiny_anchored(architecture)(input_ids, system_mask=system_mask).logits

    assert not torch.allclose(logits[0], expected[0], atol=1e-3)
    assert torch.equal(logits[1], expected[1])
    assert torch.equal(logits[0, :2], expected[0, :2])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_system_prompt_is_the_base_bit_for_bit_after_training(dtype):
    input_ids, system_mask = batch()
    expected = tiny_base(dtype=dtype)(input_ids).logits

    logits = tiny_anchored(dtype=dtype)(input_ids, system_mask=torch.zeros_like(system_mask)).logits

    assert torch.equal(logits, expected)


def test_the_literal_formula_lets_the_feed_forward_act_without_a_system_prompt():
    input_ids, system_mask = batch()
    expected = tiny_base()(input_ids).logits

    logits = tiny_anchored(without_system="mlp")(input_ids, system_mask=torch.zeros_like(system_mask)).logits

    assert not torch.allclose(logits, expected, atol=1e-3)


@every_architecture
def test_disabled_and_unloaded_are_the_base_bit_for_bit(architecture):
    input_ids, system_mask = batch()
    expected = tiny_base(architecture)(input_ids).logits
    anchored = tiny_anchored(architecture)

    with anchored.disable_adapter():
        disabled = anchored(input_ids, system_mask=system_mask).logits
    unloaded = anchored.unload()

    assert torch.equal(disabled, expected)
    assert torch.equal(unloaded(input_ids).logits, expected)
    assert not any(isinstance(module, CalyrexLayer) for module in unloaded.modules())


@every_architecture
def test_an_adapter_loads_under_another_name_with_the_same_weights(architecture, tmp_path):
    input_ids, system_mask = batch()
    anchored = tiny_anchored(architecture)
    expected = anchored(input_ids, system_mask=system_mask).logits
    anchored.save_pretrained(tmp_path)

    loaded = PeftModel.from_pretrained(tiny_base(architecture), tmp_path, adapter_name="other").eval()

    assert torch.equal(loaded(input_ids, system_mask=system_mask).logits, expected)
    assert loaded.peft_config["other"].placement == [2, 3, 4]


def test_adapters_switch_and_are_deleted_without_touching_each_other():
    input_ids, system_mask = batch()
    anchored = tiny_anchored()
    first = anchored(input_ids, system_mask=system_mask).logits
    anchored.add_adapter("second", CalyrexConfig(placement=[1, 4]))
    anchored.set_adapter("second")
    train_blocks(anchored, seed=7)
    second = anchored(input_ids, system_mask=system_mask).logits

    anchored.set_adapter("default")
    back = anchored(input_ids, system_mask=system_mask).logits
    anchored.delete_adapter("second")

    assert torch.equal(back, first)
    assert not torch.allclose(second, first, atol=1e-3)
    assert torch.equal(anchored(input_ids, system_mask=system_mask).logits, first)


def test_two_active_adapters_and_adapter_names_for_rows_are_refused():
    input_ids, system_mask = batch()
    anchored = tiny_anchored()
    anchored.add_adapter("second", CalyrexConfig(placement=[4]))

    with pytest.raises(ValueError, match=r"one adapter at a time, got \['default', 'second'\]"):
        anchored.base_model.set_adapter(["default", "second"])
    with pytest.raises(ValueError, match="adapter_names"):
        anchored(input_ids, system_mask=system_mask, adapter_names=["default", "second"])


def test_merging_is_refused_with_the_reason():
    with pytest.raises(NotImplementedError, match="cannot be merged"):
        tiny_anchored().merge_and_unload()


def test_only_block_weights_are_trainable_and_carry_their_names():
    names = {name for name, p in tiny_anchored().named_parameters() if p.requires_grad}

    ending = {name.split(".layers.")[1].split(".", 1)[1] for name in names}
    assert ending == {
        f"calyrex_{part}.default.weight"
        for part in ("input_norm", "q_proj", "k_proj", "v_proj", "o_proj", "post_attention_norm", "gate_proj",
                     "up_proj", "down_proj")
    }  # fmt: skip
    assert {name.split(".layers.")[1].split(".")[0] for name in names} == {"1", "2", "3"}


@every_architecture
def test_training_moves_every_block_and_no_base_weight(architecture):
    input_ids, system_mask = batch()
    anchored = tiny_anchored(architecture).train()
    before = {name: p.detach().clone() for name, p in anchored.named_parameters()}
    optimizer = torch.optim.SGD([p for p in anchored.parameters() if p.requires_grad], lr=0.1)

    anchored(input_ids, system_mask=system_mask, labels=input_ids).loss.backward()
    optimizer.step()

    moved = {name for name, p in anchored.named_parameters() if not torch.equal(p, before[name])}
    assert moved == {name for name, p in anchored.named_parameters() if p.requires_grad}


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_gradient_checkpointing_gives_the_same_gradients(use_reentrant):
    input_ids, system_mask = batch()
    plain, checkpointed = tiny_anchored().train(), tiny_anchored().train()
    checkpointed.activation_checkpointing_enable({"use_reentrant": use_reentrant})
    checkpointed.enable_input_require_grads()

    first_loss = checkpointed(input_ids, system_mask=system_mask, labels=input_ids).loss
    checkpointed(input_ids.flip(0), system_mask=system_mask.flip(1))  # another forward before the backward
    first_loss.backward()
    plain(input_ids, system_mask=system_mask, labels=input_ids).loss.backward()

    expected = {name: p.grad for name, p in plain.named_parameters() if p.requires_grad}
    for name, p in checkpointed.named_parameters():
        if name in expected:
            torch.testing.assert_close(p.grad, expected[name])


def test_float32_blocks_work_over_a_bfloat16_base():
    input_ids, system_mask = batch()
    anchored = tiny_anchored(dtype=torch.bfloat16)

    logits = anchored(input_ids, system_mask=system_mask).logits

    assert {p.dtype for p in anchored.parameters() if p.requires_grad} == {torch.float32}
    assert logits.dtype == torch.bfloat16


def test_scale_zero_is_the_base_and_scale_is_a_dial_per_call_row_and_model():
    input_ids, system_mask = batch()
    expected = tiny_base()(input_ids).logits
    anchored = tiny_anchored()
    full = anchored(input_ids, system_mask=system_mask).logits

    off = anchored(input_ids, system_mask=system_mask, scale=0.0).logits
    rows = anchored(input_ids, system_mask=system_mask, scale=torch.tensor([0.0, 1.0])).logits
    anchored.base_model.set_scale(0.5)
    half = anchored(input_ids, system_mask=system_mask).logits

    assert torch.equal(off, expected)
    torch.testing.assert_close(rows, torch.stack([expected[0], full[1]]))
    assert not torch.allclose(half, full, atol=1e-3)
    assert not torch.allclose(half, expected, atol=1e-3)


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gemma2", "gemma3_text", "mistral", "phi3"])
def test_init_base_copies_the_layer_and_is_still_the_base(architecture):
    input_ids, system_mask = batch()
    expected = tiny_base(architecture)(input_ids).logits

    anchored = get_peft_model(tiny_base(architecture), CalyrexConfig(placement=[4], init="base"))

    layer = next(module for module in anchored.modules() if isinstance(module, CalyrexLayer))
    own = dict(layer.base_layer.named_parameters())
    query = own.get("self_attn.q_proj.weight", own.get("self_attn.qkv_proj.weight"))[:32]
    assert torch.equal(layer.calyrex_q_proj["default"].weight, query)
    assert torch.equal(anchored(input_ids, system_mask=system_mask).logits, expected)


def test_init_base_refuses_what_the_base_does_not_have():
    with pytest.raises(ValueError, match=r"no self_attn.q_proj; use init='random'"):
        get_peft_model(tiny_base("gpt2"), CalyrexConfig(init="base"))
    with pytest.raises(ValueError, match="heads of the base"):
        get_peft_model(tiny_base(), CalyrexConfig(init="base", num_heads=8))


def test_packed_conversations_do_not_hear_each_other():
    input_ids, system_mask = batch()
    anchored = tiny_anchored()
    separate = [anchored(input_ids[i : i + 1], system_mask=system_mask[i : i + 1]).logits for i in range(2)]

    packed = anchored(
        input_ids.reshape(1, -1),
        position_ids=torch.arange(12).repeat(2)[None],
        system_mask=system_mask.reshape(1, -1),
        use_cache=False,  # the base itself keeps packed rows apart only without a cache
    ).logits

    torch.testing.assert_close(packed, torch.cat(separate, dim=1), atol=1e-5, rtol=1e-4)


def test_a_mask_that_does_not_fit_is_refused():
    input_ids, system_mask = batch()
    anchored = tiny_anchored()

    with pytest.raises(ValueError, match="must cover 12 tokens, got 5"):
        anchored(input_ids, system_mask=system_mask[:, :5])
    with pytest.raises(ValueError, match=r"must be a bool tensor \[B, T\], got torch.int64"):
        anchored(input_ids, system_mask=system_mask.long())
    with pytest.raises(ValueError, match="2 rows like the tokens, got 3"):
        anchored(input_ids, system_mask=torch.zeros(3, 12, dtype=torch.bool))


def test_embeddings_without_a_mask_and_an_unknown_template_are_refused():
    input_ids, _ = batch()
    anchored = tiny_anchored()

    with pytest.raises(ValueError, match="inputs_embeds needs a system_mask"):
        anchored(inputs_embeds=anchored.get_input_embeddings()(input_ids))
    with pytest.raises(ValueError, match="no system_mask was given"):
        anchored(input_ids)


def test_lora_trains_beside_the_blocks():
    input_ids, system_mask = batch()
    anchored = tiny_anchored()
    expected = anchored(input_ids, system_mask=system_mask).logits

    with pytest.warns(UserWarning):  # PEFT names the second method
        both = get_peft_model(anchored.base_model.model, LoraConfig(target_modules=["q_proj"]))

    assert torch.equal(both(input_ids, system_mask=system_mask).logits, expected)


def test_a_model_with_blocks_can_be_copied():
    input_ids, system_mask = batch()
    anchored = tiny_anchored()

    clone = copy.deepcopy(anchored)

    expected = anchored(input_ids, system_mask=system_mask).logits
    assert torch.equal(clone(input_ids, system_mask=system_mask).logits, expected)


def test_embeddings_that_are_given_or_trained_keep_their_gradient() -> None:
    input_ids, system_mask = batch()
    model = tiny_anchored()
    embeddings = model.get_input_embeddings()
    given = embeddings(input_ids).detach().requires_grad_()

    model(inputs_embeds=given, system_mask=system_mask).logits.sum().backward()
    embeddings.requires_grad_(True)
    model(input_ids, system_mask=system_mask).logits.sum().backward()

    assert given.grad is not None and given.grad.abs().sum() > 0
    assert embeddings.weight.grad is not None


def test_gradient_checkpointing_records_nothing_below_the_blocks() -> None:
    input_ids, system_mask = batch()
    model = tiny_anchored().train()
    model.enable_input_require_grads()
    records: list[bool] = []
    find_layers(model.get_base_model())[0].register_forward_hook(
        lambda _layer, _args, output: records.append(output.requires_grad)
    )

    loss = model(input_ids, system_mask=system_mask).logits.sum()
    loss.backward()

    assert records == [False]
    assert any(parameter.grad is not None for name, parameter in model.named_parameters() if "calyrex" in name)
