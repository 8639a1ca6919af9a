"""A decoder layer of the base with a block after it."""

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache

from calyrex.block import BlockModules, BlockShape, apply_block, build_block, project_system
from calyrex.cache import system_cache_layer
from calyrex.config import CalyrexConfig
from calyrex.context import SystemContext
from calyrex.initialise import copy_base_weights
from calyrex.wrapping import InsertedLayer

PREFIX = "calyrex_"


class CalyrexLayer(InsertedLayer):
    """A decoder layer with a block after it, one set of block weights for each adapter."""

    prefix = PREFIX
    adapter_layer_names = tuple(PREFIX + name for name in BlockModules._fields)

    def __init__(self, base_layer: nn.Module, context: SystemContext, num_layers: int, block_index: int) -> None:
        """Wrap a decoder layer.

        Args:
            base_layer: the decoder layer, left as it is.
            context: the side channel shared by all blocks of the model.
            num_layers: ``L``, decoder layers of the base.
            block_index: number of the decoder layer, from 0; the block's place in the cache.
        """
        super().__init__(base_layer, block_index)
        self.context = context
        self.num_layers = num_layers
        self.head_dims: dict[str, int] = {}

    def add_block(self, adapter_name: str, config: CalyrexConfig, shape: BlockShape) -> None:
        """Add the block of an adapter, on the device and in the dtype of the decoder layer.

        Raises:
            ValueError: ``init="base"`` does not fit the decoder layer.
        """
        block = build_block(shape)
        if config.init == "base":
            copy_base_weights(block._asdict(), self.get_base_layer(), shape)
        self.head_dims[adapter_name] = shape.head_dim
        self.insert(adapter_name, config, block)

    def block(self, adapter_name: str) -> BlockModules:
        """Return the modules of an adapter's block."""
        return BlockModules(*(getattr(self, name)[adapter_name] for name in self.adapter_layer_names))

    def enable_adapters(self, enabled: bool) -> None:
        """Turn the blocks on or off, for PEFT and for transformers' own ``disable_adapters``."""
        self.context.is_enabled = enabled
        super().enable_adapters(enabled)

    def act(self, x: Tensor, adapter_name: str, cache: Cache | None) -> Tensor:
        """Apply the block of an adapter to the residual stream ``[B, T, E]``."""
        block, config = self.block(adapter_name), self.configs[adapter_name]
        system, visible = self._listen(block, x, adapter_name, cache)
        scale = config.scale if self.context.request.scale is None else self.context.request.scale
        is_base = not isinstance(scale, Tensor) and scale == 0.0
        if is_base or (system[0].shape[2] == 0 and config.without_system == "identity"):
            return x
        return apply_block(block, x, system, visible, scale=scale, without_system=config.without_system)

    def _listen(
        self, block: BlockModules, x: Tensor, adapter_name: str, cache: Cache | None
    ) -> tuple[tuple[Tensor, Tensor], Tensor | None]:
        """Return the keys and values of the system tokens so far, and who may attend to them ``[B, T or 1, S]``."""
        if cache is None:
            return self._project(block, x, adapter_name)
        layer = system_cache_layer(cache, self.num_layers, self.block_index, adapter_name)
        num_past = self.context.num_past
        if not layer.is_initialized and (self.context.is_decoding or num_past > 0):
            raise ValueError("the cache holds tokens that the blocks have not seen; start a new cache")
        if self.context.is_decoding:
            return (layer.keys, layer.values), layer.visible
        system, visible = self._project(block, x, adapter_name)
        past = layer.is_real(x.device, x.shape[0])[:, None].expand(-1, x.shape[1], -1)  # [B, T, S_past]
        places = torch.empty(x.shape[0], 0, dtype=torch.int64, device=x.device)
        if self.context.tokens is not None:
            stays = self.context.tokens.stays_visible.to(x.device)
            places = (self.context.tokens.positions.to(x.device) + num_past).masked_fill(~stays, -1)
        return layer.update(*system, places, num_past + x.shape[1]), torch.cat([past, visible], dim=2)

    def _project(self, block: BlockModules, x: Tensor, adapter_name: str) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """Return keys and values of this forward's system tokens, and who may attend to them ``[B, T, S]``."""
        tokens, head_dim = self.context.tokens, self.head_dims[adapter_name]
        if tokens is None:
            nothing = x.new_empty(x.shape[0], 1, 0, head_dim)  # [B, 1, 0, D]
            return (nothing, nothing), torch.empty(*x.shape[:2], 0, dtype=torch.bool, device=x.device)
        return project_system(block, x, tokens.positions.to(x.device), head_dim), tokens.visible.to(x.device)
