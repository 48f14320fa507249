"""Inverses, determinants, linear equations and the Cholesky decomposition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gt import _gt
from gt._gt import Tensor
from gt._types import SignLogAbsDet
from gt.autograd import Function
from gt.linalg import lapack

SINGULAR = "The solver failed because the input matrix is singular."


class _Inverse(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        reason = "The inversion could not be completed because the input matrix is singular."
        inverse = lapack.run("inv", reason, np.linalg.inv, a)
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (inverse,) = ctx.saved_tensors
        return -(inverse.mT @ grad @ inverse.mT)


class _Determinant(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        determinant = lapack.run("det", "", np.linalg.det, a)
        ctx.save_for_backward(a, determinant)
        return determinant

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        a, determinant = ctx.saved_tensors
        return (grad * determinant)[..., None, None] * inv(a).mT


class _LogDeterminant(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor) -> tuple[Tensor, Tensor]:
        sign, logarithm = lapack.run("slogdet", "", lambda x: tuple(np.linalg.slogdet(x)), a)
        ctx.save_for_backward(a)
        return sign, logarithm

    @staticmethod
    def backward(ctx: Any, _sign: Tensor, grad: Tensor) -> Tensor:
        (a,) = ctx.saved_tensors
        return grad[..., None, None] * inv(a).mT


class _Solution(Function):
    """The solution of `a @ x = b` for a matrix `b`; `part` keeps the triangle of `a` that is read."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, name: str, part: Any) -> Tensor:
        looked_at = a if part is None else part(a)
        solution = lapack.run(name, SINGULAR, np.linalg.solve, looked_at, b)
        ctx.save_for_backward(looked_at, solution)
        ctx.name, ctx.part, ctx.shapes = name, part, (a.shape, b.shape)
        return solution

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        a, solution = ctx.saved_tensors
        of_b = _Solution.apply(a.mT, grad, ctx.name, None)
        of_a = -(of_b @ solution.mT)
        of_a = of_a if ctx.part is None else ctx.part(of_a)
        return of_a.sum_to_size(ctx.shapes[0]), of_b.sum_to_size(ctx.shapes[1]), None, None


def inv(A: Tensor) -> Tensor:  # noqa: N803 (PyTorch's name)
    """The inverse of square matrices.

    Args:
        A: A square matrix, or a batch of them.

    Raises:
        LinAlgError: A matrix is singular.

    Example:
        >>> gt.linalg.inv(gt.tensor([[2.0, 0.0], [0.0, 4.0]]))
        tensor([[0.5000, 0.0000],
                [0.0000, 0.2500]])
    """
    lapack.check("inv", A, square=True)
    return _Inverse.apply(A)


def det(A: Tensor) -> Tensor:  # noqa: N803 (PyTorch's name)
    """The determinant of square matrices. It has no gradient where a matrix is singular.

    Example:
        >>> gt.linalg.det(gt.tensor([[2.0, 0.0], [0.0, 4.0]]))
        tensor(8.)
    """
    lapack.check("det", A, square=True)
    return _Determinant.apply(A)


def slogdet(A: Tensor) -> SignLogAbsDet:  # noqa: N803 (PyTorch's name)
    """The sign and the logarithm of the absolute value of the determinant, which neither overflow nor underflow.

    Returns:
        A pair `(sign, logabsdet)`.

    Example:
        >>> gt.linalg.slogdet(gt.tensor([[2.0, 0.0], [0.0, -4.0]])).sign
        tensor(-1.)
    """
    lapack.check("slogdet", A, square=True)
    return SignLogAbsDet(*_LogDeterminant.apply(A))


def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:  # noqa: N803 (PyTorch's names)
    """The solution X of `A @ X = B`.

    Args:
        A: A square matrix, or a batch of them.
        B: The right-hand sides: matrices, or vectors.
        left: Whether A stands on the left; otherwise `X @ A = B` is solved.

    Raises:
        LinAlgError: A matrix is singular.

    Example:
        >>> gt.linalg.solve(gt.tensor([[2.0, 0.0], [0.0, 4.0]]), gt.tensor([2.0, 4.0]))
        tensor([1., 1.])
    """
    lapack.check("solve", A, square=True)
    if A.dtype != B.dtype:
        raise RuntimeError(
            f"linalg.solve: Expected A and B to have the same dtype, but found A of type {A.dtype} "
            f"and B of type {B.dtype} instead"
        )
    vector = B.ndim == 1 or (A.ndim - 1 == B.ndim and A.shape[:-1] == B.shape)
    if vector and not left:
        raise RuntimeError("linalg.solve: Vector broadcasting of the left hand side is not supported for left=False.")
    if vector:
        return _Solution.apply(A, B.unsqueeze(-1), "solve", None).squeeze(-1)
    if B.shape[-2 if left else -1] != A.shape[-1]:
        raise RuntimeError(
            f"linalg.solve: Incompatible shapes of A and B for the equation {'AX = B' if left else 'XA = B'} "
            f"({A.shape[-2]}x{A.shape[-1]} and {B.shape[-2]}x{B.shape[-1]})"
        )
    if left:
        return _Solution.apply(A, B, "solve", None)
    return _Solution.apply(A.mT, B.mT, "solve", None).mT


def solve_triangular(
    A: Tensor,  # noqa: N803 (PyTorch's names)
    B: Tensor,  # noqa: N803
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> Tensor:
    """The solution X of `A @ X = B` for triangular matrices A.

    Args:
        A: A square matrix, or a batch of them. Only one triangle is read.
        B: The right-hand sides.
        upper: Whether the upper triangle is read.
        left: Whether A stands on the left; otherwise `X @ A = B` is solved.
        unitriangular: Whether the diagonal counts as ones.

    Example:
        >>> A = gt.tensor([[2.0, 1.0], [0.0, 4.0]])
        >>> gt.linalg.solve_triangular(A, gt.tensor([[4.0], [8.0]]), upper=True)
        tensor([[1.],
                [2.]])
    """
    lapack.check("solve_triangular", A, square=True)
    if not left:
        return solve_triangular(A.mT, B.mT, upper=not upper, unitriangular=unitriangular).mT

    def part(a: Tensor) -> Tensor:
        offset = 1 if unitriangular else 0
        return a.triu(offset) if upper else a.tril(-offset)

    if unitriangular:
        identity = _gt.eye(A.shape[-1], dtype=A.dtype)
        return _Solution.apply(part(A) + identity, B, "solve_triangular", None)
    return _Solution.apply(A, B, "solve_triangular", part)


def tensorinv(A: Tensor, ind: int = 2) -> Tensor:  # noqa: N803 (PyTorch's name)
    """The inverse with respect to `tensordot`; the first `ind` axes are those of the rows."""
    if ind <= 0:
        raise RuntimeError("Expected a strictly positive integer for 'ind'")
    rows, columns = math.prod(A.shape[:ind]), math.prod(A.shape[ind:])
    if rows != columns:
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), "
            f"but got {columns} != {rows}"
        )
    return inv(A.reshape(rows, columns)).reshape(*A.shape[ind:], *A.shape[:ind])


def tensorsolve(A: Tensor, B: Tensor, dims: Sequence[int] | None = None) -> Tensor:  # noqa: N803 (PyTorch's names)
    """The solution X of `tensordot(A, X, X.ndim) = B`.

    Args:
        A: A tensor.
        B: The right-hand side.
        dims: The axes of `A` to move to its end first.
    """
    if dims is not None:
        A = A.movedim(list(dims), list(range(A.ndim - len(dims), A.ndim)))  # noqa: N806
    shape = A.shape[B.ndim :]
    if math.prod(shape) != B.numel():
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim]), "
            f"but got {math.prod(shape)} != {B.numel()}"
        )
    return solve(A.reshape(B.numel(), -1) if B.numel() else A.reshape(0, 0), B.reshape(-1)).reshape(shape)


def cholesky(A: Tensor, *, upper: bool = False) -> Tensor:  # noqa: N803 (PyTorch's name)
    """The Cholesky factor L of symmetric positive-definite matrices: `A = L @ L.mT` with a lower triangle L.

    Args:
        A: A symmetric matrix, or a batch of them. Only the lower triangle is read.
        upper: Whether the transpose of L is returned.

    Raises:
        LinAlgError: A matrix is not positive-definite.

    Example:
        >>> gt.linalg.cholesky(gt.tensor([[4.0, 2.0], [2.0, 5.0]]))
        tensor([[2., 0.],
                [1., 2.]])
    """
    lapack.check("cholesky", A, square=True)
    factor = _Cholesky.apply(A)
    return factor.mT if upper else factor


class _Cholesky(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        reason = "The factorization could not be completed because the input is not positive-definite."
        factor = lapack.run("cholesky", reason, np.linalg.cholesky, a)
        ctx.save_for_backward(factor)
        return factor

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        # The gradient is that of Murray (2016), made symmetric.
        (factor,) = ctx.saved_tensors
        inner = (factor.mT @ grad).tril()
        inner = (inner + inner.tril(-1).mT) / 2
        half = solve_triangular(factor.mT, inner, upper=True)
        return solve_triangular(factor, half, upper=False, left=False)
