"""Parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

from gt import _core as gt
from gt._gt import Tensor


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """Concatenates the elements of all parameters into one vector; autograd sees through it.

    Example:
        >>> model = gt.nn.Linear(3, 2)
        >>> gt.nn.utils.parameters_to_vector(model.parameters()).shape
        gt.Size([8])
    """
    return gt.cat([parameter.reshape(-1) for parameter in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Sets each parameter to its slice of a vector, in the order of `parameters_to_vector`.

    Raises:
        TypeError: `vec` is not a tensor.
        RuntimeError: `vec` has another number of elements than the parameters.
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
        # A copy: the parameters must not share memory with the vector, as optimizers change them in place.
        parameter.data = vec[start : start + count].detach().clone().reshape(parameter.shape).to(parameter.dtype)
        start += count
