"""The models of a server: one base in memory, and the blocks of several adapters on it."""

import inspect
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from peft import PeftModel
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel, PreTrainedTokenizerBase
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from calyrex.adapters import check_adapter, read_adapter
from calyrex.base import find_layers
from calyrex.errors import CalyrexError
from calyrex.generation import context_length
from calyrex.hub import is_hub_id
from calyrex.layer import CalyrexLayer
from calyrex.models import BUILTIN, load_base, load_tokenizer, recorded_base
from calyrex.serve.options import ServeOptions

logger = logging.getLogger(__name__)


class ServedModel(NamedTuple):
    """A name under which answers can be asked for.

    Attributes:
        name: the name.
        adapter: PEFT's name of the adapter; None is the base.
        blocks: decoder layers that a block sits behind, counted from 1.
        scale: strength of the blocks as trained.
    """

    name: str
    adapter: str | None
    blocks: tuple[int, ...] = ()
    scale: float = 0.0


@dataclass(eq=False)
class Served:
    """All models of a server.

    Attributes:
        model: the base, or the base with the blocks of all adapters.
        tokenizer: its tokenizer.
        models: what is served, by name; the base is the first.
        context: longest conversation with its answer in tokens.
        active: the adapter that acts now; None is the base.
    """

    model: PreTrainedModel | PeftModel
    tokenizer: PreTrainedTokenizerBase
    models: dict[str, ServedModel]
    context: int
    active: str | None = None

    @property
    def base(self) -> ServedModel:
        """The base."""
        return next(iter(self.models.values()))

    @property
    def num_layers(self) -> int:
        """``L``, decoder layers of the base."""
        return int(self.model.config.get_text_config().num_hidden_layers)

    def activate(self, adapter: str | None) -> None:
        """Let an adapter act from now on, or none."""
        if adapter == self.active or not isinstance(self.model, PeftModel):
            return
        tuner: Any = self.model.base_model
        if adapter is None:
            tuner.disable_adapter_layers()
        else:
            tuner.enable_adapter_layers()
            self.model.set_adapter(adapter, inference_mode=True)
        self.active = adapter

    def forward(  # noqa: PLR0913 (one forward of a batch)
        self,
        model: ServedModel,
        input_ids: Tensor,
        cache: DynamicCache,
        *,
        attention_mask: Tensor,
        position_ids: Tensor,
        scales: list[float],
        system_mask: Tensor | None = None,
    ) -> Tensor:
        """Run tokens of several rows into a cache.

        Args:
            model: who reads them.
            input_ids: ``[B, T]`` int64.
            cache: what was read before, and what is added to.
            attention_mask: 1 at real tokens of cache and ``input_ids``, ``[B, T_past + T]`` int64.
            position_ids: ``[B, T]`` int64.
            scales: strength of the blocks for each row.
            system_mask: True at system tokens, ``[B, T]`` bool; None says that there cannot be any.

        Returns:
            Logits of the last token, ``[B, V]`` float32.
        """
        self.activate(model.adapter)
        extra: dict[str, Any] = {}
        if model.adapter is not None:
            is_same = len(set(scales)) == 1
            extra["scale"] = scales[0] if is_same else torch.tensor(scales, device=input_ids.device)
            extra["system_mask"] = system_mask
        tuner = self.model.base_model if isinstance(self.model, PeftModel) else self.model
        output = tuner(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            cache=cache,
            use_cache=True,
            logits_to_keep=1,
            **extra,
        )
        logits: Tensor = output.logits[:, -1]
        return logits.float()


def load_served(options: ServeOptions) -> Served:
    """Load the base and every adapter that fits it; one that does not is named in the log and left out.

    Raises:
        CalyrexError: The base cannot be loaded, or its batches cannot change while they run.
    """
    paths = options.adapters()
    base_name = options.model or _find_base(paths)
    base, tokenizer = load_base(base_name, dtype=options.dtype), load_tokenizer(base_name)
    require_servable(base, base_name)
    is_known = base_name == BUILTIN or _is_hub_name(base_name)
    shown = base_name if is_known else Path(base_name).resolve().name.removesuffix(".gguf")
    if shown in paths:
        raise CalyrexError(f"an adapter has the name of the base, {shown}: give it another")
    fitting = {name: path for name, path in paths.items() if _fits(name, path, base)}
    return put_together(base, tokenizer, shown, fitting, options.context)


def put_together(
    base: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    name: str,
    adapters: dict[str, str],
    context: int | None = None,
) -> Served:
    """Put the blocks of adapters that fit on a base.

    Args:
        base: the base, without adapters.
        tokenizer: its tokenizer.
        name: name of the base.
        adapters: folder of each adapter by its name.
        context: longest conversation with its answer in tokens; None takes the model's own.
    """
    model: PreTrainedModel | PeftModel = base
    models = {name: ServedModel(name, None)}
    for number, (shown, path) in enumerate(adapters.items()):
        adapter = f"adapter{number}"  # PEFT does not take every name
        folder = str(read_adapter(path).folder)
        if isinstance(model, PeftModel):
            model.load_adapter(folder, adapter_name=adapter)
        else:
            model = PeftModel.from_pretrained(model, folder, adapter_name=adapter)
        config: Any = model.peft_config[adapter]
        models[shown] = ServedModel(shown, adapter, _find_blocks(base, adapter), float(config.scale))
    model.train(False)
    limit = context_length(base)
    limits = [length for length in (context, limit) if length is not None]
    served = Served(model, tokenizer, models, min(limits, default=32768), active="")
    served.activate(None)
    return served


def require_servable(base: PreTrainedModel, name: str) -> None:
    """Make sure that rows can join and leave a batch of a base while it runs.

    Raises:
        CalyrexError: It keeps something else than keys and values of all tokens, or takes no positions.
    """
    for layer in DynamicCache(config=base.config).layers:
        if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer):
            raise CalyrexError(
                f"calyrex serve needs a base whose layers all are self-attention, but one of {name} keeps a "
                f"{type(layer).__name__}: use calyrex chat, or another base"
            )
    if "position_ids" not in inspect.signature(base.forward).parameters:
        raise CalyrexError(
            f"calyrex serve needs a base that takes position_ids, and {name} takes none: use calyrex chat"
        )


def _find_base(paths: dict[str, str]) -> str:
    """Return the base that the first readable adapter records."""
    for path in paths.values():
        try:
            return recorded_base(path)
        except CalyrexError:
            continue
    return BUILTIN


def _is_hub_name(name: str) -> bool:
    return is_hub_id(name) and not Path(name).expanduser().exists()


def _fits(name: str, path: str, base: PreTrainedModel) -> bool:
    try:
        kind = read_adapter(path).config.peft_type
        if str(getattr(kind, "value", kind)) != "CALYREX":
            raise CalyrexError(f"it is a {getattr(kind, 'value', kind)} adapter, and only CALYREX blocks are served")
        check_adapter(path, base)
    except CalyrexError as error:
        logger.warning("adapter %s is left out: %s", name, " ".join(str(error).split()))
        return False
    return True


def _find_blocks(base: PreTrainedModel, adapter: str) -> tuple[int, ...]:
    layers = enumerate(find_layers(base), start=1)
    return tuple(number for number, layer in layers if isinstance(layer, CalyrexLayer) and adapter in layer.configs)
