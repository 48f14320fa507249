"""The LDL decomposition of symmetric and Hermitian matrices that need not be definite, of `gt.linalg`.

The pivots are those of Bunch and Kaufman 1977, "Some Stable Methods for Calculating Inertia and Solving Symmetric
Linear Systems", stored as LAPACK's `sytrf` stores them for the lower triangle. As the other decompositions, it fetches
the elements and computes on the host, by NumPy in the precision of the tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gt import _gt, _out
from gt._gt import Tensor
from gt._methods import broadcast_shapes
from gt._types import LinAlgError, named_results
from gt.autograd.function import Function

__all__ = ["ldl_factor", "ldl_factor_ex", "ldl_solve"]

_Array = np.ndarray[Any, Any]

# The share of the largest element of a column that a pivot on the diagonal must have: it bounds the growth of the
# elements equally for one column and for two at once.
_SHARE = (1 + math.sqrt(17)) / 8

_Factors = named_results("linalg_ldl_factor", ["LD", "pivots"])
_FactorsInfo = named_results("linalg_ldl_factor_ex", ["LD", "pivots", "info"])


def _sizes(values: _Array) -> _Array:
    """The sizes of elements by which pivots are chosen: as LAPACK's, without a root."""
    return np.abs(values.real) + np.abs(values.imag) if np.iscomplexobj(values) else np.abs(values)


def _choice(rest: _Array) -> tuple[int, int]:
    """The row that becomes the pivot of what is left to factor, and whether one or two columns are eliminated."""
    own = _sizes(rest[0, 0])
    if len(rest) == 1:
        return 0, 1
    column = _sizes(rest[1:, 0])
    row = int(column.argmax()) + 1
    largest = column[row - 1]
    if max(own, largest) == 0 or own >= _SHARE * largest:
        return 0, 1
    beside = np.delete(_sizes(rest[row]), row).max()
    if own >= _SHARE * largest * (largest / beside):
        return 0, 1
    return (row, 1) if _sizes(rest[row, row]) >= _SHARE * beside else (row, 2)


def _factor(matrix: _Array, hermitian: bool) -> tuple[_Array, _Array, int]:
    """Factors a matrix of which the lower triangle counts.

    Returns:
        L below the diagonal and the blocks of D on it; the pivots; and the first column whose block is 0, counted from
        1, or 0.
    """
    lower = np.tril(matrix, -1)
    diagonal = np.diag(matrix).real if hermitian else np.diag(matrix)
    a = lower + (lower.conj().T if hermitian else lower.T) + np.diag(diagonal).astype(matrix.dtype)
    count, info, k = len(a), 0, 0
    pivots = np.zeros(count, np.int32)
    while k < count:
        row, width = _choice(a[k:, k:])
        last, row = k + width - 1, k + row
        pivots[k : k + width] = row + 1 if width == 1 else -(row + 1)
        if row != last:
            a[[last, row], k:] = a[[row, last], k:]
            a[k:, [last, row]] = a[k:, [row, last]]
        rest = slice(k + width, None)
        block, beside = a[k : k + width, k : k + width], a[rest, k : k + width]
        if width == 1 and block[0, 0] == 0:
            info = info or k + 1
        else:
            weights = beside @ _inverse(block)
            a[rest, rest] -= weights @ (beside.conj().T if hermitian else beside.T)
            a[rest, k : k + width] = weights
            if hermitian:
                np.fill_diagonal(a[rest, rest], np.diag(a[rest, rest]).real)
        k += width
    return np.tril(a), pivots, info


def _inverse(block: _Array) -> _Array:
    """The inverse of a block of D, of one or two rows."""
    if len(block) == 1:
        return 1 / block
    # Division by the elements beside the diagonal, which are the largest, avoids overflow of the determinant.
    (a, b), (c, d) = block
    p, q = a / b, d / c
    return np.array([[q / b, -1 / c], [-1 / b, p / c]], block.dtype) / (p * q - 1)


def _solve(factors: _Array, pivots: _Array, right: _Array, hermitian: bool) -> _Array:
    """The solution of `L D L^T x = right` for one matrix, with the exchanges that the pivots tell of."""
    x, k, starts = right.copy(), 0, []
    while k < len(x):
        width = 1 if pivots[k] > 0 or k + 1 == len(x) else 2
        last, row = k + width - 1, abs(int(pivots[k])) - 1
        x[[last, row]] = x[[row, last]]
        starts.append((k, width, row))
        x[k + width :] -= factors[k + width :, k : k + width] @ x[k : k + width]
        block = factors[k : k + width, k : k + width].copy()
        if width == 2:
            block[0, 1] = block[1, 0].conj() if hermitian else block[1, 0]
        elif hermitian:
            block = block.real.astype(block.dtype)
        x[k : k + width] = _inverse(block) @ x[k : k + width]
        k += width
    for k, width, row in reversed(starts):
        beside = factors[k + width :, k : k + width]
        x[k : k + width] -= (beside.conj().T if hermitian else beside.T) @ x[k + width :]
        last = k + width - 1
        x[[last, row]] = x[[row, last]]
    return x


class _WithoutDerivative(Function):
    """Results of functions whose derivative PyTorch does not have, either."""

    @staticmethod
    def forward(ctx: Any, name: str, compute: Callable[[], tuple[Tensor, ...]], *_inputs: Tensor) -> Any:
        ctx.name = name
        results = compute()
        ctx.mark_non_differentiable(*(t for t in results if not (t.is_floating_point() or t.is_complex())))
        return results

    @staticmethod
    def backward(ctx: Any, *_grads: Any) -> Any:
        raise RuntimeError(f"derivative for aten::{ctx.name} is not implemented")


def _check(name: str, matrix: Tensor) -> None:
    if matrix.ndim < 2:
        raise RuntimeError(f"{name}: The input tensor A must have at least 2 dimensions.")
    rows, columns = matrix.shape[-2:]
    if rows != columns:
        kind = f"but they are {rows} by {columns} matrices"
        raise RuntimeError(f"{name}: A must be batches of square matrices, {kind}")
    if not (matrix.is_floating_point() or matrix.is_complex()):
        kind = matrix.type().rpartition(".")[2].removesuffix("Tensor")
        raise NotImplementedError(f"{name}: Expected a floating point or complex tensor as input. Got {kind}")
    if matrix.dtype in (_gt.float16, _gt.bfloat16):
        kind = "Half" if matrix.dtype == _gt.float16 else "BFloat16"
        raise NotImplementedError(f"\"{name.rpartition('.')[2]}_kernel_cpu\" not implemented for '{kind}'")


def _factors(input: Tensor, hermitian: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The factors, the pivots and `info` of each matrix."""
    _check("torch.linalg.ldl_factor_ex", input)
    batch, count = tuple(input.shape[:-2]), input.shape[-1]

    def compute() -> tuple[Tensor, ...]:
        matrices = input.detach().numpy().reshape(math.prod(batch), count, count)
        parts = [_factor(matrix, hermitian) for matrix in matrices]
        packed, pivots = np.empty_like(matrices), np.empty(matrices.shape[:-1], np.int32)
        info = np.zeros(len(parts), np.int32)
        for i, part in enumerate(parts):
            packed[i], pivots[i], info[i] = part
        shapes = (tuple(input.shape), (*batch, count), batch)
        return tuple(
            _gt.tensor(array.reshape(shape)) for array, shape in zip((packed, pivots, info), shapes, strict=True)
        )

    if not input.requires_grad:
        return compute()  # type: ignore[return-value]
    results: tuple[Tensor, Tensor, Tensor] = _WithoutDerivative.apply("linalg_ldl_factor_ex", compute, input)
    return results


def _fail_where_singular(name: str, info: Tensor) -> None:
    if bool((info != 0).any()):
        first = int(info.max())
        raise LinAlgError(f"linalg.{name}: the factor D is singular: the element {first} of its diagonal is 0")


def ldl_factor(input: Tensor, *, hermitian: bool = False, out: Any = None) -> Any:
    """The factors of `A = P L D L^T P^T`, where D has blocks of one and two rows: A need not be definite.

    Args:
        input: Symmetric matrices of shape (..., n, n), of which the lower triangle is read.
        hermitian: Whether complex matrices are Hermitian, and the factors are `L D L^H`.
        out: Tensors for both results.

    Returns:
        `LD`: L below the diagonal, whose own diagonal is 1, and D on it and beside it; and `pivots`, int32 of shape
        (..., n), as LAPACK's: a number above 0 is the row that row i was exchanged with, counted from 1; two equal ones
        below 0 mark a block of two rows, of which the second was exchanged. There is no gradient, as in PyTorch.

    Raises:
        LinAlgError: D is singular.

    Example:
        >>> factors = gt.linalg.ldl_factor(gt.tensor([[4.0, 2.0], [2.0, -3.0]]))
        >>> factors.LD
        tensor([[ 4.0000,  0.0000],
                [ 0.5000, -4.0000]])
        >>> factors.pivots
        tensor([1, 2], dtype=gt.int32)
    """
    packed, pivots, info = _factors(input, hermitian)
    _fail_where_singular("ldl_factor", info)
    result = _Factors(packed, pivots)
    return result if out is None else _out.write("linalg_ldl_factor", out, result, False)


def ldl_factor_ex(input: Tensor, *, hermitian: bool = False, check_errors: bool = False, out: Any = None) -> Any:
    """`ldl_factor` that reports the first column whose part of D is 0 in `info`, instead of raising.

    Args:
        input: Symmetric matrices of shape (..., n, n), of which the lower triangle is read.
        hermitian: Whether complex matrices are Hermitian.
        check_errors: Whether it raises all the same.
        out: Tensors for the three results.

    Returns:
        `LD` and `pivots` of `ldl_factor`, and `info`, int32 of the batch's shape: 0, or the column, counted from 1.
    """
    packed, pivots, info = _factors(input, hermitian)
    if check_errors:
        _fail_where_singular("ldl_factor_ex", info)
    result = _FactorsInfo(packed, pivots, info)
    return result if out is None else _out.write("linalg_ldl_factor_ex", out, result, False)


def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False, out: Tensor | None = None) -> Tensor:
    """The solution X of `A X = B`, from the factors that `ldl_factor` returned.

    Args:
        LD: The packed factors, of shape (..., n, n).
        pivots: The exchanges, integers of shape (..., n).
        B: The right-hand sides, of shape (..., n, k); its batch broadcasts to that of `LD`.
        hermitian: Whether the matrices were factored as Hermitian ones.
        out: A tensor for the result.

    Returns:
        X, of the shape of `B` with the common batch. There is no gradient, as in PyTorch. Where D is singular, X is not
        finite.

    Example:
        >>> factors = gt.linalg.ldl_factor(gt.tensor([[4.0, 2.0], [2.0, -3.0]]))
        >>> gt.linalg.ldl_solve(*factors, gt.tensor([[6.0], [-1.0]]))
        tensor([[1.],
                [1.]])
    """
    name = "torch.linalg.ldl_solve"
    _check(name, LD)
    count = LD.shape[-1]
    if B.ndim < 2:
        raise RuntimeError(f"{name}: Expected B to have at least 2 dimensions, but it has {B.ndim} dimensions instead")
    if B.shape[-2] != count:
        raise RuntimeError(
            f"Incompatible matrix sizes for {name}: each A matrix is {count} by {count} but each b matrix is "
            f"{B.shape[-2]} by {B.shape[-1]}"
        )
    if LD.dtype != B.dtype:
        raise RuntimeError(f"Expected b and A to have the same dtype, but found b of {B.dtype} and A of {LD.dtype}")
    if tuple(pivots.shape) != tuple(LD.shape[:-1]):
        found = list(pivots.shape)
        raise RuntimeError(
            f"{name}: Expected LD.shape[:-1] and pivots.shape to be the same, but got {found} for pivots"
        )
    if pivots.is_floating_point() or pivots.is_complex() or pivots.dtype == _gt.bool:
        raise RuntimeError(f"{name}: Expected pivots to be integers. Got {pivots.dtype}")
    batch = tuple(broadcast_shapes(LD.shape[:-2], B.shape[:-2]))

    def compute() -> tuple[Tensor, ...]:
        rows = pivots.detach().numpy()
        if rows.size and (np.abs(rows).max() > count or np.abs(rows).min() < 1):
            kept = "<= LD.size(-2)" if np.abs(rows).max() > count else ">= 1"
            raise RuntimeError(
                f"Pivots given to ldl_solve must all satisfy |pivot| {kept}. Did you properly pass the result of "
                "ldl_factor?"
            )
        several = [
            np.broadcast_to(array, (*batch, *array.shape[-axes:])).reshape(math.prod(batch), *array.shape[-axes:])
            for array, axes in ((LD.detach().numpy(), 2), (rows, 1), (B.detach().numpy(), 2))
        ]
        found = np.empty_like(several[2])
        with np.errstate(all="ignore"):
            for i, parts in enumerate(zip(*several, strict=True)):
                found[i] = _solve(*parts, hermitian)
        return (_gt.tensor(found.reshape(*batch, *B.shape[-2:])),)

    if LD.requires_grad or B.requires_grad:
        (result,) = _WithoutDerivative.apply("linalg_ldl_solve", compute, LD, B)
    else:
        (result,) = compute()
    return result if out is None else _out.write("linalg_ldl_solve", out, result, False)
