"""What CALYREX and ParallelMLP share as PEFT methods: modules inserted after decoder layers of a frozen model."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from peft import PeftConfig
from peft.tuners.tuners_utils import BaseTuner, BaseTunerLayer
from torch import Tensor, nn
from transformers.cache_utils import Cache

from calyrex.base import find_layers
from calyrex.context import find_cache
from calyrex.placement import resolve_placement


class Modules(Protocol):
    """The modules that are inserted in one place: a named tuple of them, whose names are those of the parameters."""

    def _asdict(self) -> dict[str, nn.Module]: ...


class InsertedLayer(nn.Module, BaseTunerLayer):
    """A decoder layer with modules after it, one set for each adapter.

    ``output_hidden_states`` of transformers shows the decoder layer's own output, before what is inserted.
    """

    prefix: str
    other_param_names = ()

    def __init__(self, base_layer: nn.Module, block_index: int) -> None:
        """Wrap a decoder layer.

        Args:
            base_layer: the decoder layer, left as it is.
            block_index: number of the decoder layer, from 0.
        """
        super().__init__()
        self.base_layer = base_layer
        self.block_index = block_index
        self.configs: dict[str, Any] = {}
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

    def insert(self, adapter_name: str, config: PeftConfig, modules: Modules) -> None:
        """Insert the modules of an adapter, on the device and in the dtype of the decoder layer."""
        self.configs[adapter_name] = config
        reference = next((p for p in self.base_layer.parameters() if p.is_floating_point()), None)
        for name, module in modules._asdict().items():
            on_meta = any(p.is_meta for p in module.parameters())
            if reference is not None and not reference.is_meta and not on_meta:
                module.to(reference)
            getattr(self, self.prefix + name)[adapter_name] = module

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Run the decoder layer, then what the active adapter has inserted on its output, ``[B, T, E]``."""
        output = self.base_layer(hidden_states, *args, **kwargs)
        active = [name for name in self.active_adapters if name in self.configs]
        if self.disable_adapters or not active:
            return output
        cache = find_cache(args, kwargs)
        if isinstance(output, tuple):
            return (self.act(output[0], active[0], cache), *output[1:])
        return self.act(output, active[0], cache)

    def act(self, x: Tensor, adapter_name: str, cache: Cache | None) -> Tensor:
        """Apply the modules of an adapter to the residual stream ``[B, T, E]``."""
        raise NotImplementedError


class InsertingModel(BaseTuner):
    """A frozen causal language model with modules after some of its decoder layers."""

    def set_adapter(self, adapter_name: str | list[str], inference_mode: bool = False) -> None:
        """Make an adapter the active one.

        Raises:
            ValueError: more than one is given; blocks of several adapters do not add up.
        """
        if not isinstance(adapter_name, str) and len(adapter_name) > 1:
            raise ValueError(f"{self.method} runs one adapter at a time, got {list(adapter_name)}")
        super().set_adapter(adapter_name, inference_mode=inference_mode)

    @property
    def method(self) -> str:
        """Name of the method, as PEFT has it."""
        return str(self.prefix).removesuffix("_").upper()

    @contextmanager
    def _enable_peft_forward_hooks(self, *args: Any, **kwargs: Any) -> Iterator[None]:
        if kwargs.get("adapter_names") is not None:
            raise ValueError(f"{self.method} does not support adapter_names for single rows; call once for each")
        yield

    def _prepare_adapter_config(self, peft_config: Any, model_config: dict[str, Any]) -> PeftConfig:
        layers = find_layers(self.model)
        name = next(name for name, module in self.model.named_modules() if module is layers)
        chosen = resolve_placement(peft_config.placement, len(layers), peft_config.num_blocks)
        peft_config.target_modules = [f"{name}.{layer - 1}" for layer in chosen]
        return peft_config  # type: ignore[no-any-return]

    def wrap(self, layer: nn.Module, number: int) -> InsertedLayer:
        """Wrap a decoder layer, whose number counts from 0."""
        raise NotImplementedError

    def insert(self, layer: InsertedLayer, adapter_name: str, peft_config: Any) -> None:
        """Insert the fresh modules of an adapter after a wrapped layer."""
        raise NotImplementedError

    def _create_and_replace(  # noqa: PLR0913 (PEFT's signature)
        self,
        peft_config: PeftConfig,
        adapter_name: str,
        target: nn.Module,
        target_name: str,
        parent: nn.Module,
        current_key: str,
        parameter_name: str | None = None,
    ) -> None:
        if not isinstance(target, InsertedLayer):
            target = self.wrap(target, int(target_name))
            setattr(parent, target_name, target)
        self.insert(target, adapter_name, peft_config)

    def _replace_module(self, parent: nn.Module, child_name: str, new_module: nn.Module, child: nn.Module) -> None:
        setattr(parent, child_name, new_module)

    def _check_merge_allowed(self) -> None:
        raise NotImplementedError(
            f"{self.method} blocks cannot be merged: they are layers of their own, which no base weight can take in; "
            "use unload() to get the base back"
        )
