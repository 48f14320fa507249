"""Powers and exponentials of square matrices."""

from __future__ import annotations

import math

from gt import _gt
from gt._gt import Tensor
from gt.linalg.solving import inv


def matrix_power(input: Tensor, n: int) -> Tensor:
    """The product of a matrix with itself, `n` factors; those of the inverse if `n` is negative."""
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
        # Never taken from the input, which its gradient is to show: zeros.
        return _gt.where(_gt.zeros((), dtype=_gt.bool), input, _gt.eye(input.shape[-1], dtype=input.dtype))
    return result.clone() if result is input else result


def matrix_exp(input: Tensor) -> Tensor:
    """The exponential of matrices: the series, of the matrices halved until it converges fast, and squared again."""
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
    # The rest after 1/16! of a matrix of norm 1/4 is below what float64 tells apart.
    for k in range(15, 0, -1):
        result = identity + small @ result / k
    for _ in range(halvings):
        result = result @ result
    return result
