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
    """The solution of `a @ x = b` for a matrix `b`.

    `part` maps `a` to the triangle that is used, by `triu` or `tril`; `None` uses the whole matrix.
    """

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
    """The inverse of square matrices. To solve linear equations, `gt.linalg.solve` is faster and more accurate.

    Args:
        A: Square matrices, `(*, n, n)`.

    Returns:
        A tensor of the shape of `A`.

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
    """The determinant of square matrices.

    The gradient, `det(A) * inv(A).mT`, is computed by the inverse: `backward` raises `LinAlgError` if a matrix is
    singular.

    Args:
        A: Square matrices, `(*, n, n)`.

    Returns:
        A tensor of shape `(*)`.

    Example:
        >>> gt.linalg.det(gt.tensor([[2.0, 0.0], [0.0, 4.0]]))
        tensor(8.)
    """
    lapack.check("det", A, square=True)
    return _Determinant.apply(A)


def slogdet(A: Tensor) -> SignLogAbsDet:  # noqa: N803 (PyTorch's name)
    """The sign of the determinant, and the natural logarithm of its absolute value.

    For large matrices the determinant itself overflows or underflows; its logarithm does not.

    Args:
        A: Square matrices, `(*, n, n)`.

    Returns:
        A named tuple `(sign, logabsdet)` with `det(A) = sign * exp(logabsdet)`: 0 and -inf for a singular matrix.

    Example:
        >>> sign, logabsdet = gt.linalg.slogdet(gt.tensor([[2.0, 0.0], [0.0, -4.0]]))
        >>> sign, logabsdet
        (tensor(-1.), tensor(2.0794))
    """
    lapack.check("slogdet", A, square=True)
    return SignLogAbsDet(*_LogDeterminant.apply(A))


def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:  # noqa: N803 (PyTorch's names)
    """The solution X of the linear equations `A @ X = B`, or of `X @ A = B` if `left` is false.

    This is faster and more accurate than `gt.linalg.inv(A) @ B`. The decomposition is LAPACK's LU with pivoting.

    Args:
        A: Square matrices, `(*, n, n)`.
        B: The right-hand sides: a vector `(n,)`, vectors `(*, n)` if `*` is that of `A`, or matrices `(*, n, k)`;
            `(*, k, n)` if `left` is false. Its dtype is that of `A`.
        left: Whether `A` stands on the left of the unknown.

    Returns:
        A tensor of the shape of `B`; batch axes of `A` and `B` broadcast.

    Raises:
        LinAlgError: A matrix is singular.
        RuntimeError: The shapes or dtypes do not fit.

    Example:
        >>> A = gt.tensor([[2.0, 1.0], [0.0, 4.0]])
        >>> gt.linalg.solve(A, gt.tensor([3.0, 4.0]))
        tensor([1., 1.])
        >>> gt.linalg.solve(A, gt.tensor([[3.0, 2.0], [4.0, 0.0]]))  # a column for each right-hand side
        tensor([[1., 1.],
                [1., 0.]])
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
    """The solution X of `A @ X = B` for triangular matrices A, or of `X @ A = B` if `left` is false.

    Args:
        A: Square matrices, `(*, n, n)`. Only one triangle is used; the other elements count as zeros.
        B: The right-hand sides, matrices `(*, n, k)`; `(*, k, n)` if `left` is false.
        upper: Whether the upper triangle is used, rather than the lower one.
        left: Whether `A` stands on the left of the unknown.
        unitriangular: Whether the elements on the diagonal count as ones, whatever they are.

    Returns:
        A tensor of the shape of `B`; batch axes of `A` and `B` broadcast.

    Raises:
        LinAlgError: A matrix is singular.

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
    """The inverse of a tensor as a linear map: `tensordot(tensorinv(A, ind), A, ind)` is the identity.

    Args:
        A: A tensor whose first `ind` sizes have the same product as its other sizes.
        ind: The number of leading axes that are the rows of the matrix; the other axes are its columns.

    Returns:
        A tensor of the shape `A.shape[ind:] + A.shape[:ind]`.

    Example:
        >>> gt.linalg.tensorinv(gt.eye(4).reshape(4, 2, 2), ind=1).shape
        gt.Size([2, 2, 4])
    """
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
        A: A tensor whose shape is that of `B` followed by that of X; both have the same number of elements.
        B: The right-hand side.
        dims: The axes of `A` that belong to X, if they are not at its end: they are moved there first.

    Returns:
        A tensor of the shape `A.shape[B.ndim:]`.

    Example:
        >>> A = 2 * gt.eye(6).reshape(2, 3, 6)
        >>> gt.linalg.tensorsolve(A, gt.ones(2, 3))
        tensor([0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000])
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
    """The Cholesky factor of symmetric positive-definite matrices: the lower triangular L with `A = L @ L.mT`.

    Args:
        A: Symmetric matrices, `(*, n, n)`. Only the lower triangle is read.
        upper: Whether the upper triangular `L.mT` is returned instead.

    Returns:
        A tensor of the shape of `A`.

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
        # The gradient of the Cholesky factorization (Murray 2016), symmetrized.
        (factor,) = ctx.saved_tensors
        inner = (factor.mT @ grad).tril()
        inner = (inner + inner.tril(-1).mT) / 2
        half = solve_triangular(factor.mT, inner, upper=True)
        return solve_triangular(factor, half, upper=False, left=False)
