"""Norms, moments and other reductions of a few steps."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gt import _gt
from gt._composites.common import axes_of
from gt._gt import Tensor


def logsumexp(input: Tensor, dim: int | Sequence[int], keepdim: bool = False) -> Tensor:
    """The logarithm of the sum of exponentials along axes, without overflow."""
    wide = input if input.is_floating_point() else input.float()
    largest = wide.detach().amax(dim, keepdim=True)
    largest = _gt.where(largest.isfinite(), largest, 0.0)
    total = (wide - largest).exp().sum(dim, keepdim=True).log() + largest
    return total if keepdim else total.squeeze(tuple(axes_of(input, dim)))


def norm(
    input: Tensor, p: float | str = "fro", dim: int | Sequence[int] | None = None, keepdim: bool = False
) -> Tensor:
    """The norm of order `p` of all elements, or along axes: a number, `inf`, `-inf`, or `"fro"`, which is 2."""
    if not input.is_floating_point():
        raise RuntimeError(f"linalg.vector_norm: Expected a floating point tensor as input. Got {input.dtype}")
    if p == "fro":
        p = 2.0
    if isinstance(p, str):
        raise RuntimeError(f"norm: order {p!r} is not there: use a number, inf, -inf or 'fro'")
    if p == math.inf:
        return input.abs().amax(dim, keepdim=keepdim)
    if p == -math.inf:
        return input.abs().amin(dim, keepdim=keepdim)
    if p == 0:
        return (input != 0).to(input.dtype).sum(dim, keepdim=keepdim)
    if p == 1:
        return input.abs().sum(dim, keepdim=keepdim)
    total = (input * input if p == 2 else input.abs() ** p).sum(dim, keepdim=keepdim)
    # A norm of 0 has no slope: PyTorch takes 0 for it.
    zero = total == 0
    filled = _gt.where(zero, 1.0, total)
    return _gt.where(zero, 0.0, filled.sqrt() if p == 2 else filled ** (1 / p))


def count_nonzero(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """How many elements are not 0, as int64: of all, or along axes."""
    return (input != 0).sum(dim)


def var_mean(
    input: Tensor, dim: int | Sequence[int] | None = None, *, correction: float = 1, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """`var` and `mean`."""
    return input.var(dim, correction=correction, keepdim=keepdim), input.mean(dim, keepdim=keepdim)


def std_mean(
    input: Tensor, dim: int | Sequence[int] | None = None, *, correction: float = 1, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """`std` and `mean`."""
    return input.std(dim, correction=correction, keepdim=keepdim), input.mean(dim, keepdim=keepdim)


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between vectors along an axis; lengths below `eps` count as `eps`."""
    lengths = norm(x1, 2.0, dim).clamp(min=eps) * norm(x2, 2.0, dim).clamp(min=eps)
    return (x1 * x2).sum(dim) / lengths


METHODS = (
    logsumexp,
    norm,
    count_nonzero,
)
IN_PLACE = ()
FUNCTIONS = (
    var_mean,
    std_mean,
    cosine_similarity,
)
