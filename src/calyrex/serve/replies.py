"""Answers in the shape of OpenAI's chat and text completions."""

import secrets
import time
from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from calyrex.serve.calling import Call
from calyrex.serve.exchange import Answered, Exchange
from calyrex.serve.request import Chosen, Likely
from calyrex.serve.served import ServedModel

_HALF = "\N{REPLACEMENT CHARACTER}"


def new_id(kind: str) -> str:
    """Return a name that nobody can guess."""
    return f"{kind}-{secrets.token_hex(12)}"


def usage_of(exchange: Exchange) -> dict[str, int]:
    """Return how many tokens were read and said."""
    prompt = exchange.asked.num_prompt_tokens
    new = exchange.num_new_tokens
    return {"prompt_tokens": prompt, "completion_tokens": new, "total_tokens": prompt + new}


def describe_model(model: ServedModel, base: ServedModel) -> dict[str, Any]:
    """Return a model as an entry of ``/v1/models``."""
    is_base = model.adapter is None
    ours = {
        "is_base": is_base,
        "base": base.name,
        "blocks": list(model.blocks),
        "scale": None if is_base else model.scale,
    }
    return {"id": model.name, "object": "model", "created": 0, "owned_by": "calyrex", "calyrex": ours}


class Envelope:
    """What all parts of one answer have in common: its name, its time, the model."""

    def __init__(self, kind: str, object_name: str, model: str) -> None:
        self.fields = {"id": new_id(kind), "object": object_name, "created": int(time.time()), "model": model}

    def wrap(self, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        """Return a whole answer or a part of a streamed one."""
        return {**self.fields, "choices": choices, **more}


def describe_calls(calls: Sequence[Call]) -> list[dict[str, Any]]:
    """Return calls as a chat message has them."""
    return [
        {"id": new_id("call"), "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in calls
    ]


def chat_choice(index: int, text: str, calls: Sequence[Call], reason: str, logprobs: Any) -> dict[str, Any]:
    """Return one complete answer of a chat."""
    message: dict[str, Any] = {"role": "assistant", "content": text if text or not calls else None, "refusal": None}
    if calls:
        message["tool_calls"] = describe_calls(calls)
    finish = "tool_calls" if calls else reason
    return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": finish}


def chat_delta(index: int, delta: dict[str, Any], reason: str | None = None, logprobs: Any = None) -> dict[str, Any]:
    """Return a part of one answer of a chat."""
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}


def text_choice(index: int, answered: Answered, logprobs: Any) -> dict[str, Any]:
    """Return one answer, or a part of it, of a text completion."""
    return {"index": index, "text": answered.text, "logprobs": logprobs, "finish_reason": answered.reason or None}


def chat_logprobs(tokenizer: PreTrainedTokenizerBase, chosen: Sequence[Chosen]) -> dict[str, Any]:
    """Return the probabilities of tokens as a chat has them."""

    def describe(likely: Likely) -> dict[str, Any]:
        text = token_text(tokenizer, likely.token_id)
        return {
            "token": text,
            "logprob": likely.log_probability,
            "bytes": None if _HALF in text else list(text.encode()),
        }

    tokens = [{**describe(one.token), "top_logprobs": [describe(each) for each in one.likeliest]} for one in chosen]
    return {"content": tokens, "refusal": None}


def text_logprobs(tokenizer: PreTrainedTokenizerBase, chosen: Sequence[Chosen], offset: int) -> dict[str, Any]:
    """Return the probabilities of tokens as a text completion has them.

    Args:
        tokenizer: spells the tokens.
        chosen: the tokens.
        offset: characters before them.
    """
    tokens = [token_text(tokenizer, one.token.token_id) for one in chosen]
    offsets: list[int] = []
    for token in tokens:
        offsets.append(offset)
        offset += len(token)
    return {
        "tokens": tokens,
        "token_logprobs": [one.token.log_probability for one in chosen],
        "top_logprobs": [
            {token_text(tokenizer, each.token_id): each.log_probability for each in one.likeliest} for one in chosen
        ],
        "text_offset": offsets,
    }


def token_text(tokenizer: PreTrainedTokenizerBase, token_id: int) -> str:
    """Return the text of a token by itself."""
    return str(tokenizer.decode([token_id]))
