"""The multivariate normal distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from gt import _core as gt
from gt import linalg
from gt._gt import Tensor
from gt.distributions import constraints
from gt.distributions.constraints import Constraint
from gt.distributions.distribution import NO_SHAPE, Distribution


class MultivariateNormal(Distribution):
    """Multivariate normal distribution; exactly one of the three matrices is given.

    Args:
        loc: The mean, `(*, n)`.
        covariance_matrix: The covariance, `(*, n, n)`.
        precision_matrix: Its inverse.
        scale_tril: Its lower Cholesky factor.
        validate_args: Whether parameters and values are validated.

    Example:
        >>> normal = gt.distributions.MultivariateNormal(gt.zeros(2), gt.eye(2))
        >>> normal.log_prob(gt.zeros(2))
        tensor(-1.8379)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    has_rsample = True
    support = constraints.real_vector

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if loc.ndim < 1:
            raise ValueError("loc must be at least one-dimensional.")
        given = {
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
        }
        given = {name: matrix for name, matrix in given.items() if matrix is not None}
        if len(given) != 1:
            raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        ((name, matrix),) = given.items()
        if matrix.ndim < 2:
            raise ValueError(f"{name} must be at least two-dimensional, with optional leading batch dimensions")
        batch = tuple(gt.broadcast_shapes(matrix.shape[:-2], loc.shape[:-1]))
        self.loc = loc.expand(*batch, loc.shape[-1])
        setattr(self, name, matrix.expand(*batch, *matrix.shape[-2:]))
        super().__init__(batch, loc.shape[-1:], validate_args=validate_args)
        if name == "scale_tril":
            self._tril = matrix
        elif name == "covariance_matrix":
            self._tril = linalg.cholesky(matrix)
        else:
            # The Cholesky factor of an inverse: factor the matrix with both axes flipped, flip back and invert.
            flipped = linalg.cholesky(matrix.flip((-2, -1))).flip((-2, -1)).mT
            self._tril = linalg.solve_triangular(flipped, gt.eye(loc.shape[-1], dtype=matrix.dtype), upper=False)

    def __getattr__(self, name: str) -> Tensor:
        if name == "scale_tril":
            return self._tril.expand(*self.batch_shape, *self._tril.shape[-2:])
        if name == "covariance_matrix":
            return (self._tril @ self._tril.mT).expand(*self.batch_shape, *self._tril.shape[-2:])
        if name == "precision_matrix":
            return linalg.inv(self.covariance_matrix)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return (self._tril * self._tril).sum(-1).expand(*self.batch_shape, *self.event_shape)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        return self._expand_parameters(batch_shape, loc=1, covariance_matrix=2, precision_matrix=2, scale_tril=2)

    def rsample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        draws = gt.randn(self._extended_shape(sample_shape), dtype=self.loc.dtype)
        return self.loc + (self._tril @ draws.unsqueeze(-1)).squeeze(-1)

    def _half_log_det(self) -> Tensor:
        return self._tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        z = linalg.solve_triangular(self._tril, (value - self.loc).unsqueeze(-1), upper=False).squeeze(-1)
        size = self.event_shape[0]
        return ((z * z).sum(-1) + size * math.log(2 * math.pi)) * -0.5 - self._half_log_det()

    def entropy(self) -> Tensor:
        size = self.event_shape[0]
        found = self._half_log_det() + 0.5 * size * (1 + math.log(2 * math.pi))
        return found.expand(self.batch_shape)
