"""Distributions of vectors and matrices that are given by matrices: multivariate normal, Wishart and LKJ."""

import math
from typing import Annotated

from gt import _core as gt
from gt import linalg
from gt._gt import Tensor
from gt.distributions import constraints
from gt.distributions.continuous import Beta, Chi2
from gt.distributions.distribution import FamilyParameter, Formulas, ParametricDistribution, Positive
from gt.distributions.utils import _gram, broadcast_all, lazy_property

__all__ = [
    "LKJCholesky", "LowRankMultivariateNormal", "MultivariateNormal", "Wishart",
]  # fmt: skip

LOG_2_PI = math.log(2 * math.pi)

Vector = Annotated[FamilyParameter, constraints.real_vector]
Matrix = Annotated[FamilyParameter, constraints.independent(constraints.real, 2)]
PositiveVector = Annotated[FamilyParameter, constraints.independent(constraints.positive, 1)]
PositiveDefinite = Annotated[FamilyParameter, constraints.positive_definite]
LowerCholesky = Annotated[FamilyParameter, constraints.lower_cholesky]


def _half_log_det(triangle: Tensor) -> Tensor:
    """Half the log determinant of a matrix with the given Cholesky factor."""
    return triangle.diagonal(dim1=-2, dim2=-1).log().sum(-1)


class _OfCovariance(ParametricDistribution):
    """The base of families given by exactly one of a covariance matrix, its inverse and its lower Cholesky factor.

    The others are computed when they are read. `_tril` is the Cholesky factor before it is broadcast to the batch.
    """

    @staticmethod
    def _one_of(error: type[Exception], **matrices: Tensor | None) -> tuple[str, Tensor]:
        """The name and the value of the matrix that is given."""
        given = [(name, matrix) for name, matrix in matrices.items() if matrix is not None]
        if len(given) != 1:
            raise error("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        return given[0]

    def _matrix(self, matrix: Tensor) -> Tensor:
        return matrix.expand(*self._batch_shape, *self._tril.shape[-2:])

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The lower Cholesky factor of the covariance matrix, `(*, n, n)`."""
        return self._matrix(self._tril)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance matrix, `(*, n, n)`."""
        return self._matrix(_gram(self._tril))

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance matrix, `(*, n, n)`."""
        eye = gt.eye(self._tril.shape[-1], dtype=self._tril.dtype)
        return self._matrix(gt.cholesky_solve(eye, self._tril))

    def _half_log_det(self) -> Tensor:
        return _half_log_det(self._tril)


class MultivariateNormal(_OfCovariance):
    """Multivariate normal distribution; exactly one of the three matrices is given.

    Args:
        loc: The mean, `(*, n)`.
        covariance_matrix: The covariance, `(*, n, n)`.
        precision_matrix: Its inverse.
        scale_tril: Its lower Cholesky factor.

    Example:
        >>> normal = gt.distributions.MultivariateNormal(gt.zeros(2), gt.eye(2))
        >>> normal.log_prob(gt.zeros(2))
        tensor(-1.8379)
    """

    loc: Vector
    covariance_matrix: PositiveDefinite
    precision_matrix: PositiveDefinite
    scale_tril: LowerCholesky
    support = constraints.real_vector
    _formulas = Formulas(
        mean=lambda loc: loc,
        mode=lambda loc: loc,
        variance=lambda _tril, loc: _tril.square().sum(-1).expand(loc.shape),
        rsample=lambda shape, _tril, loc: loc + (_tril @ gt.randn(shape, dtype=loc.dtype).unsqueeze(-1)).squeeze(-1),
        log_prob=lambda value, _tril, loc: (
            (_whitened(_tril, value - loc).square().sum(-1) + loc.shape[-1] * LOG_2_PI) * -0.5 - _half_log_det(_tril)
        ),
        entropy=lambda _tril, batch_shape: (_half_log_det(_tril) + 0.5 * _tril.shape[-1] * (1 + LOG_2_PI)).expand(
            batch_shape
        ),
    )

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
        name, matrix = self._one_of(
            ValueError, covariance_matrix=covariance_matrix, precision_matrix=precision_matrix, scale_tril=scale_tril
        )
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


def _whitened(triangle: Tensor, apart: Tensor) -> Tensor:
    """The vectors `inv(triangle) @ apart`."""
    return linalg.solve_triangular(triangle, apart.unsqueeze(-1), upper=False).squeeze(-1)


class LowRankMultivariateNormal(ParametricDistribution):
    """Multivariate normal distribution with covariance `W W^T + diag(d)`, computed by matrices of W's rank.

    Args:
        loc: The mean, `(*, n)`.
        cov_factor: W, `(*, n, rank)`.
        cov_diag: d, `(*, n)`, positive.
    """

    loc: Vector
    cov_factor: Matrix
    cov_diag: PositiveVector
    support = constraints.real_vector
    _formulas = Formulas(
        mean=lambda loc: loc,
        mode=lambda loc: loc,
        variance=lambda cov_factor, cov_diag: cov_factor.square().sum(-1) + cov_diag,
        rsample=lambda shape, loc, cov_factor, cov_diag: (
            loc
            + (cov_factor @ gt.randn((*shape[:-1], cov_factor.shape[-1], 1), dtype=loc.dtype)).squeeze(-1)
            + cov_diag.sqrt() * gt.randn(shape, dtype=loc.dtype)
        ),
        log_prob=lambda value, loc, _distance, _log_det, _capacitance: (
            -0.5 * (loc.shape[-1] * LOG_2_PI + _log_det(_capacitance) + _distance(value - loc, _capacitance))
        ),
        entropy=lambda loc, _log_det, _capacitance: (
            0.5 * (loc.shape[-1] * (1 + LOG_2_PI) + _log_det(_capacitance))
        ).expand(loc.shape[:-1]),
    )

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
        inner = linalg.solve_triangular(self._capacitance, weighted.mT, upper=False)
        return self.cov_diag.reciprocal().diag_embed() - inner.mT @ inner

    @property
    def _capacitance(self) -> Tensor:
        """The Cholesky factor of the capacitance matrix `I + W^T diag(d)^-1 W`."""
        inner = (self.cov_factor / self.cov_diag.unsqueeze(-1)).mT @ self.cov_factor
        return linalg.cholesky(inner + gt.eye(inner.shape[-1], dtype=inner.dtype))

    def _log_det(self, capacitance: Tensor) -> Tensor:
        return 2 * _half_log_det(capacitance) + self.cov_diag.log().sum(-1)

    def _distance(self, apart: Tensor, capacitance: Tensor) -> Tensor:
        """The squared Mahalanobis distance."""
        weighted = (self.cov_factor.mT @ (apart / self.cov_diag).unsqueeze(-1)).squeeze(-1)
        inner = _whitened(capacitance, weighted)
        return (apart.square() / self.cov_diag).sum(-1) - inner.square().sum(-1)


class Wishart(_OfCovariance):
    """Wishart distribution of positive definite matrices: the sum of `df` outer products of normal vectors.

    Samples use Bartlett's decomposition. Exactly one of the three matrices is given.

    Args:
        df: The degrees of freedom, greater than n - 1.
        covariance_matrix: The covariance of the vectors, `(*, n, n)`.
        precision_matrix: Its inverse.
        scale_tril: Its lower Cholesky factor.

    Example:
        >>> gt.distributions.Wishart(gt.tensor(3.0), covariance_matrix=gt.eye(2)).mean
        tensor([[3., 0.],
                [0., 3.]])
    """

    covariance_matrix: PositiveDefinite
    precision_matrix: PositiveDefinite
    scale_tril: LowerCholesky
    df: Annotated[FamilyParameter, constraints.greater_than(0)]
    support = constraints.positive_definite
    _formulas = Formulas(
        mean=lambda df, covariance_matrix: df[..., None, None] * covariance_matrix,
        mode=lambda df, covariance_matrix: _positive_or_nan(df - covariance_matrix.shape[-1] - 1) * covariance_matrix,
        variance=lambda df, covariance_matrix: df[..., None, None] * _squares_and_diagonals(covariance_matrix),
        rsample=lambda shape, df, _tril: _gram(_tril @ _bartlett(shape, df)),
        log_prob=lambda value, df, _tril: (
            (df - value.shape[-1] - 1) / 2 * linalg.slogdet(value).logabsdet
            - gt.cholesky_solve(value, _tril).diagonal(dim1=-2, dim2=-1).sum(-1) / 2
            - df * _log_volume(_tril)
            - gt.mvlgamma(df / 2, value.shape[-1])
        ),
        entropy=lambda df, _tril: _wishart_entropy(df, _tril.shape[-1], _log_volume(_tril)),
    )

    def __init__(
        self,
        df: Tensor | float,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        name, matrix = self._one_of(
            AssertionError,
            covariance_matrix=covariance_matrix,
            precision_matrix=precision_matrix,
            scale_tril=scale_tril,
        )
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


def _bartlett(shape: tuple[int, ...], df: Tensor) -> Tensor:
    """Samples of the Cholesky factor of a standard Wishart matrix (Bartlett's decomposition)."""
    freedom = (df.unsqueeze(-1) - gt.arange(shape[-1], dtype=df.dtype)).expand(shape[:-1])
    roots = Chi2(freedom, validate_args=False).rsample().clamp(min=gt.finfo(df.dtype).tiny).sqrt()
    return gt.randn(shape, dtype=df.dtype).tril(-1) + roots.diag_embed()


def _positive_or_nan(factor: Tensor) -> Tensor:
    return gt.where(factor <= 0, math.nan, factor)[..., None, None]


def _squares_and_diagonals(v: Tensor) -> Tensor:
    d = v.diagonal(dim1=-2, dim2=-1)
    return v.square() + d.unsqueeze(-1) * d.unsqueeze(-2)


def _log_volume(triangle: Tensor) -> Tensor:
    return triangle.shape[-1] * math.log(2) / 2 + _half_log_det(triangle)


def _wishart_entropy(df: Tensor, size: int, log_volume: Tensor) -> Tensor:
    halves = df.unsqueeze(-1) / 2 - gt.arange(size, dtype=df.dtype) / 2
    norm = (size + 1) * log_volume + gt.mvlgamma(df / 2, size)
    return norm - (df - size - 1) / 2 * halves.digamma().sum(-1) + df * size / 2


class LKJCholesky(ParametricDistribution):
    """LKJ distribution of the Cholesky factors of correlation matrices (Lewandowski, Kurowicka and Joe 2009).

    The density of a correlation matrix is proportional to `det^(concentration - 1)`: uniform for 1, and concentrated at
    the identity above. Samples are drawn by the onion method.

    Args:
        dim: The size of the matrices.
        concentration: The concentration.
    """

    concentration: Positive
    support = constraints.corr_cholesky
    _formulas = Formulas(
        sample=lambda shape, concentration: _onion(shape, concentration),
        log_prob=lambda value, concentration: _lkj_log_prob(value, concentration, value.shape[-1]),
    )

    def __init__(self, dim: int, concentration: Tensor | float = 1.0, validate_args: bool | None = None) -> None:
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        super().__init__(self.concentration.shape, (dim, dim), validate_args=validate_args)


def _onion(shape: tuple[int, ...], concentration: Tensor) -> Tensor:
    """Samples by the onion method: row by row, a uniform direction times the root of a beta variable."""
    dtype, size = concentration.dtype, shape[-1]
    rows = gt.cat([gt.zeros(1, dtype=dtype), gt.arange(size - 1, dtype=dtype)])
    most = (concentration + 0.5 * (size - 2)).unsqueeze(-1)
    share = Beta(rows + 0.5, most - 0.5 * rows, validate_args=False).expand(shape[:-1]).sample().unsqueeze(-1)
    normal = gt.randn(shape, dtype=dtype).tril(-1)
    length = normal.norm(2, dim=-1, keepdim=True)
    part = share.sqrt() * normal / gt.where(length == 0, 1.0, length)
    left = (1 - part.square().sum(-1)).clamp(min=gt.finfo(dtype).tiny).sqrt()
    return part + left.diag_embed()


def _lkj_log_prob(value: Tensor, concentration: Tensor, size: int) -> Tensor:
    rest = size - 1
    order = gt.arange(2, size + 1, dtype=concentration.dtype)
    powers = 2 * (concentration - 1).unsqueeze(-1) + size - order
    found = (powers * value.diagonal(dim1=-2, dim2=-1)[..., 1:].log()).sum(-1)
    alpha = concentration + 0.5 * rest
    norm = 0.5 * rest * math.log(math.pi) + gt.mvlgamma(alpha - 0.5, rest) - alpha.lgamma() * rest
    return found - norm
