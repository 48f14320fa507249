"""Random numbers: Philox 4x32-10 (Salmon et al. 2011) by PyTorch's integers, the same bits as on every other worker.

A 32-bit word is the lower half of an int64, whose products wrap as those of unsigned numbers do.
"""

from __future__ import annotations

import math

import torch

from gt_torch import structure
from gt_torch.elementwise import DTYPES

Sizes = tuple[int, ...]
WORD = 0xFFFF_FFFF


def halves(x: int) -> tuple[int, int]:
    """Returns the lower and the upper 32 bits."""
    return x & WORD, x >> 32 & WORD


def words(seed: int, stream: int, block: torch.Tensor) -> torch.Tensor:
    """Returns the four words of each block, in a new last axis."""
    c0, c1 = block & WORD, block >> 32 & WORD
    low, high = halves(stream)
    c2, c3 = torch.full_like(block, low), torch.full_like(block, high)
    k0, k1 = halves(seed)
    for _ in range(10):
        p0, p1 = 0xD251_1F53 * c0, 0xCD9E_8D57 * c2
        c0, c1, c2, c3 = p1 >> 32 & WORD ^ c1 ^ k0, p1 & WORD, p0 >> 32 & WORD ^ c3 ^ k1, p0 & WORD
        k0, k1 = k0 + 0x9E37_79B9 & WORD, k1 + 0xBB67_AE85 & WORD
    return torch.stack([c0, c1, c2, c3], -1)


def numbers(seed: int, stream: int, first: int, count: int, width: int) -> torch.Tensor:
    """Returns the words of elements `first` to `first + count`, `width` of them each."""
    begin = first * width // 4
    end = ((first + count) * width + 3) // 4
    block = torch.arange(begin, max(begin, end), dtype=torch.int64, device=structure.device)
    flat = words(seed, stream, block).flatten()
    skipped = first * width - begin * 4
    return flat[skipped : skipped + count * width].view(count, width)


def unit_double(pair: torch.Tensor) -> torch.Tensor:
    """Returns floats in [0, 1) with 53 bits, from a pair of words."""
    return (pair[..., 1] << 21 | pair[..., 0] >> 11).double() * 2.0**-53


def count_of(shape: Sizes) -> int:
    """Returns the number of elements of a shape."""
    return math.prod(shape)


def rand(shape: Sizes, dtype: int, seed: int, stream: int, first: int) -> torch.Tensor:
    """Returns uniform numbers in [0, 1)."""
    to, count = DTYPES[dtype], count_of(shape)
    if to == torch.float64:
        return unit_double(numbers(seed, stream, first, count, 2)).view(shape)
    bits = {torch.float16: 11, torch.bfloat16: 8}.get(to, 24)
    word = numbers(seed, stream, first, count, 1).squeeze(-1)
    return ((word >> (32 - bits)).float() * 2.0**-bits).to(to).view(shape)


def randn(shape: Sizes, dtype: int, seed: int, stream: int, first: int) -> torch.Tensor:
    """Returns normal numbers by the transform of Box and Muller: two of each pair of uniform ones."""
    to, count = DTYPES[dtype], count_of(shape)
    begin = first // 2
    pairs = (first + count + 1) // 2 - begin
    if to == torch.float64:
        made = numbers(seed, stream, begin, pairs, 4)
        u, v = 1.0 - unit_double(made[:, :2]), unit_double(made[:, 2:])
    else:
        made = numbers(seed, stream, begin, pairs, 2) >> 8
        u, v = ((made[:, 0] + 1).to(structure.step_dtype) * 2.0**-24, made[:, 1].to(structure.step_dtype) * 2.0**-24)
    radius, angle = torch.sqrt(-2.0 * torch.log(u)), 2.0 * math.pi * v
    flat = torch.stack([radius * torch.cos(angle), radius * torch.sin(angle)], -1).flatten()
    skipped = first - 2 * begin
    return flat[skipped : skipped + count].to(torch.float32 if to != torch.float64 else to).to(to).view(shape)


def randint(low: int, high: int, shape: Sizes, dtype: int, seed: int, stream: int, first: int) -> torch.Tensor:
    """Returns uniform integers from `low` on: the upper 64 bits of a 64-bit word times the range (Lemire 2019)."""
    made = numbers(seed, stream, first, count_of(shape), 2)
    r0, r1 = halves((high - low) % 2**64)
    w0, w1 = made[:, 0], made[:, 1]
    # The partial products are below 2**64: their halves are added apart.
    p00, p01, p10, p11 = w0 * r0, w0 * r1, w1 * r0, w1 * r1
    carry = (p00 >> 32 & WORD) + (p01 & WORD) + (p10 & WORD)
    upper = p11 + (p01 >> 32 & WORD) + (p10 >> 32 & WORD) + (carry >> 32)
    return (upper + low).to(DTYPES[dtype]).view(shape)


OPS = {"rand": rand, "randn": randn, "randint": randint}
