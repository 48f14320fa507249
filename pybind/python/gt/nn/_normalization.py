"""Batch, group, instance and local response normalization as functions; `gt.nn.functional` has them."""

from __future__ import annotations

import math

from gt import _core as gt
from gt import _functions
from gt._composites.padding import pad
from gt._gt import Tensor


def _by_channel(input: Tensor, parameter: Tensor) -> Tensor:
    """A parameter of shape `(C)`, reshaped so that it broadcasts to `(N, C, *)`."""
    return parameter.reshape(1, -1, *[1] * (input.ndim - 2))


def _wide(input: Tensor) -> Tensor:
    """The input as float32 if it is half precision, whose range is too small for sums of squares."""
    return input.float() if input.dtype in (gt.float16, gt.bfloat16) else input


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Batch normalization of each channel: `(x - mean) / sqrt(var + eps) * weight + bias` (Ioffe and Szegedy 2015).

    Args:
        input: `(N, C, *)`.
        running_mean: The running mean, `(C)`. With `training` it is updated; otherwise the input is normalized by it.
        running_var: The running variance, `(C)`, likewise.
        weight: The scale, `(C)`; 1 if not given.
        bias: The shift, `(C)`; 0 if not given.
        training: Whether to normalize by the mean and variance of the batch, over all axes but `C`, and to update the
            running ones in place: `running = (1 - momentum) * running + momentum * batch`.
        momentum: The weight of the batch in the running statistics.
        eps: Added to the variance.

    Returns:
        A tensor of the input's shape and dtype.

    Raises:
        ValueError: `training` is true and there is only one value per channel, or it is false and the running
            statistics are not given.

    Example:
        >>> x = gt.tensor([[1.0, 4.0], [3.0, 8.0]])
        >>> gt.nn.functional.batch_norm(x, None, None, training=True)
        tensor([[-1.0000, -1.0000],
                [ 1.0000,  1.0000]])
    """
    if not training and (running_mean is None or running_var is None):
        raise ValueError("Expected running_mean and running_var to be defined when training=False")
    if input.numel() == 0:
        # An empty batch has no statistics. The parameters take part in the result so that they get gradients of zero.
        scaled = input.clone() if weight is None else input * weight[0]
        return scaled if bias is None else scaled + bias[0]
    axes = tuple(axis for axis in range(input.ndim) if axis != 1)
    shape = [1] * input.ndim
    shape[1] = input.shape[1]
    wide = _wide(input)
    if training:
        count = input.numel() // input.shape[1]
        if count == 1:
            raise ValueError(f"Expected more than 1 value per channel when training, got input size {input.shape}")
        mean = wide.mean(axes)
        centred = wide - mean.reshape(shape)
        variance = (centred * centred).mean(axes)
        with gt.no_grad():
            if running_mean is not None:
                running_mean.copy_(running_mean * (1 - momentum) + mean.detach() * momentum)
            if running_var is not None:
                # The running variance is the unbiased one (Bessel's correction).
                unbiased = variance.detach() * (count / (count - 1))
                running_var.copy_(running_var * (1 - momentum) + unbiased * momentum)
    else:
        variance = running_var
        centred = wide - running_mean.reshape(shape)
    normal = (centred * (variance + eps).rsqrt().reshape(shape)).to(input.dtype)
    if weight is not None:
        normal = normal * weight.reshape(shape)
    return normal if bias is None else normal + bias.reshape(shape)


def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Group normalization (Wu and He 2018): `(x - mean) / sqrt(var + eps) * weight + bias`.

    The mean and the variance are taken over each group of channels of each sample.

    Args:
        input: `(N, C, *)`.
        num_groups: The number of groups. It has to divide `C`.
        weight: The scale, `(C)`; 1 if not given.
        bias: The shift, `(C)`; 0 if not given.
        eps: Added to the variance.

    Returns:
        A tensor of the input's shape.

    Example:
        >>> gt.nn.functional.group_norm(gt.tensor([[1.0, 3.0, 2.0, 2.0]]), num_groups=2)
        tensor([[-1.0000,  1.0000,  0.0000,  0.0000]])
    """
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
    wide = _wide(input)
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
    """Instance normalization (Ulyanov et al. 2016): `(x - mean) / sqrt(var + eps) * weight + bias`.

    The mean and the variance are taken over each channel of each sample.

    Args:
        input: `(N, C, *)`.
        running_mean: The running mean, `(C)`. With `use_input_stats` it is updated in place, by the mean over the
            samples; otherwise the input is normalized by it.
        running_var: The running variance, `(C)`, likewise.
        weight: The scale, `(C)`; 1 if not given.
        bias: The shift, `(C)`; 0 if not given.
        use_input_stats: Whether to normalize by the input's statistics rather than by the running ones.
        momentum: The weight of the input in the running statistics.
        eps: Added to the variance.

    Returns:
        A tensor of the input's shape.

    Raises:
        ValueError: There is only one value per channel and sample.
        RuntimeError: `use_input_stats` is false and the running statistics are not given.

    Example:
        >>> gt.nn.functional.instance_norm(gt.tensor([[[1.0, 3.0], [2.0, 6.0]]]))
        tensor([[[-1.0000,  1.0000],
                 [-1.0000,  1.0000]]])
    """
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise RuntimeError("Expected running_mean and running_var to be defined when use_input_stats is false")
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
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
    """Local response normalization over channels: `x / (k + alpha * mean(x^2))^beta` (Krizhevsky et al. 2012).

    Args:
        input: `(N, C, *)`.
        size: The number of neighbouring channels over which the mean is taken, the channel itself among them. Channels
            beyond the first and the last count as zeros.
        alpha: The factor of the mean.
        beta: The exponent.
        k: The additive constant.

    Returns:
        A tensor of the input's shape.

    Example:
        >>> gt.nn.functional.local_response_norm(gt.ones(1, 3, 1), size=3, alpha=3.0, beta=1.0).flatten()
        tensor([0.3333, 0.2500, 0.3333])
    """
    if input.ndim < 3:
        raise ValueError(f"Expected 3D or higher dimensionality input (got {input.ndim} dimensions)")
    if input.numel() == 0:
        return input
    squares = (input * input).unsqueeze(1).flatten(3)
    around = pad(squares, (0, 0, size // 2, (size - 1) // 2))
    means = _functions.MODULES["nn.functional"]["avg_pool2d"](around, (size, 1), stride=1).reshape(input.shape)
    return input / (means * alpha + k) ** beta
