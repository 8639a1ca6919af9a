"""Messages -> token ids, and which of them are the system prompt.

``calyrex.rendering`` tells which message each character of the chat template's text came from,
``calyrex.vocabulary`` turns that text into tokens without ever reading a control token out of a message. Here
the tokens get their masks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import BatchEncoding, PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.utils.chat_template_utils import get_json_schema

from calyrex.conversation import check_messages
from calyrex.errors import CalyrexError
from calyrex.masking import SYSTEM_ROLES, Message
from calyrex.rendering import DATA, Tools
from calyrex.vocabulary import EncodedChat, Token, encode_messages, fast_tokenizer

_STAND_IN = "\u2042"  # a content that no tool call begins or ends like


@dataclass(frozen=True)
class ChatTokens:
    """A conversation as tokens; all three lists have length ``T``.

    Attributes:
        input_ids: token ids.
        system_mask: True at tokens of what system and developer messages say; what the template adds is not
            system.
        assistant_mask: True where the assistant speaks, its end-of-turn token included; False in messages of
            weight 0.
    """

    input_ids: list[int]
    system_mask: list[bool]
    assistant_mask: list[bool]


def encode_chat(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[Mapping[str, Any]] | Sequence[Sequence[Mapping[str, Any]]],
    tools: Sequence[Any] | None = None,
    add_generation_prompt: bool = True,
) -> BatchEncoding:
    """Encode one conversation, or a list of them padded on the left.

    Args:
        tokenizer: a fast tokenizer with a chat template.
        messages: a conversation in OpenAI's format, or a list of conversations.
        tools: what the assistant may call, as JSON schemas or functions; the same for all conversations.
        add_generation_prompt: end with the opening of an assistant's turn.

    Returns:
        ``input_ids`` ``[B, T]`` int64; ``attention_mask`` ``[B, T]`` int64, 0 at padding; ``system_mask``
        ``[B, T]`` bool, True at the system prompt.

    Raises:
        CalyrexError: a message is malformed, or the chat template cannot render the conversation as it is.
    """
    is_batch = isinstance(messages, list | tuple) and bool(messages) and isinstance(messages[0], list | tuple)
    chats: Sequence[Any] = messages if is_batch else [messages]
    rows = [_encode(tokenizer, chat, tools, add_generation_prompt) for chat in chats]
    length = max(len(chat.tokens) for _, chat in rows)
    pad_id = next((i for i in (tokenizer.pad_token_id, tokenizer.eos_token_id) if isinstance(i, int)), 0)
    input_ids = torch.full((len(rows), length), pad_id, dtype=torch.int64)
    attention_mask = torch.zeros_like(input_ids)
    system_mask = torch.zeros_like(input_ids, dtype=torch.bool)
    for row, (plain, chat) in enumerate(rows):
        start = length - len(chat.tokens)
        input_ids[row, start:] = torch.tensor([token.id for token in chat.tokens])
        attention_mask[row, start:] = 1
        system_mask[row, start:] = torch.tensor(_system_mask(plain, chat.tokens))
    return BatchEncoding({"input_ids": input_ids, "attention_mask": attention_mask, "system_mask": system_mask})


def tokenize_chat(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Any] | None = None,
    add_generation_prompt: bool = False,
) -> ChatTokens:
    """Encode one conversation for training: token ids, and who says what.

    Args:
        tokenizer: a fast tokenizer with a chat template.
        messages: a conversation in OpenAI's format; an assistant message with ``weight`` 0 or without any
            text is not learned.
        tools: what the assistant may call, as JSON schemas or functions.
        add_generation_prompt: end with the opening of an assistant's turn.

    Raises:
        CalyrexError: a message is malformed, the chat template cannot render the conversation as it is, or
            does not tell where an assistant's tool call begins and ends.
    """
    plain, chat = _encode(tokenizer, messages, tools, add_generation_prompt)
    assistant_mask = [False] * len(chat.tokens)
    for owner, message in enumerate(plain):
        if message["role"] == "assistant" and message.get("weight", 1):
            for at in _speech(fast_tokenizer(tokenizer), plain, _plain_tools(tools), chat, owner):
                assistant_mask[at] = True
    ids = [token.id for token in chat.tokens]
    return ChatTokens(ids, _system_mask(plain, chat.tokens), assistant_mask)


def _encode(
    tokenizer: PreTrainedTokenizerBase,
    messages: object,
    tools: Sequence[Any] | None,
    add_generation_prompt: bool,
) -> tuple[list[Message], EncodedChat]:
    plain = check_messages(messages)
    fast = fast_tokenizer(tokenizer)
    return plain, encode_messages(fast, plain, _plain_tools(tools), add_generation_prompt)


def _plain_tools(tools: Sequence[Any] | None) -> Tools:
    return [get_json_schema(tool) if callable(tool) else tool for tool in tools] if tools else None


def _system_mask(messages: list[Message], tokens: list[Token]) -> list[bool]:
    """Mark tokens that hold text of system messages and of no other message."""
    system = frozenset(owner for owner, message in enumerate(messages) if message["role"] in SYSTEM_ROLES)
    return [bool(token.owners) and token.owners <= system for token in tokens]


def _speech(
    tokenizer: PreTrainedTokenizerFast, messages: list[Message], tools: Tools, chat: EncodedChat, owner: int
) -> set[int]:
    """Return the positions of the tokens that the assistant says with one message."""
    tokens = chat.tokens
    spoken = {at for at, token in enumerate(tokens) if token.owners == {owner}}
    has_end = True
    if messages[owner].get("tool_calls"):
        start, end, has_end = _find_calls(tokenizer, messages, tools, chat, owner)
        spoken |= {at for at, token in enumerate(tokens) if token.start < end and token.end > start}
    if not spoken:
        return spoken
    between = range(min(spoken), max(spoken))
    if all(tokens[at].owners <= {owner, DATA} for at in between):
        spoken.update(between)  # what stands between thoughts and answer, the assistant writes too
    return spoken | (_end_of_turn(tokenizer, chat, max(spoken) + 1) if has_end else set())


def _end_of_turn(tokenizer: PreTrainedTokenizerFast, chat: EncodedChat, first: int) -> set[int]:
    """Return the positions up to the first control token, or to the end-of-sequence token right after it."""
    tokens = chat.tokens
    last = first
    while last < len(tokens) and not tokens[last].is_control:
        if tokens[last].owners or chat.text[tokens[last].start : tokens[last].end].strip():
            return set()
        last += 1
    further = last
    while further < len(tokens) and tokens[further].is_control:
        if tokens[further].id == tokenizer.eos_token_id:
            last = further
            break
        further += 1
    return set(range(first, min(last + 1, len(tokens)))) if last < len(tokens) else set()


def _find_calls(
    tokenizer: PreTrainedTokenizerFast, messages: list[Message], tools: Tools, chat: EncodedChat, owner: int
) -> tuple[int, int, bool]:
    """Find the characters that the template writes for the tool calls of a message.

    They are where the rendering up to this message differs from one in which the message says something else
    instead.

    Returns:
        First character, the one after the last, and whether the end of the turn comes after it.
    """
    plain = {key: value for key, value in messages[owner].items() if key != "tool_calls"}
    called, tokens = encode_messages(tokenizer, messages[: owner + 1], tools, False)
    said, _ = encode_messages(tokenizer, [*messages[:owner], {**plain, "content": _STAND_IN}], tools, False)
    start = _count_shared(called, said)
    end = len(called) - _count_shared(called[:start:-1], said[:start:-1])
    end = next((token.end for token in tokens if token.is_control and token.start < end < token.end), end)
    calls = called[start:end]
    low = max((token.end for token in chat.tokens if token.owners & set(range(owner))), default=0)
    later = set(range(owner + 1, len(messages)))
    high = min((token.start for token in chat.tokens if token.owners & later), default=len(chat.text))
    gap = chat.text[low:high]
    if not calls or gap.count(calls) != 1:
        raise CalyrexError(
            f"this chat template does not tell where the tool calls of message {owner} begin and end; give the "
            "message weight 0 or no tool_calls"
        )
    start = low + gap.index(calls)
    return start, start + len(calls), end < len(called)


def _count_shared(first: str, second: str) -> int:
    """Return how many characters two texts begin with alike."""
    pairs = zip(first, second, strict=False)
    return next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(first), len(second)))
