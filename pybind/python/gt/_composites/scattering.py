"""Elements written, added or combined at the places that an index tensor names."""

from __future__ import annotations

import math

from gt import _gt
from gt._composites.common import axis_of
from gt._composites.selection import nonnegative_index
from gt._gt import Tensor

_REDUCTION_OPS = {"sum": "scatter_add", "prod": "scatter_prod", "amax": "scatter_amax", "amin": "scatter_amin"}
_SCATTER_OPS = {"add": "scatter_add", "multiply": "scatter_prod"}


def _check_source(name: str, input: Tensor, src: Tensor) -> None:
    if src.dtype != input.dtype:
        raise RuntimeError(f"{name}(): Expected self.dtype to be equal to src.dtype")


def _full_source(input: Tensor, index: Tensor, value: complex) -> Tensor:
    """A source of the index's shape, filled with one number."""
    return _gt.full((), value, dtype=input.dtype).expand(index.shape)


def scatter_by(row: str, input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A scatter by its name in the op table. For bools, the sum is a logical or and the product a logical and."""
    if input.dtype == _gt.bool:
        row = {"scatter_add": "scatter_amax", "scatter_prod": "scatter_amin"}.get(row, row)
    return _gt.along_axis(row, dim, input, index, source)


def scatter(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor | complex | None = None,
    *,
    value: complex | None = None,
    reduce: str | None = None,
) -> Tensor:
    """A copy with elements written along an axis: `output[index[i][j]][j] = src[i][j]` for `dim=0` of a matrix.

    Args:
        input: A tensor.
        dim: The axis.
        index: A tensor of int64 or int32.
        src: The source elements, or one number.
        value: One number, another way to give `src`.
        reduce: `"add"` or `"multiply"` combines with the present elements. Without it, the last of several writes
            stays.

    Raises:
        IndexError: An index is out of range; raised when the result is fetched.

    Example:
        >>> gt.scatter(gt.zeros(2, 3), 1, gt.tensor([[0], [2]]), gt.tensor([[1.0], [2.0]]))
        tensor([[1., 0., 0.],
                [0., 0., 2.]])
    """
    if (src is None) == (value is None):
        raise TypeError("scatter() takes one of src and value")
    if reduce is not None and reduce not in _SCATTER_OPS:
        raise RuntimeError("reduce argument must be either add or multiply.")
    source = value if src is None else src
    if not isinstance(source, Tensor):
        source = _full_source(input, index, source)
    _check_source("scatter", input, source)
    return scatter_by(_SCATTER_OPS[reduce] if reduce else "scatter", input, dim, index, source)


def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """A copy of `input`, with elements of `src` added along an axis at the positions that `index` names.

    For a matrix, `output[index[i][j]][j] += src[i][j]` if `dim=0`, and `output[i][index[i][j]] += src[i][j]` if
    `dim=1`. An index may occur several times: all its elements are added. It is the adjoint of `gather`.

    Args:
        input: The tensor to add to.
        dim: The axis that the indices count along.
        index: A tensor of int64 or int32 with as many axes as `input` and `src`. Along each axis it is at most as long
            as `src`, and along each but `dim` at most as long as `input`.
        src: The elements to add, of the dtype of `input`. Elements beyond the shape of `index` are not used.

    Returns:
        A tensor of the shape of `input`.

    Raises:
        RuntimeError: The shapes or dtypes do not fit.
        IndexError: An index is out of range; raised where the result is fetched.

    Example:
        >>> gt.scatter_add(gt.zeros(3), 0, gt.tensor([0, 0, 2]), gt.tensor([1.0, 2.0, 3.0]))
        tensor([3., 0., 3.])
    """
    _check_source("scatter_add", input, src)
    return scatter_by("scatter_add", input, dim, index, src)


def reduction_identity(dtype: _gt.dtype, sign: int) -> float:
    """The identity of a maximum (`sign` 1) or minimum (-1) of a dtype: its lowest or highest value."""
    if dtype.is_floating_point:
        return -sign * math.inf
    if dtype == _gt.bool:
        return sign < 0
    bits = 8 * dtype.itemsize
    if dtype == _gt.uint8:
        return 0 if sign > 0 else 255
    return -(2 ** (bits - 1)) if sign > 0 else 2 ** (bits - 1) - 1


def scatter_reduce(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """A copy with elements combined along an axis by a reduction.

    Args:
        input: A tensor.
        dim: The axis.
        index: A tensor of int64 or int32.
        src: The source elements.
        reduce: `"sum"`, `"prod"`, `"mean"`, `"amax"` or `"amin"`.
        include_self: Whether the present elements take part.

    Example:
        >>> gt.scatter_reduce(gt.zeros(2), 0, gt.tensor([0, 0, 1]), gt.tensor([1.0, 5.0, 3.0]), "amax")
        tensor([5., 3.])
    """
    _check_source("scatter", input, src)
    if reduce not in (*_REDUCTION_OPS, "mean"):
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}.")
    lowest, highest = reduction_identity(input.dtype, 1), reduction_identity(input.dtype, -1)
    start = {"sum": 0, "mean": 0, "prod": 1, "amax": lowest, "amin": highest}[reduce]
    base = input if include_self else scatter(input, dim, index, value=start)
    result = scatter_by(_REDUCTION_OPS.get(reduce, "scatter_add"), base, dim, index, src)
    if reduce != "mean":
        return result
    ones = _gt.ones_like(input.detach())
    counts = ones if include_self else scatter(ones, dim, index, value=0)
    counts = _gt.along_axis("scatter_add", dim, counts, index, _gt.ones_like(src.detach())).clamp(min=1)
    return result / counts if input.is_floating_point() else result // counts


def _along_index(name: str, input: Tensor, dim: int, index: Tensor, source: Tensor) -> tuple[int, Tensor, Tensor]:
    """The axis, the vector of indices expanded to the shape of `source`, and `source`."""
    axis = axis_of(input, dim)
    if index.ndim > 1:
        raise IndexError(f"{name}_(): Index is supposed to be a vector, but got dim: {index.ndim}")
    if index.dtype not in (_gt.int32, _gt.int64):
        raise RuntimeError(f"{name}_(): Expected dtype int32/int64 for index but got: {index.dtype}")
    if source.dtype != input.dtype:
        raise RuntimeError(
            f"{name}_(): self ({input.dtype}) and source ({source.dtype}) must have the same scalar type"
        )
    if input.ndim == 0:
        return axis, index.long().reshape(()), source.reshape(())
    if source.ndim == 0:
        source = source.reshape([1] * input.ndim)
    if index.numel() != source.shape[axis]:
        raise RuntimeError(
            f"{name}_(): Number of indices ({index.numel()}) should be equal to source.size(dim): "
            f"({source.shape[axis]}), for dim: {axis}"
        )
    own, others = list(source.shape), list(input.shape)
    del own[axis], others[axis]
    if own != others:
        raise RuntimeError(
            f"{name}_(): Source/destination tensor must have same slice shapes. Destination slice shape: {others} "
            f"at dimension {axis} and source slice shape: {own} at dimension {axis}."
        )
    shape = [1] * input.ndim
    shape[axis] = index.numel()
    return axis, index.long().reshape(shape).expand(source.shape), source


def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    """A copy with slices added along an axis: `output[index[i]] += alpha * source[i]`.

    Args:
        input: A tensor.
        dim: The axis.
        index: A vector of int64 or int32.
        source: The slices, of the dtype of `input`.
        alpha: The factor of `source`.

    Example:
        >>> gt.index_add(gt.zeros(3, 2), 0, gt.tensor([0, 2, 2]), gt.ones(3, 2))
        tensor([[1., 1.],
                [0., 0.],
                [2., 2.]])
    """
    axis, at, source = _along_index("index_add", input, dim, index, source)
    return scatter_by("scatter_add", input, axis, at, source if alpha == 1 else source * alpha)


def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A copy with slices replaced along an axis: `output[index[i]] = source[i]`.

    Example:
        >>> gt.index_copy(gt.zeros(3), 0, gt.tensor([0, 2]), gt.tensor([1.0, 2.0]))
        tensor([1., 0., 2.])
    """
    axis, at, source = _along_index("index_copy", input, dim, index, source)
    return _gt.along_axis("scatter", axis, input, at, source)


def index_fill(input: Tensor, dim: int, index: Tensor, value: Tensor | complex) -> Tensor:
    """A copy with the slices at the indices of a vector set to one number.

    Example:
        >>> gt.index_fill(gt.zeros(2, 3), 1, gt.tensor([0, 2]), -1)
        tensor([[-1.,  0., -1.],
                [-1.,  0., -1.]])
    """
    if isinstance(value, Tensor) and value.ndim:
        raise RuntimeError(
            f"index_fill_ only supports a 0-dimensional value tensor, but got tensor with {value.ndim} dimension(s)."
        )
    axis = axis_of(input, dim)
    at = nonnegative_index(index.long(), input.shape[axis] if input.ndim else 1)
    # A mask, so that the gradient of `value` counts each place once, even if its index is repeated.
    mask = index_copy(_gt.zeros(input.shape, dtype=_gt.bool), axis, at, _true_slices(input, axis, index.numel()))
    filling = value.to(input.dtype) if isinstance(value, Tensor) else _gt.full((), value, dtype=input.dtype)
    return _gt.where(mask, filling, input)


def _true_slices(input: Tensor, axis: int, count: int) -> Tensor:
    """`count` slices along an axis, all true."""
    shape = list(input.shape)
    if shape:
        shape[axis] = count
    return _gt.full((), True, dtype=_gt.bool).expand(shape)


def index_reduce(
    input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """A copy with slices combined along an axis by a reduction, at the indices of a vector.

    Args:
        input: A tensor.
        dim: The axis.
        index: A vector of int64 or int32.
        source: The slices, of the dtype of `input`.
        reduce: `"prod"`, `"mean"`, `"amax"` or `"amin"`.
        include_self: Whether the present slices take part.

    Example:
        >>> gt.index_reduce(gt.ones(2), 0, gt.tensor([0, 0]), gt.tensor([2.0, 3.0]), "prod")
        tensor([6., 1.])
    """
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise RuntimeError(f"index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got {reduce}.")
    axis, at, source = _along_index("index_reduce", input, dim, index, source)
    return scatter_reduce(input, axis, at, source, reduce, include_self=include_self)


METHODS = (
    scatter,
    scatter_add,
    scatter_reduce,
    index_add,
    index_copy,
    index_fill,
    index_reduce,
)
IN_PLACE = METHODS
FUNCTIONS = ()
