"""Transforms from unconstrained vectors and matrices to triangular, positive definite and correlation matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gt import _core as gt
from gt import linalg
from gt._gt import Tensor
from gt.distributions import constraints
from gt.distributions.transform import Transform
from gt.distributions.utils import tril_matrix_to_vec, vec_to_tril_matrix
from gt.nn import functional


class LowerCholeskyTransform(Transform):
    """Maps a square matrix to a lower triangular one with a positive diagonal, by exponentiating the diagonal."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LowerCholeskyTransform)

    __hash__ = Transform.__hash__

    def _call(self, x: Tensor) -> Tensor:
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(Transform):
    """Maps a square matrix to the positive definite matrix `L L^T`, with `L` of `LowerCholeskyTransform`."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PositiveDefiniteTransform)

    __hash__ = Transform.__hash__

    def _call(self, x: Tensor) -> Tensor:
        triangle = LowerCholeskyTransform()(x)
        return triangle @ triangle.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform().inv(linalg.cholesky(y))


class CorrCholeskyTransform(Transform):
    """Maps vectors of n(n-1)/2 numbers to the Cholesky factor of a correlation matrix of size n.

    The hyperbolic tangents of the numbers are canonical partial correlations: each takes its fraction of what is left
    of its row's norm, which is 1, and the diagonal takes the rest (Lewandowski et al. 2009).
    """

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky

    def _call(self, x: Tensor) -> Tensor:
        eps = gt.finfo(x.dtype).eps
        partials = vec_to_tril_matrix(x.tanh().clamp(-1 + eps, 1 - eps), -1)
        left = (1 - partials.square()).sqrt().cumprod(-1)
        partials = partials + gt.eye(partials.shape[-1], dtype=partials.dtype)
        return partials * functional.pad(left[..., :-1], [1, 0], value=1)

    def _inverse(self, y: Tensor) -> Tensor:
        left = functional.pad((1 - y.square().cumsum(-1))[..., :-1], [1, 0], value=1)
        partials = tril_matrix_to_vec(y, -1) / tril_matrix_to_vec(left, -1).sqrt()
        return (partials.log1p() - (-partials).log1p()) / 2

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        left = tril_matrix_to_vec(1 - y.square().cumsum(-1), -2)
        tangents = -2 * (x + functional.softplus(-2 * x) - math.log(2)).sum(-1)
        return 0.5 * left.log().sum(-1) + tangents

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        if len(shape) < 1:
            raise ValueError("Too few dimensions on input")
        count = shape[-1]
        size = round((0.25 + 2 * count) ** 0.5 + 0.5)
        if size * (size - 1) // 2 != count:
            raise ValueError("Input is not a flattened lower-diagonal number")
        return (*shape[:-1], size, size)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        if len(shape) < 2:
            raise ValueError("Too few dimensions on input")
        if shape[-2] != shape[-1]:
            raise ValueError("Input is not square")
        return (*shape[:-2], shape[-1] * (shape[-1] - 1) // 2)
