"""Distances between vectors, and angles."""

from __future__ import annotations

import numpy as np

from gt import _gt
from gt._composites.common import axis_of, check_floating, check_rank
from gt._composites.reductions import root, vector_norm
from gt._composites.selection import broadcast_tensors
from gt._gt import Tensor


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between vectors: sum(x1 * x2) / (norm(x1) * norm(x2)).

    Args:
        x1: The first vectors.
        x2: The second vectors, which broadcast.
        dim: The axis of the vectors.
        eps: The lower bound of each norm, which avoids division by zero.

    Example:
        >>> gt.cosine_similarity(gt.tensor([1.0, 0.0]), gt.tensor([1.0, 1.0]), dim=0)
        tensor(0.7071)
    """
    x1, x2 = broadcast_tensors(x1, x2)
    lengths = vector_norm(x1, 2.0, dim).clamp(min=eps) * vector_norm(x2, 2.0, dim).clamp(min=eps)
    return (x1 * x2).sum(dim) / lengths


def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The norm of the difference of two tensors.

    Args:
        input: The first tensor.
        other: The second tensor, which broadcasts.
        p: The order of the norm.

    Example:
        >>> gt.dist(gt.tensor([0.0, 0.0]), gt.tensor([3.0, 4.0]))
        tensor(5.)
    """
    return vector_norm(input - other, p)


def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str = "use_mm_for_euclid_dist_if_necessary") -> Tensor:
    """The distance of each row of one matrix to each row of another; batches broadcast.

    Args:
        x1: The first rows.
        x2: The second rows.
        p: The order of the norm.
        compute_mode: Whether Euclidean distances are computed by matrix products, which is faster and less exact:
            `"use_mm_for_euclid_dist_if_necessary"` (above 25 rows), `"use_mm_for_euclid_dist"` or
            `"donot_use_mm_for_euclid_dist"`.

    Shape:
        `(..., n, k)` and `(..., m, k)` give `(..., n, m)`.

    Example:
        >>> gt.cdist(gt.tensor([[0.0, 0.0]]), gt.tensor([[3.0, 4.0], [0.0, 1.0]]))
        tensor([[5., 1.]])
    """
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
    """The distances between all pairs of rows of a matrix: the upper triangle of `cdist(input, input)`, flattened.

    Example:
        >>> gt.pdist(gt.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]]))
        tensor([5.0000, 1.0000, 4.2426])
    """
    check_rank("pdist", input=(input, 2))
    first, second = (_gt.tensor(positions) for positions in np.triu_indices(input.shape[0], 1))
    return vector_norm(input.index_select(0, first) - input.index_select(0, second), p, 1)


def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """A copy whose slices along an axis have a norm of at most `maxnorm`; longer ones are scaled down.

    Args:
        input: A tensor.
        p: The order of the norm.
        dim: The axis of the slices.
        maxnorm: The largest norm.

    Example:
        >>> gt.renorm(gt.tensor([[3.0, 4.0], [0.3, 0.4]]), p=2, dim=0, maxnorm=1)
        tensor([[0.6000, 0.8000],
                [0.3000, 0.4000]])
    """
    axis = axis_of(input, dim)
    if input.ndim < 2:
        raise RuntimeError(f"renorm: input needs at least 2 dimensions, got {input.ndim} dimensions")
    lengths = vector_norm(input, p, [other for other in range(input.ndim) if other != axis], keepdim=True)
    return input * _gt.where(lengths > maxnorm, maxnorm / (lengths + 1e-7), 1.0)


METHODS = (dist, renorm)
IN_PLACE = (renorm,)
FUNCTIONS = (cosine_similarity, cdist, pdist)
