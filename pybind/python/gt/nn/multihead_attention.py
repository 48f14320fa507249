"""Multi-head attention as a module and as a function (Vaswani et al. 2017)."""

from __future__ import annotations

import math
from typing import Any

from gt import _core as gt
from gt._functions import nn_functional as functional
from gt._gt import Tensor
from gt.nn import init
from gt.nn.layers import NonDynamicallyQuantizableLinear
from gt.nn.module import Module
from gt.nn.parameter import Parameter

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """Multi-head attention: `concat(head_1, …, head_h) W_o`, `head_i = attention(Q W_i^Q, K W_i^K, V W_i^V)`.

    Each head projects queries, keys and values to `embed_dim / num_heads` features and attends by
    `attention(q, k, v) = softmax(q k^T / sqrt(embed_dim / num_heads)) v` (Vaswani et al. 2017, section 3.2). The
    arguments of the call, `attention(query, key, value, …)`, are described at `forward`.

    Args:
        embed_dim: The features of queries and outputs, `E`.
        num_heads: The number of heads. It has to divide `embed_dim`.
        dropout: The probability of dropping an attention weight in training mode.
        bias: Whether the projections have biases.
        add_bias_kv: Whether a learned key and value are appended to the sequences.
        add_zero_attn: Whether a key and value of zeros are appended to the sequences.
        kdim: The features of the keys; `embed_dim` if not given.
        vdim: The features of the values; `embed_dim` if not given.
        batch_first: Whether tensors are `(N, L, E)` rather than `(L, N, E)`.
        device: A device, which has to exist; the daemon decides where the parameters lie.
        dtype: Their dtype.

    Shape:
        - `query`: `(L, N, E)`; `(N, L, E)` if `batch_first`; `(L, E)` without a batch.
        - `key`, `value`: `(S, N, kdim)` and `(S, N, vdim)`, likewise.
        - The output has the shape of `query`. The weights, averaged over the heads, are `(N, L, S)`.

    Example:
        >>> attention = gt.nn.MultiheadAttention(16, num_heads=4, batch_first=True)
        >>> x = gt.ones(2, 5, 16)
        >>> output, weights = attention(x, x, x)  # self-attention
        >>> output.shape, weights.shape
        (gt.Size([2, 5, 16]), gt.Size([2, 5, 5]))
        >>> causal = gt.ones(5, 5, dtype=gt.bool).triu(1)  # true where a query must not attend
        >>> output, _ = attention(x, x, x, attn_mask=causal, need_weights=False)
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                f"embed_dim and num_heads must be greater than 0, got embed_dim={embed_dim} and num_heads={num_heads} "
                "instead"
            )
        super().__init__()
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        if self.head_dim * num_heads != embed_dim:
            raise AssertionError("embed_dim must be divisible by num_heads")
        self.add_zero_attn = add_zero_attn

        def made(*size: int) -> Tensor:
            return Parameter(gt.empty(*size, device=device, dtype=dtype))

        joint = self._qkv_same_embed_dim
        self.register_parameter("q_proj_weight", None if joint else made(embed_dim, embed_dim))
        self.register_parameter("k_proj_weight", None if joint else made(embed_dim, self.kdim))
        self.register_parameter("v_proj_weight", None if joint else made(embed_dim, self.vdim))
        self.register_parameter("in_proj_weight", made(3 * embed_dim, embed_dim) if joint else None)
        self.register_parameter("in_proj_bias", made(3 * embed_dim) if bias else None)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        self.register_parameter("bias_k", made(1, 1, embed_dim) if add_bias_kv else None)
        self.register_parameter("bias_v", made(1, 1, embed_dim) if add_bias_kv else None)
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for weight in (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight, self.in_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        for bias in (self.bias_k, self.bias_v):
            if bias is not None:
                init.xavier_normal_(bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The output of the attention, and its weights.

        Args:
            query: `(L, N, E)`, `(N, L, E)` if `batch_first`, or `(L, E)` without a batch.
            key: `(S, N, kdim)`, likewise.
            value: `(S, N, vdim)`, likewise.
            key_padding_mask: `(N, S)`: true, or `-inf`, where a key is padding.
            need_weights: Whether to return the weights; without them, the fused instruction is used.
            attn_mask: `(L, S)` or `(N * num_heads, L, S)`. A bool mask is true where a query does not attend to a key
                (the opposite of `scaled_dot_product_attention`); a floating mask is added to the scores.
            average_attn_weights: Whether the weights are averaged over the heads.
            is_causal: A hint that `attn_mask` is the causal mask.

        Returns:
            The output, of the shape of `query`, and the weights: `(N, L, S)`, `(N, num_heads, L, S)` if not averaged,
            or `None`.
        """
        separate = None if self._qkv_same_embed_dim else (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        return multi_head_attention(
            *(query, key, value, self.embed_dim, self.num_heads),
            *(separate or self.in_proj_weight, self.in_proj_bias, self.bias_k, self.bias_v, self.add_zero_attn),
            *(self.dropout if self.training else 0.0, self.out_proj.weight, self.out_proj.bias),
            *(key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal, self.batch_first),
        )


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
        weights = functional.dropout(weights, dropout_p, training=True)
        result = weights @ v
    else:
        result = functional.scaled_dot_product_attention(q, k, v, mask, dropout_p, is_causal)
    result = functional.linear(result.transpose(1, 2).reshape(batch, targets, features), weight_out, bias_out)
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
            q, k, v = functional.linear(query, weights, bias).chunk(3, -1)
            return q, k, v
        weights = weights.chunk(3)
    biases = (None, None, None) if bias is None else bias.chunk(3)
    q, k, v = (functional.linear(*three) for three in zip((query, key, value), weights, biases, strict=True))
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
