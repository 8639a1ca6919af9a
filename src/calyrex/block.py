"""Zero-initialised cross-attention to the system prompt: the idea of this project.

A block sits after a decoder layer of a frozen model. Every token asks (queries); only the system-prompt tokens of
the same sequence answer (keys and values). User text is never a key or a value, so it cannot overwrite the rules. The
two output projections start at exactly zero, so a fresh block is the identity, bit for bit.

Source: arXiv 2605.09737, section 3.

Shape letters, used in every module:
    ``B`` batch, ``T`` tokens, ``S`` system tokens, ``H`` heads, ``K`` key-value heads, ``D`` head size,
    ``E`` hidden size, ``F`` feed-forward size, ``V`` vocabulary, ``L`` layers.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class BlockShape:
    """The sizes of one block.

    Attributes:
        hidden_size: ``E``, the width of the base's residual stream.
        num_heads: ``H``, query heads.
        num_key_value_heads: ``K``, key and value heads; divides ``H``.
        head_dim: ``D``, the size of one head.
        intermediate_size: ``F``, the width of the feed-forward.
        norm_eps: added to the mean square in both RMS norms.
    """

    hidden_size: int
    num_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    norm_eps: float


class SystemTokens(NamedTuple):
    """The system tokens among the tokens of one forward pass.

    Attributes:
        positions: place in this forward of each system token, padded with 0, ``[B, S]`` int64.
        visible: True where token ``t`` may attend to system token ``s``, ``[B, T, S]`` bool.
        stays_visible: True for system tokens that tokens of later forwards may attend to, ``[B, S]`` bool.
    """

    positions: Tensor
    visible: Tensor
    stays_visible: Tensor


def find_system_tokens(system_mask: Tensor, segment_ids: Tensor | None = None) -> SystemTokens:
    """Gather the system tokens of a batch and say which token may attend to which.

    The one rule is ``s <= t`` within one document. It makes tokens before the system prompt attend to nothing, tokens
    inside it to its beginning and themselves, and tokens after it to all of it.

    Args:
        system_mask: True at system tokens, False elsewhere and at padding, ``[B, T]`` bool.
        segment_ids: number of the document that each token of a packed row belongs to, ``[B, T]`` int64; None means
            one document per row.
    """
    num_system = int(system_mask.sum(dim=1).max())
    order = torch.argsort(~system_mask, dim=1, stable=True)  # system tokens first, in their order
    positions = order[:, :num_system]  # [B, S]
    is_real = system_mask.gather(1, positions)  # [B, S]
    time = torch.arange(system_mask.shape[1], device=system_mask.device)
    visible = is_real[:, None, :] & (positions[:, None, :] <= time[None, :, None])  # [B, T, S]
    stays_visible = is_real
    if segment_ids is not None:
        segments = segment_ids.gather(1, positions)  # [B, S]
        visible = visible & (segments[:, None, :] == segment_ids[:, :, None])
        stays_visible = is_real & (segments == segment_ids[:, -1:])
    return SystemTokens(positions.masked_fill(~is_real, 0), visible, stays_visible)


class CastLinear(nn.Linear):
    """A bias-free linear map that computes in the dtype of its input, whatever the dtype of its weight."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features, bias=False)

    def forward(self, input: Tensor) -> Tensor:
        """Map ``[..., in_features]`` to ``[..., out_features]`` in the input's dtype."""
        return functional.linear(input, self.weight.to(input.dtype))


class CastRMSNorm(nn.RMSNorm):
    """RMS norm that computes in float32 and returns the dtype of its input."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise ``[..., E]`` over its last dimension."""
        weight = self.weight.float()
        return functional.rms_norm(x.float(), self.normalized_shape, weight, self.eps).to(x.dtype)


class BlockModules(NamedTuple):
    """The nine modules of one block; the names are those of the parameters in an adapter file."""

    input_norm: nn.Module
    q_proj: nn.Module
    k_proj: nn.Module
    v_proj: nn.Module
    o_proj: nn.Module
    post_attention_norm: nn.Module
    gate_proj: nn.Module
    up_proj: nn.Module
    down_proj: nn.Module


def build_block(shape: BlockShape) -> BlockModules:
    """Make the modules of a fresh block: random projections, zero ``o_proj`` and ``down_proj``.

    Raises:
        ValueError: ``num_heads`` is not a multiple of ``num_key_value_heads``.
    """
    if shape.num_heads % shape.num_key_value_heads:
        raise ValueError(
            f"num_heads must be a multiple of num_key_value_heads, "
            f"got {shape.num_heads} and {shape.num_key_value_heads}"
        )
    width, key_width = shape.num_heads * shape.head_dim, shape.num_key_value_heads * shape.head_dim
    block = BlockModules(
        input_norm=CastRMSNorm(shape.hidden_size, eps=shape.norm_eps),
        q_proj=CastLinear(shape.hidden_size, width),
        k_proj=CastLinear(shape.hidden_size, key_width),
        v_proj=CastLinear(shape.hidden_size, key_width),
        o_proj=CastLinear(width, shape.hidden_size),
        post_attention_norm=CastRMSNorm(shape.hidden_size, eps=shape.norm_eps),
        gate_proj=CastLinear(shape.hidden_size, shape.intermediate_size),
        up_proj=CastLinear(shape.hidden_size, shape.intermediate_size),
        down_proj=CastLinear(shape.intermediate_size, shape.hidden_size),
    )
    for output in (block.o_proj, block.down_proj):
        nn.init.zeros_(output.get_parameter("weight"))
    return block


def project_system(block: BlockModules, x: Tensor, positions: Tensor, head_dim: int) -> tuple[Tensor, Tensor]:
    """Compute the keys and values of the system tokens.

    Args:
        block: the modules of the block.
        x: residual stream, ``[B, T, E]``.
        positions: places of the system tokens, ``[B, S]`` int64.
        head_dim: ``D``.

    Returns:
        Keys and values, ``[B, K, S, D]`` each, in the dtype of ``x``.
    """
    system = x.gather(1, positions[:, :, None].expand(-1, -1, x.shape[-1]))  # [B, S, E]
    h = block.input_norm(system)
    keys = block.k_proj(h).unflatten(-1, (-1, head_dim)).transpose(1, 2)  # [B, K, S, D]
    values = block.v_proj(h).unflatten(-1, (-1, head_dim)).transpose(1, 2)  # [B, K, S, D]
    return keys, values


def attend(queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None) -> Tensor:
    """Attend from every token to the system tokens that it sees.

    The query heads of a group stand one after the other along the tokens, so that every kernel can take a mask and
    keys and values are never repeated; cost ``T x S``.

    Args:
        queries: ``[B, T, H * D]``.
        keys: ``[B, K, S, D]``.
        values: ``[B, K, S, D]``.
        visible: True where a token attends to a system token, ``[B, T, S]`` or ``[B, 1, S]`` bool; None means that
            all tokens attend to all.

    Returns:
        What each head heard, ``[B, T, H * D]``.
    """
    grouped = queries.unflatten(-1, (keys.shape[1], -1, keys.shape[-1]))  # [B, T, K, H / K, D]
    num_tokens, group_size = grouped.shape[1], grouped.shape[3]
    stacked = grouped.permute(0, 2, 3, 1, 4).flatten(2, 3)  # [B, K, H / K * T, D]
    mask = None
    if visible is not None:
        mask = visible.expand(-1, num_tokens, -1).repeat(1, group_size, 1)[:, None]  # [B, 1, H / K * T, S]
    heard: Tensor = functional.scaled_dot_product_attention(stacked, keys, values, attn_mask=mask)
    heard = heard.unflatten(2, (group_size, num_tokens)).permute(0, 3, 1, 2, 4)  # [B, T, K, H / K, D]
    return heard.flatten(2)


def apply_block(
    block: BlockModules,
    x: Tensor,
    system: tuple[Tensor, Tensor],
    visible: Tensor | None,
    *,
    scale: float | Tensor = 1.0,
    without_system: str = "identity",
) -> Tensor:
    """Apply one block to the residual stream.

        x'  = x  + scale * W_O attention(W_Q norm_1(x), keys, values)
        x'' = x' + scale * W_D (silu(W_G n) * W_U n),  n = norm_2(x')

    Args:
        block: the modules of the block.
        x: residual stream that leaves a decoder layer, ``[B, T, E]``.
        system: keys and values of the system tokens, ``[B, K, S, D]`` each.
        visible: True where a token may attend to a system token, ``[B, T, S]`` or ``[B, 1, S]`` bool; None means that
            every token attends to all of them, and that there is at least one.
        scale: strength of the block, 1.0 as trained, 0.0 for the base; a number or one per row, ``[B]``.
        without_system: what happens to a token that sees no system token: ``"identity"`` leaves it untouched, bit for
            bit; ``"mlp"`` lets the feed-forward act on it (the paper's literal formula).

    Returns:
        The residual stream that enters the next decoder layer, ``[B, T, E]``, in the dtype of ``x``.
    """
    keys, values = system
    strength = scale.to(x)[:, None, None] if isinstance(scale, Tensor) else scale
    sees_system = None if visible is None else visible.any(dim=-1, keepdim=True)  # [B, T or 1, 1]
    attended = x
    if keys.shape[2] > 0:
        queries = block.q_proj(block.input_norm(x))  # [B, T, H * D]
        if visible is None or sees_system is None:
            heard = attend(queries, keys, values, None)
        else:
            # A token without a visible key attends to all, and its result is dropped: softmax stays finite.
            heard = attend(queries, keys, values, visible | ~sees_system).masked_fill(~sees_system, 0.0)
        attended = x + strength * block.o_proj(heard)
    n = block.post_attention_norm(attended)
    out: Tensor = attended + strength * block.down_proj(functional.silu(block.gate_proj(n)) * block.up_proj(n))
    if sees_system is None or without_system == "mlp":
        return out
    return torch.where(sees_system, out, x)
