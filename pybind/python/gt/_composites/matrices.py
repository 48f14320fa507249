"""Linear algebra under the names it has outside `gt.linalg`."""

from __future__ import annotations

import math

import gt
from gt._gt import Tensor
from gt._types import QR, SignLogAbsDet


def inverse(input: Tensor) -> Tensor:
    """The inverses of matrices."""
    return gt.linalg.inv(input)


def det(input: Tensor) -> Tensor:
    """The determinants of matrices."""
    return gt.linalg.det(input)


def logdet(input: Tensor) -> Tensor:
    """The logarithms of determinants; NaN where one is negative."""
    sign, logarithm = gt.linalg.slogdet(input)
    return gt.where(sign < 0, math.nan, logarithm)


def slogdet(input: Tensor) -> SignLogAbsDet:
    """The signs of determinants, and the logarithms of their absolute values."""
    return gt.linalg.slogdet(input)


def cholesky(input: Tensor, upper: bool = False) -> Tensor:
    """The triangular factors of symmetric positive-definite matrices."""
    return gt.linalg.cholesky(input, upper=upper)


def cholesky_solve(input: Tensor, input2: Tensor, upper: bool = False) -> Tensor:
    """The solution of `A @ X = input`, from the factor `input2` that `cholesky` made of `A`."""
    lower = input2.mT if upper else input2
    # One triangle is looked at; the gradient is, as PyTorch's, that of the whole.
    lower = lower - (lower - lower.tril()).detach()
    return gt.linalg.solve(lower @ lower.mT, input)


def cholesky_inverse(input: Tensor, upper: bool = False) -> Tensor:
    """The inverse of a matrix, from the factor that `cholesky` made of it."""
    return cholesky_solve(gt.eye(input.shape[-1], dtype=input.dtype), input, upper)


def qr(input: Tensor, some: bool = True) -> QR:
    """Matrices as products of orthonormal columns and an upper triangle."""
    return gt.linalg.qr(input, "reduced" if some else "complete")


def svd(input: Tensor, some: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Matrices as products of singular vectors and values: `U`, `S` and `V`, of which a column is a vector."""
    u, s, vh = gt.linalg.svd(input, full_matrices=not some)
    return u, s, vh.mT


def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """The pseudo-inverses of matrices."""
    return gt.linalg.pinv(input, rtol=rcond)


METHODS = (inverse, det, logdet, slogdet, cholesky, cholesky_solve, cholesky_inverse, qr, svd, pinverse)
IN_PLACE = ()
FUNCTIONS = ()
