"""CALYREX as a PEFT method: wrap decoder layers of a frozen model, carry the system mask to them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from peft.tuners.tuners_utils import BaseTuner, BaseTunerLayer
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from calyrex.base import base_sizes, find_layers
from calyrex.block import BlockModules, BlockShape, apply_block, build_block, project_system
from calyrex.cache import system_cache_layer
from calyrex.config import CalyrexConfig
from calyrex.context import Request, SystemContext, find_cache
from calyrex.initialise import copy_base_weights
from calyrex.placement import resolve_placement
from calyrex.registration import register
from calyrex.template import SystemTemplate, infer_system_mask, read_base_template

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
    ) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """Return the keys and values of the system tokens so far, and who may attend to them ``[B, T, S]``."""
        tokens = self.context.tokens
        if tokens is None:
            positions = torch.empty(x.shape[0], 0, dtype=torch.int64, device=x.device)
            visible = torch.empty(*x.shape[:2], 0, dtype=torch.bool, device=x.device)
            stays = visible[:, 0]
        else:
            positions, stays = tokens.positions.to(x.device), tokens.stays_visible.to(x.device)
            visible = tokens.visible.to(x.device)
        system = project_system(block, x, positions, self.head_dims[adapter_name])
        if cache is None:
            return system, visible
        layer = system_cache_layer(cache, self.num_layers, self.block_index, adapter_name)
        if self.context.num_past != layer.num_tokens:
            raise ValueError(
                f"the cache holds {self.context.num_past} tokens, but the blocks have seen {layer.num_tokens} of them; "
                f"start a new cache"
            )
        continues = self.context.continues
        past = layer.is_real(x.device, x.shape[0])[:, None].expand(-1, x.shape[1], -1)  # [B, T, S_past]
        if continues is not None:
            past = past & continues.to(x.device)[:, :, None]
            layer.forget_rows(~continues[:, -1])
        places = (positions + self.context.num_past).masked_fill(~stays, -1)
        return layer.update(*system, places, x.shape[1]), torch.cat([past, visible], dim=2)


class CalyrexModel(BaseTuner):
    """A frozen causal language model with CALYREX blocks, made by ``peft.get_peft_model``."""

    prefix = PREFIX
    tuner_layer_cls = CalyrexLayer

    def forward(
        self,
        *args: Any,
        system_mask: Tensor | None = None,
        scale: float | Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """Run the model.

        Args:
            *args: handed to the base.
            system_mask: True at system tokens, False elsewhere and at padding, ``[B, T]`` bool, for the tokens of this
                call or for all up to its end; None infers it from ``input_ids`` (see ``calyrex.template``).
            scale: strength of the blocks in this call, a number or ``[B]``; None takes the adapter's.
            **kwargs: handed to the base.
        """
        with self.context.serve(Request(system_mask, scale=scale)):
            return self.model(*args, **kwargs)

    def generate(
        self,
        *args: Any,
        system_mask: Tensor | None = None,
        scale: float | None = None,
        **kwargs: Any,
    ) -> Any:
        """Generate, with the system prompt's keys and values kept in the request's cache.

        Args:
            *args: handed to ``generate`` of the base; the first is ``input_ids`` ``[B, T]`` int64.
            system_mask: True at system tokens of the prompt, ``[B, T]`` bool; None infers it from ``input_ids``.
            scale: strength of the blocks in this call, a number; None takes the adapter's.
            **kwargs: handed to ``generate`` of the base.

        Raises:
            ValueError: ``system_mask`` has another shape, or guidance is asked for.
            TypeError: ``scale`` is no number.
        """
        if kwargs.get("guidance_scale") not in (None, 1) or kwargs.get("negative_prompt_ids") is not None:
            raise ValueError("CALYREX does not support guidance: its second prompt has no system_mask")
        if isinstance(scale, Tensor):
            raise TypeError("generate takes one scale for all rows, a number; forward takes one for each row")
        input_ids = args[0] if args else kwargs.get("input_ids", kwargs.get("inputs"))
        # With a cache the mask of the first turn may be all there is: what follows it is no system prompt.
        has_cache = find_cache(args, kwargs) is not None
        if system_mask is not None and input_ids is not None and not has_cache and system_mask.shape != input_ids.shape:
            expected, given = list(input_ids.shape), list(system_mask.shape)
            raise ValueError(f"system_mask must have the shape of input_ids, {expected}, got {given}")
        if system_mask is None and input_ids is not None and self.context.is_enabled:
            attention_mask = kwargs.get("attention_mask")
            system_mask = infer_system_mask(input_ids, self.system_template(), attention_mask=attention_mask)
        with self.context.serve(Request(system_mask, spans_sequence=True, scale=scale)):
            return self.model.generate(*args, **kwargs)

    def generate_batch(self, *args: Any, **kwargs: Any) -> None:
        """Refuse continuous batching.

        Raises:
            NotImplementedError: always; its paged cache has no place for the system prompt's keys.
        """
        raise NotImplementedError("CALYREX does not support continuous batching yet; use generate with a padded batch")

    def set_scale(self, scale: float) -> None:
        """Set the strength of the active adapter's blocks: 1.0 as trained, 0.0 the base."""
        self._active_config().scale = scale

    @property
    def active_scale(self) -> float:
        """Strength of the active adapter's blocks."""
        return self._active_config().scale

    def set_adapter(self, adapter_name: str | list[str], inference_mode: bool = False) -> None:
        """Make an adapter the active one.

        Raises:
            ValueError: more than one is given; blocks of several adapters do not add up.
        """
        if not isinstance(adapter_name, str) and len(adapter_name) > 1:
            raise ValueError(f"CALYREX runs one adapter at a time, got {list(adapter_name)}")
        super().set_adapter(adapter_name, inference_mode=inference_mode)

    def unload(self) -> nn.Module:
        """Return the base as it was."""
        for hook in self.context_hooks:
            hook.remove()
        return super().unload()

    def system_template(self) -> SystemTemplate:
        """Return how the base's chat template marks the system prompt, read from its tokenizer on first use.

        Raises:
            ValueError: the adapter does not know it and the base's tokenizer cannot be loaded.
            CalyrexError: the template does not mark the system prompt with tokens of its own.
        """
        config = self._active_config()
        if config.system_template is None:
            config.system_template = read_base_template(self.model.config.name_or_path).to_dict()
        return SystemTemplate.from_dict(config.system_template)

    def _active_config(self) -> CalyrexConfig:
        return cast(CalyrexConfig, self.peft_config[self.active_adapters[0]])

    @contextmanager
    def _enable_peft_forward_hooks(self, *args: Any, **kwargs: Any) -> Iterator[None]:
        if kwargs.get("adapter_names") is not None:
            raise ValueError("CALYREX does not support adapter_names for single rows; call once for each adapter")
        yield

    def _prepare_adapter_config(  # type: ignore[override]
        self, peft_config: CalyrexConfig, model_config: dict[str, Any]
    ) -> CalyrexConfig:
        layers = find_layers(self.model)
        name = next(name for name, module in self.model.named_modules() if module is layers)
        chosen = resolve_placement(peft_config.placement, len(layers), peft_config.num_blocks)
        peft_config.target_modules = [f"{name}.{layer - 1}" for layer in chosen]
        return peft_config

    def _prepare_model(  # type: ignore[override]
        self, peft_config: CalyrexConfig, model: PreTrainedModel
    ) -> None:
        if not hasattr(self, "context"):
            self.context = SystemContext(self.system_template)
            self.context_hooks = self.context.attach(model)

    def _create_and_replace(  # type: ignore[override]  # noqa: PLR0913 (PEFT's signature)
        self,
        peft_config: CalyrexConfig,
        adapter_name: str,
        target: nn.Module,
        target_name: str,
        parent: nn.Module,
        current_key: str,
        parameter_name: str | None = None,
    ) -> None:
        shape = peft_config.block_shape(base_sizes(self.model))
        if not isinstance(target, CalyrexLayer):
            target = CalyrexLayer(target, self.context, len(find_layers(self.model)), int(target_name))
            setattr(parent, target_name, target)
        target.add_block(adapter_name, peft_config, shape)

    def _replace_module(self, parent: nn.Module, child_name: str, new_module: nn.Module, child: nn.Module) -> None:
        setattr(parent, child_name, new_module)

    def _check_merge_allowed(self) -> None:
        raise NotImplementedError(
            "CALYREX blocks cannot be merged: they attend to the system prompt, which no base weight does; "
            "use unload() to get the base back"
        )


register()
