"""Invertible transforms of random variables, for `TransformedDistribution(base, [transforms])`.

A transform maps a `domain` to a `codomain`; `log_abs_det_jacobian(x, y)` is its change of volume at x.
"""

# ruff: noqa: ARG002 (log_abs_det_jacobian takes the argument and the value)
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gt import _absent
from gt import _core as gt
from gt._gt import Tensor
from gt.distributions import constraints
from gt.distributions.composed_transforms import (
    CatTransform,
    CumulativeDistributionTransform,
    ReshapeTransform,
    StackTransform,
)
from gt.distributions.matrix_transforms import (
    CorrCholeskyTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
)
from gt.distributions.transform import Transform, summed
from gt.nn import functional

__all__ = [
    "AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform", "CorrCholeskyTransform",
    "CumulativeDistributionTransform", "ExpTransform", "IndependentTransform", "LowerCholeskyTransform",
    "PositiveDefiniteTransform", "PowerTransform", "ReshapeTransform", "SigmoidTransform", "SoftmaxTransform",
    "SoftplusTransform", "StackTransform", "StickBreakingTransform", "TanhTransform", "Transform", "identity_transform",
]  # fmt: skip

__getattr__ = _absent.getter(__name__)


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
        axes = max((max(part.domain.event_dim, part.codomain.event_dim) for part in parts), default=0)
        self._axes = axes
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
            total = total + summed(part.log_abs_det_jacobian(x, after), self._axes - part.domain.event_dim)
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
        return summed(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        return f"IndependentTransform({self.base_transform!r}, {self.reinterpreted_batch_ndims})"


class ExpTransform(Transform):
    """`y = exp(x)`.

    Example:
        >>> gt.distributions.ExpTransform()(gt.tensor([0.0, 1.0]))
        tensor([1.0000, 2.7183])
    """

    codomain = constraints.positive
    sign = 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExpTransform)

    __hash__ = Transform.__hash__

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


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


class SigmoidTransform(Transform):
    """`y = 1 / (1 + exp(-x))`.

    Example:
        >>> gt.distributions.SigmoidTransform()(gt.tensor([0.0, 2.0]))
        tensor([0.5000, 0.8808])
    """

    codomain = constraints.unit_interval
    sign = 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SigmoidTransform)

    __hash__ = Transform.__hash__

    def _call(self, x: Tensor) -> Tensor:
        limits = gt.finfo(x.dtype)
        return x.sigmoid().clamp(limits.tiny, 1 - limits.eps)

    def _inverse(self, y: Tensor) -> Tensor:
        limits = gt.finfo(y.dtype)
        y = y.clamp(limits.tiny, 1 - limits.eps)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -functional.softplus(-x) - functional.softplus(x)


class SoftplusTransform(Transform):
    """`y = log(1 + exp(x))`."""

    codomain = constraints.positive
    sign = 1

    def _call(self, x: Tensor) -> Tensor:
        return functional.softplus(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return (-(-y).expm1()).log() + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -functional.softplus(-x)


class TanhTransform(Transform):
    """`y = tanh(x)`; its log determinant is computed without forming `1 - y^2`, which cancels near y = 1.

    Example:
        >>> gt.distributions.TanhTransform()(gt.tensor([0.0, 1.0]))
        tensor([0.0000, 0.7616])
    """

    codomain = constraints.interval(-1.0, 1.0)
    sign = 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TanhTransform)

    __hash__ = Transform.__hash__

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return 2 * (math.log(2) - x - functional.softplus(-2 * x))


class AbsTransform(Transform):
    """`y = |x|`; the inverse returns the positive preimage."""

    codomain = constraints.positive
    bijective = False

    def _call(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y


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
        return summed(found.expand(gt.broadcast_shapes(found.shape, x.shape)), self._axes)


class SoftmaxTransform(Transform):
    """Softmax along the last axis, onto the simplex; not a bijection: the inverse is `log(y)`."""

    domain = constraints.real_vector
    codomain = constraints.simplex
    bijective = False

    def _call(self, x: Tensor) -> Tensor:
        return x.softmax(-1)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()


class StickBreakingTransform(Transform):
    """Stick-breaking bijection from vectors of n numbers to the simplex of n + 1 probabilities.

    Each number, by a sigmoid, is the fraction of the remaining stick that its probability takes.

    Example:
        >>> gt.distributions.StickBreakingTransform()(gt.zeros(2)).sum()
        tensor(1.0000)
    """

    domain = constraints.real_vector
    codomain = constraints.simplex

    def _call(self, x: Tensor) -> Tensor:
        left = x.shape[-1] + 1 - gt.arange(1, x.shape[-1] + 1, dtype=x.dtype)
        taken = (x - left.log()).sigmoid()
        rest = (1 - taken).cumprod(-1)
        return functional.pad(taken, [0, 1], value=1) * functional.pad(rest, [1, 0], value=1)

    def _inverse(self, y: Tensor) -> Tensor:
        most = y[..., :-1]
        left = y.shape[-1] - gt.arange(1, y.shape[-1], dtype=y.dtype)
        rest = (1 - most.cumsum(-1)).clamp(min=gt.finfo(y.dtype).tiny)
        return most.log() - rest.log() + left.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        left = x.shape[-1] + 1 - gt.arange(1, x.shape[-1] + 1, dtype=x.dtype)
        x = x - left.log()
        return (-x + functional.logsigmoid(x) + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return (*shape[:-1], shape[-1] - 1)
