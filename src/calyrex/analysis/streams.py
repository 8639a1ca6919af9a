"""The residual stream of every layer: read it, replace it, and run many versions of it on one shared cache.

The output of layer ``l`` is the stream that leaves decoder layer ``l``, a block behind it included; layer 0 is what
enters the first one. Plain forward hooks do this for every decoder that transformers knows, with adapters and GGUF
weights; TransformerLens rewrites each architecture, and nnsight wraps the model whole, so neither takes those as they
are.

A version of the stream that differs from the run only from layer ``l`` on joins the batch there, as one more row: the
layers below are computed once for all versions, and so is the prompt, whose keys and values they share.

Shape letters besides those of ``calyrex.block``: ``R`` rows, which are versions of one run; ``P`` answer positions.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import torch
from peft import PeftModel
from torch import Tensor, nn
from torch.nn import functional
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from calyrex.analysis.forced import ForcedRun
from calyrex.cache import SystemCacheLayer
from calyrex.errors import CalyrexError
from calyrex.training.filling import base_layers
from calyrex.tuner import hears_system

Model: TypeAlias = PreTrainedModel | PeftModel
Step: TypeAlias = Callable[[int, Tensor], Tensor]
"""Gets the number of a layer and the stream that leaves it, ``[R, P, E]``; returns the stream that goes on."""

_MASKED_ATTENTION = ("eager", "sdpa")


def require_analyzable(model: Model) -> None:
    """Make sure that a model's layers can be taken apart.

    Raises:
        CalyrexError: Its attention ignores masks, or its layers share keys and values.
    """
    config = model.config.get_text_config()
    if config._attn_implementation not in _MASKED_ATTENTION:
        raise CalyrexError(
            f"expected attention that takes a mask ({' or '.join(_MASKED_ATTENTION)}), got "
            f"{config._attn_implementation}: name another attn_implementation in the model's config.json"
        )
    if getattr(config, "num_kv_shared_layers", 0):
        raise CalyrexError(f"the layers of a {config.model_type} share keys and values: they cannot be taken apart")
    for layer in DynamicCache(config=model.config).layers:
        cached_layer(layer)


def num_layers(model: Model) -> int:
    """Return ``L``, the number of decoder layers."""
    return len(base_layers(model))


def cached_layer(layer: object) -> DynamicLayer | SystemCacheLayer:
    """Return a layer of a cache that can be given to several rows.

    Raises:
        CalyrexError: It is of another kind, such as that of linear attention.
    """
    if not isinstance(layer, DynamicLayer | SystemCacheLayer):
        raise CalyrexError(f"expected layers with self-attention only, got one that keeps a {type(layer).__name__}")
    return layer


def prefill(model: Model, run: ForcedRun) -> DynamicCache:
    """Return a cache that holds the prompt of a run, all but its last token."""
    cache = DynamicCache(config=model.config)
    mask = {"system_mask": run.system_mask} if hears_system(model) else {}
    model(run.prompt, **mask, cache=cache, use_cache=True, logits_to_keep=1)
    return cache


def run_answer(model: Model, run: ForcedRun, cache: DynamicCache, step: Step) -> list[float]:
    """Run the answer's positions on a cached prompt and return how likely the answer is in each version.

    Args:
        model: The base, or the base with an adapter.
        run: The run whose prompt the cache holds.
        cache: Cache of the prompt, one row; it is used up.
        step: Called at each layer; the rows that it adds are further versions.

    Returns:
        Mean log-probability of the answer's tokens in nats, for each row.
    """
    with tapped(model, step, cache):
        logits = model(run.tail, cache=cache, use_cache=True).logits  # [R, P, V]
    return answer_log_probabilities(logits, run.targets)


def answer_log_probabilities(logits: Tensor, targets: Tensor) -> list[float]:
    """Return the mean log-probability of an answer in nats a token, for each row.

    Args:
        logits: ``[R, P, V]``.
        targets: Tokens of the answer, ``[P]`` int64.
    """
    targets = targets.to(logits.device)
    return [-float(functional.cross_entropy(row.float(), targets)) for row in logits]


@contextmanager
def tapped(model: Model, step: Step, cache: DynamicCache) -> Iterator[None]:
    """Call ``step`` at every layer of a forward inside the ``with``, and let the cached prompt follow the rows.

    Args:
        model: The base, or the base with an adapter.
        step: What happens to the stream after each layer, 0 .. L.
        cache: Cache of the forward, one row.
    """
    handles = []
    for number, layer in enumerate(base_layers(model)):
        enter = partial(_enter, step, cache, number, num_layers(model))
        handles.append(layer.register_forward_pre_hook(enter, with_kwargs=True))
        handles.append(layer.register_forward_hook(partial(_leave, step, cache, number)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _enter(
    step: Step,
    cache: DynamicCache,
    number: int,
    num_layers: int,
    _layer: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Let each row that enters a layer find the prompt in the layer's cache, and in that of the block behind it."""
    stream = stream_of(args, kwargs)
    if number == 0:
        stream = step(0, stream)
        args, kwargs = ((stream, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": stream})
    for place in (number, num_layers + number):
        if place < len(cache.layers):
            cached_layer(cache.layers[place]).batch_repeat_interleave(stream.shape[0])
    return args, kwargs


def _leave(step: Step, cache: DynamicCache, number: int, _layer: nn.Module, _args: tuple[Any, ...], output: Any) -> Any:
    cache.layers[number].reset()  # the rows' copies of the prompt would add up over the layers
    if isinstance(output, tuple):
        return (step(number + 1, output[0]), *output[1:])
    return step(number + 1, output)


def stream_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """Return the stream ``[R, P, E]`` among the arguments of a decoder layer or of its attention."""
    stream: Tensor = args[0] if args else kwargs["hidden_states"]
    return stream


def join(stream: Tensor, versions: list[Tensor]) -> Tensor:
    """Return the rows ``[R, P, E]`` with further versions of the stream, ``[P, E]`` each, behind them."""
    return torch.cat([stream, *(version[None] for version in versions)]) if versions else stream
