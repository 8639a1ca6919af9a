"""What the states of frozen layers depend on, as one hash."""

import hashlib
import itertools
import json
from collections.abc import Iterable
from typing import cast

import numpy as np
import torch
from peft import PeftModel
from torch import Tensor, nn
from transformers import PreTrainedModel

from calyrex.training.batches import Row
from calyrex.training.folder import versions

_UNRELATED = ("_name_or_path", "use_cache", "pad_token_id", "bos_token_id", "eos_token_id")
"""Settings of a base that no state of its layers depends on, and that a move or a trainer changes."""


def hash_states(model: PeftModel, tokens: str, batch_tokens: int) -> str:
    """Return the SHA-256 of everything that the states of a base on some rows depend on.

    These are weights, dtypes and settings of the base, the token ids of the rows (which say more than a hash of data
    and tokenizer would), and what rounding depends on: the size of the batches, the device, the attention kernel and
    the versions of calyrex, torch and transformers.

    Args:
        model: the base with an adapter.
        tokens: hash of the rows' token ids.
        batch_tokens: tokens of one forward at most, padding included.
    """
    config = cast(PreTrainedModel, model.get_base_model()).config.get_text_config()
    depends_on = {
        "weights": hash_base(model),
        "config": {name: value for name, value in config.to_dict().items() if name not in _UNRELATED},
        "tokens": tokens,
        "batch_tokens": batch_tokens,
        "device": model.device.type,
        "attention": config._attn_implementation,
        "versions": {name: version for name, version in versions().items() if name != "peft"},
    }
    return hashlib.sha256(json.dumps(depends_on, sort_keys=True, default=str).encode()).hexdigest()


def hash_base(model: PeftModel) -> str:
    """Return the SHA-256 of the base's weights and buffers, names and dtypes included, whatever adapter is on it."""
    prefix = str(model.base_model.prefix)
    own = ((name, tensor) for name, tensor in _tensors(model.get_base_model()) if prefix not in name)
    return _hash((".".join(part for part in name.split(".") if part != "base_layer"), tensor) for name, tensor in own)


def hash_model(model: nn.Module) -> str:
    """Return the SHA-256 of all weights and buffers, names and dtypes included."""
    return _hash(_tensors(model))


def _tensors(model: nn.Module) -> Iterable[tuple[str, Tensor]]:
    return itertools.chain(model.named_parameters(), model.named_buffers())


def _hash(tensors: Iterable[tuple[str, Tensor]]) -> str:
    digest = hashlib.sha256()
    for name, tensor in tensors:
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def hash_tokens(rows: Iterable[Row]) -> tuple[str, list[int]]:
    """Return the SHA-256 of the token ids of some rows, and the tokens of each; each row is read once."""
    digest = hashlib.sha256()
    lengths: list[int] = []
    for row in rows:
        lengths.append(len(row["input_ids"]))
        digest.update(np.asarray([lengths[-1], *row["input_ids"]], dtype=np.int64).tobytes())
    return digest.hexdigest(), lengths
