"""CALYREX: cross-attention blocks that make open language models keep to their system prompt.

Importing this package loads neither torch nor transformers; its names are loaded on first use, and PEFT learns the
method as soon as it is imported.
"""

import importlib
from typing import Any

from calyrex.registration import register_with_peft

__version__ = "0.1.0"

_HOMES = {
    "CalyrexConfig": "calyrex.config",
    "CalyrexLayer": "calyrex.tuner",
    "CalyrexModel": "calyrex.tuner",
    "CalyrexError": "calyrex.errors",
    "encode_chat": "calyrex.span",
    "load_base": "calyrex.models",
    "load_tokenizer": "calyrex.models",
    "load_anchored": "calyrex.models",
    "read_template": "calyrex.template",
    "generate_corpus": "calyrex.data.rules",
}

__all__ = [  # noqa: PLE0604, RUF100
    *_HOMES
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'calyrex' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


register_with_peft()
