"""Powers and exponentials of square matrices."""

from __future__ import annotations

import math

from gt import _gt
from gt._gt import Tensor
from gt.linalg.solving import inv


def matrix_power(input: Tensor, n: int) -> Tensor:
    """The `n`-th power of square matrices; negative powers are those of the inverse.

    Example:
        >>> gt.linalg.matrix_power(gt.tensor([[1.0, 1.0], [0.0, 1.0]]), 3)
        tensor([[1., 3.],
                [0., 1.]])
    """
    if input.ndim < 2 or input.shape[-1] != input.shape[-2]:
        raise RuntimeError(
            "linalg.matrix_power: A must be batches of square matrices, "
            f"but they are {' by '.join(map(str, input.shape[-2:]))} matrices"
        )
    if n < 0:
        return matrix_power(inv(input), -n)
    result = None
    while n:
        if n & 1:
            result = input if result is None else result @ input
        n >>= 1
        input = input @ input if n else input
    if result is None:
        # The identity depends on the input formally, so that there is a gradient: zeros.
        return _gt.where(_gt.zeros((), dtype=_gt.bool), input, _gt.eye(input.shape[-1], dtype=input.dtype))
    return result.clone() if result is input else result


def matrix_exp(input: Tensor) -> Tensor:
    """The matrix exponential, by its power series with scaling and squaring.

    Example:
        >>> gt.linalg.matrix_exp(gt.tensor([[0.0, 1.0], [0.0, 0.0]]))
        tensor([[1., 1.],
                [0., 1.]])
    """
    if input.dtype not in (_gt.float32, _gt.float64):
        raise NotImplementedError(f"matrix_exp is not there for {input.dtype}: use float32 or float64")
    if input.ndim < 2 or input.shape[-1] != input.shape[-2]:
        raise RuntimeError(
            "linalg.matrix_exp: A must be batches of square matrices, "
            f"but they are {' by '.join(map(str, input.shape[-2:]))} matrices"
        )
    largest = input.detach().abs().sum(-1).amax().item() if input.numel() else 0.0
    halvings = max(0, math.ceil(math.log2(largest)) + 2) if 0 < largest < math.inf else 0
    small = input * 2.0**-halvings
    identity = _gt.eye(input.shape[-1], dtype=input.dtype).expand(input.shape)
    result = identity
    # For a norm of at most 1/4, the terms from 1/16! on are below the resolution of float64.
    for k in range(15, 0, -1):
        result = identity + small @ result / k
    for _ in range(halvings):
        result = result @ result
    return result
