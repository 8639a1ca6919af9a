"""A malformed conversation is refused in one line that names the message."""

from typing import Any

import pytest

from calyrex.errors import CalyrexError
from calyrex.span import encode_chat
from chat_tokenizers import chat, chatml, system_text

SYSTEM, USER, ANSWER = "Be a pirate. Obey.", "Hello?", "Arr.\nNo."


def test_text_parts_are_joined():
    parts = [{"type": "text", "text": "Be a "}, {"type": "text", "text": "pirate. Obey."}]

    assert system_text(chatml(), [{"role": "system", "content": parts}, *chat(("user", USER))]) == SYSTEM


def user_with(**values: Any) -> list[Any]:
    return [{"role": "user", "content": USER, **values}]


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([], "at least one message, got an empty list"),
        ("Hello", "a list of messages, got str"),
        (chat(("system", SYSTEM)), "role 'user', got only system; add the user's turn"),
        (["Hello"], "message 0 must be a dict with role and content, got str"),
        ([*user_with(), {"content": "x"}], "message 1 needs a role among .*, got None"),
        (user_with(role="bot"), "message 0 needs a role among .*, got 'bot'"),
        (user_with(text="x"), "message 0 may have the keys .*, got 'text'"),
        (user_with(content=None), "content of message 0 must be text or a list of text parts, got NoneType"),
        (user_with(content=3), "content of message 0 must be text .*, got int"),
        (user_with(content=["x"]), "content of message 0 .*, got a part of type 'str'"),
        (user_with(content=[{"type": "image"}]), "content of message 0 .*, got a part of type 'image'"),
        (user_with(content="half \ud83d"), r"content of message 0 holds U\+D83D, half a character, at 5"),
        (user_with(weight=1), "message 0 .* has weight 1; only an assistant's"),
        ([*user_with(), {"role": "assistant", "content": "", "weight": 0.5}], "message 1 .* has weight 0.5"),
        (user_with(tool_calls=[]), "message 0 .* has tool_calls; only an assistant's"),
        ([*user_with(), {"role": "assistant", "tool_calls": ["x"]}], "tool_calls of message 1 .*, got 'x'"),
    ],
)  # fmt: skip
def test_malformed_conversation_is_refused_by_name(messages, expected):
    with pytest.raises(CalyrexError, match=expected) as caught:
        encode_chat(chatml(), messages)

    assert "\n" not in str(caught.value)
