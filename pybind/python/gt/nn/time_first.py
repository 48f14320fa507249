"""`conv_tbc`: convolution of sequences whose axes are time, batch and channels."""

from __future__ import annotations

from gt._functions import nn_functional
from gt._gt import Tensor

__all__ = ["conv_tbc"]


def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """Convolution over the first axis of sequences: `conv1d` with the axes in another order, with gradients.

    Args:
        input: Shape (T, N, C_in): time, batch, channels.
        weight: Shape (K, C_in, C_out), of the dtype of `input`.
        bias: Shape (C_out,).
        pad: The number of zeros before and after each sequence.

    Returns:
        Shape (T + 2 pad - K + 1, N, C_out).

    Raises:
        RuntimeError: The shapes or dtypes do not fit each other, or a sequence is shorter than the kernel.

    Example:
        >>> gt.conv_tbc(gt.arange(4.0).reshape(4, 1, 1), gt.ones(2, 1, 1), gt.zeros(1)).flatten()
        tensor([1., 3., 5.])
    """
    if not isinstance(bias, Tensor):
        raise TypeError(f"conv_tbc(): argument 'bias' (position 3) must be Tensor, not {type(bias).__name__}")
    if input.ndim != 3:
        raise RuntimeError("Input must have 3 dims: time, batch, in_channel")
    if weight.ndim != 3:
        raise RuntimeError("Weight tensor must have 3 dims: kernel_width, in_channels, out_channels.")
    if bias.ndim != 1:
        raise RuntimeError("Bias must be 1-D")
    if input.shape[2] != weight.shape[1]:
        raise RuntimeError("Input dim 2 (input channels) is not == dim 1 in the weight tensor")
    if weight.shape[2] != bias.shape[0]:
        raise RuntimeError("Bias size must equal dim 2 in the weight tensor (output channels).")
    length = input.shape[0] + 2 * pad - weight.shape[0] + 1
    if length < 0:
        sizes = [length, input.shape[1], weight.shape[2]]
        raise RuntimeError(f"Trying to create tensor with negative dimension {length}: {sizes}")
    if input.dtype != weight.dtype:
        raise RuntimeError(f"conv_tbc: input and weight must have one dtype, but got {input.dtype} and {weight.dtype}")
    if length == 0:
        return input.new_zeros((0, input.shape[1], weight.shape[2]))
    if pad < 0:
        input, pad = input[-pad : input.shape[0] + pad], 0
    turned = nn_functional.conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias.to(input.dtype), padding=pad)
    return turned.permute(2, 0, 1).contiguous()
