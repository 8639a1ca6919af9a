"""All that is measured of one conversation, as a record that one line of a file holds."""

import base64
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from peft import PeftModel
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedTokenizerBase

from calyrex.analysis.blocks import (
    BlockStreams,
    find_blocks,
    join_forwards,
    map_attention,
    measure_norms,
    recorded,
    try_strengths,
)
from calyrex.analysis.causal import draw_random_tokens, knock_out, patch
from calyrex.analysis.chats import Conversation
from calyrex.analysis.forced import ForcedRun, ForcedRuns
from calyrex.analysis.streams import Model

Record: TypeAlias = dict[str, Any]
_CUT, _MAX_BYTES = "\N{REPLACEMENT CHARACTER}", 4


@torch.inference_mode()
def measure(model: Model, runs: ForcedRuns, seed: str) -> Record:
    """Measure one conversation.

    Args:
        model: The base, or the base with an adapter.
        runs: Its three runs.
        seed: Text that decides which tokens the control knocks out.

    Returns:
        ``log_probability`` of the answer in each run, ``shift`` by measure and layer, the log-probabilities
        ``patching`` and ``knock_out`` by layer with their controls, the ``stream`` of the run with the rule at the last
        prompt token, and ``blocks`` of an anchored model; log-probabilities are means over the answer's tokens, in
        nats.
    """
    with recorded(model) as kept:
        hidden = [runs.with_rule.system_mask[0], draw_random_tokens(runs.with_rule, seed)]
        with_rule = knock_out(model, runs.with_rule, hidden)
    other = patch(model, runs.other_rule, [])
    neutral = patch(model, runs.neutral, [with_rule.streams, other.streams])
    return {
        "num_answer_tokens": len(runs.with_rule.targets),
        "log_probability": {
            "with_rule": with_rule.log_probability,
            "other_rule": other.log_probability,
            "neutral": neutral.log_probability,
        },
        "shift": {
            f"{name}/{kind}": values
            for name, streams in (("other_rule", other.streams), ("neutral", neutral.streams))
            for kind, values in measure_shift(with_rule.streams, streams).items()
        },
        "patching": dict(zip(("value", "control"), neutral.patched, strict=True)),
        "knock_out": dict(zip(("value", "control"), with_rule.knocked, strict=True)),
        "stream": pack(with_rule.streams[:, 0]),
        "blocks": _measure_blocks(model, join_forwards(kept), runs.with_rule) if find_blocks(model) else None,
    }


def measure_shift(with_rule: Tensor, other: Tensor) -> dict[str, list[float]]:
    """Measure how far apart two runs are after each layer, as means over the answer's positions.

    Args:
        with_rule: Stream of the run with the rule, ``[L + 1, P, E]``.
        other: Stream of the other run, of the same shape.

    Returns:
        ``cosine``: one minus the cosine of the angle between them, 0 .. 2; ``norm``: norm of their difference over
        that of the run with the rule; ``L + 1`` numbers each, 0 where both runs are equal, zeros among them.
    """
    # The cosine of nearly equal vectors is 1 to within the rounding of float32.
    first, second = with_rule.cpu().double(), other.cpu().double()
    is_equal = (first == second).all(dim=-1)  # [L + 1, P]
    cosine = (1 - functional.cosine_similarity(first, second, dim=-1)).masked_fill(is_equal, 0.0)
    norm = ((first - second).norm(dim=-1) / first.norm(dim=-1)).masked_fill(is_equal, 0.0)
    return {"cosine": cosine.mean(dim=1).tolist(), "norm": norm.mean(dim=1).tolist()}


def pack(stream: Tensor) -> str:
    """Write numbers as text, in float32."""
    return base64.b64encode(stream.float().cpu().contiguous().numpy().tobytes()).decode("ascii")


def unpack(text: str, num_layers: int) -> NDArray[np.float32]:
    """Read what ``pack`` has written of the stream after layers 0 .. L, ``[L + 1, E]``."""
    return np.frombuffer(base64.b64decode(text), dtype=np.float32).reshape(num_layers + 1, -1)


def _measure_blocks(model: Model, streams: BlockStreams, run: ForcedRun) -> dict[str, Any]:
    if not isinstance(model, PeftModel):
        raise TypeError(f"expected a model with blocks, got {type(model).__name__}")
    strengths = try_strengths(model, streams, run)
    return {
        "norms": _keyed(measure_norms(streams, run.classes)),
        "scale": strengths.scaled,
        "off": _keyed({"none": strengths.all_on, **strengths.one_off, "all": strengths.scaled[0]}),
        "weights": _keyed(map_attention(model, streams, run)),
    }


def _keyed(values: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(key): value for key, value in values.items()}


def describe_map(
    record: Record, conversation: Conversation, run: ForcedRun, tokenizer: PreTrainedTokenizerBase
) -> dict[str, Any]:
    """Return the attention maps of a conversation with the text of both sides, from its record.

    Tokens that are only together a character stand as one: what they hear is averaged, what is heard of them added up.
    """
    sides = [run.prompt[0][run.system_mask[0]].tolist(), run.targets.tolist()]
    system, answer = (_group_characters(tokenizer, ids) for ids in sides)
    texts = [
        [tokenizer.decode([ids[place] for place in group]) for group in groups]
        for ids, groups in zip(sides, (system, answer), strict=True)
    ]
    weights = {block: np.asarray(rows) for block, rows in record["blocks"]["weights"].items()}  # [P, S]
    heard = {block: np.stack([rows[:, group].sum(axis=1) for group in system], 1) for block, rows in weights.items()}
    merged = {block: np.stack([rows[group].mean(axis=0) for group in answer]) for block, rows in heard.items()}
    return {
        "id": conversation.id,
        "system_tokens": texts[0],
        "answer_tokens": texts[1],
        "question": conversation.question,
        "weights": {block: rows.round(5).tolist() for block, rows in merged.items()},
    }


def _group_characters(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> list[list[int]]:
    """Return the places of tokens, those together that make up a character in UTF-8, which has up to four bytes."""
    groups: list[list[int]] = []
    for place in range(len(ids)):
        last = [ids[earlier] for earlier in groups[-1]] if groups else []
        is_cut = bool(last) and len(last) < _MAX_BYTES and str(tokenizer.decode(last)).endswith(_CUT)
        groups = [*groups[:-1], [*groups[-1], place]] if is_cut else [*groups, [place]]
    return groups
