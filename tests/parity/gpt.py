"""A small GPT, written for PyTorch; `torch` is either framework."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Config:
    """The sizes of the model."""

    vocabulary: int = 256
    context: int = 64
    layers: int = 4
    heads: int = 4
    channels: int = 128
    # Attention by `scaled_dot_product_attention`, as nanoGPT has it, rather than by products and a softmax.
    fused: bool = False


def build(torch: Any, config: Config) -> Any:
    """Returns a model whose forward pass takes tokens and targets and returns the loss."""
    nn, functional = torch.nn, torch.nn.functional

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(config.channels, 3 * config.channels)
            self.out = nn.Linear(config.channels, config.channels)
            if not config.fused:
                self.register_buffer("causal", torch.tril(torch.ones(config.context, config.context)))

        def forward(self, x: Any) -> Any:
            batch, length, channels = x.shape
            width = channels // config.heads
            q, k, v = (
                part.view(batch, length, config.heads, width).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1)
            )
            if config.fused:
                mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:
                scores = (q @ k.transpose(-2, -1)) / math.sqrt(width)
                scores = scores.masked_fill(self.causal[:length, :length] == 0, float("-inf"))
                mixed = functional.softmax(scores, dim=-1) @ v
            return self.out(mixed.transpose(1, 2).contiguous().view(batch, length, channels))

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ln1, self.attention = nn.LayerNorm(config.channels), Attention()
            self.ln2 = nn.LayerNorm(config.channels)
            self.mlp = nn.Sequential(
                nn.Linear(config.channels, 4 * config.channels),
                nn.GELU(),
                nn.Linear(4 * config.channels, config.channels),
            )

        def forward(self, x: Any) -> Any:
            x = x + self.attention(self.ln1(x))
            return x + self.mlp(self.ln2(x))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(config.vocabulary, config.channels)
            self.places = nn.Embedding(config.context, config.channels)
            self.blocks = nn.ModuleList([Block() for _ in range(config.layers)])
            self.ln = nn.LayerNorm(config.channels)
            self.head = nn.Linear(config.channels, config.vocabulary, bias=False)
            self.head.weight = self.tokens.weight

        def forward(self, tokens: Any, targets: Any) -> Any:
            x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
            for block in self.blocks:
                x = block(x)
            logits = self.head(self.ln(x))
            return functional.cross_entropy(logits.view(-1, config.vocabulary), targets.view(-1))

    return GPT()
