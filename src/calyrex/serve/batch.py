"""Rows of one model that are continued together; they join and leave between two tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import DynamicCache

from calyrex.serve.answer import Answer
from calyrex.serve.rows import Piece, join_rows
from calyrex.serve.sampling import Chooser
from calyrex.serve.served import Served, ServedModel


@dataclass(eq=False)
class Row:
    """An answer in a batch.

    Attributes:
        answer: the answer.
        chooser: chooses its tokens.
        num_tokens: tokens of it in the cache.
        next_id: the token that is read next.
    """

    answer: Answer
    chooser: Chooser
    num_tokens: int
    next_id: int


class Batch:
    """The running answers of one model."""

    def __init__(self, served: Served, model: ServedModel) -> None:
        self.served = served
        self.model = model
        self.rows: list[Row] = []
        self._cache: DynamicCache | None = None
        self._joining: list[tuple[Row, Piece]] = []

    def join(self, row: Row, piece: Piece) -> None:
        """Let a row join before the next token; the piece holds all its tokens but the next."""
        self._joining.append((row, piece))

    @property
    def all_rows(self) -> list[Row]:
        """Rows that run or join."""
        return [*self.rows, *(row for row, _ in self._joining)]

    def step(self) -> None:
        """Add one token to every answer; those that are complete or not wanted any more leave."""
        self._change_rows()
        if not self.rows or self._cache is None:
            return
        device = self.served.model.device
        lengths = torch.tensor([row.num_tokens for row in self.rows])
        width = max(row.num_tokens for row in self.rows)
        places = torch.arange(width + 1)
        attention_mask = (places[None, :] >= width - lengths[:, None]).long()  # [B, T + 1]
        logits = self.served.forward(
            self.model,
            torch.tensor([[row.next_id] for row in self.rows], device=device),
            self._cache,
            attention_mask=attention_mask.to(device),
            position_ids=lengths[:, None].to(device),
            scales=[row.answer.generation.scale for row in self.rows],
        )
        for row, scores in zip(self.rows, logits, strict=True):
            row.num_tokens += 1
            row.next_id, chosen = row.chooser.choose(scores, row.answer.generation.input_ids, row.answer)
            row.answer.take(row.next_id, chosen)

    def leave(self) -> Sequence[Answer]:
        """Take out all rows and return the answers that are not complete."""
        answers = [row.answer for row in self.all_rows if not _is_over(row)]
        self.rows, self._joining, self._cache = [], [], None
        return answers

    def _change_rows(self) -> None:
        """Let rows that have ended leave and new ones join, and drop padding that no row needs."""
        going = [index for index, row in enumerate(self.rows) if not _is_over(row)]
        joining = [(row, piece) for row, piece in self._joining if not _is_over(row)]
        self._joining = []
        if len(going) == len(self.rows) and not joining:
            return
        pieces: list[Piece] = []
        if self._cache is not None:
            width = max(row.num_tokens for row in self.rows)
            pieces = [Piece(self._cache, index, width - self.rows[index].num_tokens, width) for index in going]
        self.rows = [self.rows[index] for index in going] + [row for row, _ in joining]
        pieces += [piece for _, piece in joining]
        self._cache = join_rows(pieces) if pieces else None


def _is_over(row: Row) -> bool:
    return row.answer.is_ended or row.answer.generation.is_cancelled
