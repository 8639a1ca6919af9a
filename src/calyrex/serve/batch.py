"""Rows of one model that are continued together; they join and leave between two tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import DynamicCache

from calyrex.serve.answer import Answer
from calyrex.serve.rows import Piece, join_rows, replace_row
from calyrex.serve.sampling import Chooser
from calyrex.serve.served import Served, ServedModel

_FREE_SHARE = 0.25
"""Share of places that may stay free for rows to come; more are given up, with a copy of the others."""

_WIDE = 1.25
_MORE_COLUMNS = 64
"""Columns that a cache may have beyond ``_WIDE`` times its longest row before it is copied without them."""


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
        """Rows that run or join; those that are over and only hold a place are not among them."""
        return [row for row in (*self.rows, *(row for row, _ in self._joining)) if not _is_over(row)]

    @property
    def is_empty(self) -> bool:
        """Whether it holds no row, not even the place of one that is over."""
        return not self.rows and not self._joining

    def step(self) -> None:
        """Add one token to every answer; those that are complete or not wanted any more leave."""
        self._change_rows()
        if self._cache is None:
            return
        device = self.served.model.device
        lengths = torch.tensor([row.num_tokens for row in self.rows])
        num_columns = int(self._cache.get_seq_length())
        columns = torch.arange(num_columns + 1)
        attention_mask = (columns[None, :] >= num_columns - lengths[:, None]).long()  # [B, T + 1]
        logits = self.served.forward(
            self.model,
            torch.tensor([[row.next_id] for row in self.rows], device=device),
            self._cache,
            attention_mask=attention_mask.to(device),
            position_ids=lengths[:, None].to(device),
            scales=[row.answer.generation.scale for row in self.rows],
        )
        for row, scores in zip(self.rows, logits, strict=True):
            if _is_over(row):
                continue
            row.num_tokens += 1
            row.next_id, chosen = row.chooser.choose(scores, row.answer.generation.input_ids, row.answer)
            row.answer.take(row.next_id, chosen)

    def leave(self) -> Sequence[Answer]:
        """Take out all rows and return the answers that are not complete."""
        answers = [row.answer for row in self.all_rows if not _is_over(row)]
        self.rows, self._joining, self._cache = [], [], None
        return answers

    def _change_rows(self) -> None:
        """Let new rows take the places of those that are over; where that is not enough, copy all into a new cache."""
        self._joining = [(row, piece) for row, piece in self._joining if not _is_over(row)]
        places = [index for index, row in enumerate(self.rows) if _is_over(row)]
        for row, piece in list(self._joining):
            if places and self._cache is not None and replace_row(self._cache, places[0], piece):
                self.rows[places.pop(0)] = row
                self._joining.remove((row, piece))
        if self._joining or self._is_wasteful(len(places)):
            self._copy_rows()

    def _is_wasteful(self, num_over: int) -> bool:
        """Tell whether more is computed for nothing than a copy of the cache would cost."""
        if self._cache is None:
            return False
        longest = max((row.num_tokens for row in self.rows if not _is_over(row)), default=0)
        is_wide = self._cache.get_seq_length() > _WIDE * longest + _MORE_COLUMNS
        return is_wide or num_over > _FREE_SHARE * len(self.rows)

    def _copy_rows(self) -> None:
        """Make a new cache of the rows that go on and those that join, no longer than its longest row."""
        going = [index for index, row in enumerate(self.rows) if not _is_over(row)]
        pieces: list[Piece] = []
        if self._cache is not None:
            end = int(self._cache.get_seq_length())
            pieces = [Piece(self._cache, index, end - self.rows[index].num_tokens, end) for index in going]
        pieces += [piece for _, piece in self._joining]
        self._cache = join_rows(pieces) if pieces else None
        self.rows = [self.rows[index] for index in going] + [row for row, _ in self._joining]
        self._joining = []


def _is_over(row: Row) -> bool:
    return row.answer.is_ended or row.answer.generation.is_cancelled
