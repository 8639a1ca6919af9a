"""The training dialogues of the built-in rules, as chats."""

from collections.abc import Iterator

from calyrex.data.chats import Chat
from calyrex.data.rules.corpus import generate_corpus


def rule_chats(size: int, *, seed: int) -> Iterator[Chat]:
    """Make training dialogues one by one; a longer series begins with the shorter one."""
    for number, example in enumerate(generate_corpus(size, seed=seed)):
        yield Chat(messages=example.chat()["messages"], tools=None, origin=f"built-in rule dialogue {number}")
