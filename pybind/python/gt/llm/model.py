"""GPT-2 (Radford et al. 2019), with the names and the order of parameters of llm.c's files."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import gt
from gt import Tensor, nn
from gt.llm.mersenne import Mersenne
from gt.nn import functional

# The channels and heads of a depth, for `d12` and so on.
SIZES = {6: (384, 6), 12: (768, 12), 24: (1024, 16), 36: (1280, 20), 48: (1600, 25)}
# Rows of the token embedding are padded to a multiple of this in files.
VOCABULARY_MULTIPLE = 128


@dataclass(frozen=True)
class Config:
    """The sizes of a GPT-2.

    Args:
        context: The most tokens of a sequence.
        vocabulary: The number of tokens.
        layers: The number of blocks.
        heads: The number of attention heads, which divides `channels`.
        channels: The features of a token.
    """

    context: int = 1024
    vocabulary: int = 50257
    layers: int = 12
    heads: int = 12
    channels: int = 768

    def __post_init__(self) -> None:
        for name, size in vars(self).items():
            if size < 1:
                raise ValueError(f"{name} is at least 1, not {size}")
        if self.channels % self.heads:
            raise ValueError(f"{self.channels} channels cannot be divided among {self.heads} heads")

    @classmethod
    def of_depth(cls, layers: int, **sizes: int) -> Config:
        """The sizes of a depth that GPT-2 was trained in: 6, 12, 24, 36 or 48 layers.

        Raises:
            ValueError: Another depth.
        """
        if layers not in SIZES:
            raise ValueError(f"there is no GPT-2 of {layers} layers: d6, d12, d24, d36 and d48 are known")
        channels, heads = SIZES[layers]
        return cls(layers=layers, channels=channels, heads=heads, **sizes)

    @property
    def padded_vocabulary(self) -> int:
        """The rows of the token embedding in files."""
        return -(-self.vocabulary // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE

    def flops_per_token(self, parameters: int) -> int:
        """Returns the floating-point operations of training on one token."""
        return 6 * parameters + 12 * self.layers * self.channels * self.context


class Cache:
    """Keys and values of the tokens that a model has seen, for sampling: shape `(batch, heads, context, features)`.

    Args:
        config: The sizes of the model.
        batch: The number of sequences.
        dtype: The dtype of the model's parameters.

    Attributes:
        length: The number of tokens that all sequences have.
        positions: Where the next token of each sequence goes, int64, shape `(batch,)`, if their lengths differ.
    """

    def __init__(self, config: Config, batch: int, dtype: gt.dtype = gt.float32) -> None:
        shape = (batch, config.heads, config.context, config.channels // config.heads)
        self.keys = [gt.zeros(shape, dtype=dtype) for _ in range(config.layers)]
        self.values = [gt.zeros(shape, dtype=dtype) for _ in range(config.layers)]
        self.length = 0
        self.positions: Tensor | None = None

    def part(self, start: int, stop: int) -> Cache:
        """Returns an empty cache of some of the sequences, which shares memory with this one."""
        made = copy.copy(self)
        made.keys = [t[start:stop] for t in self.keys]
        made.values = [t[start:stop] for t in self.values]
        made.length, made.positions = 0, None
        return made

    def extend(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Adds keys and values of new tokens; returns all so far, and the mask of those that the new ones attend to."""
        length, end = k.shape[2], self.length + k.shape[2]
        for own, new in ((self.keys[layer], k), (self.values[layer], v)):
            if self.positions is None:
                own[:, :, self.length : end] = new
            else:
                own[gt.arange(len(own)), :, self.positions] = new[:, :, 0]
        if self.positions is not None:
            mask = gt.arange(end) <= self.positions[:, None, None, None]
        else:
            # One new token attends to all; several, to those before them.
            mask = None if length == 1 else gt.ones(length, end, dtype=gt.bool).tril(self.length)
        return self.keys[layer][:, :, :end], self.values[layer][:, :, :end], mask


class Attention(nn.Module):
    """Multi-head attention of each token to itself and the tokens before it."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.c_attn = nn.Linear(config.channels, 3 * config.channels)
        self.c_proj = nn.Linear(config.channels, config.channels)

    def forward(self, x: Tensor, cache: Cache | None = None, layer: int = 0) -> Tensor:
        """Shape: `(batch, length, channels)` to the same."""
        batch, length, channels = x.shape
        parts = self.c_attn(x).split(channels, dim=2)
        q, k, v = (t.view(batch, length, self.heads, channels // self.heads).transpose(1, 2) for t in parts)
        if cache is None:
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            keys, values, mask = cache.extend(layer, k, v)
            y = functional.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
        return self.c_proj(y.transpose(1, 2).reshape(batch, length, channels))


class Block(nn.Module):
    """Attention and a feed-forward network, each of the normalised sum of what was before."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.channels)
        self.attn = Attention(config)
        self.ln_2 = nn.LayerNorm(config.channels)
        self.mlp = nn.ModuleDict(
            {
                "c_fc": nn.Linear(config.channels, 4 * config.channels),
                "c_proj": nn.Linear(4 * config.channels, config.channels),
            }
        )

    def forward(self, x: Tensor, cache: Cache | None = None, layer: int = 0) -> Tensor:
        """Shape: `(batch, length, channels)` to the same."""
        x = x + self.attn(self.ln_1(x), cache, layer)
        inside = functional.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh")
        return x + self.mlp["c_proj"](inside)


class GPT2(nn.Module):
    """GPT-2, whose token embedding is its output projection, too.

    Example:
        >>> model = gt.llm.GPT2(gt.llm.Config(context=8, vocabulary=20, layers=1, heads=2, channels=16))
        >>> logits, loss = model(gt.tensor([[1, 2, 3]]), gt.tensor([[2, 3, 4]]))
        >>> logits.shape, loss.shape
        (gt.Size([1, 3, 20]), gt.Size([]))
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocabulary, config.channels)
        self.wpe = nn.Embedding(config.context, config.channels)
        self.h = nn.ModuleList([Block(config) for _ in range(config.layers)])
        self.ln_f = nn.LayerNorm(config.channels)

    def forward(
        self, tokens: Tensor, targets: Tensor | None = None, cache: Cache | None = None, recompute: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Returns logits, shape `(batch, length, vocabulary)`, and the mean loss over all targets, if there are any.

        Args:
            tokens: int64, shape `(batch, length)`.
            targets: The token after each, of the same shape.
            cache: What was computed for the tokens before these; it gets that of these.
            recompute: Whether the backward pass computes each block again instead of keeping it in memory.

        Raises:
            ValueError: There are more tokens than the model's context.
        """
        length = tokens.shape[1]
        start = cache.length if cache else 0
        if start + length > self.config.context:
            raise ValueError(f"{start + length} tokens are more than the model's context of {self.config.context}")
        own = cache.positions[:, None] if cache and cache.positions is not None else gt.arange(start, start + length)
        x = self.wte(tokens) + self.wpe(own)
        for layer, block in enumerate(self.h):
            if recompute and cache is None:
                x = gt.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x, cache, layer)
        if cache:
            cache.length += length
        logits = functional.linear(self.ln_f(x), self.wte.weight)
        if targets is None:
            return logits, None
        return logits, functional.cross_entropy(logits.view(-1, logits.size(-1)).float(), targets.reshape(-1))

    def parameters_of_files(self) -> list[tuple[str, list[nn.Parameter]]]:
        """Returns the 16 kinds of parameters in the order of files, each with those of all blocks."""
        kinds: list[tuple[str, list[nn.Parameter]]] = [
            ("wte.weight", [self.wte.weight]),
            ("wpe.weight", [self.wpe.weight]),
        ]
        for module in ("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"):
            for what in ("weight", "bias"):
                kinds.append((f"{module}.{what}", [block.get_parameter(f"{module}.{what}") for block in self.h]))
        return [*kinds, ("ln_f.weight", [self.ln_f.weight]), ("ln_f.bias", [self.ln_f.bias])]

    @gt.no_grad()
    def initialise(self, seed: int = 42) -> GPT2:
        """Draws the weights as llm.c does, and PyTorch from the same seed: normal, with a deviation of 0.02."""
        random = Mersenne(seed)
        in_residual = 0.02 / math.sqrt(2 * self.config.layers)

        def draw(weight: nn.Parameter, deviation: float) -> None:
            weight.copy_(gt.tensor(random.normal(weight.numel(), deviation)).view(weight.shape))

        draw(self.wte.weight, 0.02)
        draw(self.wpe.weight, 0.02)
        for block in self.h:
            draw(block.attn.c_attn.weight, 0.02)
            draw(block.attn.c_proj.weight, in_residual)
            draw(block.mlp["c_fc"].weight, 0.02)
            draw(block.mlp["c_proj"].weight, in_residual)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 1:
                parameter.fill_(1.0 if ".ln_" in f".{name}" and name.endswith("weight") else 0.0)
        return self

    def optimizer(self, lr: float, betas: tuple[float, float], eps: float, decay: float) -> gt.optim.AdamW:
        """Returns AdamW, with weight decay for matrices and embeddings alone."""
        parameters = list(self.parameters())
        groups: list[dict[str, Any]] = [
            {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": decay},
            {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
        ]
        return gt.optim.AdamW(groups, lr=lr, betas=betas, eps=eps)

    def count(self) -> int:
        """Returns the number of parameters."""
        return int(np.sum([p.numel() for p in self.parameters()]))
