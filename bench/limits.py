"""What the arithmetic alone allows: floating-point operations, bytes and stored values from the shapes.

A multiply-add counts as 2 operations. A linear map of ``n`` weights on one token costs ``2 n`` forward, ``2 n`` for
the gradient of its input and ``2 n`` for that of its weights; a frozen one needs no gradient of its weights. Below the
first block nothing is differentiated. Norms, softmax and other work per element are left out.
"""

from dataclasses import dataclass

from transformers import PreTrainedModel

from calyrex.base import base_sizes
from calyrex.training.loss import CHUNK_LABELS

FORWARD = 2
INPUT_GRADIENT = 2
WEIGHT_GRADIENT = 2


@dataclass(frozen=True)
class BaseShape:
    """Sizes of a base; its blocks have the same heads.

    Attributes:
        hidden_size: ``E``.
        query_width: ``H * D``.
        key_width: ``K * D``.
        intermediate_size: ``F`` of the base.
        num_layers: ``L``.
        vocab_size: ``V``.
    """

    hidden_size: int
    query_width: int
    key_width: int
    intermediate_size: int
    num_layers: int
    vocab_size: int

    def layer_weights(self) -> int:
        """Weights of one decoder layer's linear maps: ``E (2 H D + 2 K D + 3 F)``."""
        return self.hidden_size * (2 * self.query_width + 2 * self.key_width + 3 * self.intermediate_size)

    def block_weights(self, width: int) -> int:
        """Weights of a block that every token meets (q, o, gate, up, down): ``E (2 H D + 3 F)``."""
        return self.hidden_size * (2 * self.query_width + 3 * width)

    def block_parameters(self, width: int) -> int:
        """All parameters of a block: ``E (2 H D + 3 F)``, k and v ``2 E K D``, two norms ``2 E``."""
        return self.block_weights(width) + 2 * self.hidden_size * (self.key_width + 1)

    def lora_weights(self, rank: int) -> int:
        """Weights of LoRA on the linear maps of one layer: ``r (in + out)``, summed over the seven."""
        attention = 4 * self.hidden_size + 2 * self.query_width + 2 * self.key_width
        return rank * (attention + 3 * (self.hidden_size + self.intermediate_size))


@dataclass(frozen=True)
class Batch:
    """What a step works on.

    Attributes:
        rows: ``B``.
        tokens: ``T``, tokens of a row.
        system_tokens: ``S``, system tokens of a row.
        labels: tokens of a row at which the output head is needed.
        keys: tokens that a token attends to on average in the base; a causal kernel computes no more than these.
    """

    rows: int
    tokens: int
    system_tokens: int
    labels: int
    keys: float

    @classmethod
    def causal(cls, rows: int, tokens: int, system_tokens: int, labels: int) -> "Batch":
        """Make a batch in which token ``t`` attends to ``t`` tokens."""
        return cls(rows, tokens, system_tokens, labels, (tokens + 1) / 2)


def read_shape(base: PreTrainedModel) -> BaseShape:
    """Read the sizes of a base from its configuration."""
    sizes, config = base_sizes(base), base.config.get_text_config()
    return BaseShape(
        hidden_size=sizes["hidden_size"],
        query_width=sizes["num_attention_heads"] * sizes["head_dim"],
        key_width=sizes["num_key_value_heads"] * sizes["head_dim"],
        intermediate_size=sizes["intermediate_size"],
        num_layers=config.num_hidden_layers,
        vocab_size=config.vocab_size,
    )


def layers_flops(shape: BaseShape, batch: Batch, count: int, *, is_backward: bool) -> float:
    """Operations of frozen decoder layers, forward or forward and backward.

    For each token and layer: linear maps ``2 n`` forward and ``2 n`` backward; attention scores and their use
    ``2 * 2 keys H D`` forward and twice that backward.
    """
    linear = shape.layer_weights() * (FORWARD + INPUT_GRADIENT * is_backward)
    scores = 2 * batch.keys * shape.query_width * (FORWARD + (INPUT_GRADIENT + WEIGHT_GRADIENT) * is_backward)
    return count * batch.rows * batch.tokens * (linear + scores)


def blocks_flops(shape: BaseShape, batch: Batch, count: int, width: int, *, is_training: bool) -> float:
    """Operations of blocks: ``E (2 H D + 3 F)`` and ``2 S H D`` for each token, ``2 E K D`` for each system token.

    Each of these multiply-adds costs 2 forward; in training another 4.
    """
    units = FORWARD + (INPUT_GRADIENT + WEIGHT_GRADIENT) * is_training
    token = shape.block_weights(width) + 2 * batch.system_tokens * shape.query_width
    system = 2 * shape.hidden_size * shape.key_width
    return count * batch.rows * units * (batch.tokens * token + batch.system_tokens * system)


def head_flops(shape: BaseShape, batch: Batch, *, is_training: bool) -> float:
    """Operations of the frozen output head: ``2 E V`` for each label forward, the same again backward."""
    units = FORWARD + INPUT_GRADIENT * is_training
    return batch.rows * batch.labels * shape.hidden_size * shape.vocab_size * units


def train_flops(shape: BaseShape, batch: Batch, layers: list[int], width: int, *, is_stored: bool = False) -> float:
    """Operations of a training step of blocks after the given layers, 1 .. L.

    The layers up to the first block run forward only, or not at all where their activations are stored; those above
    it forward and backward.
    """
    below = 0 if is_stored else min(layers)
    return (
        layers_flops(shape, batch, below, is_backward=False)
        + layers_flops(shape, batch, shape.num_layers - min(layers), is_backward=True)
        + blocks_flops(shape, batch, len(layers), width, is_training=True)
        + head_flops(shape, batch, is_training=True)
    )


def lora_flops(shape: BaseShape, batch: Batch, rank: int) -> float:
    """Operations of a training step of LoRA on all linear maps: everything forward and backward, adapters trained.

    Nothing below the first layer is trained, so q, k and v of that layer need no gradient of their input.
    """
    num_tokens = batch.rows * batch.tokens
    units = FORWARD + INPUT_GRADIENT + WEIGHT_GRADIENT
    adapters = shape.num_layers * shape.lora_weights(rank) * units
    first = shape.hidden_size * (shape.query_width + 2 * shape.key_width + 3 * rank) * INPUT_GRADIENT
    return (
        layers_flops(shape, batch, shape.num_layers, is_backward=True)
        + head_flops(shape, batch, is_training=True)
        + num_tokens * (adapters - first)
    )


def prefill_percent(shape: BaseShape, batch: Batch, num_blocks: int, width: int) -> float:
    """Operations of the blocks in percent of the base's, forward only."""
    base = layers_flops(shape, batch, shape.num_layers, is_backward=False) + head_flops(shape, batch, is_training=False)
    return 100 * blocks_flops(shape, batch, num_blocks, width, is_training=False) / base


def decode_percent(shape: BaseShape, num_blocks: int, width: int, *, rows: int, context: int) -> float:
    """Weights of the blocks that a decoded token reads, in percent of what the base reads.

    Blocks: q, o, gate, up, down and two norms. Base: all layers with two norms each, the last norm, the output head,
    which is the embedding too, and the keys and values of ``context`` tokens in ``rows`` rows, ``2 K D`` in each layer.
    """
    blocks = num_blocks * (shape.block_weights(width) + 2 * shape.hidden_size)
    layers = shape.num_layers * (shape.layer_weights() + 2 * shape.hidden_size)
    cached = shape.num_layers * rows * context * 2 * shape.key_width
    return 100 * blocks / (layers + shape.hidden_size * (shape.vocab_size + 1) + cached)


def saved_by_blocks(shape: BaseShape, batch: Batch, layers: list[int], width: int) -> int:
    """Values that a step with blocks keeps for its backward.

    For each token, a frozen layer above the first block keeps both norms' inputs, q, k, v and what attention gives,
    and three feed-forward values: ``2 E + 2 H D + 2 K D + 3 F``. A block keeps both norms' inputs and outputs, its
    queries, what attention gives and the input of its output map, and four feed-forward values: ``4 E + 3 H D + 4 F``.
    """
    upper = 2 * (shape.hidden_size + shape.query_width + shape.key_width) + 3 * shape.intermediate_size
    block = 4 * shape.hidden_size + 3 * shape.query_width + 4 * width
    num_layers = shape.num_layers - min(layers)
    return batch.rows * batch.tokens * (num_layers * upper + len(layers) * block)


def saved_by_lora(shape: BaseShape, batch: Batch, rank: int) -> int:
    """Values that a step of LoRA keeps for its backward.

    For each token and layer both norms' inputs and outputs, q, k, v and what attention gives, four feed-forward values
    and seven inner values of the adapters: ``4 E + 2 H D + 2 K D + 4 F + 7 r``.
    """
    layer = 4 * shape.hidden_size + 2 * (shape.query_width + shape.key_width) + 4 * shape.intermediate_size + 7 * rank
    return batch.rows * batch.tokens * shape.num_layers * layer


def peak_values(shape: BaseShape, num_trainable: int, saved: int) -> int:
    """Values in memory above the base at the end of a forward: weights and two moments, saved values, logits.

    Gradients of the weights come into being while saved values go.
    """
    return 3 * num_trainable + saved + CHUNK_LABELS * shape.vocab_size
