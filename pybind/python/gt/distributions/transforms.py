"""Invertible transforms of random variables, for `TransformedDistribution(base, [transforms])`. Start at `Transform`.

A transform maps a `domain` to a `codomain`; `log_abs_det_jacobian(x, y)` is its change of volume at x.
"""

# ruff: noqa: ARG002, ARG005 (log_abs_det_jacobian takes the argument and the value)
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

from gt import _absent, linalg
from gt import _core as gt
from gt._gt import Tensor
from gt.distributions import constraints
from gt.distributions.constraints import Constraint
from gt.distributions.utils import _gram, _sum_rightmost, tril_matrix_to_vec, vec_to_tril_matrix
from gt.nn import functional

__all__ = [
    "AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform", "CorrCholeskyTransform",
    "CumulativeDistributionTransform", "ExpTransform", "IndependentTransform", "LowerCholeskyTransform",
    "PositiveDefiniteTransform", "PowerTransform", "ReshapeTransform", "SigmoidTransform", "SoftmaxTransform",
    "SoftplusTransform", "StackTransform", "StickBreakingTransform", "TanhTransform", "Transform", "identity_transform",
]  # fmt: skip

__getattr__ = _absent.getter(__name__)


class Transform:
    """An invertible, differentiable map with a computable log determinant of its Jacobian.

    Args:
        cache_size: 1 to remember the last argument and value, 0 otherwise.

    Attributes:
        domain: The constraint of arguments.
        codomain: The constraint of values.
        bijective: Whether the map is a bijection.
        sign: The sign of the derivative of a monotone map, 1 or -1.

    Example:
        >>> transform = gt.distributions.transforms.ExpTransform()
        >>> transform.inv(transform(gt.tensor([2.0])))
        tensor([2.])
    """

    bijective = True
    domain: Constraint = constraints.real
    codomain: Constraint = constraints.real
    # The sign of the derivative: 1 for an increasing map, -1 for a decreasing one.
    sign: int | Tensor | None = None

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ValueError("cache_size must be 0 or 1")
        self._cache_size = cache_size
        self._last: tuple[Tensor, Tensor] | None = None

    @property
    def event_dim(self) -> int:
        """The number of axes that the map acts on jointly."""
        if self.domain.event_dim == self.codomain.event_dim:
            return self.domain.event_dim
        raise ValueError("Please use either .domain.event_dim or .codomain.event_dim")

    @property
    def inv(self) -> Transform:
        """The inverse transform."""
        return _Inverse(self)

    def __call__(self, x: Tensor) -> Tensor:
        """The value at `x`."""
        if self._last is not None and self._last[0] is x:
            return self._last[1]
        y = self._call(x)
        if self._cache_size:
            self._last = x, y
        return y

    def _inv_call(self, y: Tensor) -> Tensor:
        if self._last is not None and self._last[1] is y:
            return self._last[0]
        x = self._inverse(y)
        if self._cache_size:
            self._last = x, y
        return x

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """`log |det J|` at `x`, where J is the Jacobian of the map.

        Args:
            x: The argument.
            y: The value at `x`.
        """
        raise NotImplementedError

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the value for an argument's shape."""
        return tuple(shape)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the argument for a value's shape."""
        return tuple(shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _Inverse(Transform):
    def __init__(self, transform: Transform) -> None:
        super().__init__()
        self._inv = transform
        self.domain, self.codomain = transform.codomain, transform.domain
        self.bijective, self.sign = transform.bijective, transform.sign

    @property
    def inv(self) -> Transform:
        return self._inv

    def __call__(self, x: Tensor) -> Tensor:
        return self._inv._inv_call(x)

    def _inv_call(self, y: Tensor) -> Tensor:
        return self._inv(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self._inv.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return self._inv.inverse_shape(shape)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return self._inv.forward_shape(shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Inverse) and self._inv == other._inv

    __hash__ = Transform.__hash__

    def __repr__(self) -> str:
        return f"{type(self._inv).__name__}.inv"


# Maps without parameters ----------------------------------------------------------------------------------------------


class Maps(NamedTuple):
    """A transform as formulas: `y = forward(x)`, `x = inverse(y)`, and the log determinant `log_slope(x, y)`."""

    forward: Callable[[Tensor], Tensor]
    inverse: Callable[[Tensor], Tensor]
    log_slope: Callable[[Tensor, Tensor], Tensor] | None = None


class _Declared(Transform):
    """The base of transforms without parameters: a subclass is a declaration, and its instances are equal."""

    _maps: ClassVar[Maps]

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    __hash__ = Transform.__hash__

    def _call(self, x: Tensor) -> Tensor:
        return self._maps.forward(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self._maps.inverse(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if self._maps.log_slope is None:
            raise NotImplementedError(f"{type(self).__name__} does not implement log_abs_det_jacobian")
        return self._maps.log_slope(x, y)


class ExpTransform(_Declared):
    """`y = exp(x)`.

    Example:
        >>> gt.distributions.ExpTransform()(gt.tensor([0.0, 1.0]))
        tensor([1.0000, 2.7183])
    """

    codomain = constraints.positive
    sign = 1
    _maps = Maps(forward=Tensor.exp, inverse=Tensor.log, log_slope=lambda x, y: x)


class SigmoidTransform(_Declared):
    """`y = 1 / (1 + exp(-x))`.

    Example:
        >>> gt.distributions.SigmoidTransform()(gt.tensor([0.0, 2.0]))
        tensor([0.5000, 0.8808])
    """

    codomain = constraints.unit_interval
    sign = 1
    _maps = Maps(
        forward=lambda x: _inside_unit_interval(x.sigmoid()),
        inverse=lambda y: _logit(_inside_unit_interval(y)),
        log_slope=lambda x, y: -functional.softplus(-x) - functional.softplus(x),
    )


def _inside_unit_interval(y: Tensor) -> Tensor:
    limits = gt.finfo(y.dtype)
    return y.clamp(limits.tiny, 1 - limits.eps)


def _logit(y: Tensor) -> Tensor:
    return y.log() - (-y).log1p()


class SoftplusTransform(_Declared):
    """`y = log(1 + exp(x))`."""

    codomain = constraints.positive
    sign = 1
    _maps = Maps(
        forward=functional.softplus,
        inverse=lambda y: (-(-y).expm1()).log() + y,
        log_slope=lambda x, y: -functional.softplus(-x),
    )


class TanhTransform(_Declared):
    """`y = tanh(x)`; its log determinant is computed without forming `1 - y^2`, which cancels near y = 1.

    Example:
        >>> gt.distributions.TanhTransform()(gt.tensor([0.0, 1.0]))
        tensor([0.0000, 0.7616])
    """

    codomain = constraints.interval(-1.0, 1.0)
    sign = 1
    _maps = Maps(
        forward=Tensor.tanh,
        inverse=Tensor.atanh,
        log_slope=lambda x, y: 2 * (math.log(2) - x - functional.softplus(-2 * x)),
    )


class AbsTransform(_Declared):
    """`y = |x|`; the inverse returns the positive preimage."""

    codomain = constraints.positive
    bijective = False
    _maps = Maps(forward=Tensor.abs, inverse=lambda y: y)


class SoftmaxTransform(_Declared):
    """Softmax along the last axis, onto the simplex; not a bijection: the inverse is `log(y)`."""

    domain = constraints.real_vector
    codomain = constraints.simplex
    bijective = False
    _maps = Maps(forward=lambda x: x.softmax(-1), inverse=Tensor.log)


class StickBreakingTransform(_Declared):
    """Stick-breaking bijection from vectors of n numbers to the simplex of n + 1 probabilities.

    Each number, by a sigmoid, is the fraction of the remaining stick that its probability takes.

    Example:
        >>> gt.distributions.StickBreakingTransform()(gt.zeros(2)).sum()
        tensor(1.0000)
    """

    domain = constraints.real_vector
    codomain = constraints.simplex
    _maps = Maps(
        forward=lambda x: _broken((x - _left(x.shape[-1], x.dtype).log()).sigmoid()),
        inverse=lambda y: (
            y[..., :-1].log()
            - (1 - y[..., :-1].cumsum(-1)).clamp(min=gt.finfo(y.dtype).tiny).log()
            + _left(y.shape[-1] - 1, y.dtype).log()
        ),
        log_slope=lambda x, y: _stick_log_slope(x - _left(x.shape[-1], x.dtype).log(), y[..., :-1]),
    )

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return (*shape[:-1], shape[-1] - 1)


def _left(count: int, dtype: Any) -> Tensor:
    """The number of probabilities that are still to come, at each of `count` numbers."""
    return count + 1 - gt.arange(1, count + 1, dtype=dtype)


def _broken(taken: Tensor) -> Tensor:
    return functional.pad(taken, [0, 1], value=1) * functional.pad((1 - taken).cumprod(-1), [1, 0], value=1)


def _stick_log_slope(x: Tensor, y: Tensor) -> Tensor:
    return (-x + functional.logsigmoid(x) + y.log()).sum(-1)


# Matrices -------------------------------------------------------------------------------------------------------------


class LowerCholeskyTransform(_Declared):
    """Maps a square matrix to a lower triangular one with a positive diagonal, by exponentiating the diagonal."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky
    _maps = Maps(
        forward=lambda x: x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed(),
        inverse=lambda y: y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed(),
    )


class PositiveDefiniteTransform(_Declared):
    """Maps a square matrix to the positive definite matrix `L L^T`, with `L` of `LowerCholeskyTransform`."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite
    _maps = Maps(
        forward=lambda x: _gram(LowerCholeskyTransform()(x)),
        inverse=lambda y: LowerCholeskyTransform().inv(linalg.cholesky(y)),
    )


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


# Maps with parameters -------------------------------------------------------------------------------------------------


class PowerTransform(Transform):
    """`y = x^exponent`, for positive x.

    Example:
        >>> gt.distributions.PowerTransform(gt.tensor(2.0))(gt.tensor([1.0, 3.0]))
        tensor([1., 9.])
    """

    domain = constraints.positive
    codomain = constraints.positive

    def __init__(self, exponent: Tensor | float, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.exponent = gt.as_tensor(exponent)
        self.sign = self.exponent.sign()

    def _call(self, x: Tensor) -> Tensor:
        return x**self.exponent

    def _inverse(self, y: Tensor) -> Tensor:
        return y ** (1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.exponent * y / x).abs().log()


class AffineTransform(Transform):
    """`y = loc + scale * x`.

    Args:
        loc: The shift.
        scale: The factor.
        event_dim: The number of axes that are one event.
        cache_size: 1 to remember the last argument and value, 0 otherwise.

    Example:
        >>> scale = gt.distributions.AffineTransform(loc=1.0, scale=2.0)
        >>> y = scale(gt.tensor([0.0, 1.0]))
        >>> y, scale.inv(y)
        (tensor([1., 3.]), tensor([0., 1.]))
    """

    def __init__(self, loc: Tensor | float, scale: Tensor | float, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.loc, self.scale, self._axes = loc, scale, event_dim
        if event_dim:
            self.domain = self.codomain = constraints.independent(constraints.real, event_dim)

    @property
    def event_dim(self) -> int:
        return self._axes

    @property
    def sign(self) -> Any:  # type: ignore[override]
        """The sign of the scale."""
        if isinstance(self.scale, Tensor):
            return self.scale.sign()
        return 1 if self.scale > 0 else -1 if self.scale < 0 else 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AffineTransform):
            return False
        ends = ((self.loc, other.loc), (self.scale, other.scale))
        return all(bool(gt.as_tensor(a == b).all()) for a, b in ends)

    __hash__ = Transform.__hash__

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        scale = self.scale
        found = scale.abs().log() if isinstance(scale, Tensor) else gt.full_like(x, math.log(abs(scale)))
        return _sum_rightmost(found.expand(gt.broadcast_shapes(found.shape, x.shape)), self._axes)


class ReshapeTransform(Transform):
    """Reshapes events.

    Args:
        in_shape: The event shape of arguments.
        out_shape: The event shape of values.
        cache_size: 1 to remember the last argument and value, 0 otherwise.
    """

    def __init__(self, in_shape: Sequence[int], out_shape: Sequence[int], cache_size: int = 0) -> None:
        self.in_shape, self.out_shape = gt.Size(in_shape), gt.Size(out_shape)
        if self.in_shape.numel() != self.out_shape.numel():
            raise ValueError("in_shape, out_shape have different numbers of elements")
        super().__init__(cache_size)
        self.domain = constraints.independent(constraints.real, len(self.in_shape))
        self.codomain = constraints.independent(constraints.real, len(self.out_shape))

    def _call(self, x: Tensor) -> Tensor:
        return x.reshape(*x.shape[: x.ndim - len(self.in_shape)], *self.out_shape)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.reshape(*y.shape[: y.ndim - len(self.out_shape)], *self.in_shape)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return gt.zeros(*x.shape[: x.ndim - len(self.in_shape)], dtype=x.dtype)

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return self._exchanged(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return self._exchanged(shape, self.out_shape, self.in_shape)

    @staticmethod
    def _exchanged(shape: Sequence[int], before: gt.Size, after: gt.Size) -> tuple[int, ...]:
        if len(shape) < len(before):
            raise ValueError("Too few dimensions on input")
        cut = len(shape) - len(before)
        if tuple(shape[cut:]) != before:
            raise ValueError(f"Shape mismatch: expected {tuple(shape[cut:])} but got {before}")
        return (*shape[:cut], *after)


class CumulativeDistributionTransform(Transform):
    """The probability integral transform: the CDF of a distribution.

    Args:
        distribution: The distribution.
        cache_size: 1 to remember the last argument and value, 0 otherwise.
    """

    codomain = constraints.unit_interval
    sign = 1

    def __init__(self, distribution: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.distribution = distribution

    @property
    def domain(self) -> Any:  # type: ignore[override]
        """The support of the distribution."""
        return self.distribution.support

    def _call(self, x: Tensor) -> Tensor:
        return self.distribution.cdf(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self.distribution.log_prob(x)


# Transforms of transforms ---------------------------------------------------------------------------------------------


class ComposeTransform(Transform):
    """The composition of several transforms, applied in order.

    Args:
        parts: The transforms.
        cache_size: 1 to remember the last argument and value, 0 otherwise.

    Example:
        >>> parts = [gt.distributions.AffineTransform(1.0, 2.0), gt.distributions.ExpTransform()]
        >>> gt.distributions.ComposeTransform(parts)(gt.tensor([0.0]))  # exp(1 + 2 * 0)
        tensor([2.7183])
    """

    def __init__(self, parts: list[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = parts
        self.bijective = all(part.bijective for part in parts)
        self._axes = axes = max((max(p.domain.event_dim, p.codomain.event_dim) for p in parts), default=0)
        first = parts[0].domain if parts else constraints.real
        last = parts[-1].codomain if parts else constraints.real
        self.domain = constraints.independent(first, axes - first.event_dim) if axes > first.event_dim else first
        self.codomain = constraints.independent(last, axes - last.event_dim) if axes > last.event_dim else last

    @property
    def sign(self) -> Any:  # type: ignore[override]
        """The product of the parts' signs."""
        signs = [part.sign for part in self.parts]
        return None if None in signs else math.prod(signs)  # type: ignore[arg-type]

    def _call(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def _inverse(self, y: Tensor) -> Tensor:
        for part in reversed(self.parts):
            y = part._inv_call(y)
        return y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if not self.parts:
            return gt.zeros_like(x)
        total: Any = 0
        for i, part in enumerate(self.parts):
            after = y if i == len(self.parts) - 1 else part(x)
            total = total + _sum_rightmost(part.log_abs_det_jacobian(x, after), self._axes - part.domain.event_dim)
            x = after
        return total

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return tuple(shape)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return tuple(shape)

    def __repr__(self) -> str:
        return "ComposeTransform(\n    " + ",\n    ".join(repr(part) for part in self.parts) + "\n)"


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """Reinterprets batch axes of a transform as event axes: its log determinant is summed over them.

    Args:
        base_transform: The transform.
        reinterpreted_batch_ndims: The number of axes.
        cache_size: 1 to remember the last argument and value, 0 otherwise.
    """

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.base_transform, self.reinterpreted_batch_ndims = base_transform, reinterpreted_batch_ndims
        self.domain = constraints.independent(base_transform.domain, reinterpreted_batch_ndims)
        self.codomain = constraints.independent(base_transform.codomain, reinterpreted_batch_ndims)
        self.bijective, self.sign = base_transform.bijective, base_transform.sign

    def _call(self, x: Tensor) -> Tensor:
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.base_transform._inv_call(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return _sum_rightmost(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        return f"IndependentTransform({self.base_transform!r}, {self.reinterpreted_batch_ndims})"


class _PiecewiseTransform(Transform):
    """Transforms of the parts of a tensor along an axis."""

    dim: int

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        if not all(isinstance(t, Transform) for t in tseq):
            raise AssertionError("All elements of tseq must be Transform instances")
        super().__init__(cache_size)
        self.transforms = list(tseq)
        self.dim = dim

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        """Whether all the transforms are bijective."""
        return all(t.bijective for t in self.transforms)

    def _parts(self, x: Tensor) -> tuple[Tensor, ...]:
        raise NotImplementedError

    def _each(self, *values: Tensor) -> Any:
        """The transforms, each with its parts of the values."""
        return zip(self.transforms, *(self._parts(value) for value in values), strict=True)


class CatTransform(_PiecewiseTransform):
    """Applies transforms to consecutive slices along an axis.

    Args:
        tseq: The transforms.
        dim: The axis.
        lengths: The size of each slice; 1 if not given.
        cache_size: 1 to remember the last argument and value, 0 otherwise.
    """

    def __init__(
        self,
        tseq: Sequence[Transform],
        dim: int = 0,
        lengths: Sequence[int] | None = None,
        cache_size: int = 0,
    ) -> None:
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise AssertionError(
                f"lengths must have same length as transforms: {len(self.lengths)} vs {len(self.transforms)}"
            )

    @property
    def event_dim(self) -> int:
        return max(t.event_dim for t in self.transforms)

    @property
    def length(self) -> int:
        """The size of the axis."""
        return sum(self.lengths)

    @property
    def domain(self) -> Any:  # type: ignore[override]
        """The domains of the transforms, concatenated."""
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @property
    def codomain(self) -> Any:  # type: ignore[override]
        """The codomains of the transforms, concatenated."""
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)

    def _parts(self, x: Tensor) -> tuple[Tensor, ...]:
        if x.shape[self.dim] != self.length:
            raise AssertionError(
                f"x.size({self.dim}) must equal length, got x.size({self.dim})={x.shape[self.dim]}, "
                f"length={self.length}"
            )
        return x.split(self.lengths, self.dim)

    def _call(self, x: Tensor) -> Tensor:
        return gt.cat([t(part) for t, part in self._each(x)], self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        return gt.cat([t.inv(part) for t, part in self._each(y)], self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        axes = self.event_dim
        found = [_sum_rightmost(t.log_abs_det_jacobian(a, b), axes - t.event_dim) for t, a, b in self._each(x, y)]
        dim = (self.dim - x.ndim if self.dim >= 0 else self.dim) + axes
        return gt.cat(found, dim) if dim < 0 else sum(found)  # type: ignore[return-value]


class StackTransform(_PiecewiseTransform):
    """Applies a transform to each element along an axis.

    Args:
        tseq: The transforms.
        dim: The axis.
        cache_size: 1 to remember the last argument and value, 0 otherwise.
    """

    @property
    def domain(self) -> Any:  # type: ignore[override]
        """The domains of the transforms, stacked."""
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @property
    def codomain(self) -> Any:  # type: ignore[override]
        """The codomains of the transforms, stacked."""
        return constraints.stack([t.codomain for t in self.transforms], self.dim)

    def _parts(self, x: Tensor) -> tuple[Tensor, ...]:
        if x.shape[self.dim] != len(self.transforms):
            raise AssertionError(
                f"x.size({self.dim}) must equal len(transforms), got x.size({self.dim})={x.shape[self.dim]}, "
                f"len(transforms)={len(self.transforms)}"
            )
        return x.unbind(self.dim)

    def _call(self, x: Tensor) -> Tensor:
        return gt.stack([t(part) for t, part in self._each(x)], self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        return gt.stack([t.inv(part) for t, part in self._each(y)], self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return gt.stack([t.log_abs_det_jacobian(a, b) for t, a, b in self._each(x, y)], self.dim)
