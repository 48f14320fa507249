"""All parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

from gt import _core as gt
from gt._gt import Tensor


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """The elements of all parameters, one after the other; gradients pass through."""
    return gt.cat([parameter.reshape(-1) for parameter in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Gives each parameter its piece of `vec` as its value.

    Raises:
        TypeError: `vec` is not a tensor.
        RuntimeError: `vec` has not as many elements as the parameters.
    """
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected a Tensor, but got: {type(vec).__name__}")
    parameters = list(parameters)
    wanted = sum(parameter.numel() for parameter in parameters)
    if tuple(vec.shape) != (wanted,):
        raise RuntimeError(f"the parameters have {wanted} elements, but the vector is of shape {tuple(vec.shape)}")
    start = 0
    for parameter in parameters:
        count = parameter.numel()
        # A copy: two parameters must not share the vector's elements with each other's next step.
        parameter.data = vec[start : start + count].detach().clone().reshape(parameter.shape).to(parameter.dtype)
        start += count
