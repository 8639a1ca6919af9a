"""The frozen part of test prompts, computed once and shared by all contenders that leave it alone.

What the layers below an adapter make of a prompt is the same for every contender and seed: their keys and values, and
the residual stream that leaves them. For long conversations this is nearly all the work of an answer. It is kept on
disk for each batch of prompts, and for the last token, which every answer begins with, it is computed anew.
"""

import hashlib
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from peft import PeftModel
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers import BatchEncoding, DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from calyrex.training.activations import prefix_skipped
from calyrex.training.filling import base_layers
from calyrex.tuner import hears_system

_STATES = "states"
_SPARE_BYTES = 2**30
"""Room that is left on the disk; without it nothing is kept, and prompts are run as a whole."""


class _StopForward(Exception):
    """Ends a forward once the stream after the last frozen layer is known."""


@dataclass(frozen=True)
class FrozenPrompts:
    """A store of what the frozen layers of one base make of batches of prompts.

    Attributes:
        folder: where it lies.
        last_layer: number of the last layer that is kept, from 0; every adapter that uses it leaves it alone.
        key: names the base, and whatever else its numbers depend on.
    """

    folder: Path
    last_layer: int
    key: str

    def prefill(self, model: PreTrainedModel | PeftModel, encoded: BatchEncoding, cache: DynamicCache) -> None:
        """Fill an empty cache with all but the last token of a batch of prompts.

        Args:
            model: the base with an adapter.
            encoded: ``input_ids``, ``attention_mask`` and ``system_mask`` of the prompts, ``[B, T]``, padded left.
            cache: an empty cache; it stays empty where its layers keep less than all tokens, or prompts have but one.
        """
        is_plain = all(isinstance(layer, DynamicLayer) and not layer.is_sliding for layer in cache.layers)
        if not is_plain or encoded["input_ids"].shape[1] < 2:
            return
        inputs = {name: encoded[name][:, :-1] for name in ("input_ids", "attention_mask", "system_mask")}
        if not hears_system(model):
            del inputs["system_mask"]
        inputs["position_ids"] = (inputs["attention_mask"].cumsum(dim=1) - 1).clamp(min=0)
        path = self.folder / f"{self.key}-{self.last_layer}-{_hash(encoded)}.safetensors"
        kept = _read(path) or self._compute(model, inputs, path)
        # The layers above see an empty cache, so that they count the same positions.
        with prefix_skipped(model, self.last_layer, lambda: kept[_STATES]):
            model(**inputs, cache=cache, use_cache=True, logits_to_keep=1)
        for number in range(self.last_layer + 1):
            cache.update(kept[f"keys.{number}"], kept[f"values.{number}"], number)

    def _compute(self, model: PreTrainedModel | PeftModel, inputs: dict[str, Tensor], path: Path) -> dict[str, Tensor]:
        """Run the frozen layers, keep what they say if there is room, and return it."""
        cache = DynamicCache(config=model.config)
        said: dict[str, Tensor] = {}

        def stop(_module: object, _args: object, output: Tensor | tuple[Tensor, ...]) -> None:
            said[_STATES] = output[0] if isinstance(output, tuple) else output
            raise _StopForward

        layer = base_layers(model)[self.last_layer]
        handle = getattr(layer, "base_layer", layer).register_forward_hook(stop)
        try:
            with suppress(_StopForward):  # no adapter acts on these layers
                model(**inputs, cache=cache, use_cache=True)
        finally:
            handle.remove()
        for number, kept in enumerate(cache.layers[: self.last_layer + 1]):
            if isinstance(kept, DynamicLayer) and kept.keys is not None and kept.values is not None:
                said |= {f"keys.{number}": kept.keys, f"values.{number}": kept.values}
        size = sum(tensor.nbytes for tensor in said.values())
        self.folder.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(self.folder).free > size + _SPARE_BYTES:
            partial = path.with_suffix(f".{os.getpid()}.partial")
            try:
                save_file({name: tensor.contiguous() for name, tensor in said.items()}, partial)
                partial.replace(path)
            except (OSError, SafetensorError):  # a full disk spares nothing, and costs no answer
                partial.unlink(missing_ok=True)
        return said


def _read(path: Path) -> dict[str, Tensor] | None:
    """Return what is kept of a batch, memory-mapped; None where there is nothing or it is cut off."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError):
        return None


def _hash(encoded: BatchEncoding) -> str:
    digest = hashlib.sha256()
    for name in ("input_ids", "attention_mask"):
        tensor = encoded[name].to(torch.int64).cpu().contiguous()
        digest.update(f"{name} {list(tensor.shape)}".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()[:32]
