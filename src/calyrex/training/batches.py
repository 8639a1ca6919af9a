"""Training rows and how they become a batch: packed, padded on the right, without an attention mask.

Short rows share one line of the batch with others, as many as fit into the length of the longest row. Positions begin
anew with each of them, which is how transformers and the blocks know the documents of a packed line apart. What follows
on the right cannot be seen by a causal model, so that no mask is needed and the plain causal kernels run.
"""

from collections.abc import Sequence
from typing import NotRequired, TypedDict, cast

import torch
from peft import PeftModel
from torch import Tensor
from transformers import PreTrainedModel

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


def collate(rows: Sequence[Row], *, pad_token_id: int, is_packed: bool = False) -> dict[str, Tensor]:
    """Make a batch of rows; the loss of a packed batch is that of a padded one.

    Args:
        rows: the conversations.
        pad_token_id: what fills the lines on the right.
        is_packed: let short rows share a line; only for bases that keep them apart (``keeps_documents_apart``).

    Returns:
        ``input_ids`` and ``labels`` ``[B, T]`` int64 (labels are -100 off the assistant's tokens), ``system_mask``
        ``[B, T]`` bool, ``position_ids`` ``[B, T]`` int64 where lines are shared, and ``rows`` where the rows are
        numbered: those of each line, filled up with -1, ``[B, N]`` int64.
    """
    lengths = [len(row["input_ids"]) for row in rows]
    lines = fit_into_lines(lengths) if is_packed else [[row] for row in range(len(rows))]
    shape = (len(lines), max(lengths))
    batch = {
        "input_ids": torch.full(shape, pad_token_id),
        "labels": torch.full(shape, IGNORED),
        "system_mask": torch.zeros(shape, dtype=torch.bool),
    }
    position_ids = torch.arange(shape[1]).repeat(shape[0], 1)
    for number, line in enumerate(lines):
        start = 0
        for row in line:
            here = slice(start, start + lengths[row])
            ids = torch.tensor(rows[row]["input_ids"])
            batch["input_ids"][number, here] = ids
            batch["labels"][number, here] = ids.masked_fill(~torch.tensor(rows[row]["assistant_mask"]), IGNORED)
            batch["labels"][number, start] = IGNORED  # nothing of this document comes before it
            batch["system_mask"][number, here] = torch.tensor(rows[row]["system_mask"])
            position_ids[number, start:] = torch.arange(shape[1] - start)
            start += lengths[row]
    if len(lines) < len(rows):
        batch["position_ids"] = position_ids
    if all("row" in row for row in rows):
        longest = max(map(len, lines))
        batch["rows"] = torch.tensor(
            [[rows[row]["row"] for row in line] + [-1] * (longest - len(line)) for line in lines]
        )
    return batch


def fit_into_lines(lengths: Sequence[int]) -> list[list[int]]:
    """Distribute rows over as few lines as first-fit-decreasing finds, none longer than the longest row.

    Returns:
        The numbers of the rows of each line.
    """
    capacity = max(lengths)
    lines: list[list[int]] = []
    free: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        line = next((i for i, space in enumerate(free) if space >= lengths[row]), len(lines))
        if line == len(lines):
            lines.append([])
            free.append(capacity)
        lines[line].append(row)
        free[line] -= lengths[row]
    return lines


@torch.no_grad()
def keeps_documents_apart(model: PeftModel) -> bool:
    """Tell whether the base lets no document of a packed line see another, by trying it.

    A base that carries a state along the line, or ignores where positions begin anew, does not.
    """
    vocab_size = model.config.get_text_config().vocab_size
    documents = torch.arange(1, 17, device=model.device).view(4, 4) % vocab_size
    lines = documents.view(2, 8)  # two, because some attention kernels look for documents in a single line only
    positions = torch.arange(8, device=model.device).repeat(2, 1)
    with model.disable_adapter():
        base = cast(PreTrainedModel, model.get_base_model())
        alone = base(input_ids=documents, use_cache=False).logits[1::2]
        packed = base(input_ids=lines, position_ids=positions % 4, use_cache=False).logits[:, 4:]
        mixed = base(input_ids=lines, position_ids=positions, use_cache=False).logits[:, 4:]
    difference, leak = (packed - alone).abs().max(), (mixed - alone).abs().max()
    return bool(difference < 0.1 * leak)
