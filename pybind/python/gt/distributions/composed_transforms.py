"""Transforms made of others along an axis, reshaping, and the probability integral transform."""

# ruff: noqa: ARG002 (log_abs_det_jacobian takes the argument and the value)
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gt import _core as gt
from gt._gt import Tensor
from gt.distributions import constraints
from gt.distributions.transform import Transform, summed


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
        return gt.cat([t(part) for t, part in zip(self.transforms, self._parts(x), strict=True)], self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        return gt.cat([t.inv(part) for t, part in zip(self.transforms, self._parts(y), strict=True)], self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        found = []
        for t, a, b in zip(self.transforms, self._parts(x), self._parts(y), strict=True):
            found.append(summed(t.log_abs_det_jacobian(a, b), self.event_dim - t.event_dim))
        dim = self.dim - x.ndim if self.dim >= 0 else self.dim
        dim += self.event_dim
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
        return gt.stack([t(part) for t, part in zip(self.transforms, self._parts(x), strict=True)], self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        return gt.stack([t.inv(part) for t, part in zip(self.transforms, self._parts(y), strict=True)], self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        parts = zip(self.transforms, self._parts(x), self._parts(y), strict=True)
        return gt.stack([t.log_abs_det_jacobian(a, b) for t, a, b in parts], self.dim)


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
