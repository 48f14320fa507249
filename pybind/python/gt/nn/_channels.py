"""Normalising and dropping whole channels as functions, under PyTorch's names: `gt.nn.functional` has them."""

from __future__ import annotations

import math

import gt
from gt._gt import Tensor
from gt.nn._images import pad
from gt.nn._pools import avg_pool2d


def _by_channel(input: Tensor, parameter: Tensor) -> Tensor:
    return parameter.reshape(1, -1, *[1] * (input.ndim - 2))


def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Mean 0 and variance 1 over each sample's groups of channels; then `* weight + bias` by channel."""
    if input.ndim < 2:
        raise RuntimeError(f"Expected at least 2 dimensions for input tensor but received {input.ndim}")
    samples, channels = input.shape[:2]
    size = math.prod(input.shape[2:])
    for what, number in (("number of channels", channels), ("HxW", size)):
        if number == 0:
            raise RuntimeError(f"Expected {what} to be greater than 0, got 0")
    if num_groups <= 0 or channels % num_groups:
        raise RuntimeError(
            "Expected number of channels in input to be divisible by num_groups, but got input of shape "
            f"{list(input.shape)} and num_groups={num_groups}"
        )
    wide = input.float() if input.dtype in (gt.float16, gt.bfloat16) else input
    rows = wide.reshape(samples, num_groups, channels // num_groups * size)
    centred = rows - rows.mean(-1, keepdim=True)
    normal = centred * ((centred * centred).mean(-1, keepdim=True) + eps).rsqrt()
    normal = normal.reshape(input.shape).to(input.dtype)
    if weight is not None:
        normal = normal * _by_channel(input, weight)
    return normal if bias is None else normal + _by_channel(input, bias)


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Mean 0 and variance 1 over each channel of each sample; then `* weight + bias`.

    The running mean and variance, given, take up those of the samples by a share of `momentum`; without
    `use_input_stats` they are used instead.
    """
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise RuntimeError("Expected running_mean and running_var to be defined when use_input_stats is false")
        return gt.nn.functional.batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    count = math.prod(input.shape[2:])
    if count <= 1:
        raise ValueError(f"Expected more than 1 spatial element when training, got input size {list(input.shape)}")
    if running_mean is not None or running_var is not None:
        with gt.no_grad():
            rows = input.detach().flatten(2)
            if running_mean is not None:
                running_mean.copy_(running_mean * (1 - momentum) + rows.mean(-1).mean(0) * momentum)
            if running_var is not None:
                running_var.copy_(running_var * (1 - momentum) + rows.var(-1).mean(0) * momentum)
    return group_norm(input, input.shape[1], weight, bias, eps)


def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """Each element divided by a power of the mean square of `size` channels around its own."""
    if input.ndim < 3:
        raise ValueError(f"Expected 3D or higher dimensionality input (got {input.ndim} dimensions)")
    if input.numel() == 0:
        return input
    squares = (input * input).unsqueeze(1).flatten(3)
    around = pad(squares, (0, 0, size // 2, (size - 1) // 2))
    means = avg_pool2d(around, (size, 1), stride=1).reshape(input.shape)
    return input / (means * alpha + k) ** beta


# Dropping elements and channels -------------------------------------------------------------------------------------


def _check(p: float) -> None:
    if not 0 <= p <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def _finish(input: Tensor, result: Tensor, inplace: bool) -> Tensor:
    return input._rebind(result) if inplace else result


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Each element set to 0 with probability `p`, the others divided by `1 - p`; in evaluation, `input`."""
    _check(p)
    if not training or p == 0:
        return input
    dropped = input * 0.0 if p == 1 else gt.where(gt.rand_like(input) < p, 0.0, input * (1 / (1 - p)))
    return _finish(input, dropped, inplace)


def _drop_channels(input: Tensor, axes: int, p: float, training: bool, inplace: bool) -> Tensor:
    """The last `axes` axes are dropped together or not at all."""
    _check(p)
    if not training or p == 0:
        return input
    if p == 1:
        return _finish(input, input * 0.0, inplace)
    lead = input.shape[: input.ndim - axes]
    dropped = gt.rand(*lead, *[1] * axes) < p
    return _finish(input, gt.where(dropped, 0.0, input * (1 / (1 - p))), inplace)


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Each channel of `(samples, channels, length)`, or `(channels, length)`, set to 0 with probability `p`."""
    if input.ndim not in (2, 3):
        raise RuntimeError(f"dropout1d: Expected 2D or 3D input, but received a {input.ndim}D input.")
    return _drop_channels(input, 1, p, training, inplace)


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Each channel of `(samples, channels, height, width)` set to 0 with probability `p`."""
    if input.ndim < 3:
        raise RuntimeError(f"dropout2d: Expected (samples, channels, …), but received a {input.ndim}D input.")
    # As in PyTorch, three axes are samples, channels and a length.
    return _drop_channels(input, input.ndim - 2, p, training, inplace)


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Each channel of `(samples, channels, depth, height, width)`, or without samples, set to 0 likewise."""
    if input.ndim not in (4, 5):
        raise RuntimeError(f"dropout3d: Expected 4D or 5D input, but received a {input.ndim}D input.")
    return _drop_channels(input, 3, p, training, inplace)


# What scaled exponential units go to far on the left.
_ALPHA_LEAST = -1.7580993408473766


def _alpha(input: Tensor, axes: int, p: float, training: bool, inplace: bool) -> Tensor:
    _check(p)
    if not training or p == 0:
        return input
    if p == 1:
        return _finish(input, input * 0.0, inplace)
    scale = 1 / math.sqrt((_ALPHA_LEAST**2 * p + 1) * (1 - p))
    shape = (*input.shape[: input.ndim - axes], *[1] * axes)
    dropped = gt.rand(*shape) < p
    result = gt.where(dropped, _ALPHA_LEAST, input) * scale - _ALPHA_LEAST * p * scale
    return _finish(input, result, inplace)


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout that keeps mean 0 and variance 1: dropped elements become what `selu` saturates to."""
    return _alpha(input, 0, p, training, inplace)


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """`alpha_dropout` of whole channels."""
    if input.ndim < 2 and training and 0 < p < 1:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    return _alpha(input, max(input.ndim - 2, 0), p, training, inplace)
