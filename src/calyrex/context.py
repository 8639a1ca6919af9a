"""What the blocks know about the current forward pass: its system tokens, its scale, its cache.

Decoder layers take no system mask, so it travels beside the forward. A hook on the inner decoder works it out once for
each forward pass, before the first layer; the blocks only read it. Gradient checkpointing replays decoder layers, never
the blocks around them, so a replay cannot meet the state of another forward.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from calyrex.base import find_layers
from calyrex.block import SystemTokens, find_system_tokens
from calyrex.cache import SystemCacheLayer
from calyrex.template import SystemTemplate, infer_system_mask


@dataclass(frozen=True)
class Request:
    """What a caller said with one call of ``forward`` or ``generate``.

    Attributes:
        system_mask: True at system tokens, ``[B, T]`` bool; None means to infer it.
        spans_sequence: the mask covers the sequence from its beginning, not the tokens of one forward.
        scale: strength of the blocks, a number or ``[B]``; None means the adapter's own.
    """

    system_mask: Tensor | None = None
    spans_sequence: bool = False
    scale: float | Tensor | None = None


class SystemContext:
    """The side channel between the callers of one model and its blocks.

    Attributes:
        request: what the current caller said.
        is_enabled: whether the blocks act; where they do not, no mask is needed.
        tokens: the system tokens of the current forward; None when it has none.
        is_decoding: the current forward is one more token after a prompt that the blocks have heard; it cannot be a
            system token, and nothing about it has to be worked out.
        num_past: tokens already in the cache; not known while decoding.
        num_tokens: tokens of the current forward.
        embeds_ids: whether the current forward makes its embeddings itself, from token ids.
    """

    def __init__(self, read_template: Callable[[], SystemTemplate]) -> None:
        """Create the context.

        Args:
            read_template: returns the template of the active adapter; called when a mask must be inferred.
        """
        self.read_template = read_template
        self.request = Request()
        self.is_enabled = True
        self.tokens: SystemTokens | None = None
        self.is_decoding = False
        self.num_past = 0
        self.num_tokens = 0
        self.embeds_ids = True

    def attach(self, model: PreTrainedModel) -> list[RemovableHandle]:
        """Register the hooks on a base and return their handles."""
        decoder = model.get_decoder()
        return [
            decoder.register_forward_pre_hook(self.before_decoder, with_kwargs=True),
            find_layers(model)[0].register_forward_pre_hook(partial(self.before_layers, model), with_kwargs=True),
        ]

    @contextmanager
    def serve(self, request: Request) -> Iterator[None]:
        """Let the forwards inside the ``with`` belong to a request."""
        outer, self.request = self.request, request
        try:
            yield
        finally:
            self.request = outer

    def before_decoder(
        self, decoder: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Work out the state of one forward: a pre-hook of the inner decoder.

        Raises:
            ValueError: the mask does not fit the tokens, or there is none and it cannot be inferred.
            NotImplementedError: the cache is not one of transformers' ``Cache`` classes.
        """
        mask = kwargs.pop("system_mask", None)  # reaches the decoder where the model hands unknown arguments down
        request = Request(mask) if mask is not None else self.request
        input_ids = kwargs.get("input_ids", args[0] if args else None)
        self.embeds_ids = input_ids is not None
        tokens = input_ids if input_ids is not None else kwargs.get("inputs_embeds")
        if tokens is None:
            raise ValueError("the decoder was called without input_ids and without inputs_embeds")
        cache = find_cache(args, kwargs)
        if cache is None and kwargs.get("cache", kwargs.get("past_key_values")) is not None:
            raise NotImplementedError(
                "CALYREX blocks need a transformers Cache; continuous batching (generate_batch) has none: use generate"
            )
        batch_size, self.num_tokens = tokens.shape[:2]
        self.tokens = None
        self.is_decoding = self.is_enabled and self._follows_prompt(request, cache)
        if not self.is_enabled:
            forget_system(cache)
        if self.is_decoding or not self.is_enabled:
            return args, kwargs
        self.num_past = int(cache.get_seq_length()) if cache is not None else 0
        attention_mask = kwargs.get("attention_mask")
        # As in transformers: where there is a mask or a past, positions that begin anew are padding, not documents.
        is_packable = attention_mask is None and self.num_past == 0
        segment_ids = find_segments(kwargs.get("position_ids"), batch_size) if is_packable else None
        if request.system_mask is not None:
            mask = self._cut_mask(request, batch_size).to(tokens.device)
        elif self.num_past > 0:  # what follows a cached beginning is never the system prompt
            mask = None
        elif input_ids is not None:
            is_plain = isinstance(attention_mask, Tensor) and attention_mask.dim() == 2
            mask = infer_system_mask(
                input_ids,
                self.read_template(),
                attention_mask=attention_mask if is_plain else None,
                segment_ids=segment_ids,
            )
        else:
            raise ValueError("inputs_embeds needs a system_mask: the system prompt cannot be found without input_ids")
        self.tokens = find_system_tokens(mask, segment_ids) if mask is not None and bool(mask.any()) else None
        return args, kwargs

    def before_layers(
        self, model: PreTrainedModel, _layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Let no graph begin below the blocks: a pre-hook of the first decoder layer.

        Trainers with gradient checkpointing make the embeddings require a gradient (``enable_input_require_grads``),
        and autograd would record the whole base for a gradient that nothing asks for. Embeddings that are given
        (``inputs_embeds``) or trained keep theirs.
        """
        hidden_states = args[0] if args else kwargs["hidden_states"]
        if not self.embeds_ids or not hidden_states.requires_grad:
            return args, kwargs
        layers = find_layers(model)
        others = (child for child in model.get_decoder().children() if child is not layers)
        if any(parameter.requires_grad for child in others for parameter in child.parameters()):
            return args, kwargs
        for layer in layers:  # nothing to recompute up to the first block
            getattr(layer, "base_layer", layer).gradient_checkpointing = False
            if hasattr(layer, "base_layer"):
                break
        if args:
            return (hidden_states.detach(), *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": hidden_states.detach()}

    def _follows_prompt(self, request: Request, cache: Cache | None) -> bool:
        """Tell whether a forward is one more token after all that could be a system token."""
        if self.num_tokens != 1 or cache is None or not cache.layers:
            return False
        heard = cache.layers[-1]
        if not isinstance(heard, SystemCacheLayer) or not heard.is_initialized or heard.num_seen == 0:
            return False
        mask = request.system_mask
        return mask is None or (request.spans_sequence and mask.shape[1] <= heard.num_seen)

    def _cut_mask(self, request: Request, batch_size: int) -> Tensor:
        """Return the part of the request's mask that belongs to the tokens of this forward, ``[B, T]`` bool."""
        mask = request.system_mask
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.dim() != 2:
            given = f"{mask.dtype} {list(mask.shape)}" if isinstance(mask, Tensor) else type(mask).__name__
            raise ValueError(f"system_mask must be a bool tensor [B, T], got {given}")
        if batch_size % mask.shape[0] or (batch_size != mask.shape[0] and not request.spans_sequence):
            raise ValueError(f"system_mask must have {batch_size} rows like the tokens, got {mask.shape[0]}")
        mask = mask.repeat_interleave(batch_size // mask.shape[0], dim=0)  # beams and returned sequences
        end = self.num_past + self.num_tokens
        if not request.spans_sequence:
            if mask.shape[1] == self.num_tokens:
                return mask
            if mask.shape[1] != end:
                raise ValueError(f"system_mask must cover {self.num_tokens} tokens, got {mask.shape[1]}")
        return nn.functional.pad(mask, (0, max(0, end - mask.shape[1])))[:, self.num_past : end]


def find_cache(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Cache | None:
    """Return the cache among the arguments of a decoder or a decoder layer, whatever its name in this architecture."""
    return next((value for value in (*args, *kwargs.values()) if isinstance(value, Cache)), None)


def forget_system(cache: Cache | None) -> None:
    """Drop what the blocks know of a cache, when tokens enter it that they do not see."""
    for layer in cache.layers if cache is not None else []:
        if isinstance(layer, SystemCacheLayer) and layer.is_initialized:
            layer.reset()


def find_segments(position_ids: Tensor | None, batch_size: int) -> Tensor | None:
    """Number the documents of packed rows by the places where positions do not go on counting.

    Args:
        position_ids: positions of the tokens, ``[B, T]`` or ``[1, T]`` int64, or None.
        batch_size: ``B``.

    Returns:
        The number of each token's document, from 0, ``[B, T]`` int64; None when every row is one document.
    """
    if position_ids is None or position_ids.dim() != 2 or position_ids.shape[1] == 1:
        return None
    breaks = position_ids[:, 1:] != position_ids[:, :-1] + 1
    if not bool(breaks.any()):
        return None
    return nn.functional.pad(breaks.cumsum(dim=1), (1, 0)).expand(batch_size, -1)
