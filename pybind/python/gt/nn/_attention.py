"""Scaled dot-product attention and multi-head attention as functions; `gt.nn.functional` has them."""

from __future__ import annotations

import math
from typing import Any

from gt import _autocast, _gt
from gt import _core as gt
from gt._gt import Tensor
from gt.nn._activations import linear
from gt.nn._dropout import dropout


@_autocast.lower
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Attention `softmax(query @ key.mT * scale + mask) @ value` (Vaswani et al. 2017).

    Without dropout it is one instruction, which does not store the matrix of scores.

    Args:
        query: `(*, L, E)`: `L` queries of `E` features. `*` are batch axes, usually `(batch, heads)`.
        key: `(*, S, E)`.
        value: `(*, S, Ev)`.
        attn_mask: A tensor that broadcasts to `(*, L, S)`: of bools, true where a query attends to a key, or floating,
            to be added to the scores. A query that attends to no key gets zeros.
        dropout_p: The probability of dropping an attention weight. A function knows of no training mode: pass 0 in
            evaluation.
        is_causal: Whether query `i` attends to keys `0` to `i` alone.
        scale: The factor of the scores; `1 / sqrt(E)` if not given.
        enable_gqa: Whether each head of `key` and `value` (axis -3) serves several heads of `query`: grouped-query
            attention (Ainslie et al. 2023).

    Returns:
        `(*, L, Ev)`.

    Raises:
        RuntimeError: Both `attn_mask` and `is_causal` are given, or the numbers of heads do not divide.

    Example:
        >>> q = k = v = gt.ones(2, 8, 5, 16)  # (batch, heads, length, features)
        >>> gt.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).shape
        gt.Size([2, 8, 5, 16])
        >>> padding = gt.tensor([True, True, True, False, False])  # the last two keys are not attended to
        >>> gt.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=padding).shape
        gt.Size([2, 8, 5, 16])
    """
    if is_causal and attn_mask is not None:
        raise RuntimeError("Explicit attn_mask should not be set when is_causal=True")
    if enable_gqa:
        key, value = _repeat_heads(query, key), _repeat_heads(query, value)
    if not 0 < dropout_p <= 1:
        if dropout_p:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {dropout_p}")
        return _gt.attention(query, key, value, attn_mask, is_causal, scale)
    # Dropout needs the attention weights themselves, which the fused instruction does not store.
    scores = query @ key.mT * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        attn_mask = gt.arange(scores.shape[-2]).unsqueeze(1) >= gt.arange(scores.shape[-1])
    if attn_mask is None:
        return dropout(scores.softmax(-1), dropout_p) @ value
    if attn_mask.dtype == gt.bool:
        scores = gt.where(attn_mask, scores, -math.inf)
    else:
        scores = scores + attn_mask.to(scores.dtype)
    masked = (scores.detach() == -math.inf).all(-1, keepdim=True)
    weights = gt.where(masked, 0.0, gt.where(masked, 0.0, scores).softmax(-1))
    return dropout(weights, dropout_p) @ value


def _repeat_heads(query: Tensor, keys: Tensor) -> Tensor:
    """Repeats each head of `keys` for consecutive heads of `query`, as grouped-query attention needs it."""
    wanted, heads = query.shape[-3], keys.shape[-3]
    if heads == wanted:
        return keys
    if heads == 0 or wanted % heads:
        raise RuntimeError(
            "Number of heads in key and value must divide the number of heads in query when enable_gqa=True, "
            f"but got {heads} and {wanted}"
        )
    *lead, _, length, features = keys.shape
    spread = keys.unsqueeze(-3).expand(*lead, heads, wanted // heads, length, features)
    return spread.reshape(*lead, wanted, length, features)


# Multi-head attention -----------------------------------------------------------------------------------------------


def multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    features: int,
    heads: int,
    weights_in: Tensor | tuple[Tensor, Tensor, Tensor],
    bias_in: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    weight_out: Tensor,
    bias_out: Tensor | None,
    key_padding_mask: Tensor | None,
    need_weights: bool,
    attn_mask: Tensor | None,
    average_attn_weights: bool,
    is_causal: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor | None]:
    """Multi-head attention: the implementation of `MultiheadAttention` and `multi_head_attention_forward`."""
    if query.ndim not in (2, 3):
        raise AssertionError(f"query should be unbatched 2D or batched 3D tensor but received {query.ndim}-D tensor")
    if is_causal and attn_mask is None:
        raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
    if query.shape[-1] != features:
        raise AssertionError(f"was expecting embedding dimension of {features}, but got {query.shape[-1]}")
    head = features // heads
    if head * heads != features:
        raise AssertionError(f"embed_dim {features} not divisible by num_heads {heads}")
    single = query.ndim == 2
    same = query is key and key is value

    def batch_in_front(t: Tensor) -> Tensor:
        return t.unsqueeze(0) if single else t if batch_first else t.transpose(0, 1)

    query = batch_in_front(query)
    key, value = (query, query) if same else (batch_in_front(key), batch_in_front(value))
    if single and key_padding_mask is not None:
        key_padding_mask = key_padding_mask.unsqueeze(0)
    q, k, v = _in_projection(query, key, value, weights_in, bias_in)
    batch, targets, _ = q.shape
    if bias_k is not None and bias_v is not None:
        k = gt.cat([k, bias_k.expand(batch, 1, -1)], 1)
        v = gt.cat([v, bias_v.expand(batch, 1, -1)], 1)
    if add_zero_attn:
        zeros = gt.zeros(batch, 1, features, dtype=k.dtype)
        k, v = gt.cat([k, zeros], 1), gt.cat([v, zeros], 1)
    sources = k.shape[1]
    q, k, v = (t.reshape(batch, t.shape[1], heads, head).transpose(1, 2) for t in (q, k, v))
    if is_causal and key_padding_mask is None and not need_weights and sources == key.shape[1]:
        mask = None
    else:
        is_causal = False
        mask = _merge_masks(attn_mask, key_padding_mask, batch, heads, sources - key.shape[1], q.dtype)
    weights = None
    if need_weights:
        scores = (q * (1 / math.sqrt(head))) @ k.transpose(-2, -1)
        weights = (scores if mask is None else scores + mask).softmax(-1)
        weights = dropout(weights, dropout_p, training=True)
        result = weights @ v
    else:
        result = scaled_dot_product_attention(q, k, v, mask, dropout_p, is_causal)
    result = linear(result.transpose(1, 2).reshape(batch, targets, features), weight_out, bias_out)
    if single:
        result = result.squeeze(0)
    elif not batch_first:
        result = result.transpose(0, 1)
    if weights is not None:
        weights = weights.mean(1) if average_attn_weights else weights
        weights = weights.squeeze(0) if single else weights
    return result, weights


def _in_projection(
    query: Tensor, key: Tensor, value: Tensor, weights: Any, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    if isinstance(weights, Tensor):
        if query is key and key is value:
            q, k, v = linear(query, weights, bias).chunk(3, -1)
            return q, k, v
        weights = weights.chunk(3)
    biases = (None, None, None) if bias is None else bias.chunk(3)
    q, k, v = (linear(*three) for three in zip((query, key, value), weights, biases, strict=True))
    return q, k, v


def _additive_mask(mask: Tensor | None, name: str, dtype: Any) -> Tensor | None:
    """A mask as a floating tensor to add to the scores: `-inf` where a bool mask is true."""
    if mask is None:
        return None
    if mask.dtype == gt.bool:
        return gt.zeros(*mask.shape, dtype=dtype).masked_fill(mask, -math.inf)
    if not mask.dtype.is_floating_point:
        raise AssertionError(f"only bool and floating types of {name} are supported")
    return mask.to(dtype)


def _merge_masks(
    attn_mask: Tensor | None, padding: Tensor | None, batch: int, heads: int, added: int, dtype: Any
) -> Tensor | None:
    """Both masks merged into one tensor to add to scores `(batch, heads, targets, sources)`."""
    own, pads = _additive_mask(attn_mask, "attn_mask", dtype), _additive_mask(padding, "key_padding_mask", dtype)
    if own is not None:
        if own.ndim == 3 and own.shape[0] == batch * heads:
            own = own.reshape(batch, heads, *own.shape[1:])
        elif own.ndim != 2:
            raise RuntimeError(f"attn_mask's dimension {own.ndim} is not supported")
    if pads is not None:
        pads = pads.reshape(batch, 1, 1, pads.shape[-1])
    found = own if pads is None else pads if own is None else own + pads
    if found is None or not added:
        return found
    return gt.cat([found, gt.zeros(*found.shape[:-1], added, dtype=dtype)], -1)


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Multi-head attention with explicit parameters: the function behind `nn.MultiheadAttention`, which documents them.

    Args:
        query: `(L, N, E)` or `(L, E)`.
        key: `(S, N, Ek)` or `(S, Ek)`.
        value: `(S, N, Ev)` or `(S, Ev)`.
        embed_dim_to_check: `E`.
        num_heads: The number of heads, which divides `E`.
        in_proj_weight: The three input projections' weights stacked, `(3 E, E)`.
        in_proj_bias: Their biases, `(3 E)`.
        bias_k: A key appended to the keys.
        bias_v: A value appended to the values.
        add_zero_attn: Whether a key and value of zeros are appended.
        dropout_p: The probability of dropping an attention weight.
        out_proj_weight: The output projection's weight.
        out_proj_bias: The output projection's bias.
        training: Whether dropout is active.
        key_padding_mask: `(N, S)`, true where a key is padding.
        need_weights: Whether to return the attention weights.
        attn_mask: `(L, S)` or `(N * num_heads, L, S)`.
        use_separate_proj_weight: Whether the next three arguments replace `in_proj_weight`.
        q_proj_weight: The query projection's weight.
        k_proj_weight: The key projection's weight.
        v_proj_weight: The value projection's weight.
        static_k: Not supported.
        static_v: Not supported.
        average_attn_weights: Whether the weights are averaged over the heads.
        is_causal: Whether `attn_mask` is the causal mask.

    Returns:
        The output, `(L, N, E)`, and the weights or `None`.
    """
    if static_k is not None or static_v is not None:
        raise NotImplementedError("multi_head_attention_forward: static_k and static_v are not there")
    weights_in: Any = in_proj_weight
    if use_separate_proj_weight:
        weights_in = (q_proj_weight, k_proj_weight, v_proj_weight)
        for name, weight in zip("qkv", weights_in, strict=True):
            if weight is None:
                raise AssertionError(f"use_separate_proj_weight is True but {name}_proj_weight is None")
    elif in_proj_weight is None:
        raise AssertionError("use_separate_proj_weight is False but in_proj_weight is None")
    return multi_head_attention(
        *(query, key, value, embed_dim_to_check, num_heads, weights_in, in_proj_bias, bias_k, bias_v, add_zero_attn),
        *(dropout_p if training else 0.0, out_proj_weight, out_proj_bias, key_padding_mask, need_weights, attn_mask),
        *(average_attn_weights, is_causal, False),
    )
