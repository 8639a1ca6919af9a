"""Tools: whether a chat template takes them, and the calls in what a model says."""

import json
import re
from typing import Any, NamedTuple

from transformers import PreTrainedTokenizerBase

from calyrex.errors import CalyrexError
from calyrex.serve.answer import StopText
from calyrex.serve.errors import ApiError
from calyrex.span import encode_chat

_MARK = "<tool_call>"
_MARKED = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)
_PROBE = {
    "type": "function",
    "function": {"name": "look_up", "description": "Looks up.", "parameters": {"type": "object", "properties": {}}},
}
_QUESTION = [{"role": "user", "content": "Hi"}]


class Call(NamedTuple):
    """A call of a function.

    Attributes:
        name: its name.
        arguments: its arguments as JSON.
    """

    name: str
    arguments: str


def takes_tools(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Tell whether a chat template says anything of the tools that it is given."""
    try:
        plain, with_tool = encode_chat(tokenizer, _QUESTION), encode_chat(tokenizer, _QUESTION, [_PROBE])
    except CalyrexError:
        return False
    return bool(plain["input_ids"].tolist() != with_tool["input_ids"].tolist())


def require_free_choice(choice: str | dict[str, Any] | None) -> None:
    """Refuse to promise a call.

    Raises:
        ApiError: the request demands one.
    """
    if choice not in (None, "none", "auto"):
        raise ApiError(400, "tool_choice may be none or auto: a call cannot be forced", param="tool_choice")


class CallReader:
    """Lets the text of an answer through until it could be a call."""

    def __init__(self, names: frozenset[str]) -> None:
        """Create the reader.

        Args:
            names: functions that may be called; without one all text goes through.
        """
        self.names = names
        self._stop = StopText([_MARK])
        self._text = ""
        self._shown = 0
        self._is_open = False

    def add(self, text: str) -> str:
        """Return what may be shown now."""
        if not self.names:
            return text
        self._text += text
        if self._stop.is_stopped:
            return ""
        if not self._is_open:
            if self._text.lstrip()[:1] in ("", "{", "["):
                return ""  # a call may be bare JSON
            self._is_open, text = True, self._text
        new = self._stop.add(text)
        self._shown += len(new)
        return new

    def finish(self) -> tuple[str, list[Call]]:
        """Return what was held back as text, or the calls in it."""
        calls = read_calls(self._text, self.names) if self.names else []
        return ("" if calls else self._text[self._shown :]), calls


def read_calls(text: str, names: frozenset[str]) -> list[Call]:
    """Read calls in ``<tool_call>`` marks, or an answer that is nothing but a call or a list of them, as JSON.

    Args:
        text: what a model said.
        names: functions that may be called.

    Returns:
        The calls; none where anything of it is not readable as one.
    """
    pieces = _MARKED.findall(text) or [text.strip()]
    calls: list[Call] = []
    for piece in pieces:
        try:
            value = json.loads(piece)
        except (ValueError, RecursionError):
            return []
        for each in value if isinstance(value, list) else [value]:
            call = _read_call(each, names)
            if call is None:
                return []
            calls.append(call)
    return calls


def _read_call(value: object, names: frozenset[str]) -> Call | None:
    if not isinstance(value, dict) or value.get("name") not in names:
        return None
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        return Call(value["name"], arguments)
    return Call(value["name"], json.dumps(arguments)) if isinstance(arguments, dict) else None
