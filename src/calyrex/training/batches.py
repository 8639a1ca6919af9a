"""Training rows and how they become a padded batch."""

from collections.abc import Sequence
from typing import NotRequired, TypedDict

import torch
from torch import Tensor

IGNORED = -100
"""Label of tokens that carry no loss, as in transformers."""


class Row(TypedDict):
    """One tokenised conversation.

    Attributes:
        input_ids: ``T`` token ids.
        system_mask: True at system tokens, ``T`` bools.
        assistant_mask: True where the assistant speaks and is learned from, ``T`` bools.
        length: ``T``.
        row: number of the row in the data set.
    """

    input_ids: list[int]
    system_mask: list[bool]
    assistant_mask: list[bool]
    length: NotRequired[int]
    row: NotRequired[int]


def collate(rows: Sequence[Row], *, pad_token_id: int) -> dict[str, Tensor]:
    """Pad rows on the right and stack them.

    Returns:
        ``input_ids``, ``attention_mask`` and ``labels`` ``[B, T]`` int64 (labels are -100 off the assistant's tokens),
        ``system_mask`` ``[B, T]`` bool, and ``rows`` ``[B]`` int64 where the rows are numbered.
    """
    longest = max(len(row["input_ids"]) for row in rows)
    input_ids = torch.full((len(rows), longest), pad_token_id)
    labels = torch.full((len(rows), longest), IGNORED)
    attention_mask = torch.zeros(len(rows), longest, dtype=torch.int64)
    system_mask = torch.zeros(len(rows), longest, dtype=torch.bool)
    for i, row in enumerate(rows):
        length = len(row["input_ids"])
        ids = torch.tensor(row["input_ids"])
        input_ids[i, :length] = ids
        attention_mask[i, :length] = 1
        system_mask[i, :length] = torch.tensor(row["system_mask"])
        labels[i, :length] = ids.masked_fill(~torch.tensor(row["assistant_mask"]), IGNORED)
    batch = {
        "input_ids": input_ids,
        "attention_mask": attention_mask,
        "labels": labels,
        "system_mask": system_mask,
    }
    if all("row" in row for row in rows):
        batch["rows"] = torch.tensor([row["row"] for row in rows])
    return batch
