"""Reductions over axes, scans and sorts along one, and matrix products."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional as F

from gt_torch.elementwise import DTYPES, HALF

Axes = tuple[int, ...]
# The elements that are summed one after the other, and the difference of logarithms up to which float64 can sum.
SUM_BLOCK, NEAR = 32, 600.0


def over_axes(reduce: Callable[[torch.Tensor, Axes, bool], torch.Tensor]):
    """Returns the op of a reduction, whose operand is converted to the result's dtype first.

    Half precisions are summed in float32 and rounded once. PyTorch takes no axes for all of them, so a reduction over
    none becomes one over a new axis of one element.
    """

    def op(a: torch.Tensor, axes: Axes, keepdim: bool, dtype: int) -> torch.Tensor:
        to = DTYPES[dtype]
        a = a.to(torch.float32 if to in HALF else to)
        if not axes:
            a, axes, keepdim = a.unsqueeze(0), (0,), False
        return reduce(a, axes, keepdim).to(to)

    return op


def total(a: torch.Tensor, axes: Axes, keepdim: bool) -> torch.Tensor:
    """Returns the sum in the operand's dtype."""
    return torch.sum(a, axes, keepdim, dtype=a.dtype)


def product(a: torch.Tensor, axes: Axes, keepdim: bool) -> torch.Tensor:
    """Returns the product; PyTorch takes one axis, so the axes become one."""
    kept = [axis for axis in range(a.dim()) if axis not in axes]
    count = 1
    for axis in axes:
        count *= a.shape[axis]
    lined = a.permute(*kept, *axes).reshape(*(a.shape[axis] for axis in kept), count)
    result = torch.prod(lined, -1, dtype=a.dtype)
    if not keepdim:
        return result
    return result.reshape([1 if axis in axes else size for axis, size in enumerate(a.shape)])


def truth(test: Callable[..., torch.Tensor]):
    """Returns the op that tests whether elements are nonzero."""

    def op(a: torch.Tensor, axes: Axes, keepdim: bool, dtype: int) -> torch.Tensor:  # noqa: ARG001
        a = a != 0
        return test(a, dim=axes, keepdim=keepdim) if axes else a

    return op


def extreme_index(find: Callable[..., torch.Tensor]):
    """Returns the op that finds the index of an extremum along one axis."""

    def op(a: torch.Tensor, axes: Axes, keepdim: bool, dtype: int) -> torch.Tensor:  # noqa: ARG001
        if a.dtype in HALF:
            a = a.float()
        return find(a, axes[0], keepdim)

    return op


def scan(run: Callable[..., torch.Tensor]):
    """Returns the op of a scan, whose operand is converted to the result's dtype first."""

    def op(a: torch.Tensor, axis: int, dtype: int) -> torch.Tensor:
        to = DTYPES[dtype]
        return run(a.to(torch.float32 if to in HALF else to), axis).to(to)

    return op


def typed(run: Callable[..., torch.Tensor]):
    """Returns a scan that keeps the dtype of integers."""
    return lambda a, axis: run(a, axis, dtype=a.dtype)


def cumulative_sum(a: torch.Tensor) -> torch.Tensor:
    """Returns the cumulative sum along the last axis, in two levels: the rounding errors of long rows stay small."""
    columns = a.shape[-1]
    rows = F.pad(a, (0, -columns % SUM_BLOCK)).unflatten(-1, (-1, SUM_BLOCK)).cumsum(-1)
    before = rows[..., -1].cumsum(-1) - rows[..., -1]
    return (rows + before.unsqueeze(-1)).flatten(-2)[..., :columns]


def logcumsumexp(a: torch.Tensor, axis: int) -> torch.Tensor:
    """Returns the logarithm of the cumulative sum of exponentials.

    PyTorch's adds one logarithm after the other, whose errors add up in float64. Where no exponential is tiny beside
    the largest of the row, the sum is computed first.
    """
    if a.dtype != torch.float64 or a.numel() == 0:
        return torch.logcumsumexp(a, axis)
    top = a.amax(axis, keepdim=True)
    summed = cumulative_sum((a - top).exp().transpose(axis, -1)).transpose(axis, -1)
    is_near = torch.isfinite(top) & (torch.cummax(a, axis)[0] > top - NEAR)
    return torch.where(is_near, top + summed.log(), torch.logcumsumexp(a, axis))


def scan_index(run: Callable[..., tuple[torch.Tensor, torch.Tensor]]):
    """Returns the op that finds the index of each cumulative extremum."""

    def op(a: torch.Tensor, axis: int, dtype: int) -> torch.Tensor:  # noqa: ARG001
        return run(a.to(torch.uint8) if a.dtype == torch.bool else a, axis)[1]

    return op


def argsort(descending: bool):
    """Returns the op of a stable sort."""

    def op(a: torch.Tensor, *arguments: int) -> torch.Tensor:
        *count, axis = arguments
        order = torch.sort(a, dim=axis, descending=descending, stable=True)[1]
        return order.narrow(axis, 0, count[0]).clone(memory_format=torch.contiguous_format) if count else order

    return op


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Returns the matrix product; PyTorch has those of integers on the processor alone."""
    if a.dtype.is_floating_point or a.device.type == "cpu":
        return torch.matmul(a, b)
    return (a.unsqueeze(-1) * b.unsqueeze(-3)).sum(-2, dtype=a.dtype)


def matmul_wide(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Returns the matrix product of half precisions in float32."""
    return torch.matmul(a.float(), b.float())


def affine(a: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Returns the affine map; `torch.nn.functional.linear` rounds twice where the rows are not evenly spaced."""
    rows = a.reshape(a.shape[:-1].numel(), a.shape[-1])
    return torch.addmm(bias, rows, weight.t()).reshape(*a.shape[:-1], weight.shape[0])


OPS = {
    "sum": over_axes(total),
    "mean": over_axes(lambda a, axes, keepdim: torch.mean(a, axes, keepdim)),
    "norm": over_axes(lambda a, axes, keepdim: torch.sqrt(torch.sum(a * a, axes, keepdim))),
    "prod": over_axes(product),
    "amax": over_axes(torch.amax),
    "amin": over_axes(torch.amin),
    "any": truth(torch.any),
    "all": truth(torch.all),
    "argmax": extreme_index(torch.argmax),
    "argmin": extreme_index(torch.argmin),
    "cumsum": scan(typed(torch.cumsum)),
    "cumprod": scan(typed(torch.cumprod)),
    "logcumsumexp": scan(logcumsumexp),
    "cumargmax": scan_index(torch.cummax),
    "cumargmin": scan_index(torch.cummin),
    "argsort": argsort(False),
    "argsort_descending": argsort(True),
    "matmul": matmul,
    "matmul_wide": matmul_wide,
    "affine": affine,
}
