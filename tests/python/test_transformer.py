"""Multi-head attention, and the layers of the transformer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support import assert_close
from test_recurrent import cosines, fill

import gt
from gt import nn


def attention(module: nn.MultiheadAttention, x: np.ndarray, hidden: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Computes self-attention of `(length, features)` head by head; `hidden` marks the keys that are masked."""
    q, k, v = np.split(x @ module.in_proj_weight.detach().numpy().T + module.in_proj_bias.detach().numpy(), 3, axis=1)
    size, results, weights = module.head_dim, [], []
    for head in range(module.num_heads):
        columns = slice(head * size, (head + 1) * size)
        scores = np.where(hidden, -np.inf, q[:, columns] @ k[:, columns].T / np.sqrt(size))
        share = np.exp(scores - scores.max(1, keepdims=True))
        share /= share.sum(1, keepdims=True)
        weights.append(share)
        results.append(share @ v[:, columns])
    joined = np.concatenate(results, axis=1)
    return joined @ module.out_proj.weight.detach().numpy().T + module.out_proj.bias.detach().numpy(), np.stack(weights)


@pytest.mark.parametrize("masked", [False, True])
def test_attention_is_what_its_definition_says(masked: bool) -> None:
    module = fill(nn.MultiheadAttention(6, 3, dtype=gt.float64))
    x = cosines(4, 6)
    hidden = np.triu(np.ones((4, 4), bool), 1) if masked else np.zeros((4, 4), bool)
    wanted, shares = attention(module, x.numpy(), hidden)
    mask = gt.tensor(hidden) if masked else None
    result, weights = module(x, x, x, attn_mask=mask)
    assert_close(result, wanted)
    assert_close(weights, shares.mean(0))
    assert_close(module(x, x, x, attn_mask=mask, average_attn_weights=False)[1], shares)
    alone, nothing = module(x, x, x, attn_mask=mask, need_weights=False, is_causal=masked)
    assert nothing is None
    assert_close(alone, wanted)


def test_padding_is_not_attended_to() -> None:
    module = fill(nn.MultiheadAttention(4, 2, batch_first=True, dtype=gt.float64))
    x = cosines(2, 5, 4)
    padding = gt.tensor([[False] * 3 + [True] * 2, [False] * 5])
    result, weights = module(x, x, x, key_padding_mask=padding)
    short, _ = module(x[:1, :3], x[:1, :3], x[:1, :3])
    assert_close(result[0, :3], short[0].detach().numpy())
    assert weights[0, :, 3:].abs().sum().item() == 0


def test_keys_and_values_of_other_sizes_and_added_ones() -> None:
    module = fill(nn.MultiheadAttention(4, 2, kdim=3, vdim=5, add_bias_kv=True, add_zero_attn=True))
    result, weights = module(gt.rand(7, 2, 4), gt.rand(6, 2, 3), gt.rand(6, 2, 5))
    assert (result.shape, weights.shape) == ((7, 2, 4), (2, 7, 8))
    result.sum().backward()
    assert all(p.grad is not None for p in module.parameters())


def test_invalid_operands_of_attention_are_refused() -> None:
    with pytest.raises(AssertionError, match="embed_dim must be divisible by num_heads"):
        nn.MultiheadAttention(5, 2)
    module = nn.MultiheadAttention(4, 2)
    with pytest.raises(RuntimeError, match="Need attn_mask if specifying the is_causal hint"):
        module(*[gt.ones(3, 1, 4)] * 3, is_causal=True)
    with pytest.raises(AssertionError, match="was expecting embedding dimension of 4, but got 6"):
        module(*[gt.ones(3, 1, 6)] * 3)


# The first six elements of PyTorch 2.15's results.
@pytest.mark.parametrize(
    ("options", "masked", "wanted"),
    [
        ({}, False, [0.091757227995, 0.081021928206, -0.130744049391, -0.494340210334, 0.080333607381, 0.044083801465]),
        (
            {"norm_first": True, "activation": "gelu", "batch_first": True, "bias": False},
            True,
            [0.120009903151, 0.137699680134, -0.160250615207, 0.051959888852, -0.138786823462, 0.070517402455],
        ),
    ],
)
def test_the_transformer_is_pytorch_s(options: dict[str, Any], masked: bool, wanted: list[float]) -> None:
    module = fill(nn.Transformer(4, 2, 1, 1, 8, dropout=0.0, dtype=gt.float64, **options))
    x = cosines(3, 2, 4)
    mask = gt.ones(2, 2).triu(1).bool() if masked else None
    assert_close(module(x, x.flip(0), tgt_mask=mask).flatten()[:6], wanted, tolerance=1e-10)


def test_later_positions_are_hidden() -> None:
    mask = nn.Transformer.generate_square_subsequent_mask(3)
    assert mask.tolist() == [[0, -np.inf, -np.inf], [0, 0, -np.inf], [0, 0, 0]]
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2)
    x = gt.rand(1, 3, 4)
    whole, first = encoder(x, mask, is_causal=True), encoder(x[:, :2], mask[:2, :2])
    assert gt.allclose(whole[:, :2], first, atol=1e-6)
    assert len({id(p) for p in encoder.parameters()}) == 2 * len(list(layer.parameters()))


def test_sizes_that_do_not_belong_together() -> None:
    module = nn.Transformer(4, 2, 1, 1, 8)
    with pytest.raises(RuntimeError, match="the feature number of src and tgt must be equal to d_model"):
        module(gt.ones(3, 1, 4), gt.ones(3, 1, 5))
    with pytest.raises(RuntimeError, match="the batch number of src and tgt must be equal"):
        module(gt.ones(3, 1, 4), gt.ones(3, 2, 4))


@pytest.mark.parametrize("kdim", [None, 6])
def test_attention_as_a_function_of_its_parameters(kdim: int | None) -> None:
    module = nn.MultiheadAttention(4, 2, kdim=kdim, add_bias_kv=True, dtype=gt.float64)
    query, value = gt.rand(3, 2, 4, dtype=gt.float64), gt.rand(5, 2, 4, dtype=gt.float64)
    key = gt.rand(5, 2, kdim or 4, dtype=gt.float64)
    weights = {name: getattr(module, name) for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight")}
    got = nn.functional.multi_head_attention_forward(
        *(query, key, value, 4, 2, module.in_proj_weight, module.in_proj_bias, module.bias_k, module.bias_v, False),
        *(0.5, module.out_proj.weight, module.out_proj.bias),
        training=False,
        use_separate_proj_weight=kdim is not None,
        **weights,
    )
    for ours, wanted in zip(got, module(query, key, value), strict=True):
        assert_close(ours, wanted.detach().numpy(), "float64", 1e-12)
    with pytest.raises(AssertionError, match="was expecting embedding dimension of 5, but got 4"):
        nn.functional.multi_head_attention_forward(
            *(query, query, query, 5, 2, gt.ones(12, 4, dtype=gt.float64), None, None, None, False),
            *(0.0, module.out_proj.weight, None),
        )
