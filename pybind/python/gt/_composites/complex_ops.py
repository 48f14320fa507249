"""The parts of complex numbers, of which all here are real."""

from __future__ import annotations

import math
from typing import NoReturn

from gt import _gt
from gt._gt import Tensor


def angle(input: Tensor) -> Tensor:
    """The angle of each number in the complex plane: 0, pi where it is negative, NaN where it is NaN."""
    x = input if input.is_floating_point() else input.float()
    return _gt.where(x.isnan(), x, _gt.where(x < 0, math.pi, x * 0))


def real(input: Tensor) -> Tensor:
    """The tensor itself."""
    return input


def imag(input: Tensor) -> NoReturn:  # noqa: ARG001
    """Raises: there are no complex numbers.

    Raises:
        RuntimeError: Always.
    """
    raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")


def conj(input: Tensor) -> Tensor:
    """The tensor itself."""
    return input


def conj_physical(input: Tensor) -> Tensor:
    """The tensor itself."""
    return input


def resolve_conj(input: Tensor) -> Tensor:
    """The tensor itself."""
    return input


def resolve_neg(input: Tensor) -> Tensor:
    """The tensor itself."""
    return input


def conj_physical_(self: Tensor) -> Tensor:
    """The tensor itself."""
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
