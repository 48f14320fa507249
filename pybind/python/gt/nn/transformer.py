"""The transformer, its encoder and its decoder, made of multi-head attention (Vaswani et al. 2017)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

from gt import _core as gt
from gt._functions import nn_functional as functional
from gt._gt import Tensor
from gt.nn import init
from gt.nn.containers import ModuleList
from gt.nn.dropout import Dropout
from gt.nn.layers import Linear
from gt.nn.module import Module
from gt.nn.multihead_attention import MultiheadAttention
from gt.nn.normalization import LayerNorm

__all__ = [
    "Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder",
    "TransformerEncoderLayer",
]  # fmt: skip


def _get_activation_fn(activation: str | Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    if callable(activation):
        return activation
    if activation not in ("relu", "gelu"):
        raise RuntimeError(f"activation should be relu/gelu, not {activation}")
    return getattr(functional, activation)


def _get_clones(module: Module, N: int) -> ModuleList:  # noqa: N803 (PyTorch's name)
    return ModuleList([copy.deepcopy(module) for _ in range(N)])


class _Layer(Module):
    """The base of the encoder and decoder layers: self-attention and a feed-forward network, each with a residual."""

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = functional.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        """Args of both layers.

        Args:
            d_model: The features of inputs and outputs, `E`.
            nhead: The number of attention heads.
            dim_feedforward: The hidden features of the feed-forward network.
            dropout: The dropout probability.
            activation: The feed-forward network's activation: `"relu"`, `"gelu"` or a function.
            layer_norm_eps: Added to the variance in the layer normalizations.
            batch_first: Whether tensors are `(N, L, E)` rather than `(L, N, E)`.
            norm_first: Whether to normalize before each block (pre-norm) rather than after it (post-norm).
            bias: Whether linear layers and normalizations have biases.
            device: A device, which has to exist; the daemon decides where the parameters lie.
            dtype: Their dtype.
        """
        super().__init__()
        attention = {"dropout": dropout, "bias": bias, "batch_first": batch_first, "device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, **attention)
        crosses = len(self._norms()) == 3
        if crosses:
            self.multihead_attn = MultiheadAttention(d_model, nhead, **attention)
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, device=device, dtype=dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, device=device, dtype=dtype)
        self.norm_first = norm_first
        for name in self._norms():
            setattr(self, name, LayerNorm(d_model, eps=layer_norm_eps, bias=bias, device=device, dtype=dtype))
        for i in range(len(self._norms())):
            setattr(self, f"dropout{i + 1}", Dropout(dropout))
        self.activation = _get_activation_fn(activation)

    def _norms(self) -> tuple[str, ...]:
        return ("norm1", "norm2")

    def _residual(self, x: Tensor, norm: Module, part: Callable[[Tensor], Tensor]) -> Tensor:
        return x + part(norm(x)) if self.norm_first else norm(x + part(x))

    def _self_attention(self, x: Tensor, mask: Tensor | None, padding: Tensor | None, is_causal: bool) -> Tensor:
        found, _ = self.self_attn(
            x, x, x, attn_mask=mask, key_padding_mask=padding, need_weights=False, is_causal=is_causal
        )
        return self.dropout1(found)

    def _feed_forward(self, x: Tensor, dropout: Module) -> Tensor:
        return dropout(self.linear2(self.dropout(self.activation(self.linear1(x)))))


class TransformerEncoderLayer(_Layer):
    """Encoder layer: self-attention and a feed-forward network, each with a residual and layer normalization.

    Args:
        d_model: The features of inputs and outputs, `E`.
        nhead: The number of attention heads.
        dim_feedforward: The hidden features of the feed-forward network.
        dropout: The dropout probability.
        activation: The feed-forward network's activation: `"relu"`, `"gelu"` or a function.
        layer_norm_eps: Added to the variance in the layer normalizations.
        batch_first: Whether tensors are `(N, L, E)` rather than `(L, N, E)`.
        norm_first: Whether to normalize before each block (pre-norm) rather than after it (post-norm).
        bias: Whether linear layers and normalizations have biases.
        device: A device, which has to exist; the daemon decides where the parameters lie.
        dtype: Their dtype.

    Example:
        >>> layer = gt.nn.TransformerEncoderLayer(d_model=16, nhead=4, dim_feedforward=32, batch_first=True)
        >>> layer(gt.ones(2, 5, 16)).shape
        gt.Size([2, 5, 16])
    """

    def _pytorch_state(self) -> dict[str, Any]:
        name = getattr(self.activation, "__name__", "")
        return {"activation_relu_or_gelu": {"relu": 1, "gelu": 2}.get(name, 0)}

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Encodes a sequence.

        Args:
            src: `(S, N, E)`, or `(N, S, E)` if `batch_first`.
            src_mask: `(S, S)`, as `MultiheadAttention` takes `attn_mask`.
            src_key_padding_mask: `(N, S)`, true where an element is padding.
            is_causal: A hint that `src_mask` is the causal mask.

        Returns:
            A tensor of the shape of `src`.
        """
        x = self._residual(
            src, self.norm1, lambda x: self._self_attention(x, src_mask, src_key_padding_mask, is_causal)
        )
        return self._residual(x, self.norm2, lambda x: self._feed_forward(x, self.dropout2))


class TransformerDecoderLayer(_Layer):
    """Decoder layer: self-attention, attention to the encoder's output, and a feed-forward network.

    Each of the three has a residual and layer normalization. The arguments are those of `TransformerEncoderLayer`.

    Example:
        >>> layer = gt.nn.TransformerDecoderLayer(d_model=16, nhead=4, dim_feedforward=32, batch_first=True)
        >>> layer(gt.ones(2, 3, 16), memory=gt.ones(2, 5, 16)).shape
        gt.Size([2, 3, 16])
    """

    def _norms(self) -> tuple[str, ...]:
        return ("norm1", "norm2", "norm3")

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Decodes a sequence.

        Args:
            tgt: `(T, N, E)`, or `(N, T, E)` if `batch_first`.
            memory: The encoder's output, `(S, N, E)`, or `(N, S, E)` if `batch_first`.
            tgt_mask: `(T, T)`, the mask of the self-attention.
            memory_mask: `(T, S)`, the mask of the attention to the memory.
            tgt_key_padding_mask: `(N, T)`, true where a target is padding.
            memory_key_padding_mask: `(N, S)`, true where an element of the memory is padding.
            tgt_is_causal: A hint that `tgt_mask` is the causal mask.
            memory_is_causal: A hint that `memory_mask` is the causal mask.

        Returns:
            A tensor of the shape of `tgt`.
        """

        def recalls(x: Tensor) -> Tensor:
            found, _ = self.multihead_attn(
                x,
                memory,
                memory,
                attn_mask=memory_mask,
                key_padding_mask=memory_key_padding_mask,
                need_weights=False,
                is_causal=memory_is_causal,
            )
            return self.dropout2(found)

        x = self._residual(
            tgt, self.norm1, lambda x: self._self_attention(x, tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        )
        x = self._residual(x, self.norm2, recalls)
        return self._residual(x, self.norm3, lambda x: self._feed_forward(x, self.dropout3))


def _is_causal(mask: Tensor | None, is_causal: bool | None) -> bool:
    """The caller's `is_causal`, false if not given: comparing the mask's values would wait for the device."""
    return bool(is_causal) and mask is not None


class _Stack(Module):
    """Copies of a layer in sequence, and a final normalization."""

    def __init__(self, layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = _get_clones(layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def _normalized(self, x: Tensor) -> Tensor:
        return x if self.norm is None else self.norm(x)


class TransformerEncoder(_Stack):
    """Copies of an encoder layer in sequence.

    Args:
        encoder_layer: The layer, which is copied.
        num_layers: The number of copies.
        norm: A normalization after the last layer.
        enable_nested_tensor: Ignored: it affects speed in PyTorch alone.
        mask_check: Ignored: it affects speed in PyTorch alone.

    Example:
        >>> layer = gt.nn.TransformerEncoderLayer(d_model=16, nhead=4, dim_feedforward=32, batch_first=True)
        >>> encoder = gt.nn.TransformerEncoder(layer, num_layers=2)
        >>> encoder(gt.ones(2, 5, 16)).shape
        gt.Size([2, 5, 16])
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__(encoder_layer, num_layers, norm)
        self.enable_nested_tensor = enable_nested_tensor
        self.mask_check = mask_check

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """Encodes a sequence: see `TransformerEncoderLayer.forward` for the arguments."""
        causal = _is_causal(mask, is_causal)
        for layer in self.layers:
            src = layer(src, src_mask=mask, src_key_padding_mask=src_key_padding_mask, is_causal=causal)
        return self._normalized(src)


class TransformerDecoder(_Stack):
    """Copies of a decoder layer in sequence.

    Args:
        decoder_layer: The layer, which is copied.
        num_layers: The number of copies.
        norm: A normalization after the last layer.

    Example:
        >>> layer = gt.nn.TransformerDecoderLayer(d_model=16, nhead=4, dim_feedforward=32, batch_first=True)
        >>> decoder = gt.nn.TransformerDecoder(layer, num_layers=2)
        >>> decoder(gt.ones(2, 3, 16), memory=gt.ones(2, 5, 16)).shape
        gt.Size([2, 3, 16])
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__(decoder_layer, num_layers, norm)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Decodes a sequence: see `TransformerDecoderLayer.forward` for the arguments."""
        for layer in self.layers:
            tgt = layer(
                tgt,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=_is_causal(tgt_mask, tgt_is_causal),
                memory_is_causal=memory_is_causal,
            )
        return self._normalized(tgt)


class Transformer(Module):
    """Encoder-decoder transformer (Vaswani et al. 2017), without embeddings and output layer.

    Args:
        d_model: The features of inputs and outputs, `E`.
        nhead: The number of attention heads.
        num_encoder_layers: The number of encoder layers.
        num_decoder_layers: The number of decoder layers.
        dim_feedforward: The hidden features of the feed-forward networks.
        dropout: The dropout probability.
        activation: The feed-forward networks' activation: `"relu"`, `"gelu"` or a function.
        custom_encoder: Used in place of a `TransformerEncoder`.
        custom_decoder: Used in place of a `TransformerDecoder`.
        layer_norm_eps: Added to the variance in the layer normalizations.
        batch_first: Whether tensors are `(N, L, E)` rather than `(L, N, E)`.
        norm_first: Whether to normalize before each block (pre-norm) rather than after it (post-norm).
        bias: Whether linear layers and normalizations have biases.
        device: A device, which has to exist; the daemon decides where the parameters lie.
        dtype: Their dtype.

    Example:
        >>> model = gt.nn.Transformer(16, 4, 1, 1, dim_feedforward=32, batch_first=True)
        >>> mask = model.generate_square_subsequent_mask(3)
        >>> model(gt.ones(2, 5, 16), gt.ones(2, 3, 16), tgt_mask=mask).shape
        gt.Size([2, 3, 16])
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = functional.relu,
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        options = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)

        def norm() -> Module:
            return LayerNorm(d_model, eps=layer_norm_eps, bias=bias, device=device, dtype=dtype)

        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*options, device=device, dtype=dtype), num_encoder_layers, norm()
        )
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*options, device=device, dtype=dtype), num_decoder_layers, norm()
        )
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Encodes `src` and decodes `tgt` with the encoder's output as memory.

        Args:
            src: `(S, N, E)`, or `(N, S, E)` if `batch_first`.
            tgt: `(T, N, E)`, or `(N, T, E)` if `batch_first`.
            src_mask: `(S, S)`, the mask of the encoder's self-attention.
            tgt_mask: `(T, T)`, the mask of the decoder's self-attention.
            memory_mask: `(T, S)`, the mask of the decoder's attention to the encoder's output.
            src_key_padding_mask: `(N, S)`, true where a source element is padding.
            tgt_key_padding_mask: `(N, T)`, true where a target element is padding.
            memory_key_padding_mask: `(N, S)`, true where an element of the encoder's output is padding.
            src_is_causal: A hint that `src_mask` is the causal mask.
            tgt_is_causal: A hint that `tgt_mask` is the causal mask.
            memory_is_causal: A hint that `memory_mask` is the causal mask.

        Returns:
            A tensor of the shape of `tgt`.
        """
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise RuntimeError("the feature number of src and tgt must be equal to d_model")
        axis = 0 if self.batch_first else 1
        if src.ndim == 3 and src.shape[axis] != tgt.shape[axis]:
            raise RuntimeError("the batch number of src and tgt must be equal")
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        return self.decoder(
            tgt,
            memory,
            tgt_mask,
            memory_mask,
            tgt_key_padding_mask,
            memory_key_padding_mask,
            tgt_is_causal,
            memory_is_causal,
        )

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """Causal mask `(sz, sz)`: `-inf` above the diagonal, 0 elsewhere.

        Example:
            >>> gt.nn.Transformer.generate_square_subsequent_mask(2)
            tensor([[0., -inf],
                    [0., 0.]])
        """
        mask = gt.full((sz, sz), -math.inf, dtype=dtype).triu(1)
        return mask if device is None else mask.to(device)
