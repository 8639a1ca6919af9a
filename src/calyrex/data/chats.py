"""Conversations for training, from the three layouts in which people keep them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calyrex.data.files import Record, read_records
from calyrex.errors import CalyrexError
from calyrex.masking import Message

_LAYOUTS = "messages (OpenAI), conversations (ShareGPT), or instruction and output (Alpaca)"
_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "model": "assistant",
    "function_call": "assistant",
    "tool": "tool",
    "function": "tool",
    "function_response": "tool",
    "observation": "tool",
}
# What a chat template may use besides role and content.
_KEPT = ("name", "tool_calls", "tool_call_id", "reasoning_content")


@dataclass(frozen=True)
class Chat:
    """One conversation.

    Attributes:
        messages: in OpenAI's format: ``role`` (system, user, assistant or tool) and ``content``, a text;
            ``weight`` 0 on an answer that is not to be learned.
        tools: the functions that the assistant may call, as JSON schemas; None where there are none.
        origin: where it was read, such as ``train.jsonl line 3``.
    """

    messages: list[Message]
    tools: list[dict[str, Any]] | None
    origin: str


def read_chats(source: str | Path) -> Iterator[Chat]:
    """Stream conversations; memory does not grow with their number.

    Args:
        source: A file (``.jsonl``, ``.jsonl.gz``, ``.json``, ``.parquet``), a folder of such files, or a hub
            data set, ``owner/name`` or ``owner/name:split``. Each row may have another layout.

    Raises:
        CalyrexError: The source does not exist (at once); or a row is broken, of no known layout, or has no
            user turn or no answer to learn (when it is reached). The message names the file and the line.
    """
    return map(parse_chat, read_records(source))


def parse_chat(row: Record) -> Chat:
    """Turn a row of any known layout into a conversation.

    Raises:
        CalyrexError: The row has no known layout, a value of the wrong type, an unknown role, no user turn or
            no answer to learn.
    """
    try:
        messages = _parse_messages(row.value)
        return Chat(messages, _parse_tools(row.value.get("tools")), row.origin)
    except _BadRowError as error:
        raise CalyrexError(f"{row.origin}: {error}") from error


class _BadRowError(Exception):
    """What is wrong with a row, without where it stands."""


def _parse_messages(row: object) -> list[Message]:
    if not isinstance(row, dict):
        raise _BadRowError(f"a row must be an object, got {_kind(row)}")
    if row.get("messages") is not None:
        messages = _parse_turns(row["messages"], "messages")
    elif row.get("conversations") is not None:
        messages = _parse_turns(row["conversations"], "conversations")
    elif row.get("instruction") is not None and row.get("output") is not None:
        messages = _parse_alpaca(row)
    else:
        raise _BadRowError(f"expected {_LAYOUTS}; found {_name_keys(row)}")
    messages = _add_system(messages, row.get("system"))
    _require_lesson(messages)
    return messages


def _parse_turns(turns: object, field: str) -> list[Message]:
    if not isinstance(turns, list):
        raise _BadRowError(f"{field} must be a list, got {_kind(turns)}")
    return [_parse_turn(turn, f"{field}[{index}]") for index, turn in enumerate(turns)]


def _parse_turn(turn: object, place: str) -> Message:
    if not isinstance(turn, dict):
        raise _BadRowError(f"{place} must be an object with role and content, got {_kind(turn)}")
    is_sharegpt = "role" not in turn and "from" in turn
    role_key, content_key = ("from", "value") if is_sharegpt else ("role", "content")
    given = turn.get(role_key)
    role = _ROLES.get(given) if isinstance(given, str) else None
    if role is None:
        raise _BadRowError(f"{place}.{role_key} must be one of {', '.join(_ROLES)}, got {given!r}")
    kept = {key: turn[key] for key in _KEPT if turn.get(key) is not None}
    content = turn.get(content_key)
    if content is None and kept.get("tool_calls"):
        content = ""
    message = {"role": role, "content": _parse_content(content, f"{place}.{content_key}"), **kept}
    weight = turn.get("weight")
    if weight is not None and role == "assistant":
        if isinstance(weight, str) or weight not in (0, 1):
            raise _BadRowError(f"{place}.weight must be 0 or 1, got {weight!r}")
        message["weight"] = int(weight)
    return message


def _parse_content(content: object, place: str) -> str:
    """Return a text, or the texts of OpenAI's content parts one after another."""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and content:
        texts = [part.get("text") if isinstance(part, dict) else None for part in content]
        if all(isinstance(text, str) for text in texts):
            return "".join(text for text in texts if text)
        raise _BadRowError(f"{place} must be text, got a part that is none (images and sounds are not supported)")
    raise _BadRowError(f"{place} must be text, got {_kind(content)}")


def _parse_alpaca(row: dict[str, Any]) -> list[Message]:
    history = row.get("history") or []
    if not isinstance(history, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in history):
        raise _BadRowError("history must be a list of [question, answer]")
    question = _parse_content(row["instruction"], "instruction")
    given = _parse_content(row.get("input") or "", "input")
    pairs = [*history, [f"{question}\n\n{given}" if given else question, row["output"]]]
    messages = []
    for asked, answered in pairs:
        messages.append({"role": "user", "content": _parse_content(asked, "history question")})
        messages.append({"role": "assistant", "content": _parse_content(answered, "output or history answer")})
    return messages


def _add_system(messages: list[Message], system: object) -> list[Message]:
    """Put the text of a ``system`` column before the conversation."""
    if system is None or system == "":
        return messages
    text = _parse_content(system, "system")
    first = messages[0] if messages else {}
    if first.get("role") != "system":
        return [{"role": "system", "content": text}, *messages]
    if first["content"] != text:
        raise _BadRowError("the column system and the first message give two different system prompts")
    return messages


def _parse_tools(tools: object) -> list[dict[str, Any]] | None:
    if isinstance(tools, str):
        try:
            tools = json.loads(tools) if tools.strip() else None
        except json.JSONDecodeError as error:
            raise _BadRowError(f"tools must be a list or a list written as JSON ({error})") from error
    if not tools:
        return None
    if isinstance(tools, dict):
        tools = [tools]
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise _BadRowError(f"tools must be a list of objects, got {_kind(tools)}")
    return tools


def _require_lesson(messages: list[Message]) -> None:
    if not any(message["role"] == "user" for message in messages):
        raise _BadRowError("a conversation needs at least one user turn")
    if not any(message["role"] == "assistant" and message.get("weight") != 0 for message in messages):
        raise _BadRowError("a conversation needs at least one assistant turn to learn (weight not 0)")


def _name_keys(row: dict[str, Any]) -> str:
    return f"the keys {', '.join(map(str, row))}" if row else "no keys"


def _kind(value: object) -> str:
    """Name a JSON type."""
    names = {type(None): "nothing", bool: "a truth value", str: "text", list: "a list", dict: "an object"}
    return names.get(type(value), "a number")
