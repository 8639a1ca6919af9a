"""Short rows share a line, and nothing passes between them."""

import pytest
import torch

from calyrex.training.batches import collate, fit_into_lines, keeps_documents_apart
from calyrex.training.loss import answer_loss
from tiny import ARCHITECTURES, batch, tiny_anchored

LENGTHS = (12, 5, 7, 4, 8)


def make_rows():
    input_ids, system_mask = batch(rows=len(LENGTHS))
    return [
        {
            "input_ids": ids[:length].tolist(),
            "system_mask": mask[:length].tolist(),
            "assistant_mask": [False] * (length - 3) + [True] * 3,
            "row": number,
        }
        for number, (ids, mask, length) in enumerate(zip(input_ids, system_mask, LENGTHS, strict=True))
    ]


def loss_of(model, inputs):
    inputs = {name: value for name, value in inputs.items() if name != "rows"}
    model.zero_grad()
    loss = answer_loss(model, model.get_base_model().get_output_embeddings(), **inputs)
    loss.backward()
    return loss, [p.grad.clone() for p in model.parameters() if p.requires_grad]


def test_rows_share_lines_no_longer_than_the_longest():
    lines = fit_into_lines(LENGTHS)

    assert sorted(row for line in lines for row in line) == [0, 1, 2, 3, 4]
    assert [sum(LENGTHS[row] for row in line) for line in lines] == [12, 12, 12]
    assert fit_into_lines([4, 4, 4]) == [[0], [1], [2]]


def test_a_packed_batch_says_where_each_row_lies():
    rows = make_rows()

    inputs = collate(rows, pad_token_id=0, is_packed=True)

    assert inputs["rows"].tolist() == [[0, -1], [4, 3], [2, 1]]
    assert inputs["input_ids"][1].tolist() == rows[4]["input_ids"] + rows[3]["input_ids"]
    assert inputs["position_ids"][1].tolist() == [*range(8), *range(4)]
    assert inputs["system_mask"][2].tolist() == rows[2]["system_mask"] + rows[1]["system_mask"]
    assert (inputs["labels"] != -100).sum() == 15


def test_rows_of_one_length_need_no_positions_and_no_mask():
    assert set(collate(make_rows()[:1] * 2, pad_token_id=0, is_packed=True)) == {
        "input_ids",
        "labels",
        "system_mask",
        "rows",
    }


def test_the_first_token_of_a_row_is_not_predicted_from_the_row_before():
    rows = [{**row, "assistant_mask": [True] * len(row["input_ids"])} for row in make_rows()]

    labels = collate(rows, pad_token_id=0, is_packed=True)["labels"]

    assert labels[1, 8] == -100
    assert labels[1, 9] != -100


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_packed_batch_has_the_loss_and_the_gradients_of_a_padded_one(architecture):
    rows, model = make_rows(), tiny_anchored(architecture)
    assert keeps_documents_apart(model)

    padded, padded_gradients = loss_of(model, collate(rows, pad_token_id=0))
    packed, packed_gradients = loss_of(model, collate(rows, pad_token_id=0, is_packed=True))

    torch.testing.assert_close(packed, padded, atol=1e-5, rtol=1e-5)  # another kernel adds in another order
    for one, other in zip(packed_gradients, padded_gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-3)


def test_a_base_that_lets_documents_see_each_other_is_noticed():
    model = tiny_anchored()

    def ignore_positions(_decoder, args, kwargs):
        return args, {**kwargs, "position_ids": None}

    model.get_base_model().get_decoder().register_forward_pre_hook(ignore_positions, with_kwargs=True)

    assert not keeps_documents_apart(model)
