"""Distances between points, and angles."""

from __future__ import annotations

import numpy as np

from gt import _gt
from gt._composites.common import axis_of, check_floating, check_rank
from gt._composites.reductions import root, vector_norm
from gt._composites.selection import broadcast_tensors
from gt._gt import Tensor


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between vectors along an axis; lengths below `eps` count as `eps`."""
    x1, x2 = broadcast_tensors(x1, x2)
    lengths = vector_norm(x1, 2.0, dim).clamp(min=eps) * vector_norm(x2, 2.0, dim).clamp(min=eps)
    return (x1 * x2).sum(dim) / lengths


def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The norm of the difference."""
    return vector_norm(input - other, p)


def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str = "use_mm_for_euclid_dist_if_necessary") -> Tensor:
    """The distance of each row of one matrix to each of the other, by the norm of order `p`; batches broadcast."""
    modes = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")
    if compute_mode not in modes:
        raise ValueError(f"{compute_mode} is not a valid value for compute_mode")
    check_floating("cdist", x1)
    check_floating("cdist", x2)
    if x1.ndim < 2 or x2.ndim < 2:
        raise RuntimeError(f"cdist only supports at least 2D tensors, X1 got: {min(x1.ndim, x2.ndim)}D")
    if x1.shape[-1] != x2.shape[-1]:
        raise RuntimeError(f"X1 and X2 must have the same number of columns. X1: {x1.shape[-1]} X2: {x2.shape[-1]}")
    if p < 0:
        raise RuntimeError("cdist only supports non-negative p values")
    many = compute_mode == modes[1] or (compute_mode == modes[0] and max(x1.shape[-2], x2.shape[-2]) > 25)
    if p == 2 and many:
        squares = (x1 * x1).sum(-1, keepdim=True) + (x2 * x2).sum(-1).unsqueeze(-2)
        return root((squares - 2 * (x1 @ x2.mT)).clamp(min=0), 2)
    return vector_norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p, -1)


def pdist(input: Tensor, p: float = 2) -> Tensor:
    """The distances of all pairs of rows of a matrix, by the norm of order `p`."""
    check_rank("pdist", input=(input, 2))
    first, second = (_gt.tensor(places) for places in np.triu_indices(input.shape[0], 1))
    return vector_norm(input.index_select(0, first) - input.index_select(0, second), p, 1)


def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """The parts along an axis, those of a norm above `maxnorm` scaled down to it."""
    axis = axis_of(input, dim)
    if input.ndim < 2:
        raise RuntimeError(f"renorm: input needs at least 2 dimensions, got {input.ndim} dimensions")
    lengths = vector_norm(input, p, [other for other in range(input.ndim) if other != axis], keepdim=True)
    return input * _gt.where(lengths > maxnorm, maxnorm / (lengths + 1e-7), 1.0)


METHODS = (dist, renorm)
IN_PLACE = (renorm,)
FUNCTIONS = (cosine_similarity, cdist, pdist)
