"""The pooling layers: windows of each channel reduced to one element each.

A layer keeps its options and calls the function of its name with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gt._gt import Tensor
from gt.nn import functional
from gt.nn._sliding_windows import Sizes, tuple_of
from gt.nn.module import Module


class _Pool(Module):
    function: str
    # Which options `repr` shows.
    shown: tuple[str, ...]

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._options = tuple(options)
        self.__dict__.update(options)

    def forward(self, input: Tensor) -> Any:
        options = {name: getattr(self, name) for name in self._options}
        return getattr(functional, self.function)(input, **options)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)}" for name in self.shown)


class _MaxPool(_Pool):
    shown = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__(
            kernel_size=kernel_size,
            stride=kernel_size if stride is None else stride,
            padding=padding,
            dilation=dilation,
            return_indices=return_indices,
            ceil_mode=ceil_mode,
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


class _MaxUnpool(_Pool):
    shown = ("kernel_size", "stride", "padding")

    def __init__(self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0) -> None:
        rank = int(self.function[-2])
        super().__init__(
            kernel_size=tuple_of(kernel_size, rank),
            stride=tuple_of(kernel_size if stride is None else stride, rank, "stride"),
            padding=tuple_of(padding, rank, "padding"),
        )

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """What a pool made, and where it took it from, to a sparse form of the pool's input."""
        unpool = getattr(functional, self.function)
        return unpool(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool1d(_MaxUnpool):
    """Each element back where `MaxPool1d` took it from, among zeros."""

    function = "max_unpool1d"


class MaxUnpool2d(_MaxUnpool):
    """Each element back where `MaxPool2d` took it from, among zeros."""

    function = "max_unpool2d"


class MaxUnpool3d(_MaxUnpool):
    """Each element back where `MaxPool3d` took it from, among zeros."""

    function = "max_unpool3d"


class AvgPool1d(_Pool):
    """The mean of each window of `(samples, channels, length)`."""

    function = "avg_pool1d"
    shown = ("kernel_size", "stride", "padding")

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__(
            kernel_size=tuple_of(kernel_size, 1),
            stride=tuple_of(kernel_size if stride is None else stride, 1, "stride"),
            padding=tuple_of(padding, 1, "padding"),
            ceil_mode=ceil_mode,
            count_include_pad=count_include_pad,
        )


class _AvgPool(_Pool):
    shown = ("kernel_size", "stride", "padding")

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__(
            kernel_size=kernel_size,
            stride=kernel_size if stride is None else stride,
            padding=padding,
            ceil_mode=ceil_mode,
            count_include_pad=count_include_pad,
            divisor_override=divisor_override,
        )


class AvgPool2d(_AvgPool):
    """The mean of each window of `(samples, channels, height, width)`, or its sum by another divisor."""

    function = "avg_pool2d"


class AvgPool3d(_AvgPool):
    """The mean of each window of `(samples, channels, depth, height, width)`, or its sum by another divisor."""

    function = "avg_pool3d"


class _LPPool(_Pool):
    shown = ("norm_type", "kernel_size", "stride", "ceil_mode")

    def __init__(
        self, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False
    ) -> None:
        super().__init__(norm_type=norm_type, kernel_size=kernel_size, stride=stride, ceil_mode=ceil_mode)


class LPPool1d(_LPPool):
    """The norm of each window of `(samples, channels, length)`."""

    function = "lp_pool1d"


class LPPool2d(_LPPool):
    """The norm of each window of `(samples, channels, height, width)`."""

    function = "lp_pool2d"


class LPPool3d(_LPPool):
    """The norm of each window of `(samples, channels, depth, height, width)`."""

    function = "lp_pool3d"


class _AdaptiveAvgPool(_Pool):
    shown = ("output_size",)

    def __init__(self, output_size: Any) -> None:
        super().__init__(output_size=output_size)


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """Means over as many windows as asked for."""

    function = "adaptive_avg_pool1d"


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """Means over as many windows as asked for; a size of `None` is the input's."""

    function = "adaptive_avg_pool2d"


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """Means over as many windows as asked for; a size of `None` is the input's."""

    function = "adaptive_avg_pool3d"


class _AdaptiveMaxPool(_Pool):
    shown = ("output_size",)

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__(output_size=output_size, return_indices=return_indices)


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """The largest elements of as many windows as asked for."""

    function = "adaptive_max_pool1d"


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """The largest elements of as many windows as asked for; a size of `None` is the input's."""

    function = "adaptive_max_pool2d"


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """The largest elements of as many windows as asked for; a size of `None` is the input's."""

    function = "adaptive_max_pool3d"


class _FractionalMaxPool(_Pool):
    shown = ()

    def __init__(
        self,
        kernel_size: Sizes,
        output_size: Sizes | None = None,
        output_ratio: float | Sequence[float] | None = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:
        name, rank = type(self).__name__, int(self.function[-2])
        if output_size is None and output_ratio is None:
            raise ValueError(f"{name} requires specifying either an output size, or a pooling ratio")
        if output_size is not None and output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified")
        if output_ratio is not None:
            output_ratio = (output_ratio,) * rank if isinstance(output_ratio, float) else tuple(output_ratio)
            if not all(0 < ratio < 1 for ratio in output_ratio):
                raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")
        super().__init__(
            kernel_size=tuple_of(kernel_size, rank),
            output_size=None if output_size is None else tuple_of(output_size, rank, "output_size"),
            output_ratio=output_ratio,
            return_indices=return_indices,
        )
        self._options += ("_random_samples",)
        self.register_buffer("_random_samples", _random_samples)


class FractionalMaxPool2d(_FractionalMaxPool):
    """The largest elements of windows of `(samples, channels, height, width)` that lie where chance says."""

    function = "fractional_max_pool2d"


class FractionalMaxPool3d(_FractionalMaxPool):
    """The largest elements of windows of `(samples, channels, depth, height, width)` that lie where chance says."""

    function = "fractional_max_pool3d"
