"""Pooling layers: each window of a channel is reduced to one element.

A layer keeps its options as attributes and passes them to the function of its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gt._gt import Tensor
from gt.nn import functional
from gt.nn.common_types import Sizes, tuple_of
from gt.nn.module import Module


class _Pool(Module):
    function: str
    # The options that `repr` shows.
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
    """Maximum of each window of `(N, C, L)`.

    Args:
        kernel_size: The size of the window.
        stride: The step between windows; `kernel_size` if not given.
        padding: The minus infinities added at both ends, at most half a window.
        dilation: The step between the elements of a window.
        return_indices: Whether to return the positions of the maxima too, for `MaxUnpool1d`.
        ceil_mode: Whether a last window may reach past the end: the output's size is rounded up.

    Shape:
        `(N, C, L)` or `(C, L)` to `(N, C, L')` or `(C, L')`, where
        `L' = floor((L + 2 padding - dilation (kernel_size - 1) - 1) / stride + 1)`.

    Example:
        >>> gt.nn.MaxPool1d(2)(gt.tensor([[1.0, 3.0, 2.0, 0.0]]))
        tensor([[3., 2.]])
    """

    function = "max_pool1d"


class MaxPool2d(_MaxPool):
    """Maximum of each window of `(N, C, H, W)`.

    The arguments are those of `MaxPool1d`; a size may be one number for both axes, or a pair.

    Example:
        >>> gt.nn.MaxPool2d(2)(gt.ones(1, 3, 8, 8)).shape
        gt.Size([1, 3, 4, 4])
    """

    function = "max_pool2d"


class MaxPool3d(_MaxPool):
    """Maximum of each window of `(N, C, D, H, W)`.

    The arguments are those of `MaxPool1d`; a size may be one number for all axes, or three.

    Example:
        >>> gt.nn.MaxPool3d(2)(gt.ones(1, 2, 4, 6, 8)).shape
        gt.Size([1, 2, 2, 3, 4])
    """

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
        """The inverse of a max pool, with zeros where the values were not maxima.

        Args:
            input: The pool's output.
            indices: The positions that the pool returned with `return_indices`.
            output_size: The shape of the pool's input, if it is not the smallest possible one.

        Returns:
            A tensor of the shape of the pool's input.
        """
        unpool = getattr(functional, self.function)
        return unpool(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool1d(_MaxUnpool):
    """Inverse of `MaxPool1d`: puts each maximum back where it came from, among zeros.

    Args:
        kernel_size: The window's size of the pool.
        stride: Its stride; `kernel_size` if not given.
        padding: Its padding.
    """

    function = "max_unpool1d"


class MaxUnpool2d(_MaxUnpool):
    """Inverse of `MaxPool2d`: puts each maximum back where it came from, among zeros.

    Args:
        kernel_size: The window's size of the pool.
        stride: Its stride; `kernel_size` if not given.
        padding: Its padding.

    Example:
        >>> pooled, indices = gt.nn.MaxPool2d(2, return_indices=True)(gt.arange(4.0).reshape(1, 1, 2, 2))
        >>> gt.nn.MaxUnpool2d(2)(pooled, indices)
        tensor([[[[0., 0.],
                  [0., 3.]]]])
    """

    function = "max_unpool2d"


class MaxUnpool3d(_MaxUnpool):
    """Inverse of `MaxPool3d`: puts each maximum back where it came from, among zeros.

    Args:
        kernel_size: The window's size of the pool.
        stride: Its stride; `kernel_size` if not given.
        padding: Its padding.
    """

    function = "max_unpool3d"


class AvgPool1d(_Pool):
    """Mean of each window of `(N, C, L)`.

    Args:
        kernel_size: The size of the window.
        stride: The step between windows; `kernel_size` if not given.
        padding: The zeros added at both ends, at most half a window.
        ceil_mode: Whether a last window may reach past the end: the output's size is rounded up.
        count_include_pad: Whether the divisor counts the padding.

    Example:
        >>> gt.nn.AvgPool1d(2)(gt.tensor([[1.0, 3.0, 2.0, 0.0]]))
        tensor([[2., 1.]])
    """

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
    """Mean of each window of `(N, C, H, W)`.

    The arguments are those of `AvgPool1d`; a size may be one number for both axes, or a pair. `divisor_override`
    replaces the number of elements as the divisor.

    Example:
        >>> gt.nn.AvgPool2d(2)(gt.ones(1, 3, 8, 8)).shape
        gt.Size([1, 3, 4, 4])
    """

    function = "avg_pool2d"


class AvgPool3d(_AvgPool):
    """Mean of each window of `(N, C, D, H, W)`.

    The arguments are those of `AvgPool1d`; a size may be one number for all axes, or three. `divisor_override` replaces
    the number of elements as the divisor.
    """

    function = "avg_pool3d"


class _LPPool(_Pool):
    shown = ("norm_type", "kernel_size", "stride", "ceil_mode")

    def __init__(
        self, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False
    ) -> None:
        super().__init__(norm_type=norm_type, kernel_size=kernel_size, stride=stride, ceil_mode=ceil_mode)


class LPPool1d(_LPPool):
    """Power-average pooling of `(N, C, L)`: `(sum x^p)^(1/p)` over each window.

    Args:
        norm_type: The exponent `p`: 1 for sums; the larger, the closer to maxima.
        kernel_size: The size of the window.
        stride: The step between windows; `kernel_size` if not given.
        ceil_mode: Whether a last window may reach past the end: the output's size is rounded up.
    """

    function = "lp_pool1d"


class LPPool2d(_LPPool):
    """Power-average pooling of `(N, C, H, W)`: `(sum x^p)^(1/p)` over each window; see `LPPool1d` for the arguments."""

    function = "lp_pool2d"


class LPPool3d(_LPPool):
    """Power-average pooling of `(N, C, D, H, W)`: `(sum x^p)^(1/p)` over each window.

    See `LPPool1d` for the arguments.
    """

    function = "lp_pool3d"


class _AdaptiveAvgPool(_Pool):
    shown = ("output_size",)

    def __init__(self, output_size: Any) -> None:
        super().__init__(output_size=output_size)


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """Mean pooling of `(N, C, L)` to a given length, whatever `L` is.

    Args:
        output_size: The length of the output.

    Example:
        >>> gt.nn.AdaptiveAvgPool1d(2)(gt.tensor([[1.0, 3.0, 2.0, 0.0]]))
        tensor([[2., 1.]])
    """

    function = "adaptive_avg_pool1d"


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """Mean pooling of `(N, C, H, W)` to given sizes, whatever `H` and `W` are.

    Args:
        output_size: The sizes of the output: one number for both axes, or a pair; `None` keeps the input's.

    Example:
        >>> gt.nn.AdaptiveAvgPool2d(1)(gt.ones(2, 3, 7, 9)).shape
        gt.Size([2, 3, 1, 1])
    """

    function = "adaptive_avg_pool2d"


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """Mean pooling of `(N, C, D, H, W)` to given sizes, whatever the input's are.

    Args:
        output_size: The sizes of the output: one number for all axes, or three; `None` keeps the input's.
    """

    function = "adaptive_avg_pool3d"


class _AdaptiveMaxPool(_Pool):
    shown = ("output_size",)

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__(output_size=output_size, return_indices=return_indices)


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """Max pooling of `(N, C, L)` to a given length, whatever `L` is.

    Args:
        output_size: The length of the output.
        return_indices: Whether to return the positions of the maxima too.
    """

    function = "adaptive_max_pool1d"


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Max pooling of `(N, C, H, W)` to given sizes, whatever `H` and `W` are.

    Args:
        output_size: The sizes of the output: one number for both axes, or a pair; `None` keeps the input's.
        return_indices: Whether to return the positions of the maxima too.
    """

    function = "adaptive_max_pool2d"


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """Max pooling of `(N, C, D, H, W)` to given sizes, whatever the input's are.

    Args:
        output_size: The sizes of the output: one number for all axes, or three; `None` keeps the input's.
        return_indices: Whether to return the positions of the maxima too.
    """

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
    """Fractional max pooling of `(N, C, H, W)`: maxima of windows at pseudo-random positions (Graham 2014).

    Args:
        kernel_size: The size of the windows, one number or a pair.
        output_size: The sizes of the output.
        output_ratio: Or their ratio to the input's, between 0 and 1.
        return_indices: Whether to return the positions of the maxima too.
        _random_samples: The random numbers to use, `(N, C, 2)`.
    """

    function = "fractional_max_pool2d"


class FractionalMaxPool3d(_FractionalMaxPool):
    """Fractional max pooling of `(N, C, D, H, W)`: maxima of windows at pseudo-random positions (Graham 2014).

    Args:
        kernel_size: The size of the windows, one number or three.
        output_size: The sizes of the output.
        output_ratio: Or their ratio to the input's, between 0 and 1.
        return_indices: Whether to return the positions of the maxima too.
        _random_samples: The random numbers to use, `(N, C, 3)`.
    """

    function = "fractional_max_pool3d"
