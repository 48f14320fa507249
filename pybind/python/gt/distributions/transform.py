"""`Transform`, the base class: a function, its inverse, and the logarithm of its Jacobian's determinant."""

from __future__ import annotations

from collections.abc import Sequence

from gt._gt import Tensor
from gt.distributions import constraints
from gt.distributions.constraints import Constraint


def summed(x: Tensor, axes: int) -> Tensor:
    """Sums the last `axes` axes."""
    return x.sum(tuple(range(-axes, 0))) if axes else x


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
