"""Cumulative operations along an axis, finite differences and numerical integration."""

from __future__ import annotations

from collections.abc import Sequence

from gt import _gt
from gt._composites.common import axes_of, axis_of
from gt._gt import Tensor
from gt._types import ValuesIndices


def _scan(row: str, input: Tensor, dim: int, dtype: _gt.dtype | None) -> Tensor:
    result = _gt.along_axis(row, dim, input if dtype is None else input.to(dtype))
    return result if dtype is None else result.to(dtype)


def cumsum(input: Tensor, dim: int, *, dtype: _gt.dtype | None = None) -> Tensor:
    """The cumulative sum along an axis: `output[i] = input[0] + ... + input[i]`.

    Args:
        input: A tensor.
        dim: The axis.
        dtype: The dtype to convert the input to before. Without it, bools and integers add up as int64.

    Example:
        >>> gt.cumsum(gt.tensor([1, 2, 3]), dim=0)
        tensor([1, 3, 6])
    """
    return _scan("cumsum", input, dim, dtype)


def cumprod(input: Tensor, dim: int, *, dtype: _gt.dtype | None = None) -> Tensor:
    """The cumulative product along an axis: `output[i] = input[0] * ... * input[i]`.

    Args:
        input: A tensor.
        dim: The axis.
        dtype: The dtype to convert the input to before. Without it, bools and integers multiply as int64.

    Example:
        >>> gt.cumprod(gt.tensor([1, 2, 3, 4]), dim=0)
        tensor([ 1,  2,  6, 24])
    """
    return _scan("cumprod", input, dim, dtype)


def cumsum_(self: Tensor, dim: int, *, dtype: _gt.dtype | None = None) -> Tensor:
    """`cumsum` written to the tensor itself, in its own dtype."""
    return self._rebind(cumsum(self, dim, dtype=_own_dtype(self, dtype)))


def cumprod_(self: Tensor, dim: int, *, dtype: _gt.dtype | None = None) -> Tensor:
    """`cumprod` written to the tensor itself, in its own dtype."""
    return self._rebind(cumprod(self, dim, dtype=_own_dtype(self, dtype)))


def _own_dtype(t: Tensor, dtype: _gt.dtype | None) -> _gt.dtype:
    if dtype not in (None, t.dtype):
        raise RuntimeError(
            f"Bad in-place call: input tensor dtype {t.dtype} and output tensor dtype {dtype} should match"
        )
    return t.dtype


def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """The logarithm of the cumulative sum of exponentials along an axis, without overflow.

    Example:
        >>> gt.logcumsumexp(gt.tensor([0.0, 0.0, 0.0]), dim=0)
        tensor([0.0000, 0.6931, 1.0986])
    """
    return _gt.along_axis("logcumsumexp", dim, input)


def _cumulative_extreme(row: str, input: Tensor, dim: int) -> ValuesIndices:
    indices = _gt.along_axis(row, dim, input.detach())
    return ValuesIndices(input.gather(dim, indices), indices)


def cummax(input: Tensor, dim: int) -> ValuesIndices:
    """The cumulative maximum along an axis, and its indices: of equal elements, the last.

    Returns:
        A pair `(values, indices)`.

    Example:
        >>> values, indices = gt.cummax(gt.tensor([1, 3, 2, 3]), dim=0)
        >>> values, indices
        (tensor([1, 3, 3, 3]), tensor([0, 1, 1, 3]))
    """
    return _cumulative_extreme("cumargmax", input, dim)


def cummin(input: Tensor, dim: int) -> ValuesIndices:
    """The cumulative minimum along an axis, and its indices: of equal elements, the last.

    Returns:
        A pair `(values, indices)`.

    Example:
        >>> gt.cummin(gt.tensor([3, 1, 2]), dim=0).values
        tensor([3, 1, 1])
    """
    return _cumulative_extreme("cumargmin", input, dim)


def diff(
    input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """The differences of neighbours along an axis: `output[i] = input[i + 1] - input[i]`.

    Args:
        input: A tensor.
        n: How often differences are taken.
        dim: The axis.
        prepend: Elements to put in front first.
        append: Elements to put behind first.

    Example:
        >>> gt.diff(gt.tensor([1, 3, 6]))
        tensor([2, 3])
    """
    if input.ndim == 0:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    axis = axis_of(input, dim)
    if n == 0:
        return input.clone()
    parts = [part for part in (prepend, input, append) if part is not None]
    if len(parts) > 1:
        input = _gt.cat(parts, axis)
    for _ in range(min(n, input.shape[axis])):
        later = input.narrow(axis, 1, input.shape[axis] - 1)
        earlier = input.narrow(axis, 0, input.shape[axis] - 1)
        input = later ^ earlier if input.dtype == _gt.bool else later - earlier
    return input


def _trapezoid_areas(y: Tensor, x: Tensor | None, dx: float, axis: int) -> Tensor:
    """The areas of the trapezoids between neighbouring samples."""
    size = y.shape[axis] - 1
    heights = y.narrow(axis, 1, size) + y.narrow(axis, 0, size)
    if x is None:
        return heights * (dx / 2)
    if x.ndim == 1 and y.ndim > 1:
        if x.shape[0] != y.shape[axis]:
            raise RuntimeError("trapezoid: There must be one `x` value for each sample point")
        x = x.reshape([-1 if i == axis else 1 for i in range(y.ndim)])
    return heights * diff(x, dim=axis - y.ndim) / 2


def _axis_and_step(name: str, y: Tensor, x: Tensor | None, dx: float | None, dim: int) -> tuple[int, float]:
    if x is not None and dx is not None:
        raise TypeError(f"{name}() takes one of x and dx")
    return axis_of(y, dim), 1.0 if dx is None else dx


def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float | None = None, dim: int = -1) -> Tensor:
    """The integral of samples along an axis by the trapezoidal rule.

    Args:
        y: The samples.
        x: The positions of the samples.
        dx: The distance between samples if there is no `x`; 1 if not given.
        dim: The axis.

    Example:
        >>> gt.trapezoid(gt.tensor([1.0, 5.0, 10.0]))
        tensor(10.5000)
    """
    axis, step = _axis_and_step("trapezoid", y, x, dx, dim)
    if y.shape[axis] == 0:
        return y.sum(axis).to(y.dtype if y.is_floating_point() else _gt.float32)
    return _trapezoid_areas(y, x, step, axis).sum(axis)


def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float | None = None, dim: int = -1) -> Tensor:
    """The cumulative integral of samples along an axis by the trapezoidal rule; shorter by one than the samples.

    Example:
        >>> gt.cumulative_trapezoid(gt.tensor([1.0, 5.0, 10.0]))
        tensor([ 3.0000, 10.5000])
    """
    axis, step = _axis_and_step("cumulative_trapezoid", y, x, dx, dim)
    return cumsum(_trapezoid_areas(y, x, step, axis), axis)


def gradient(
    input: Tensor,
    *,
    spacing: float | Sequence[float | Tensor] | None = None,
    dim: int | Sequence[int] | None = None,
    edge_order: int = 1,
) -> tuple[Tensor, ...]:
    """The derivative of samples along each axis: central differences, and one-sided ones of an order at the ends.

    Args:
        input: The samples.
        spacing: The distance between samples, or their positions as a vector; one for all axes or one for each.
        dim: The axes; all if not given.
        edge_order: The order of the differences at the ends, 1 or 2.

    Returns:
        A tuple with a tensor for each axis.

    Example:
        >>> gt.gradient(gt.tensor([1.0, 2.0, 4.0, 7.0]))
        (tensor([1.0000, 1.5000, 2.5000, 3.0000]),)
    """
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    axes = list(range(input.ndim)) if dim is None else axes_of(input, dim)
    if len(set(axes)) != len(axes):
        raise RuntimeError(f"dim {next(axis for axis in axes if axes.count(axis) > 1)} appears multiple times in dims")
    apart = list(spacing) if isinstance(spacing, Sequence) else [1.0 if spacing is None else spacing] * len(axes)
    if len(apart) != len(axes):
        raise RuntimeError(
            "torch.gradient expected spacing to be unspecified, a scalar or a list of length equal to the number of "
            f"dims, {len(axes)}, but got a list of length {len(apart)}"
        )
    if any(input.shape[axis] <= edge_order for axis in axes):
        raise RuntimeError("torch.gradient expected each dimension size to be at least edge_order+1")
    return tuple(_derivative(input, axis, by, edge_order) for axis, by in zip(axes, apart, strict=True))


def _derivative(f: Tensor, axis: int, spacing: float | Tensor, edge_order: int) -> Tensor:
    """The derivative along one axis, whose samples are `spacing` apart or at the positions `spacing`."""
    size = f.shape[axis]

    def part(t: Tensor, start: int, count: int) -> Tensor:
        return t.narrow(axis, start, count)

    if isinstance(spacing, Tensor):
        steps = diff(spacing).reshape([-1 if i == axis else 1 for i in range(f.ndim)])
        before, after = part(steps, 0, size - 2), part(steps, 1, size - 2)
        ends = [
            [part(steps, i, 1) for i in positions]
            for positions in ((0, min(1, size - 2)), (size - 2, max(size - 3, 0)))
        ]
        middle = part(f, 1, size - 2) * ((after - before) / (before * after))
        inner = part(f, 2, size - 2) * (before / (after * (before + after))) + middle
        inner = inner - part(f, 0, size - 2) * (after / (before * (before + after)))
    else:
        inner = (part(f, 2, size - 2) - part(f, 0, size - 2)) / (2 * spacing)
        ends = [[spacing, spacing]] * 2
    edges = []
    for position, inward, (near, far) in ((0, 1, ends[0]), (size - 1, -1, ends[1])):
        first, second = part(f, position, 1), part(f, position + inward, 1)
        slope = (second - first) / near
        if edge_order == 2:
            third = part(f, position + 2 * inward, 1)
            slope = slope + near * (slope - (third - second) / far) / (near + far)
        edges.append(slope * inward)
    return _gt.cat([edges[0], inner, edges[1]], axis)


METHODS = (
    cumsum,
    cumprod,
    logcumsumexp,
    cummax,
    cummin,
    diff,
)
TENSOR_METHODS = (
    cumsum_,
    cumprod_,
)
IN_PLACE = ()
FUNCTIONS = (
    trapezoid,
    cumulative_trapezoid,
    gradient,
)
