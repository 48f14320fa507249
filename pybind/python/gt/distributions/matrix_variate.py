"""Matrix-variate distributions: Wishart, and LKJ over Cholesky factors of correlation matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from gt import _core as gt
from gt import linalg
from gt._autograd import no_grad
from gt._gt import Tensor
from gt.distributions import constraints
from gt.distributions.constraints import Constraint
from gt.distributions.distribution import NO_SHAPE, Distribution, broadcast_all
from gt.distributions.gamma_family import Beta, Chi2


class Wishart(Distribution):
    """Wishart distribution of positive definite matrices: the sum of `df` outer products of normal vectors.

    Samples use Bartlett's decomposition. Exactly one of the three matrices is given.

    Args:
        df: The degrees of freedom, greater than n - 1.
        covariance_matrix: The covariance of the vectors, `(*, n, n)`.
        precision_matrix: Its inverse.
        scale_tril: Its lower Cholesky factor.
        validate_args: Whether parameters and values are validated.

    Example:
        >>> gt.distributions.Wishart(gt.tensor(3.0), covariance_matrix=gt.eye(2)).mean
        tensor([[3., 0.],
                [0., 3.]])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
        "df": constraints.greater_than(0),
    }
    has_rsample = True
    support = constraints.positive_definite

    def __init__(
        self,
        df: Tensor | float,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        matrices = {
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
        }
        given = {name: matrix for name, matrix in matrices.items() if matrix is not None}
        if len(given) != 1:
            raise AssertionError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        ((name, matrix),) = given.items()
        if matrix.ndim < 2:
            raise ValueError("scale_tril must be at least two-dimensional, with optional leading batch dimensions")
        df = df if isinstance(df, Tensor) else gt.tensor(float(df), dtype=matrix.dtype)
        batch = gt.broadcast_shapes(matrix.shape[:-2], df.shape)
        size = matrix.shape[-1]
        self.df = df.expand(*batch)
        if bool((self.df <= size - 1).any()):
            raise ValueError(f"Value of df={df} expected to be greater than ndim - 1 = {size - 1}.")
        setattr(self, name, matrix.expand(*batch, size, size))
        super().__init__(batch, (size, size), validate_args=validate_args)
        if name == "scale_tril":
            self._tril = matrix
        else:
            self._tril = linalg.cholesky(matrix if name == "covariance_matrix" else linalg.inv(matrix))

    def __getattr__(self, name: str) -> Tensor:
        if name == "scale_tril":
            return self._tril.expand(*self.batch_shape, *self.event_shape)
        if name == "covariance_matrix":
            return (self._tril @ self._tril.mT).expand(*self.batch_shape, *self.event_shape)
        if name == "precision_matrix":
            eye = gt.eye(self.event_shape[0], dtype=self._tril.dtype)
            return gt.cholesky_solve(eye, self._tril).expand(*self.batch_shape, *self.event_shape)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        return self._expand_parameters(batch_shape, df=0, covariance_matrix=2, precision_matrix=2, scale_tril=2)

    def _df(self) -> Tensor:
        return self.df.reshape(*self.batch_shape, 1, 1)

    @property
    def mean(self) -> Tensor:
        return self._df() * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        factor = self.df - self.event_shape[0] - 1
        factor = gt.where(factor <= 0, math.nan, factor)
        return factor.reshape(*self.batch_shape, 1, 1) * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        v = self.covariance_matrix
        d = v.diagonal(dim1=-2, dim2=-1)
        return self._df() * (v.square() + d.unsqueeze(-1) * d.unsqueeze(-2))

    def rsample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        size = self.event_shape[0]
        freedom = self.df.unsqueeze(-1) - gt.arange(size, dtype=self.df.dtype)
        roots = Chi2(freedom, validate_args=False).rsample(sample_shape).clamp(min=gt.finfo(self.df.dtype).tiny).sqrt()
        normal = gt.randn(self._extended_shape(sample_shape), dtype=self._tril.dtype).tril(-1)
        triangle = self._tril @ (normal + roots.diag_embed())
        return triangle @ triangle.mT

    def _half_log_det(self) -> Tensor:
        return self._tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        nu, size = self.df, self.event_shape[0]
        trace = gt.cholesky_solve(value, self._tril).diagonal(dim1=-2, dim2=-1).sum(-1)
        norm = nu * (size * math.log(2) / 2 + self._half_log_det()) + gt.mvlgamma(nu / 2, size)
        return (nu - size - 1) / 2 * linalg.slogdet(value).logabsdet - trace / 2 - norm

    def entropy(self) -> Tensor:
        nu, size = self.df, self.event_shape[0]
        halves = nu.unsqueeze(-1) / 2 - gt.arange(size, dtype=nu.dtype) / 2
        norm = (size + 1) * (size * math.log(2) / 2 + self._half_log_det()) + gt.mvlgamma(nu / 2, size)
        return norm - (nu - size - 1) / 2 * halves.digamma().sum(-1) + nu * size / 2


class LKJCholesky(Distribution):
    """LKJ distribution of the Cholesky factors of correlation matrices (Lewandowski, Kurowicka and Joe 2009).

    The density of a correlation matrix is proportional to `det^(concentration - 1)`: uniform for 1, and concentrated at
    the identity above. Samples are drawn by the onion method.

    Args:
        dim: The size of the matrices.
        concentration: The concentration.
        validate_args: Whether parameters and values are validated.
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(self, dim: int, concentration: Tensor | float = 1.0, validate_args: bool | None = None) -> None:
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        super().__init__(self.concentration.shape, (dim, dim), validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        return self._expand_parameters(batch_shape, concentration=0)

    @no_grad()
    def sample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        dtype = self.concentration.dtype
        rows = gt.cat([gt.zeros(1, dtype=dtype), gt.arange(self.dim - 1, dtype=dtype)])
        most = (self.concentration + 0.5 * (self.dim - 2)).unsqueeze(-1)
        share = Beta(rows + 0.5, most - 0.5 * rows, validate_args=False).sample(sample_shape).unsqueeze(-1)
        normal = gt.randn(self._extended_shape(sample_shape), dtype=dtype).tril(-1)
        length = normal.norm(2, dim=-1, keepdim=True)
        part = share.sqrt() * normal / gt.where(length == 0, 1.0, length)
        left = (1 - part.square().sum(-1)).clamp(min=gt.finfo(dtype).tiny).sqrt()
        return part + left.diag_embed()

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        rest = self.dim - 1
        order = gt.arange(2, self.dim + 1, dtype=self.concentration.dtype)
        powers = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - order
        found = (powers * value.diagonal(dim1=-2, dim2=-1)[..., 1:].log()).sum(-1)
        alpha = self.concentration + 0.5 * rest
        norm = 0.5 * rest * math.log(math.pi) + gt.mvlgamma(alpha - 0.5, rest) - alpha.lgamma() * rest
        return found - norm
