"""Masked reductions and scans, under the names of `torch.masked`: only elements where a bool mask is true count.

Masked elements are replaced by the identity of the operation. A mask broadcasts to the input; without one, every
element counts. Where no element is left, the result is that of an empty reduction, or undefined.
"""

from __future__ import annotations

import math as _math
from collections.abc import Callable as _Callable
from collections.abc import Sequence as _Sequence
from typing import Any as _Any

from gt import _absent
from gt import _core as _gt
from gt._composites.common import axes_of as _axes_of
from gt._composites.scattering import reduction_identity as _reduction_identity
from gt._gt import Tensor as _Tensor
from gt.linalg import vector_norm as _vector_norm

_Dim = int | _Sequence[int] | None


def _fill_masked(input: _Tensor, mask: _Tensor | None, filling: float) -> _Tensor:
    """The input with `filling` where the mask is false."""
    if mask is None:
        return input
    if mask.ndim > input.ndim:
        raise IndexError("_input_mask expected broadcastable mask (got mask dimensionality higher than of the input)")
    return _gt.where(mask.bool(), input, _gt.full((), filling, dtype=input.dtype))


def _axes(input: _Tensor, dim: _Dim) -> list[int] | None:
    """The axes as a list; None for all of them."""
    return None if dim is None or dim == () or input.ndim == 0 else _axes_of(input, dim)


def _cast(input: _Tensor, dtype: _Any) -> _Tensor:
    return input if dtype is None else input.to(dtype)


def _floating(input: _Tensor, dtype: _Any) -> _Tensor:
    wide = _cast(input, dtype)
    return wide if wide.is_floating_point() else wide.float()


def _count(input: _Tensor, axes: list[int] | None, mask: _Tensor | None) -> _Tensor:
    """The number of elements that the mask keeps, with the reduced axes kept."""
    return _fill_masked(_gt.ones_like(input, dtype=_gt.int64), mask, 0).sum(axes, keepdim=True)


def _without(kept: _Tensor, axes: list[int] | None, keepdim: bool) -> _Tensor:
    return kept if keepdim else kept.squeeze(list(range(kept.ndim)) if axes is None else axes)


def sum(
    input: _Tensor, dim: _Dim = None, *, keepdim: bool = False, dtype: _Any = None, mask: _Tensor | None = None
) -> _Tensor:
    """The sum of the elements where a mask is true, of all or along axes.

    Args:
        input: A tensor.
        dim: An axis or several; all if not given.
        keepdim: Whether reduced axes stay with size 1.
        dtype: The dtype to convert the input to before.
        mask: A tensor of bools that broadcasts to `input`; all elements count without it.

    Example:
        >>> x = gt.tensor([1.0, 2.0, 4.0])
        >>> gt.masked.sum(x, mask=gt.tensor([True, False, True]))
        tensor(5.)
    """
    return _fill_masked(_cast(input, dtype), mask, 0).sum(_axes(input, dim), keepdim=keepdim, dtype=dtype)


def prod(
    input: _Tensor, dim: _Dim = None, *, keepdim: bool = False, dtype: _Any = None, mask: _Tensor | None = None
) -> _Tensor:
    """The product of the elements where a mask is true, of all or along axes; see `sum`."""
    kept = _fill_masked(_cast(input, dtype), mask, 1)
    if kept.ndim == 0:
        return kept if dtype is not None or kept.is_floating_point() else kept.long()
    return kept.prod(_axes(input, dim), keepdim=keepdim, dtype=dtype)


def amax(
    input: _Tensor, dim: _Dim = None, *, keepdim: bool = False, dtype: _Any = None, mask: _Tensor | None = None
) -> _Tensor:
    """The largest of the elements where a mask is true, of all or along axes; see `sum`."""
    wide = _cast(input, dtype)
    return _fill_masked(wide, mask, _reduction_identity(wide.dtype, 1)).amax(_axes(input, dim), keepdim=keepdim)


def amin(
    input: _Tensor, dim: _Dim = None, *, keepdim: bool = False, dtype: _Any = None, mask: _Tensor | None = None
) -> _Tensor:
    """The smallest of the elements where a mask is true, of all or along axes; see `sum`."""
    wide = _cast(input, dtype)
    return _fill_masked(wide, mask, _reduction_identity(wide.dtype, -1)).amin(_axes(input, dim), keepdim=keepdim)


def argmax(
    input: _Tensor, dim: int | None = None, *, keepdim: bool = False, dtype: _Any = None, mask: _Tensor | None = None
) -> _Tensor:
    """The index of the largest element where a mask is true, in the dtype of the input, as in PyTorch."""
    wide = _cast(input, dtype)
    return _fill_masked(wide, mask, _reduction_identity(wide.dtype, 1)).argmax(dim, keepdim=keepdim).to(wide.dtype)


def argmin(
    input: _Tensor, dim: int | None = None, *, keepdim: bool = False, dtype: _Any = None, mask: _Tensor | None = None
) -> _Tensor:
    """The index of the smallest element where a mask is true, in the dtype of the input, as in PyTorch."""
    wide = _cast(input, dtype)
    return _fill_masked(wide, mask, _reduction_identity(wide.dtype, -1)).argmin(dim, keepdim=keepdim).to(wide.dtype)


def cumsum(input: _Tensor, dim: int, *, dtype: _Any = None, mask: _Tensor | None = None) -> _Tensor:
    """The cumulative sum along an axis of the elements where a mask is true."""
    return _fill_masked(_cast(input, dtype), mask, 0).cumsum(dim, dtype=dtype)


def cumprod(input: _Tensor, dim: int, *, dtype: _Any = None, mask: _Tensor | None = None) -> _Tensor:
    """The cumulative product along an axis of the elements where a mask is true."""
    return _fill_masked(_cast(input, dtype), mask, 1).cumprod(dim, dtype=dtype)


def mean(
    input: _Tensor, dim: _Dim = None, *, keepdim: bool = False, dtype: _Any = None, mask: _Tensor | None = None
) -> _Tensor:
    """The mean of the elements where a mask is true, of all or along axes.

    Example:
        >>> x = gt.tensor([1.0, 2.0, 4.0])
        >>> gt.masked.mean(x, mask=gt.tensor([True, False, True]))
        tensor(2.5000)
    """
    wide, axes = _floating(input, dtype), _axes(input, dim)
    total = _fill_masked(wide, mask, 0).sum(axes, keepdim=True) / _count(input, axes, mask)
    return _without(total, axes, keepdim)


def var(
    input: _Tensor,
    dim: _Dim = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
    dtype: _Any = None,
    mask: _Tensor | None = None,
) -> _Tensor:
    """The variance of the elements where a mask is true, of all or along axes; see `gt.var`."""
    if unbiased is not None and correction is not None:
        raise RuntimeError("Only one of unbiased and correction may be given")
    less = correction if correction is not None else 0 if unbiased is False else 1
    wide, axes = _floating(input, dtype), _axes(input, dim)
    apart = wide - mean(wide, dim, keepdim=True, mask=mask)
    total = _fill_masked(apart * apart, mask, 0).sum(axes, keepdim=True)
    count = (_count(input, axes, mask) - less).clamp(min=0)
    return _without((total / count).to(wide.dtype), axes, keepdim)


def std(
    input: _Tensor,
    dim: _Dim = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
    dtype: _Any = None,
    mask: _Tensor | None = None,
) -> _Tensor:
    """The standard deviation of the elements where a mask is true, of all or along axes; see `gt.std`."""
    return var(input, dim, unbiased, correction=correction, keepdim=keepdim, dtype=dtype, mask=mask).sqrt()


def norm(
    input: _Tensor,
    ord: float = 2.0,
    dim: _Dim = None,
    *,
    keepdim: bool = False,
    dtype: _Any = None,
    mask: _Tensor | None = None,
) -> _Tensor:
    """The vector norm of the elements where a mask is true, of all or along axes."""
    kept = _fill_masked(_cast(input, dtype), mask, 0 if ord >= 0 else _math.inf)
    return _vector_norm(kept, ord, _axes(input, dim), keepdim)


def median(
    input: _Tensor, dim: int = -1, *, keepdim: bool = False, dtype: _Any = None, mask: _Tensor | None = None
) -> _Tensor:
    """The median of the elements where a mask is true, along an axis: of two middle elements the lower one."""
    wide = _cast(input, dtype)
    if not wide.is_floating_point():
        raise ValueError(f"masked median expects inputs to be of a floating dtype, not {wide.dtype}")
    return _fill_masked(wide, mask, _math.nan).nanmedian(dim, keepdim).values


def logsumexp(
    input: _Tensor, dim: _Dim = None, *, keepdim: bool = False, dtype: _Any = None, mask: _Tensor | None = None
) -> _Tensor:
    """ln(sum(exp(x))) over the elements where a mask is true, along axes."""
    kept, axes = _fill_masked(_floating(input, dtype), mask, -_math.inf), _axes(input, dim)
    total = kept.logsumexp(list(range(input.ndim)) if axes is None else axes, keepdim)
    return total.to(input.dtype if dtype is None else dtype)


def logaddexp(
    input: _Tensor,
    other: _Tensor,
    *,
    dtype: _Any = None,
    input_mask: _Tensor | None = None,
    other_mask: _Tensor | None = None,
) -> _Tensor:
    """ln(exp(input) + exp(other)), where each operand has a mask of its own."""
    a, b = (_fill_masked(_floating(t, dtype), m, -_math.inf) for t, m in ((input, input_mask), (other, other_mask)))
    return _gt.logaddexp(a, b)


def _along(function: _Callable[..., _Tensor], filling: float) -> _Callable[..., _Tensor]:
    def masked(input: _Tensor, dim: int, *, dtype: _Any = None, mask: _Tensor | None = None) -> _Tensor:
        return function(_fill_masked(_floating(input, dtype), mask, filling), dim)

    return masked


softmax = _along(_gt.softmax, -_math.inf)
log_softmax = _along(_gt.log_softmax, -_math.inf)
softmin = _along(lambda kept, dim: (-kept).softmax(dim), _math.inf)


def normalize(
    input: _Tensor, ord: float, dim: int, *, eps: float = 1e-12, dtype: _Any = None, mask: _Tensor | None = None
) -> _Tensor:
    """The elements where a mask is true, divided by their norm along an axis."""
    wide = _cast(input, dtype)
    size = norm(wide, ord, dim, keepdim=True, mask=mask)
    return _fill_masked(wide, mask, 0 if ord >= 0 else _math.inf) / size.clamp(min=eps)


__all__ = [
    "amax", "amin", "argmax", "argmin", "cumprod", "cumsum", "log_softmax", "logaddexp", "logsumexp", "mean", "median",
    "norm", "normalize", "prod", "softmax", "softmin", "std", "sum", "var",
]  # fmt: skip
__getattr__ = _absent.getter(__name__)
