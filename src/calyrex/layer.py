"""A decoder layer of the base with a block after it."""

from typing import Any

import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn
from transformers.cache_utils import Cache

from calyrex.block import BlockModules, BlockShape, apply_block, build_block, project_system
from calyrex.cache import system_cache_layer
from calyrex.config import CalyrexConfig
from calyrex.context import SystemContext, find_cache
from calyrex.initialise import copy_base_weights

PREFIX = "calyrex_"


class CalyrexLayer(nn.Module, BaseTunerLayer):
    """A decoder layer with a block after it, one set of block weights for each adapter.

    ``output_hidden_states`` of transformers shows the decoder layer's own output, before the block.
    """

    adapter_layer_names = tuple(PREFIX + name for name in BlockModules._fields)
    other_param_names = ()

    def __init__(self, base_layer: nn.Module, context: SystemContext, num_layers: int, block_index: int) -> None:
        """Wrap a decoder layer.

        Args:
            base_layer: the decoder layer, left as it is.
            context: the side channel shared by all blocks of the model.
            num_layers: ``L``, decoder layers of the base.
            block_index: number of the decoder layer, from 0; the block's place in the cache.
        """
        super().__init__()
        self.base_layer = base_layer
        self.context = context
        self.num_layers = num_layers
        self.block_index = block_index
        self.configs: dict[str, CalyrexConfig] = {}
        self.head_dims: dict[str, int] = {}
        self._disable_adapters = False
        for name in self.adapter_layer_names:
            setattr(self, name, nn.ModuleDict())

    def __getattr__(self, name: str) -> Any:
        """Show the attributes of the decoder layer, which models read (``attention_type``)."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "base_layer":
                raise
            return getattr(self.base_layer, name)

    def add_block(self, adapter_name: str, config: CalyrexConfig, shape: BlockShape) -> None:
        """Add the block of an adapter, on the device and in the dtype of the decoder layer.

        Raises:
            ValueError: ``init="base"`` does not fit the decoder layer.
        """
        block = build_block(shape)
        if config.init == "base":
            copy_base_weights(block, self.get_base_layer(), shape)
        self.configs[adapter_name] = config
        self.head_dims[adapter_name] = shape.head_dim
        reference = next((p for p in self.base_layer.parameters() if p.is_floating_point()), None)
        for name, module in zip(self.adapter_layer_names, block, strict=True):
            on_meta = any(p.is_meta for p in module.parameters())
            if reference is not None and not reference.is_meta and not on_meta:
                module.to(reference)
            getattr(self, name)[adapter_name] = module

    def block(self, adapter_name: str) -> BlockModules:
        """Return the modules of an adapter's block."""
        return BlockModules(*(getattr(self, name)[adapter_name] for name in self.adapter_layer_names))

    def enable_adapters(self, enabled: bool) -> None:
        """Turn the blocks on or off, for PEFT and for transformers' own ``disable_adapters``."""
        self.context.is_enabled = enabled
        super().enable_adapters(enabled)

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Run the decoder layer, then the active adapter's block on its output, ``[B, T, E]``."""
        output = self.base_layer(hidden_states, *args, **kwargs)
        active = [name for name in self.active_adapters if name in self.head_dims]
        if self.disable_adapters or not active:
            return output
        cache = find_cache(args, kwargs)
        if isinstance(output, tuple):
            return (self._anchor(output[0], active[0], cache), *output[1:])
        return self._anchor(output, active[0], cache)

    def _anchor(self, x: Tensor, adapter_name: str, cache: Cache | None) -> Tensor:
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
