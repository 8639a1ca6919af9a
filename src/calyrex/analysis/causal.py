"""What decides: the stream of another run put in after a layer, and system tokens hidden from a layer's attention.

Activation patching ("causal tracing") as in K. Meng et al., "Locating and editing factual associations in GPT",
arXiv:2202.05262, and J. Vig et al., "Investigating gender bias in language models using causal mediation analysis",
NeurIPS 2020; attention knock-out as in M. Geva et al., "Dissecting recall of factual associations in auto-regressive
language models", arXiv:2304.14767.

A patch after layer ``l`` at the answer's positions carries over what layers 1 .. l have brought there. Later layers
still look back at the prompt of the run that was patched.
"""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import DynamicCache

from calyrex.analysis.forced import ForcedRun
from calyrex.analysis.streams import Model, cached_layer, join, num_layers, prefill, run_answer, stream_of
from calyrex.errors import CalyrexError
from calyrex.training.filling import base_layers


class Patched(NamedTuple):
    """A run with the streams of others put in; log-probabilities are means over the answer's tokens, in nats.

    Attributes:
        streams: The run's own stream after layers 0 .. L at the answer's positions, ``[L + 1, P, E]``.
        log_probability: That of the answer in the run itself.
        patched: The same with the stream of each donor put in after layer 0 .. L, ``L + 1`` numbers a donor.
    """

    streams: Tensor
    log_probability: float
    patched: list[list[float]]


class KnockedOut(NamedTuple):
    """A run in which tokens are hidden from one layer; log-probabilities as in ``Patched``.

    Attributes:
        streams: The run's own stream, as in ``Patched``.
        log_probability: That of the answer in the run itself.
        knocked: The same with each set of tokens hidden from layer 1 .. L, ``L`` numbers a set.
    """

    streams: Tensor
    log_probability: float
    knocked: list[list[float]]


def patch(model: Model, run: ForcedRun, donors: Sequence[Tensor]) -> Patched:
    """Put the streams of other runs in at the answer's positions, after one layer at a time.

    Args:
        model: The base, or the base with an adapter.
        run: The run that is patched; its prompt is left alone.
        donors: The streams of other runs of the same answer, ``[L + 1, P, E]`` each; without any, the run is only read.
    """
    streams: list[Tensor] = []

    def step(layer: int, stream: Tensor) -> Tensor:
        streams.append(stream[0])
        return join(stream, [donor[layer] for donor in donors])

    own, *others = run_answer(model, run, prefill(model, run), step)
    return Patched(torch.stack(streams), own, [others[place :: len(donors)] for place in range(len(donors))])


def knock_out(model: Model, run: ForcedRun, hidden: Sequence[Tensor]) -> KnockedOut:
    """Hide tokens of the prompt from the answer's positions, in the self-attention of one layer at a time.

    Args:
        model: The base, or the base with an adapter; what its blocks hear is left alone.
        run: The run.
        hidden: True at the prompt tokens to hide, ``[T]`` bool; one for each set that is tried.

    Raises:
        CalyrexError: A layer has no self-attention that takes a mask.
    """
    streams: list[Tensor] = []
    last = num_layers(model)

    def step(layer: int, stream: Tensor) -> Tensor:
        streams.append(stream[0])
        return join(stream, [stream[0]] * len(hidden) if layer < last else [])

    cache = prefill(model, run)
    tokens = functional.pad(torch.stack(list(hidden)), (0, run.tail.shape[1]))  # [N, T + P]
    with _hidden_from_newest(model, cache, tokens):
        own, *others = run_answer(model, run, cache, step)
    return KnockedOut(torch.stack(streams), own, [others[place :: len(hidden)] for place in range(len(hidden))])


def draw_random_tokens(run: ForcedRun, seed: str) -> Tensor:
    """Draw as many prompt tokens outside the system prompt as it has, or all where there are not enough.

    Returns:
        True at the drawn tokens, ``[T]`` bool.
    """
    system = run.system_mask[0]
    others = (~system).nonzero()[:, 0]
    # torch's generator takes a number; a text's own hash changes from process to process.
    generator = torch.Generator().manual_seed(int.from_bytes(seed.encode(), "big") % 2**63)
    order = torch.randperm(len(others), generator=generator)[: int(system.sum())].to(others.device)
    drawn = torch.zeros_like(system)
    drawn[others[order]] = True
    return drawn


@contextmanager
def _hidden_from_newest(model: Model, cache: DynamicCache, tokens: Tensor) -> Iterator[None]:
    """Hide tokens in each layer from the rows that joined the batch right before it, one for each set ``[N, S]``."""
    handles = []
    for number, layer in enumerate(base_layers(model)):
        hook = partial(_mask_newest, cache, number, tokens)
        handles.append(_find_attention(layer).register_forward_pre_hook(hook, with_kwargs=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _mask_newest(
    cache: DynamicCache,
    number: int,
    tokens: Tensor,
    _attention: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    num_rows, num_queries = stream_of(args, kwargs).shape[:2]
    # A layer with a sliding window holds the last tokens only.
    length, offset = cached_layer(cache.layers[number]).get_mask_sizes(num_queries)
    hidden = tokens[:, offset : offset + length]
    mask = hide_keys(kwargs["attention_mask"], hidden, num_rows, num_queries)
    return args, {**kwargs, "attention_mask": mask}


def hide_keys(mask: Tensor | None, hidden: Tensor, num_rows: int, num_queries: int) -> Tensor:
    """Return an attention mask in which the last rows do not see some keys.

    Args:
        mask: As transformers hands it to an attention module: True where a query attends to a key, or what is added to
            the scores, ``[1 or R, 1 or H, P, S]``; None where each query sees all keys up to its own.
        hidden: True at keys to hide from each of the last ``N`` rows, ``[N, S]`` bool.
        num_rows: ``R``.
        num_queries: ``P``, the last ``P`` of the ``S`` tokens.

    Raises:
        CalyrexError: The mask has another form.
    """
    num_keys = hidden.shape[1]
    if mask is None:
        places = torch.arange(num_keys, device=hidden.device)
        mask = (places[None] <= places[num_keys - num_queries :, None])[None, None]  # [1, 1, P, S]
    if mask.dim() != 4 or mask.shape[-1] != num_keys:
        raise CalyrexError(f"expected an attention mask for {num_keys} keys, got one of the shape {list(mask.shape)}")
    mask = mask.expand(num_rows, -1, -1, -1).clone()
    barrier = hidden[:, None, None]  # [N, 1, 1, S]
    if mask.dtype == torch.bool:
        mask[-len(hidden) :] &= ~barrier
    else:
        mask[-len(hidden) :].masked_fill_(barrier, torch.finfo(mask.dtype).min)
    return mask


def _find_attention(layer: nn.Module) -> nn.Module:
    """Return the self-attention of a decoder layer: the first module inside it that is called with a mask."""
    base = getattr(layer, "base_layer", layer)
    for module in base.modules():
        if module is not base and "attention_mask" in inspect.signature(module.forward).parameters:
            return module
    raise CalyrexError(
        f"a {type(base).__name__} has no self-attention that takes a mask: nothing can be hidden from it"
    )
