"""CALYREX as a PEFT method: wrap decoder layers of a frozen model, carry the system mask to them."""

from typing import Any, cast

from peft import PeftModel
from torch import Tensor, nn
from transformers import PreTrainedModel

from calyrex.base import base_sizes, find_layers
from calyrex.config import CalyrexConfig
from calyrex.context import Request, SystemContext, find_cache
from calyrex.layer import PREFIX, CalyrexLayer
from calyrex.registration import register
from calyrex.template import SystemTemplate, infer_system_mask, read_base_template
from calyrex.wrapping import InsertedLayer, InsertingModel


class CalyrexModel(InsertingModel):
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

    def _prepare_model(  # type: ignore[override]
        self, peft_config: CalyrexConfig, model: PreTrainedModel
    ) -> None:
        if not hasattr(self, "context"):
            self.context = SystemContext(self.system_template)
            self.context_hooks = self.context.attach(model)

    def wrap(self, layer: nn.Module, number: int) -> CalyrexLayer:
        """Wrap a decoder layer, whose number counts from 0."""
        return CalyrexLayer(layer, self.context, len(find_layers(self.model)), number)

    def insert(self, layer: InsertedLayer, adapter_name: str, peft_config: CalyrexConfig) -> None:
        """Insert the fresh block of an adapter after a wrapped layer."""
        cast(CalyrexLayer, layer).add_block(adapter_name, peft_config, peft_config.block_shape(base_sizes(self.model)))


def hears_system(model: PreTrainedModel | PeftModel) -> bool:
    """Tell whether a model takes a ``system_mask``: whether there are blocks on it."""
    return isinstance(model, PeftModel) and isinstance(model.base_model, CalyrexModel)


register()
