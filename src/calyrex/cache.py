"""The system prompt's keys and values in a request's own cache, one extra cache layer for each block.

The layers stand behind the base's own in the ``Cache`` of transformers, so beams, batches and multi-turn reuse move
them along. They hold the system tokens only and do not change while a request decodes: a decoded token costs the same
after any length of conversation.
"""

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin


class SystemCacheLayer(CacheLayerMixin):
    """What one block has kept of the system prompt.

    Attributes:
        adapter_name: the adapter whose projections made the keys and values.
        sequence: a layer of the base in the same cache, which counts the tokens.
        keys: ``[B, K, S, D]``.
        values: ``[B, K, S, D]``.
        positions: place of each system token in its sequence, -1 where it is padding or belongs to an earlier
            document of a packed row, ``[B, S]`` int64.
        visible: True where later tokens may attend to a system token, ``[B, 1, S]`` bool; None where they may to all.
        num_seen: tokens up to the end of the last forward that could bring system tokens; those decoded after it are
            not counted.
    """

    is_sliding = False
    is_croppable = True
    is_compileable = True
    supports_early_init = False

    keys: Tensor  # None until initialised, like every cache layer of transformers
    values: Tensor
    positions: Tensor
    visible: Tensor | None = None

    def __init__(self, adapter_name: str, sequence: CacheLayerMixin) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.adapter_name = adapter_name
        self.sequence = sequence
        self.num_seen = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Start with no system token, in the dtype and on the device of the given states ``[B, K, S, D]``."""
        self.device = key_states.device
        self.keys = key_states[:, :, :0]
        self.values = value_states[:, :, :0]
        self.positions = torch.empty(key_states.shape[0], 0, dtype=torch.int64, device=self.device)
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append the states of new system tokens, ``[B, K, S, D]``, and return all of them.

        Args:
            key_states: keys of the new system tokens.
            value_states: values of the new system tokens.
            *args: ``positions`` ``[B, S]`` int64 and ``num_seen``, the tokens of the sequence so far.
            **kwargs: not used.
        """
        positions, self.num_seen = args
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        if key_states.shape[2] > 0:
            is_first = self.keys.shape[2] == 0
            self.keys = key_states if is_first else torch.cat([self.keys, key_states], dim=2)
            self.values = value_states if is_first else torch.cat([self.values, value_states], dim=2)
            self._place(torch.cat([self.positions, positions], dim=1))
        return self.keys, self.values

    def replace_row(self, row: int, key_states: Tensor, value_states: Tensor, *, positions: Tensor) -> None:
        """Let a row hold other system tokens, at most as many as there is room for.

        Args:
            row: which row.
            key_states: their keys, ``[K, S, D]``.
            value_states: their values, ``[K, S, D]``.
            positions: their places in the sequence, ``[S]`` int64.
        """
        num_system = len(positions)
        self.keys[row, :, :num_system] = key_states
        self.values[row, :, :num_system] = value_states
        self.positions[row] = -1
        self.positions[row, :num_system] = positions
        self.num_seen = max(1, self.get_seq_length())
        self._place(self.positions)

    def _place(self, positions: Tensor) -> None:
        self.positions = positions
        is_real = positions >= 0
        self.visible = None if bool(is_real.all()) else is_real[:, None]

    def is_real(self, device: torch.device, batch_size: int) -> Tensor:
        """Return True where a kept system token may be attended to, ``[B, S]`` bool."""
        if not self.is_initialized:
            return torch.empty(batch_size, 0, dtype=torch.bool, device=device)
        return self.positions >= 0

    def get_seq_length(self) -> int:
        """Return the number of tokens that have passed, as the base's own layers do."""
        return self.sequence.get_seq_length()

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the length and offset of the sequence; no mask of the base is made from this layer."""
        return self.sequence.get_mask_sizes(query_length)

    def get_max_length(self) -> int:
        """Return -1: no maximum."""
        return -1

    def crop(self, tokens_to_remove: int) -> None:
        """Follow the base's layers, which are cropped before; system tokens are lost only where theirs are."""
        length = int(self.get_seq_length())
        self.num_seen = min(self.num_seen, length)
        if self.is_initialized:
            self._place(self.positions.masked_fill(self.positions >= length, -1))

    def reset(self) -> None:
        """Forget everything; tensors are dropped, not zeroed, since a graph or another cache may hold them."""
        self.keys = self.values = self.positions = None  # type: ignore[assignment]
        self.is_initialized = False
        super().reset()
        self.num_seen = 0
        self.visible = None

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Follow the beams, ``[B]`` int64."""
        self.batch_select_indices(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each row ``repeats`` times."""
        if self.is_initialized:
            rows = torch.arange(self.positions.shape[0], device=self.device).repeat_interleave(repeats)
            self.batch_select_indices(rows)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep the given rows, in the given order."""
        if self.is_initialized:
            indices = indices.to(self.device)
            self.keys, self.values = self.keys[indices], self.values[indices]
            self.positions = self.positions[indices]
            self.visible = None if self.visible is None else self.visible[indices]


def system_cache_layer(cache: Cache, num_layers: int, block_index: int, adapter_name: str) -> SystemCacheLayer:
    """Return the cache layer of a block, made on first use.

    Args:
        cache: the request's cache.
        num_layers: ``L``, decoder layers of the base; the blocks' layers follow theirs.
        block_index: which block, counted from 0.
        adapter_name: the adapter that reads and writes it.

    Raises:
        ValueError: the cache was filled by another adapter.
    """
    if cache.layer_class_to_replicate is not None:  # a cache that makes its layers when they are first used
        while len(cache.layers) < num_layers:
            cache.layers.append(cache.layer_class_to_replicate())
    if len(cache.layers) <= num_layers + block_index:
        sequence = next(layer for layer in cache.layers if isinstance(layer, CacheLayerMixin))
        while len(cache.layers) <= num_layers + block_index:
            cache.layers.append(SystemCacheLayer(adapter_name, sequence))
    layer = cache.layers[num_layers + block_index]
    if not isinstance(layer, SystemCacheLayer):
        raise ValueError(f"the cache has a layer {num_layers + block_index} for another purpose, {layer!r}")
    if layer.adapter_name != adapter_name:
        raise ValueError(
            f"the cache holds the system prompt as adapter {layer.adapter_name!r} reads it, "
            f"but {adapter_name!r} is active; start a new cache"
        )
    return layer
