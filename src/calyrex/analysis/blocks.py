"""What the blocks of an anchored model add, where they look, and how much of the answer hangs on each.

All of it on the run with the rule. A block hears the system prompt through its own cross-attention, so that its weights
can be read off its modules: nothing else has to be opened.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeAlias, cast

import torch
from peft import PeftModel
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from calyrex.analysis.forced import ForcedRun
from calyrex.analysis.streams import Model, answer_log_probabilities
from calyrex.layer import CalyrexLayer
from calyrex.training.activations import prefix_skipped
from calyrex.training.filling import base_layers
from calyrex.tuner import CalyrexModel

SCALES = tuple(step / 4 for step in range(9))
"""Strengths of the blocks that are tried: 0, which is the base, to twice as trained."""


class BlockStream(NamedTuple):
    """The stream around one block at all tokens of a run; ``N`` is the number of tokens.

    Attributes:
        before: What leaves the decoder layer and enters the block, ``[N, E]``.
        after: What leaves the block, ``[N, E]``.
    """

    before: Tensor
    after: Tensor


BlockStreams: TypeAlias = Mapping[int, BlockStream]
"""By the number of the decoder layer that a block sits behind, from 1."""


class Strengths(NamedTuple):
    """Mean log-probability of the answer's tokens in nats, with blocks weaker, stronger and off.

    Attributes:
        scaled: At each of ``SCALES``, all blocks together.
        all_on: With the adapter's own scale.
        one_off: With one block switched off, by its number.
    """

    scaled: list[float]
    all_on: float
    one_off: dict[int, float]


def find_blocks(model: Model) -> dict[int, CalyrexLayer]:
    """Return the active blocks of a model by the number of the decoder layer before them, from 1; none on a base."""
    numbered = enumerate(base_layers(model), start=1)
    blocks = {number: layer for number, layer in numbered if isinstance(layer, CalyrexLayer)}
    return {number: layer for number, layer in blocks.items() if layer.active_adapters[0] in layer.configs}


@contextmanager
def recorded(model: Model) -> Iterator[dict[int, tuple[list[Tensor], list[Tensor]]]]:
    """Record the stream before and after each block inside the ``with``, first row only, forward by forward."""
    kept: dict[int, tuple[list[Tensor], list[Tensor]]] = {}
    with ExitStack() as stack:
        for number, layer in find_blocks(model).items():
            kept[number] = ([], [])
            for module, states in zip((layer.get_base_layer(), layer), kept[number], strict=True):
                stack.callback(module.register_forward_hook(partial(_keep, states)).remove)
        yield kept


def join_forwards(kept: Mapping[int, tuple[list[Tensor], list[Tensor]]]) -> BlockStreams:
    """Return what several forwards over one run have recorded as one."""
    return {
        number: BlockStream(torch.cat(before), torch.cat(after)) for number, (before, after) in kept.items() if before
    }


def measure_norms(streams: BlockStreams, classes: Sequence[str]) -> dict[int, dict[str, tuple[float, int]]]:
    """Measure how much each block adds: the norm of its contribution over that of the stream it is added to.

    Args:
        streams: The stream around each block.
        classes: Who wrote each token.

    Returns:
        For each block and class, the sum over its tokens and their number.
    """
    norms: dict[int, dict[str, tuple[float, int]]] = {}
    for number, stream in streams.items():
        before = stream.before.float()
        relative = (stream.after.float() - before).norm(dim=-1) / before.norm(dim=-1)  # [N]
        found: defaultdict[str, list[float]] = defaultdict(list)
        for name, value in zip(classes, relative.tolist(), strict=True):
            found[name].append(value)
        norms[number] = {name: (math.fsum(values), len(values)) for name, values in found.items()}
    return norms


def map_attention(model: PeftModel, streams: BlockStreams, run: ForcedRun) -> dict[int, list[list[float]]]:
    """Return where each block looks while the answer is said.

    Returns:
        For each block the weights of the answer's tokens, as they are about to be said, over the system tokens:
        ``P`` lists of ``S`` weights, means over the heads, which sum to 1.
    """
    system = run.system_mask[0].nonzero()[:, 0]
    maps: dict[int, list[list[float]]] = {}
    for number, layer in find_blocks(model).items():
        before = streams[number].before
        (name,) = layer.active_adapters
        weights = _attend(layer, name, before[-run.tail.shape[1] :], before[system])
        maps[number] = [[round(weight, 5) for weight in row] for row in weights.tolist()]
    return maps


def _attend(layer: CalyrexLayer, adapter_name: str, asking: Tensor, system: Tensor) -> Tensor:
    """Return the mean over heads of the weights of tokens ``[P, E]`` over system tokens ``[S, E]``, ``[P, S]``."""
    block, head_dim = layer.block(adapter_name), layer.head_dims[adapter_name]
    queries = block.q_proj(block.input_norm(asking)).unflatten(-1, (-1, head_dim))  # [P, H, D]
    keys = block.k_proj(block.input_norm(system)).unflatten(-1, (-1, head_dim))  # [S, K, D]
    keys = keys.repeat_interleave(queries.shape[1] // keys.shape[1], dim=1)  # [S, H, D]
    scores = torch.einsum("phd,shd->hps", queries.float(), keys.float()) / math.sqrt(head_dim)
    return scores.softmax(dim=-1).mean(dim=0)


def try_strengths(model: PeftModel, streams: BlockStreams, run: ForcedRun) -> Strengths:
    """Measure the answer with the blocks at several scales, and with each switched off in turn.

    All versions are rows of one batch, which begins at the first block: below it they are the same.

    Args:
        model: The anchored model.
        streams: The stream around each block in the run.
        run: The run with the rule.
    """
    blocks = find_blocks(model)
    own_scale = cast(CalyrexModel, model.base_model).active_scale
    scales = [*SCALES, own_scale, *[own_scale] * len(blocks)]
    off = {number: len(SCALES) + 1 + place for place, number in enumerate(blocks)}
    first = min(blocks)
    states = streams[first].before.expand(len(scales), -1, -1)
    ids = torch.cat([run.prompt, run.tail], dim=1)
    system_mask = nn.functional.pad(run.system_mask, (0, run.tail.shape[1]))
    with prefix_skipped(model, first - 1, lambda: states), _switched_off(blocks, off):
        logits = model(
            ids.expand(len(scales), -1),
            system_mask=system_mask.expand(len(scales), -1),
            scale=torch.tensor(scales, device=ids.device),
            use_cache=False,
            logits_to_keep=run.tail.shape[1],
        ).logits  # [R, P, V]
    found = answer_log_probabilities(logits, run.targets)
    return Strengths(found[: len(SCALES)], found[len(SCALES)], {number: found[row] for number, row in off.items()})


@contextmanager
def _switched_off(blocks: Mapping[int, CalyrexLayer], off: Mapping[int, int]) -> Iterator[None]:
    """Let the rows named in ``off`` pass by one block each inside the ``with``."""
    handles: list[RemovableHandle] = []
    for number, layer in blocks.items():
        states: list[Tensor] = []
        handles.append(layer.get_base_layer().register_forward_hook(partial(_keep, states, row=off[number])))
        handles.append(layer.register_forward_hook(partial(_restore, states, off[number])))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _keep(states: list[Tensor], _module: nn.Module, _args: tuple[Any, ...], output: Any, row: int = 0) -> None:
    states.append((output[0] if isinstance(output, tuple) else output)[row])


def _restore(states: list[Tensor], row: int, _module: nn.Module, _args: tuple[Any, ...], output: Any) -> Any:
    stream = (output[0] if isinstance(output, tuple) else output).clone()
    stream[row] = states.pop()
    return (stream, *output[1:]) if isinstance(output, tuple) else stream
