"""Tokenise chats into an Arrow file on disk, row by row, so that a corpus may be larger than memory."""

import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow
from datasets import Dataset, Features, Sequence, Value
from datasets.arrow_writer import ArrowWriter
from transformers import PreTrainedTokenizerBase

from calyrex.data.chats import Chat
from calyrex.errors import CalyrexError
from calyrex.span import tokenize_chat
from calyrex.training.batches import Row

logger = logging.getLogger(__name__)

_FEATURES = Features(
    {
        "input_ids": Sequence(Value("int32")),
        "system_mask": Sequence(Value("bool")),
        "assistant_mask": Sequence(Value("bool")),
        "length": Value("int32"),
        "row": Value("int64"),
    }
)


def write_rows(
    chats: Iterable[Chat],
    tokenizer: PreTrainedTokenizerBase,
    path: Path,
    *,
    max_length: int,
    needs_system: bool = True,
) -> Dataset:
    """Tokenise chats into ``path`` and open it memory-mapped; the file appears only when it is complete.

    A chat longer than ``max_length`` is cut at its end. One whose system prompt would be cut, that has no system
    prompt, or that has nothing left to learn from, is left out; a warning says how many were and which was the first.

    Args:
        chats: conversations, read once.
        tokenizer: tokenizer of the base, with a chat template.
        path: Arrow file to write.
        max_length: longest row in tokens.
        needs_system: leave out chats without a system prompt, in which blocks act on nothing.

    Raises:
        CalyrexError: no chat is left, or one cannot be tokenised (its origin is named).
    """
    partial = path.with_suffix(".partial")
    skipped: list[str] = []
    with ArrowWriter(features=_FEATURES, path=str(partial)) as writer:
        for number, row in enumerate(_tokenize(chats, tokenizer, max_length, needs_system, skipped)):
            writer.write({**row, "length": len(row["input_ids"]), "row": number})
        num_rows, _ = writer.finalize()
    if skipped:
        logger.warning("%d chats left out; the first: %s", len(skipped), skipped[0])
    if num_rows == 0:
        partial.unlink(missing_ok=True)
        reason = f"; the first: {skipped[0]}" if skipped else ""
        raise CalyrexError(f"no chat to train on among {len(skipped)} read{reason}")
    os.replace(partial, path)
    return open_rows(path)


def open_rows(path: Path) -> Dataset:
    """Open rows that ``write_rows`` has written, memory-mapped.

    Raises:
        CalyrexError: the file is damaged.
    """
    try:
        return Dataset.from_file(str(path))
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise CalyrexError(f"{path} is damaged ({error}); delete it and give the same command again") from error


def _tokenize(
    chats: Iterable[Chat],
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    needs_system: bool,
    skipped: list[str],
) -> Iterator[Row]:
    for chat in chats:
        try:
            tokens = tokenize_chat(tokenizer, chat.messages, chat.tools)
        except CalyrexError as error:
            raise CalyrexError(f"{chat.origin}: {error}") from error
        if any(tokens.system_mask[max_length:]):
            end = max(i for i, is_system in enumerate(tokens.system_mask) if is_system) + 1
            skipped.append(f"{chat.origin}: its system prompt ends at token {end}, beyond max_length {max_length}")
        elif needs_system and not any(tokens.system_mask):
            skipped.append(f"{chat.origin}: it has no system prompt, so the blocks leave it to the base")
        elif not any(tokens.assistant_mask[:max_length]):
            skipped.append(f"{chat.origin}: no answer to learn from in the first {max_length} tokens")
        else:
            yield {
                "input_ids": tokens.input_ids[:max_length],
                "system_mask": tokens.system_mask[:max_length],
                "assistant_mask": tokens.assistant_mask[:max_length],
            }
