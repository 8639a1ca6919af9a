"""What a conversation is: OpenAI's chat format, checked once and brought into one form."""

import json
from collections.abc import Mapping
from typing import Any

from calyrex.errors import CalyrexError
from calyrex.masking import REASONING_KEYS, SYSTEM_ROLES, Message

_ROLES = (*SYSTEM_ROLES, "user", "assistant", "tool")
_KEYS = ("role", "content", "weight", "name", "tool_calls", "tool_call_id", *REASONING_KEYS)


def check_messages(messages: object) -> list[Message]:
    """Return a conversation in which every content is one text and every argument of a tool call a value.

    Args:
        messages: a list of dicts with ``role`` and ``content``; keys whose value is None count as missing.

    Raises:
        CalyrexError: it is no conversation; the message with the first mistake is named.
    """
    if not isinstance(messages, list | tuple):
        raise CalyrexError(f"messages must be a list of messages, got {type(messages).__name__}")
    if not messages:
        raise CalyrexError("expected at least one message, got an empty list")
    plain = [_check_message(index, message) for index, message in enumerate(messages)]
    if not any(message["role"] == "user" for message in plain):
        roles = ", ".join(dict.fromkeys(message["role"] for message in plain))
        raise CalyrexError(f"expected a message with role 'user', got only {roles}; add the user's turn")
    return plain


def _check_message(index: int, message: object) -> Message:
    if not isinstance(message, Mapping):
        raise CalyrexError(f"message {index} must be a dict with role and content, got {type(message).__name__}")
    given = {key: value for key, value in message.items() if value is not None}
    role = given.get("role")
    if role not in _ROLES:
        raise CalyrexError(f"message {index} needs a role among {', '.join(_ROLES)}, got {role!r}")
    unknown = [repr(key) for key in given if key not in _KEYS]
    if unknown:
        raise CalyrexError(f"message {index} may have the keys {', '.join(_KEYS)}, got {', '.join(unknown)}")
    if "weight" in given and (role != "assistant" or given["weight"] not in (0, 1)):
        raise CalyrexError(
            f"message {index} (role {role!r}) has weight {given['weight']!r}; only an assistant's may have one, 0 or 1"
        )
    if "tool_calls" in given:
        given["tool_calls"] = _check_calls(index, role, given["tool_calls"])
    if role == "assistant" and any(given.get(key) for key in ("tool_calls", *REASONING_KEYS)):
        given.setdefault("content", "")
    given["content"] = _check_text(index, "content", given.get("content"))
    for key in ("name", "tool_call_id", *REASONING_KEYS):
        if key in given:
            given[key] = _check_text(index, key, given[key])
    return given


def _check_calls(index: int, role: object, calls: object) -> list[dict[str, Any]]:
    """Return tool calls with arguments as values: OpenAI writes JSON, but so do chat templates."""
    if role != "assistant":
        raise CalyrexError(f"message {index} (role {role!r}) has tool_calls; only an assistant's may have them")
    checked: list[dict[str, Any]] = []
    for given in calls if isinstance(calls, list | tuple) else [calls]:
        call: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
        function = call.get("function")
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise CalyrexError(
                f"tool_calls of message {index} must be a list of calls with function.name, got {given!r}"
            )
        checked.append({**call, "function": {**function, "arguments": _parse(function.get("arguments", {}))}})
    return checked


def _parse(arguments: object) -> object:
    if not isinstance(arguments, str):
        return arguments
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):  # no JSON, a number of thousands of digits, or a thousand brackets
        return arguments
    return parsed if isinstance(parsed, dict) else arguments


def _check_text(index: int, key: str, value: object) -> str:
    """Return a text, its parts joined."""
    texts: list[str] = []
    for part in value if isinstance(value, list | tuple) else [{"type": "text", "text": value}]:
        kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
        text = part.get("text") if kind == "text" else None
        if not isinstance(text, str):
            given = type(text).__name__ if kind == "text" else f"a part of type {kind!r}"
            raise CalyrexError(f"{key} of message {index} must be text or a list of text parts, got {given}")
        texts.append(text)
    joined = "".join(texts)
    try:
        joined.encode()
    except UnicodeEncodeError as error:
        half = f"U+{ord(joined[error.start]):04X}"
        raise CalyrexError(
            f"{key} of message {index} holds {half}, half a character, at {error.start}; decode the text anew"
        ) from error
    return joined
