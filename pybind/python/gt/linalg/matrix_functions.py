"""Powers of square matrices."""

from __future__ import annotations

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
