"""Text of a model made safe to show: nothing in it steers a terminal or turns a line around."""

import re
from collections.abc import Mapping
from typing import Any

_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_PICTURES = 0x2400
_DELETE, _DELETE_PICTURE = "\x7f", "\u2421"
_REPLACEMENT = "\ufffd"


def make_visible(text: str) -> str:
    """Replace control characters by their pictures (ESC becomes ␛), so that they are seen and do nothing.

    Tabs and line feeds stay. Characters that reorder a line, C1 controls and half characters, which have no
    picture, become U+FFFD. Each character is replaced on its own, so a text may come in any pieces.
    """
    return _STEERING.sub(lambda match: _picture(match[0]), text)


def make_all_visible(value: Any) -> Any:
    """Return a value of JSON in which every text, also a key, can be shown."""
    if isinstance(value, str):
        return make_visible(value)
    if isinstance(value, Mapping):
        return {make_visible(str(key)): make_all_visible(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [make_all_visible(entry) for entry in value]
    return value


def _picture(character: str) -> str:
    if character == _DELETE:
        return _DELETE_PICTURE
    return chr(_PICTURES + ord(character)) if character < " " else _REPLACEMENT
