"""Multivariate normal distributions with a low-rank plus diagonal covariance."""

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


class LowRankMultivariateNormal(Distribution):
    """Multivariate normal distribution with covariance `W W^T + diag(d)`, computed by matrices of W's rank.

    Args:
        loc: The mean, `(*, n)`.
        cov_factor: W, `(*, n, rank)`.
        cov_diag: d, `(*, n)`, positive.
        validate_args: Whether parameters and values are validated.
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    has_rsample = True
    support = constraints.real_vector

    def __init__(self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor, validate_args: bool | None = None) -> None:
        if loc.ndim < 1:
            raise ValueError("loc must be at least one-dimensional.")
        event = loc.shape[-1:]
        if cov_factor.ndim < 2:
            raise ValueError("cov_factor must be at least two-dimensional, with optional leading batch dimensions")
        if cov_factor.shape[-2:-1] != event:
            raise ValueError(f"cov_factor must be a batch of matrices with shape {event[0]} x m")
        if cov_diag.shape[-1:] != event:
            raise ValueError(f"cov_diag must be a batch of vectors with shape {event}")
        try:
            batch = gt.broadcast_shapes(loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1])
        except RuntimeError as error:
            raise ValueError(
                f"Incompatible batch shapes: loc {loc.shape}, cov_factor {cov_factor.shape}, cov_diag {cov_diag.shape}"
            ) from error
        self.loc = loc.expand(*batch, *event)
        self.cov_factor = cov_factor.expand(*batch, *cov_factor.shape[-2:])
        self.cov_diag = cov_diag.expand(*batch, *event)
        super().__init__(batch, event, validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        return self._expand_parameters(batch_shape, loc=1, cov_factor=2, cov_diag=1)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return self.cov_factor.square().sum(-1) + self.cov_diag

    @property
    def covariance_matrix(self) -> Tensor:
        """The covariance matrix, `(*, n, n)`."""
        return self.cov_factor @ self.cov_factor.mT + self.cov_diag.diag_embed()

    @property
    def scale_tril(self) -> Tensor:
        """The Cholesky factor of the covariance matrix, `(*, n, n)`."""
        return linalg.cholesky(self.covariance_matrix)

    @property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance matrix, by Woodbury's formula, `(*, n, n)`."""
        weighted = self.cov_factor / self.cov_diag.unsqueeze(-1)
        inner = linalg.solve_triangular(self._capacitance(), weighted.mT, upper=False)
        return self.cov_diag.reciprocal().diag_embed() - inner.mT @ inner

    def _capacitance(self) -> Tensor:
        """The Cholesky factor of the capacitance matrix `I + W^T diag(d)^-1 W`."""
        inner = (self.cov_factor / self.cov_diag.unsqueeze(-1)).mT @ self.cov_factor
        return linalg.cholesky(inner + gt.eye(inner.shape[-1], dtype=inner.dtype))

    def _log_det(self, capacitance: Tensor) -> Tensor:
        return 2 * capacitance.diagonal(dim1=-2, dim2=-1).log().sum(-1) + self.cov_diag.log().sum(-1)

    def _distance(self, apart: Tensor, capacitance: Tensor) -> Tensor:
        """The squared Mahalanobis distance."""
        weighted = self.cov_factor.mT @ (apart / self.cov_diag).unsqueeze(-1)
        inner = linalg.solve_triangular(capacitance, weighted, upper=False).squeeze(-1)
        return (apart.square() / self.cov_diag).sum(-1) - inner.square().sum(-1)

    def rsample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        shape = self._extended_shape(sample_shape)
        shared = gt.randn((*shape[:-1], self.cov_factor.shape[-1]), dtype=self.loc.dtype)
        own = gt.randn(shape, dtype=self.loc.dtype)
        return self.loc + (self.cov_factor @ shared.unsqueeze(-1)).squeeze(-1) + self.cov_diag.sqrt() * own

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        capacitance = self._capacitance()
        distance = self._distance(value - self.loc, capacitance)
        return -0.5 * (self.event_shape[0] * math.log(2 * math.pi) + self._log_det(capacitance) + distance)

    def entropy(self) -> Tensor:
        found = 0.5 * (self.event_shape[0] * (1 + math.log(2 * math.pi)) + self._log_det(self._capacitance()))
        return found.expand(self.batch_shape)
