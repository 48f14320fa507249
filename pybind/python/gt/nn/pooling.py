"""The pooling layers: windows of each channel reduced to one element each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gt._gt import Tensor
from gt.nn import functional
from gt.nn._windows import Sizes
from gt.nn.module import Module


class _MaxPool(Module):
    function: str

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Any:
        """`(samples, channels, *sizes)`, or without samples, to smaller sizes."""
        return getattr(functional, self.function)(
            *(input, self.kernel_size, self.stride, self.padding, self.dilation),
            ceil_mode=self.ceil_mode,
            return_indices=self.return_indices,
        )

    def extra_repr(self) -> str:
        """The options."""
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPool):
    """The largest element of each window of `(samples, channels, length)`."""

    function = "max_pool1d"


class MaxPool2d(_MaxPool):
    """The largest element of each window of `(samples, channels, height, width)`."""

    function = "max_pool2d"


class MaxPool3d(_MaxPool):
    """The largest element of each window of `(samples, channels, depth, height, width)`."""

    function = "max_pool3d"


class _MaxUnpool(Module):
    function: str

    def __init__(self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """What a pool made, and where it took it from, to a sparse form of the pool's input."""
        unpool = getattr(functional, self.function)
        return unpool(input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self) -> str:
        """The options."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpool):
    """Each element back where `MaxPool1d` took it from, among zeros."""

    function = "max_unpool1d"


class MaxUnpool2d(_MaxUnpool):
    """Each element back where `MaxPool2d` took it from, among zeros."""

    function = "max_unpool2d"


class MaxUnpool3d(_MaxUnpool):
    """Each element back where `MaxPool3d` took it from, among zeros."""

    function = "max_unpool3d"


class AvgPool1d(Module):
    """The mean of each window of `(samples, channels, length)`."""

    function = "avg_pool1d"

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        """`(samples, channels, *sizes)`, or without samples, to smaller sizes."""
        pool = getattr(functional, self.function)
        return pool(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)

    def extra_repr(self) -> str:
        """The sizes."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool2d(AvgPool1d):
    """The mean of each window of `(samples, channels, height, width)`, or its sum by another divisor."""

    function = "avg_pool2d"

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad)
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        """`(samples, channels, *sizes)`, or without samples, to smaller sizes."""
        return getattr(functional, self.function)(
            *(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad),
            divisor_override=self.divisor_override,
        )


class AvgPool3d(AvgPool2d):
    """The mean of each window of `(samples, channels, depth, height, width)`, or its sum by another divisor."""

    function = "avg_pool3d"


class LPPool1d(Module):
    """The norm of each window of `(samples, channels, length)`."""

    function = "lp_pool1d"

    def __init__(
        self, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        """`(samples, channels, *sizes)`, or without samples, to smaller sizes."""
        pool = getattr(functional, self.function)
        return pool(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)

    def extra_repr(self) -> str:
        """The options."""
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class LPPool2d(LPPool1d):
    """The norm of each window of `(samples, channels, height, width)`."""

    function = "lp_pool2d"


class LPPool3d(LPPool1d):
    """The norm of each window of `(samples, channels, depth, height, width)`."""

    function = "lp_pool3d"


class _AdaptiveAvgPool(Module):
    function: str

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        """`(samples, channels, *sizes)`, or without samples, to `output_size`."""
        return getattr(functional, self.function)(input, self.output_size)

    def extra_repr(self) -> str:
        """The size of the result."""
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """Means over as many windows as asked for."""

    function = "adaptive_avg_pool1d"


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """Means over as many windows as asked for; a size of `None` is the input's."""

    function = "adaptive_avg_pool2d"


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """Means over as many windows as asked for; a size of `None` is the input's."""

    function = "adaptive_avg_pool3d"


class _AdaptiveMaxPool(Module):
    function: str

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size = output_size
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Any:
        """`(samples, channels, *sizes)`, or without samples, to `output_size`."""
        return getattr(functional, self.function)(input, self.output_size, self.return_indices)

    def extra_repr(self) -> str:
        """The size of the result."""
        return f"output_size={self.output_size}"


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """The largest elements of as many windows as asked for."""

    function = "adaptive_max_pool1d"


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """The largest elements of as many windows as asked for; a size of `None` is the input's."""

    function = "adaptive_max_pool2d"


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """The largest elements of as many windows as asked for; a size of `None` is the input's."""

    function = "adaptive_max_pool3d"
