"""Rows of caches: taken out of some caches, padded on the left to one length, and put together in another.

All that a batch does to its cache is one operation: a row joins or leaves, is repeated, loses padding, or begins with
the kept beginning of another.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import CacheLayerMixin

from calyrex.cache import SystemCacheLayer
from calyrex.generation import RoomyLayer

_ROOM = 64
"""Tokens that a new cache keeps room for."""


class Piece(NamedTuple):
    """Some tokens of one row of a cache.

    Attributes:
        cache: where they are.
        row: which row.
        start: first of them.
        end: the one after the last.
    """

    cache: DynamicCache
    row: int
    start: int
    end: int

    @property
    def length(self) -> int:
        """Number of tokens."""
        return self.end - self.start


def empty_cache(num_layers: int) -> DynamicCache:
    """Return a cache without tokens, with room in each of its layers.

    Layers with a sliding window keep all tokens too, and the mask hides the old ones: only so can rows of several
    lengths stand in one batch.
    """
    cache = DynamicCache()
    cache.layers = [RoomyLayer() for _ in range(num_layers)]  # type: ignore[no-untyped-call]
    return cache


def join_rows(pieces: Sequence[Piece], *, num_more: int = _ROOM) -> DynamicCache:
    """Put pieces together as the rows of a new cache, padded with zeros on the left.

    Args:
        pieces: the rows.
        num_more: tokens that the cache keeps room for.
    """
    length = max(piece.length for piece in pieces)
    joined: list[CacheLayerMixin] = []
    for number, layer in enumerate(pieces[0].cache.layers):
        if isinstance(layer, SystemCacheLayer):
            joined.append(_join_system(pieces, number, joined[0], length))
        else:
            joined.append(_join_sequence(pieces, number, length, num_more))
    cache = DynamicCache()
    cache.layers = list(joined)
    return cache


def replace_row(cache: DynamicCache, row: int, piece: Piece) -> bool:
    """Put a piece in the place of a row that nobody needs any more, without a copy of the others.

    Args:
        cache: a cache that ``join_rows`` made, with as many columns as its longest row needs.
        row: the place.
        piece: what comes there.

    Returns:
        Whether it fits: it is not longer than the cache, and has no more system tokens than there is room for.
    """
    length = int(cache.get_seq_length())
    pairs = list(zip(cache.layers, piece.cache.layers, strict=True))
    systems = [(kept, new) for kept, new in pairs if isinstance(kept, SystemCacheLayer)]
    if piece.length > length or not all(_has_room(kept, new, piece) for kept, new in systems):
        return False
    place = slice(length - piece.length, length)
    for kept, new in pairs:
        if isinstance(kept, SystemCacheLayer) and isinstance(new, SystemCacheLayer):
            _replace_system(kept, row, new, piece, length)
        else:
            for name in ("keys", "values"):
                getattr(kept, name)[row, :, place] = getattr(new, name)[piece.row, :, piece.start : piece.end]
    return True


def _has_room(kept: SystemCacheLayer, new: object, piece: Piece) -> bool:
    if not isinstance(new, SystemCacheLayer) or kept.is_initialized != new.is_initialized:
        return False
    # The layer of a block that only another adapter has stays as it is made.
    return not kept.is_initialized or len(_find_places(new.positions[piece.row], piece)) <= kept.positions.shape[1]


def _replace_system(kept: SystemCacheLayer, row: int, new: SystemCacheLayer, piece: Piece, length: int) -> None:
    if not kept.is_initialized or kept.positions.shape[1] == 0:
        return  # neither has system tokens
    places = _find_places(new.positions[piece.row], piece)
    positions = new.positions[piece.row, places] + _offset(piece, length)
    # A layer without system tokens does not know how many heads there are.
    no_states = kept.keys[row, :, :0]
    keys, values = (states[piece.row][:, places] if len(places) else no_states for states in (new.keys, new.values))
    kept.replace_row(row, keys, values, positions=positions)


def _offset(piece: Piece, length: int) -> int:
    """Return how far the tokens of a piece move in a cache of a length, at whose right end they stand."""
    return length - piece.end


def _join_sequence(pieces: Sequence[Piece], number: int, length: int, num_more: int) -> RoomyLayer:
    joined = RoomyLayer()  # type: ignore[no-untyped-call]
    places = [(row, slice(length - piece.length, length)) for row, piece in enumerate(pieces)]
    tensors: list[Tensor] = []
    for name in ("keys", "values"):
        states = [getattr(piece.cache.layers[number], name) for piece in pieces]
        _, heads, _, size = states[0].shape
        room = states[0].new_zeros(len(pieces), heads, length + num_more, size)  # [B, K, T, D]
        for (row, place), state, piece in zip(places, states, pieces, strict=True):
            room[row, :, place] = state[piece.row, :, piece.start : piece.end]
        tensors.append(room)
    joined.hold(tensors[0], tensors[1], length)
    return joined


def _join_system(pieces: Sequence[Piece], number: int, sequence: CacheLayerMixin, length: int) -> SystemCacheLayer:
    layers = [piece.cache.layers[number] for piece in pieces]
    if not all(isinstance(layer, SystemCacheLayer) for layer in layers):
        raise ValueError("the pieces come from caches of different adapters")
    kept: list[SystemCacheLayer] = layers  # type: ignore[assignment]
    joined = SystemCacheLayer(kept[0].adapter_name, sequence)
    if not kept[0].is_initialized:
        return joined
    chosen = [_find_places(layer.positions[piece.row], piece) for layer, piece in zip(kept, pieces, strict=True)]
    num_system = max(len(places) for places in chosen)
    # A layer without system tokens does not know how many heads there are.
    _, heads, _, size = max((layer.keys.shape for layer in kept), key=lambda shape: shape[2])
    keys = kept[0].keys.new_zeros(len(pieces), heads, num_system, size)  # [B, K, S, D]
    values = torch.zeros_like(keys)
    positions = kept[0].positions.new_full((len(pieces), num_system), -1)  # [B, S]
    for row, (layer, piece, places) in enumerate(zip(kept, pieces, chosen, strict=True)):
        keys[row, :, : len(places)] = layer.keys[piece.row][:, places]
        values[row, :, : len(places)] = layer.values[piece.row][:, places]
        positions[row, : len(places)] = layer.positions[piece.row, places] + _offset(piece, length)
    joined.update(keys, values, positions, max(1, length))
    return joined


def _find_places(positions: Tensor, piece: Piece) -> Tensor:
    """Return which of the kept system tokens of a row ``[S]`` belong to a piece of it."""
    return ((positions >= piece.start) & (positions < piece.end)).nonzero()[:, 0]
