"""The loss is the mean over the answers' tokens, and no logits are made for any other."""

import pytest
import torch

from calyrex.training.loss import answer_loss, has_plain_logits
from tiny import batch, tiny_anchored


@pytest.fixture
def anchored():
    return tiny_anchored()


def labels_of(input_ids):
    labels = input_ids.clone()
    labels[:, :7] = -100
    return labels


@pytest.mark.parametrize("is_chunked", [False, True])
def test_the_loss_is_the_mean_over_the_answers_tokens(anchored, is_chunked):
    input_ids, system_mask = batch()
    logits = anchored(input_ids, system_mask=system_mask).logits.log_softmax(-1)
    nats = [-logits[b, t - 1, input_ids[b, t]] for b in range(2) for t in range(7, 12)]
    inputs = {"input_ids": input_ids, "system_mask": system_mask, "is_chunked": is_chunked}
    head = anchored.get_base_model().get_output_embeddings()

    mean = answer_loss(anchored, head, labels_of(input_ids), **inputs)
    shared = answer_loss(anchored, head, labels_of(input_ids), 40, **inputs)

    torch.testing.assert_close(mean, torch.stack(nats).mean())
    torch.testing.assert_close(shared, torch.stack(nats).sum() / 40)


def test_a_chunked_loss_has_the_same_gradients_and_makes_no_logits_but_a_few(anchored):
    input_ids, system_mask = batch(rows=64)
    labels = labels_of(input_ids)
    head = anchored.get_base_model().get_output_embeddings()
    gradients, sizes = [], []
    head.register_forward_hook(lambda _module, _args, output: sizes.append(output.shape[1]))

    for is_chunked in (False, True):
        anchored.zero_grad()
        loss = answer_loss(anchored, head, labels, input_ids=input_ids, system_mask=system_mask, is_chunked=is_chunked)
        loss.backward()
        gradients.append([p.grad.clone() for p in anchored.parameters() if p.requires_grad])

    assert sizes == [64 * 5, 1]
    for whole, chunked in zip(*gradients, strict=True):
        torch.testing.assert_close(chunked, whole, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_batch_without_labels_has_no_loss(anchored, is_chunked):
    input_ids, system_mask = batch()
    head = anchored.get_base_model().get_output_embeddings()
    labels = torch.full_like(input_ids, -100)

    loss = answer_loss(anchored, head, labels, input_ids=input_ids, system_mask=system_mask, is_chunked=is_chunked)

    assert loss == 0.0


@pytest.mark.parametrize(
    ("architecture", "is_plain"), [("llama", True), ("gpt2", True), ("gemma3_text", True), ("gemma2", False)]
)
def test_logits_that_the_base_caps_after_its_head_are_noticed(architecture, is_plain):
    assert has_plain_logits(tiny_anchored(architecture)) is is_plain


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_chunked_loss_of_many_labels_is_summed_in_float32(dtype):
    anchored = tiny_anchored(dtype=dtype)
    input_ids, system_mask = batch(rows=300, tokens=64)
    labels = input_ids.clone()
    labels[:, :7] = -100
    inputs = {"input_ids": input_ids, "system_mask": system_mask}
    head = anchored.get_base_model().get_output_embeddings()

    whole, chunked = (answer_loss(anchored, head, labels, **inputs, is_chunked=chunked) for chunked in (False, True))

    assert (labels != -100).sum() * whole > torch.finfo(torch.float16).max
    torch.testing.assert_close(chunked, whole, atol=2e-3, rtol=0)
