"""Convolution layers and transposed convolution layers over one to three spatial axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gt import _core as gt
from gt._functions import nn_functional as functional
from gt._gt import Tensor
from gt.nn import init
from gt.nn.common_types import Sizes, tuple_of
from gt.nn.module import Module
from gt.nn.parameter import Parameter

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]

_MODES = ("zeros", "reflect", "replicate", "circular")


class _ConvNd(Module):
    """The base of all convolution layers: the options, the weight and the bias, and their initialization."""

    rank: int
    transposed = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes,
        padding: Sizes | str,
        dilation: Sizes,
        groups: int,
        bias: bool,
        padding_mode: str,
        output_padding: Sizes = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if groups <= 0:
            raise ValueError("groups must be a positive integer")
        if in_channels % groups:
            raise ValueError("in_channels must be divisible by groups")
        if out_channels % groups:
            raise ValueError("out_channels must be divisible by groups")
        if padding_mode not in _MODES:
            raise ValueError(f"padding_mode must be one of {set(_MODES)}, but got padding_mode='{padding_mode}'")
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = tuple_of(kernel_size, self.rank)
        self.stride = tuple_of(stride, self.rank, "stride")
        self.dilation = tuple_of(dilation, self.rank, "dilation")
        self.output_padding = tuple_of(output_padding, self.rank, "output_padding")
        self.groups = groups
        self.padding_mode = padding_mode
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise ValueError(f"Invalid padding string '{padding}', should be one of {{'valid', 'same'}}")
            if padding == "same" and any(step != 1 for step in self.stride):
                raise ValueError("padding='same' is not supported for strided convolutions")
            self.padding: Any = padding
        else:
            self.padding = tuple_of(padding, self.rank, "padding")
        self.weight = Parameter(gt.empty(*self._weight_shape(), device=device, dtype=dtype))
        self.register_parameter("bias", Parameter(gt.empty(out_channels, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def _weight_shape(self) -> tuple[int, ...]:
        channels = (self.out_channels, self.in_channels)
        first, second = reversed(channels) if self.transposed else channels
        return (first, second // self.groups, *self.kernel_size)

    def reset_parameters(self) -> None:
        """Initializes the weight and the bias uniformly within ±1/sqrt(fan_in)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            terms = self.weight.shape[1] * math.prod(self.kernel_size)
            if terms:
                init.uniform_(self.bias, -1 / math.sqrt(terms), 1 / math.sqrt(terms))

    def forward(self, input: Tensor) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            input, padding = functional.pad(input, self._pads(), mode=self.padding_mode), 0
        convolve = getattr(functional, f"conv{self.rank}d")
        return convolve(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)

    def _pads(self) -> list[int]:
        """The padding on both sides of each axis, the last axis first."""
        pads: list[int] = []
        for i in reversed(range(self.rank)):
            total = self.dilation[i] * (self.kernel_size[i] - 1)
            if self.padding == "same":
                pads += [total // 2, total - total // 2]
            else:
                pads += [0, 0] if self.padding == "valid" else [self.padding[i], self.padding[i]]
        return pads

    def _pytorch_state(self) -> dict[str, Any]:
        transposed = "Transpose" in type(self).__name__
        return {"transposed": transposed, "_reversed_padding_repeated_twice": self._pads()}

    def extra_repr(self) -> str:
        parts = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"]
        if self.padding != (0,) * self.rank:
            parts.append(f"padding={self.padding}")
        if self.dilation != (1,) * self.rank:
            parts.append(f"dilation={self.dilation}")
        if self.output_padding != (0,) * self.rank:
            parts.append(f"output_padding={self.output_padding}")
        if self.groups != 1:
            parts.append(f"groups={self.groups}")
        if self.bias is None:
            parts.append("bias=False")
        if self.padding_mode != "zeros":
            parts.append(f"padding_mode={self.padding_mode}")
        return ", ".join(parts)


class _PlainConv(_ConvNd):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            *(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode),
            device=device,
            dtype=dtype,
        )


class Conv1d(_PlainConv):
    """1-D convolution (cross-correlation) of `(N, C, L)` with learned filters, plus a bias.

    `out[n, k] = bias[k] + sum_c weight[k, c] ⋆ input[n, c]`, where ⋆ is the cross-correlation.

    Args:
        in_channels: The number of input channels.
        out_channels: The number of output channels.
        kernel_size: The size of the window.
        stride: The step between windows.
        padding: The zeros added at both ends; `"valid"` for none, `"same"` to keep the length (with stride 1).
        dilation: The step between the elements of a window.
        groups: The number of groups that channels are split into; each output channel sees its group's inputs alone.
        bias: Whether there is a bias.
        padding_mode: `"zeros"`, `"reflect"`, `"replicate"` or `"circular"`.
        device: A device, which has to exist; the daemon decides where the parameters lie.
        dtype: Their dtype.

    Attributes:
        weight: `(out_channels, in_channels / groups, kernel_size)`.
        bias: `(out_channels,)`, or `None`.

    Shape:
        `(N, in_channels, L)` or `(in_channels, L)` to `(N, out_channels, L')` or `(out_channels, L')`, where
        `L' = floor((L + 2 padding - dilation (kernel_size - 1) - 1) / stride + 1)`.

    Example:
        >>> layer = gt.nn.Conv1d(16, 33, 3, stride=2)
        >>> layer(gt.ones(20, 16, 50)).shape
        gt.Size([20, 33, 24])
    """

    rank = 1


class Conv2d(_PlainConv):
    """2-D convolution (cross-correlation) of `(N, C, H, W)` with learned filters, plus a bias.

    `out[n, k] = bias[k] + sum_c weight[k, c] ⋆ input[n, c]`, where ⋆ is the cross-correlation: a convolution without
    flipping the filter. `kernel_size`, `stride`, `padding` and `dilation` may each be one number for both axes, or a
    pair `(height, width)`.

    Args:
        in_channels: The number of input channels.
        out_channels: The number of output channels, and of filters.
        kernel_size: The size of the window.
        stride: The step between windows.
        padding: The width of the border added on each side; `"valid"` for none, `"same"` to keep the size (with
            stride 1).
        dilation: The step between the elements of a window.
        groups: The number of groups that channels are split into; each output channel sees its group's inputs alone.
            With `groups=in_channels` it is a depthwise convolution.
        bias: Whether there is a bias.
        padding_mode: The content of the border: `"zeros"`, `"reflect"`, `"replicate"` or `"circular"`.
        device: A device, which has to exist; the daemon decides where the parameters lie.
        dtype: Their dtype.

    Attributes:
        weight: `(out_channels, in_channels / groups, *kernel_size)`. It and the bias are initialized uniformly within
            ±1/sqrt(k), where `k = in_channels / groups * kernel_size[0] * kernel_size[1]`.
        bias: `(out_channels,)`, or `None`.

    Shape:
        `(N, in_channels, H, W)` to `(N, out_channels, H', W')`, or both without `N`, where
        `H' = floor((H + 2 padding - dilation (kernel_size - 1) - 1) / stride + 1)`, and `W'` likewise.

    Example:
        >>> layer = gt.nn.Conv2d(3, 8, kernel_size=3, padding=1)
        >>> layer(gt.ones(2, 3, 32, 32)).shape
        gt.Size([2, 8, 32, 32])
        >>> gt.nn.Conv2d(3, 8, kernel_size=(3, 5), stride=(2, 1))(gt.ones(2, 3, 32, 32)).shape
        gt.Size([2, 8, 15, 28])
    """

    rank = 2


class Conv3d(_PlainConv):
    """3-D convolution (cross-correlation) of `(N, C, D, H, W)` with learned filters, plus a bias.

    The arguments are those of `Conv1d`; a size may be one number for all axes, or three.

    Shape:
        `(N, in_channels, D, H, W)` to `(N, out_channels, D', H', W')`, or both without `N`; see `Conv1d` for the sizes.

    Example:
        >>> layer = gt.nn.Conv3d(2, 4, kernel_size=3)
        >>> layer(gt.ones(1, 2, 5, 6, 7)).shape
        gt.Size([1, 4, 3, 4, 5])
    """

    rank = 3


class _TransposedConv(_ConvNd):
    transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        super().__init__(
            *(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode),
            output_padding=output_padding,
            device=device,
            dtype=dtype,
        )

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """The transposed convolution of an input.

        Args:
            input: `(N, in_channels, *)` or `(in_channels, *)`.
            output_size: The spatial sizes of the output; with a stride, several sizes are possible.

        Returns:
            `(N, out_channels, *)` or `(out_channels, *)`.
        """
        more = self.output_padding if output_size is None else self._padding_for(input, list(output_size))
        convolve = getattr(functional, f"conv_transpose{self.rank}d")
        return convolve(
            input, self.weight, self.bias, self.stride, self.padding, more, groups=self.groups, dilation=self.dilation
        )

    def _padding_for(self, input: Tensor, wanted: list[int]) -> tuple[int, ...]:
        wanted = wanted[-self.rank :]
        if len(wanted) != self.rank:
            raise ValueError(f"{type(self).__name__}: output_size must have {self.rank} elements, but got {wanted}")
        more = []
        for i, (size, want) in enumerate(zip(input.shape[-self.rank :], wanted, strict=True)):
            reach = self.dilation[i] * (self.kernel_size[i] - 1) + 1
            least = (size - 1) * self.stride[i] - 2 * self.padding[i] + reach
            if not least <= want < least + self.stride[i]:
                raise ValueError(
                    f"requested an output size of {wanted}, but axis {i} may have from {least} to "
                    f"{least + self.stride[i] - 1}"
                )
            more.append(want - least)
        return tuple(more)


class ConvTranspose1d(_TransposedConv):
    """Transposed 1-D convolution: the gradient of `Conv1d` with respect to its input, as a layer.

    Args:
        in_channels: The number of input channels.
        out_channels: The number of output channels.
        kernel_size: The size of the window.
        stride: The step between windows of the output.
        padding: How much is cut off at both ends of the output.
        output_padding: How much is added to the end of the output, to choose among the possible sizes.
        groups: The number of groups that channels are split into.
        bias: Whether there is a bias.
        dilation: The step between the elements of a window.
        padding_mode: `"zeros"`.
        device: A device, which has to exist; the daemon decides where the parameters lie.
        dtype: Their dtype.

    Attributes:
        weight: `(in_channels, out_channels / groups, kernel_size)`.
        bias: `(out_channels,)`, or `None`.

    Shape:
        `(N, in_channels, L)` to `(N, out_channels, L')`, or both without `N`, where
        `L' = (L - 1) stride - 2 padding + dilation (kernel_size - 1) + output_padding + 1`.

    Example:
        >>> layer = gt.nn.ConvTranspose1d(4, 2, kernel_size=3, stride=2)
        >>> layer(gt.ones(1, 4, 5)).shape
        gt.Size([1, 2, 11])
    """

    rank = 1


class ConvTranspose2d(_TransposedConv):
    """Transposed 2-D convolution: the gradient of `Conv2d` with respect to its input, as a layer.

    The arguments are those of `ConvTranspose1d`; a size may be one number for both axes, or a pair.

    Shape:
        `(N, in_channels, H, W)` to `(N, out_channels, H', W')`, or both without `N`; see `ConvTranspose1d` for the
        sizes.

    Example:
        >>> layer = gt.nn.ConvTranspose2d(4, 2, kernel_size=2, stride=2)
        >>> layer(gt.ones(1, 4, 5, 5)).shape
        gt.Size([1, 2, 10, 10])
    """

    rank = 2


class ConvTranspose3d(_TransposedConv):
    """Transposed 3-D convolution: the gradient of `Conv3d` with respect to its input, as a layer.

    The arguments are those of `ConvTranspose1d`; a size may be one number for all axes, or three.

    Example:
        >>> gt.nn.ConvTranspose3d(2, 3, kernel_size=2, stride=2)(gt.ones(1, 2, 3, 4, 4)).shape
        gt.Size([1, 3, 6, 8, 8])
    """

    rank = 3
