"""Calls of LAPACK by way of NumPy: the elements are fetched, and the results uploaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gt import _gt
from gt._gt import Tensor


class LinAlgError(RuntimeError):
    """A matrix that an algorithm of linear algebra cannot handle, as a singular one."""


def check(name: str, matrix: Tensor, square: bool = False) -> None:
    """Checks that the argument is a matrix of float32 or float64, and square if that is required.

    Raises:
        RuntimeError: It is not.
        NotImplementedError: Its dtype is not a floating-point one.
    """
    if matrix.dtype not in (_gt.float32, _gt.float64):
        kind = matrix.type().removeprefix("gt.").removesuffix("Tensor")
        if matrix.is_floating_point():
            raise RuntimeError(f"linalg.{name}: Low precision dtypes not supported. Got {kind}")
        raise NotImplementedError(f"linalg.{name}: Expected a floating point or complex tensor as input. Got {kind}")
    if matrix.ndim < 2:
        raise RuntimeError(f"linalg.{name}: The input tensor A must have at least 2 dimensions.")
    if square and matrix.shape[-1] != matrix.shape[-2]:
        rows, columns = matrix.shape[-2:]
        raise RuntimeError(
            f"linalg.{name}: A must be batches of square matrices, but they are {rows} by {columns} matrices"
        )


def run(name: str, reason: str, routine: Callable[..., Any], *operands: Tensor, **options: Any) -> Any:
    """The result of a routine of NumPy's on the elements of tensors: a tensor, or a tuple of them.

    Raises:
        LinAlgError: LAPACK found no result; `reason` is the message.
    """
    try:
        made = routine(*(operand.numpy(force=True) for operand in operands), **options)
    except np.linalg.LinAlgError:
        raise LinAlgError(f"linalg.{name}: {reason}") from None
    dtype = operands[0].dtype
    if isinstance(made, tuple):
        return tuple(_gt.tensor(np.asarray(part, order="C"), dtype=dtype) for part in made)
    return _gt.tensor(np.asarray(made, order="C"), dtype=dtype)
