"""Gradient clipping, in place. Nothing here waits for a device, unless asked to check that the norm is finite."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from types import GeneratorType

from gt import _core as gt
from gt._autograd import no_grad
from gt._deprecated import deprecated
from gt._gt import Tensor

# PyTorch's guard against dividing by a norm of 0.
NORM_MARGIN = 1e-6


@no_grad()
def get_total_norm(
    tensors: Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,  # noqa: ARG001 (there is one way)
) -> Tensor:
    """The norm of all elements of all tensors, as one vector.

    Args:
        tensors: The tensors, such as gradients.
        norm_type: The order of the norm.
        error_if_nonfinite: Whether to raise an error if the norm is infinite or NaN.
        foreach: Ignored: it affects speed in PyTorch alone.

    Raises:
        ValueError: The norm's order is not positive.
        RuntimeError: The norm is not finite, and `error_if_nonfinite`.
    """
    norm_type = float(norm_type)
    if norm_type <= 0:
        raise ValueError(f"get_total_norm: the norm's order is a positive number or inf, but got {norm_type}")
    norms = [gt.norm(t, norm_type) for t in ([tensors] if isinstance(tensors, Tensor) else tensors) if t.numel()]
    if not norms:
        return gt.tensor(0.0)
    total = gt.norm(gt.stack(norms), norm_type)
    if error_if_nonfinite and not bool(total.isfinite()):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot be "
            "clipped. To disable this error and scale the gradients by the non-finite norm anyway, set "
            "`error_if_nonfinite=False`"
        )
    return total


def _gradients(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    parameters = [parameters] if isinstance(parameters, Tensor) else parameters
    return [grad for grad in (p.grad for p in parameters) if grad is not None]


@no_grad()
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,  # noqa: ARG001 (there is one way)
) -> Tensor:
    """Scales the gradients, as one vector, down to a norm of `max_norm` if they exceed it (Pascanu et al. 2013).

    Args:
        parameters: The parameters whose gradients are scaled.
        max_norm: The largest norm.
        norm_type: The order of the norm.
        error_if_nonfinite: Whether to raise an error if the norm is infinite or NaN.
        foreach: Ignored: it affects speed in PyTorch alone.

    Returns:
        The norm before clipping.

    Example:
        >>> w = gt.nn.Parameter(gt.zeros(2))
        >>> (w * gt.tensor([3.0, 4.0])).sum().backward()
        >>> gt.nn.utils.clip_grad_norm_([w], max_norm=1.0)
        tensor(5.)
        >>> w.grad
        tensor([0.6000, 0.8000])
    """
    is_generator = isinstance(parameters, GeneratorType)
    parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    if is_generator and not parameters:
        warnings.warn("`parameters` is a generator that has ended: no gradient is clipped.", stacklevel=3)
    total = get_total_norm(_gradients(parameters), norm_type, error_if_nonfinite)
    clip_grads_with_norm_(parameters, max_norm, total)
    return total


@deprecated("`torch.nn.utils.clip_grad_norm` is now deprecated in favor of `torch.nn.utils.clip_grad_norm_`.")
def clip_grad_norm(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Deprecated name of `clip_grad_norm_`."""
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


@no_grad()
def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    total_norm: Tensor,
    foreach: bool | None = None,  # noqa: ARG001 (there is one way)
) -> None:
    """Scales the gradients down to a norm of `max_norm`, given their norm `total_norm` as one vector."""
    factor = (max_norm / (total_norm + NORM_MARGIN)).clamp(max=1.0)
    for gradient in _gradients(parameters):
        gradient.mul_(factor.to(gradient.dtype))


@no_grad()
def clip_grad_value_(
    parameters: Tensor | Iterable[Tensor],
    clip_value: float,
    foreach: bool | None = None,  # noqa: ARG001 (there is one way)
) -> None:
    """Clamps every element of the gradients to [-clip_value, clip_value].

    Example:
        >>> w = gt.nn.Parameter(gt.zeros(2))
        >>> (w * gt.tensor([3.0, -0.5])).sum().backward()
        >>> gt.nn.utils.clip_grad_value_([w], 1.0)
        >>> w.grad
        tensor([ 1.0000, -0.5000])
    """
    for gradient in _gradients(parameters):
        gradient.clamp_(-clip_value, clip_value)
