"""A conversation as tokens under one system prompt, teacher-forced on the obedient answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from calyrex.analysis.chats import Conversation
from calyrex.conversation import check_messages
from calyrex.errors import CalyrexError
from calyrex.masking import SYSTEM_ROLES, Message
from calyrex.span import tokenize_chat
from calyrex.vocabulary import encode_messages, fast_tokenizer

MAX_ANSWER_TOKENS = 64
"""Tokens of an answer that are measured; the built-in ones are shorter. It bounds the logits that exist at a time."""

TOKEN_CLASSES = ("system", "user", "assistant", "answer", "template")
"""Who wrote a token; tools count as user, earlier answers as assistant, control and role tokens as template."""


@dataclass(frozen=True)
class ForcedRun:
    """The tokens of one run; ``T`` is the number of prompt tokens but the last, ``P`` that of answer tokens.

    Attributes:
        prompt: All but the last prompt token, ``[1, T]`` int64.
        tail: The tokens whose next token belongs to the answer, ``[1, P]`` int64.
        targets: The tokens of the answer, its end of turn included, ``[P]`` int64.
        system_mask: True at system tokens of the prompt, ``[1, T]`` bool.
        classes: Who wrote each token of prompt and tail, one of ``TOKEN_CLASSES``.
    """

    prompt: Tensor
    tail: Tensor
    targets: Tensor
    system_mask: Tensor
    classes: Sequence[str]

    @property
    def num_tokens(self) -> int:
        """Tokens of prompt and tail."""
        return self.prompt.shape[1] + self.tail.shape[1]

    def to(self, device: torch.device) -> "ForcedRun":
        """Return the run on a device."""
        return ForcedRun(
            self.prompt.to(device),
            self.tail.to(device),
            self.targets.to(device),
            self.system_mask.to(device),
            self.classes,
        )


class ForcedRuns(NamedTuple):
    """The three runs of a conversation, which differ in the system prompt only."""

    with_rule: ForcedRun
    other_rule: ForcedRun
    neutral: ForcedRun


def force_answer(
    tokenizer: PreTrainedTokenizerBase, conversation: Conversation, neutral_system: str, device: torch.device
) -> ForcedRuns:
    """Tokenise the three runs of a conversation.

    Args:
        tokenizer: Tokenizer of the base, with a chat template.
        conversation: A conversation under a rule.
        neutral_system: The system prompt of the neutral run.
        device: Where the tokens go.

    Raises:
        CalyrexError: The chat template refuses the conversation, or spells its answer in other tokens under another
            system prompt.
    """
    prompts = (
        conversation.messages,
        conversation.under(conversation.other_system),
        conversation.under(neutral_system),
    )
    try:
        runs = ForcedRuns(*(_force(tokenizer, messages, conversation).to(device) for messages in prompts))
    except CalyrexError as error:
        raise CalyrexError(f"{conversation.id}: {error}") from error
    for run in runs[1:]:
        if not torch.equal(run.targets, runs.with_rule.targets):
            raise CalyrexError(f"{conversation.id}: the answer has other tokens under another system prompt")
    return runs


def _force(tokenizer: PreTrainedTokenizerBase, messages: list[Message], conversation: Conversation) -> ForcedRun:
    earlier = [{**message, "weight": 0} if message["role"] == "assistant" else message for message in messages]
    turns = [*earlier, {"role": "assistant", "content": conversation.answer}]
    chat = tokenize_chat(tokenizer, turns, conversation.tools)
    spoken = [place for place, is_spoken in enumerate(chat.assistant_mask) if is_spoken]
    if not spoken or spoken[0] < 2:
        raise CalyrexError("the chat template leaves no answer, or nothing before it")
    first, last = spoken[0], min(spoken[-1], spoken[0] + MAX_ANSWER_TOKENS - 1)
    classes = _classify(tokenizer, turns, conversation)
    classes[first:] = ["answer"] * (len(classes) - first)
    ids = torch.tensor(chat.input_ids)
    return ForcedRun(
        prompt=ids[None, : first - 1],
        tail=ids[None, first - 1 : last],
        targets=ids[first : last + 1],
        system_mask=torch.tensor(chat.system_mask)[None, : first - 1],
        classes=classes[:last],
    )


def _classify(tokenizer: PreTrainedTokenizerBase, turns: list[Message], conversation: Conversation) -> list[str]:
    """Tell who wrote each token; one that holds text of two roles, or none, is the template's."""
    plain = check_messages(turns)
    encoded = encode_messages(fast_tokenizer(tokenizer), plain, conversation.tools, add_generation_prompt=False)
    names: dict[str, str] = {**dict.fromkeys(SYSTEM_ROLES, "system"), "tool": "user"}
    roles = [names.get(message["role"], str(message["role"])) for message in plain]
    classes: list[str] = []
    for token in encoded.tokens:
        owners = {roles[owner] if owner >= 0 else "template" for owner in token.owners}
        classes.append(owners.pop() if len(owners) == 1 else "template")
    return classes
