"""The block computes its formula and nothing else."""

import math

import pytest
import torch
from torch import Tensor

from calyrex.block import (
    BlockModules,
    BlockShape,
    apply_block,
    build_block,
    find_system_tokens,
    project_system,
)

SHAPE = BlockShape(hidden_size=12, num_heads=4, num_key_value_heads=2, head_dim=5, intermediate_size=7, norm_eps=1e-6)


@pytest.fixture
def block() -> BlockModules:
    torch.manual_seed(0)
    modules = build_block(SHAPE)
    for module in modules:
        module.weight.data.normal_()
    return modules


@pytest.fixture
def x() -> Tensor:
    return torch.randn(3, 6, 12, generator=torch.Generator().manual_seed(1))


MASK = torch.tensor([[0, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0], [1, 0, 0, 1, 0, 0]], dtype=torch.bool)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.pow(2).mean() + 1e-6).sqrt() * weight


def rewrite(block: BlockModules, x: Tensor, mask: Tensor, scale: float, without_system: str) -> Tensor:
    """The formulas, one token and one head at a time."""
    weights = BlockModules(*(module.weight for module in block))
    out = x.clone()
    for b in range(x.shape[0]):
        for t in range(x.shape[1]):
            visible = [s for s in range(t + 1) if mask[b, s]]
            if not visible and without_system == "identity":
                continue
            q = (weights.q_proj @ rms_norm(x[b, t], weights.input_norm)).view(4, 5)
            heads = []
            for head in range(4):
                group = slice(5 * (head // 2), 5 * (head // 2) + 5)
                system = [rms_norm(x[b, s], weights.input_norm) for s in visible]
                scores = torch.tensor([q[head] @ (weights.k_proj @ h)[group] / math.sqrt(5) for h in system])
                values = [(weights.v_proj @ h)[group] for h in system]
                attention = scores.softmax(0) if visible else scores
                heads.append(sum((p * v for p, v in zip(attention, values, strict=True)), torch.zeros(5)))
            attended = x[b, t] + scale * weights.o_proj @ torch.cat(heads)
            n = rms_norm(attended, weights.post_attention_norm)
            gate = weights.gate_proj @ n
            out[b, t] = attended + scale * weights.down_proj @ (gate * gate.sigmoid() * (weights.up_proj @ n))
    return out


def run(block: BlockModules, x: Tensor, mask: Tensor, **options: object) -> Tensor:
    tokens = find_system_tokens(mask)
    system = project_system(block, x, tokens.positions, SHAPE.head_dim)
    return apply_block(block, x, system, tokens.visible, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("without_system", ["identity", "mlp"])
@pytest.mark.parametrize("scale", [1.0, 0.3])
@torch.no_grad()
def test_the_block_is_the_plain_rewrite_of_its_formula(
    block: BlockModules, x: Tensor, without_system: str, scale: float
) -> None:
    out = run(block, x, MASK, scale=scale, without_system=without_system)

    torch.testing.assert_close(out, rewrite(block, x, MASK, scale, without_system), atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_tokens_that_see_no_system_token_pass_bit_for_bit(block: BlockModules, x: Tensor) -> None:
    out = run(block, x, MASK)

    assert torch.equal(out[1], x[1])
    assert torch.equal(out[0, 0], x[0, 0])
    assert not torch.equal(out[0, 1], x[0, 1])


@torch.no_grad()
def test_user_tokens_are_never_keys_or_values(block: BlockModules, x: Tensor) -> None:
    changed = x.clone()
    changed[:, [0, 4]] += 5.0  # tokens that are system in no row but row 2's first

    before, after = run(block, x, MASK)[0], run(block, changed, MASK)[0]

    assert torch.equal(before[[1, 2, 3, 5]], after[[1, 2, 3, 5]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_fresh_block_is_the_identity_bit_for_bit(x: Tensor, dtype: torch.dtype) -> None:
    fresh = build_block(SHAPE)

    for without_system in ("identity", "mlp"):
        assert torch.equal(run(fresh, x.to(dtype), MASK, without_system=without_system), x.to(dtype))


def test_gradients_stay_finite_where_no_system_token_is_visible(block: BlockModules, x: Tensor) -> None:
    run(block, x.requires_grad_(), MASK).sum().backward()

    assert x.grad is not None
    assert all(torch.isfinite(module.weight.grad).all() for module in block)
    assert torch.isfinite(x.grad).all()


def test_packed_documents_and_padding_are_told_apart() -> None:
    mask = torch.tensor([[True, False, True, False], [False, False, False, False]])
    segments = torch.tensor([[0, 0, 1, 1], [0, 0, 0, 0]])

    tokens = find_system_tokens(mask, segments)

    assert tokens.positions.tolist() == [[0, 2], [0, 0]]
    assert tokens.visible[0].tolist() == [[True, False], [True, False], [False, True], [False, True]]
    assert not tokens.visible[1].any()
    assert tokens.stays_visible.tolist() == [[False, True], [False, False]]


def test_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ValueError, match="multiple of num_key_value_heads, got 4 and 3"):
        build_block(BlockShape(12, 4, 3, 5, 7, 1e-6))
