"""Prompt repetition: the system prompt once more, right before the user turn that is answered.

It needs no training and no blocks, only tokens, and so is what anchoring has to beat. Source: Leviathan, Kalman and
Matias, "Prompt repetition improves non-reasoning LLMs", 2025, arXiv 2512.14982, who say the whole prompt twice; here it
is the system prompt alone, as a system message of its own, since it is what a long conversation moves away from.
"""

from collections.abc import Sequence
from typing import NamedTuple

from transformers import PreTrainedTokenizerBase

from calyrex.errors import CalyrexError
from calyrex.masking import SYSTEM_ROLES, Message
from calyrex.span import tokenize_chat

_REFUSAL = "repeat_system needs a system message right before the last user turn"


class SystemPrompt(NamedTuple):
    """A system prompt, and whether it is said again.

    Attributes:
        text: What it says.
        is_repeated: Whether it is said again right before the last user turn.
    """

    text: str
    is_repeated: bool = False


def repeat_system(messages: Sequence[Message]) -> list[Message]:
    """Return a conversation in which all system messages come again, as one, right before the last user turn.

    Args:
        messages: A conversation that ends with the user; without a system message it stays as it is.
    """
    texts = [message["content"] for message in messages if message["role"] in SYSTEM_ROLES]
    again: list[Message] = [{"role": "system", "content": "\n\n".join(texts)}] if texts else []
    return [*messages[:-1], *again, messages[-1]]


def check_repetition(tokenizer: PreTrainedTokenizerBase) -> None:
    """Make sure that a chat template says a system message where it stands, also before a later user turn.

    Raises:
        CalyrexError: It refuses the message, leaves it out or says it elsewhere.
    """
    turns = (("system", "Be brief."), ("user", "Hello."), ("assistant", "Hi."), ("user", "Who are you?"))
    messages: list[Message] = [{"role": role, "content": content} for role, content in turns]
    try:
        tokenize_chat(tokenizer, repeat_system(messages[:2]))
        tokens = tokenize_chat(tokenizer, repeat_system(messages))
    except CalyrexError as error:
        reason = str(error).rpartition("; ")[0] or str(error)  # its way out is another one
        raise CalyrexError(f"{_REFUSAL}: {reason}; leave it out or use another base") from error
    places = [at for at, is_system in enumerate(tokens.system_mask) if is_system]
    answer = [at for at, is_spoken in enumerate(tokens.assistant_mask) if is_spoken]
    if places[-1] < answer[0]:
        raise CalyrexError(
            f"{_REFUSAL}: this chat template says a later one at the beginning; leave it out or use another base"
        )
