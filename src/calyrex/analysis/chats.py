"""The conversations of an analysis: a rule, a question, the answer that obeys, and a rule that is not in force."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from transformers import PreTrainedTokenizerBase

from calyrex.analysis.options import AnalyzeOptions
from calyrex.data.chats import Chat, read_chats
from calyrex.data.rules import TEST_SEED_OFFSET, RuleExample, generate_corpus
from calyrex.errors import CalyrexError
from calyrex.masking import SYSTEM_ROLES, Message
from calyrex.rendering import Tools
from calyrex.span import tokenize_chat
from calyrex.studies.data import draw_chats

MAX_CHAT_TOKENS = 1024
"""Longest conversation of a user's file that is taken; half the model's context where that is less."""

_CANDIDATES_PER_CHAT = 100


@dataclass(frozen=True)
class Conversation:
    """A conversation under a rule.

    Attributes:
        id: Its name, unique in the analysis.
        messages: System prompt, earlier turns and the last user turn.
        answer: The answer that obeys the system prompt.
        rule: What conversations under the same rule have in common: the rule's own text, or the system prompt.
        other_system: The system prompt of a conversation under another rule.
        tools: Functions that the assistant may call, as JSON schemas.
        example: What tells whether an answer obeys, and the rule's family; None for a user's own chats.
    """

    id: str
    messages: list[Message]
    answer: str
    rule: str
    other_system: str
    tools: Tools = None
    example: RuleExample | None = None

    @property
    def family(self) -> str | None:
        """Name of the rule's family; None for a user's own chats."""
        return self.example.family if self.example is not None else None

    @property
    def question(self) -> str:
        """The last user turn."""
        return str(next(message["content"] for message in reversed(self.messages) if message["role"] == "user"))

    def under(self, system: str) -> list[Message]:
        """Return the messages with another system prompt in the place of all that they have."""
        others = [message for message in self.messages if message["role"] not in SYSTEM_ROLES]
        return [{"role": "system", "content": system}, *others]


def draw_conversations(
    options: AnalyzeOptions, tokenizer: PreTrainedTokenizerBase, context_length: int | None
) -> list[Conversation]:
    """Draw the conversations of an analysis; the same options draw the same ones.

    Built in are questions of the rules' test split without an override attempt, under exactly one rule, which the
    natural answer would break. The other rule is of another family; of a user's chats it is another system prompt.

    Args:
        options: What the user has said.
        tokenizer: Tokenizer of the base.
        context_length: Tokens that the model can hold; None for no limit.

    Raises:
        CalyrexError: The data cannot be read, or hold fewer than two different system prompts, or the model can hold
            too few of the built-in conversations.
    """
    # Any two halves fit: a chat's own turns and the system prompt of another.
    max_tokens = min(MAX_CHAT_TOKENS, (context_length or MAX_CHAT_TOKENS * 2) // 2)
    if options.data is None:
        return _draw_rules(options.num_chats, options.seed, tokenizer, max_tokens)
    usable = map(_cut_after_answer, read_chats(options.data))
    chats = draw_chats(usable, options.num_chats, max_tokens, tokenizer, options.seed)
    systems = [_read_system(chat.messages) for chat in chats]
    if len(set(systems)) < 2:
        raise CalyrexError(
            f"{options.data} holds {len(set(systems))} different system prompts in chats of at most {max_tokens} "
            "tokens that end with an answer, and at least 2 are needed"
        )
    rng = random.Random(f"{options.seed} other system prompts")
    return [
        Conversation(
            id=f"chat-{number}",
            messages=chat.messages[:-1],
            answer=chat.messages[-1]["content"],
            rule=system,
            other_system=rng.choice([other for other in systems if other != system]),
            tools=chat.tools,
        )
        for number, (chat, system) in enumerate(zip(chats, systems, strict=True), start=1)
    ]


def _draw_rules(count: int, seed: int, tokenizer: PreTrainedTokenizerBase, max_tokens: int) -> list[Conversation]:
    candidates = generate_corpus(
        _CANDIDATES_PER_CHAT * count, seed=seed + TEST_SEED_OFFSET, split="test", attacked=False
    )
    usable = (
        example
        for example in candidates
        if _is_decided_by_its_rule(example) and _count_tokens(example, tokenizer) <= max_tokens
    )
    examples = list(islice(usable, count))
    if len(examples) < count:
        raise CalyrexError(
            f"{len(examples)} of {count} built-in conversations have at most {max_tokens} tokens, half of what the "
            "model holds: take a model with a longer context or fewer conversations"
        )
    others = _draw_others(examples, seed)
    return [
        Conversation(
            id=f"rule-{number}",
            messages=[{"role": message["role"], "content": message["content"]} for message in example.messages],
            answer=example.answer,
            rule=example.rules[0].text,
            other_system=other,
            example=example,
        )
        for number, (example, other) in enumerate(zip(examples, others, strict=True), start=1)
    ]


def _count_tokens(example: RuleExample, tokenizer: PreTrainedTokenizerBase) -> int:
    messages: list[Message] = [{"role": message["role"], "content": message["content"]} for message in example.messages]
    answer: Message = {"role": "assistant", "content": example.answer}
    return len(tokenize_chat(tokenizer, [*messages, answer]).input_ids)


def _is_decided_by_its_rule(example: RuleExample) -> bool:
    return len(example.rules) == 1 and not example.rules[0].check(example.question, example.natural)


def _draw_others(examples: Sequence[RuleExample], seed: int) -> Iterator[str]:
    rng = random.Random(f"{seed} other system prompts")
    for example in examples:
        others = [other for other in examples if other.family != example.family]
        yield _read_system(rng.choice(others).messages)


def _cut_after_answer(chat: Chat) -> Chat | None:
    """Return a chat up to its last answer; None where that has no text, or where there is no system prompt."""
    spoken = [place for place, message in enumerate(chat.messages) if message["role"] == "assistant"]
    messages = chat.messages[: spoken[-1] + 1] if spoken else []
    is_usable = bool(messages) and messages[-1]["content"].strip() and not messages[-1].get("tool_calls")
    if not is_usable or not _read_system(messages) or not any(message["role"] == "user" for message in messages):
        return None
    return Chat(messages, chat.tools, chat.origin)


def _read_system(messages: Sequence[Message]) -> str:
    texts = [message["content"] for message in messages if message["role"] in SYSTEM_ROLES]
    return "\n\n".join(text for text in texts if text.strip())
