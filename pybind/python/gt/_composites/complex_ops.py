"""Functions of complex numbers, for real ones: there are no complex dtypes."""

from __future__ import annotations

import math
from typing import NoReturn

from gt import _gt
from gt._gt import Tensor


def angle(input: Tensor) -> Tensor:
    """The argument of each element as a complex number: 0 for positive and pi for negative numbers, NaN for NaN.

    Example:
        >>> gt.angle(gt.tensor([-1.0, 0.0, 2.0]))
        tensor([3.1416, 0.0000, 0.0000])
    """
    x = input if input.is_floating_point() else input.float()
    return _gt.where(x.isnan(), x, _gt.where(x < 0, math.pi, x * 0))


def real(input: Tensor) -> Tensor:
    """The real part: the tensor itself, since there are no complex dtypes."""
    return input


def imag(input: Tensor) -> NoReturn:  # noqa: ARG001
    """The imaginary part, which real tensors do not have.

    Raises:
        RuntimeError: Always: there are no complex dtypes.
    """
    raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")


def conj(input: Tensor) -> Tensor:
    """The complex conjugate: the tensor itself, since there are no complex dtypes."""
    return input


def conj_physical(input: Tensor) -> Tensor:
    """The complex conjugate: the tensor itself, since there are no complex dtypes."""
    return input


def resolve_conj(input: Tensor) -> Tensor:
    """The tensor with its lazy conjugation done: itself, since there are no complex dtypes."""
    return input


def resolve_neg(input: Tensor) -> Tensor:
    """The tensor with its lazy negation done: itself, since negation is never lazy."""
    return input


def conj_physical_(self: Tensor) -> Tensor:
    """The complex conjugate in place: nothing changes, since there are no complex dtypes."""
    return self


METHODS = (
    angle,
    conj,
    conj_physical,
    resolve_conj,
    resolve_neg,
)
TENSOR_METHODS = (conj_physical_,)
IN_PLACE = ()
FUNCTIONS = (real, imag)
