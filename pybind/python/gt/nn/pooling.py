"""Pooling layers: each window of a channel is reduced to one element.

Each layer is declared by its options and calls its function in `gt.nn.functional`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from gt._functions import nn_functional as functional
from gt._gt import Tensor
from gt.nn.common_types import Sizes, tuple_of
from gt.nn.function_module import FunctionModule

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "FractionalMaxPool2d", "FractionalMaxPool3d",
    "LPPool1d", "LPPool2d", "LPPool3d", "MaxPool1d", "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d",
    "MaxUnpool3d",
]  # fmt: skip


class _Pool(FunctionModule):
    """The base of pools of windows; the step between windows is their size, unless it is given."""

    _shown = ("kernel_size", "stride", "padding")
    # The number of axes, for layers that keep a size for each of them.
    _rank: ClassVar[int] = 0

    def _set(self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, **options: Any) -> None:  # type: ignore[override]
        sizes = {"kernel_size": kernel_size, "stride": kernel_size if stride is None else stride, "padding": padding}
        if self._rank:
            sizes = {name: tuple_of(size, self._rank, name) for name, size in sizes.items()}
        super()._set(**sizes, **options)


class _MaxPool(_Pool, function=""):
    _shown = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
    kernel_size: Sizes
    stride: Sizes | None = None
    padding: Sizes = 0
    dilation: Sizes = 1
    return_indices: bool = False
    ceil_mode: bool = False


class MaxPool1d(_MaxPool, function="max_pool1d"):
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


class MaxPool2d(_MaxPool, function="max_pool2d"):
    """Maximum of each window of `(N, C, H, W)`.

    The arguments are those of `MaxPool1d`; a size may be one number for both axes, or a pair.

    Example:
        >>> gt.nn.MaxPool2d(2)(gt.ones(1, 3, 8, 8)).shape
        gt.Size([1, 3, 4, 4])
    """


class MaxPool3d(_MaxPool, function="max_pool3d"):
    """Maximum of each window of `(N, C, D, H, W)`.

    The arguments are those of `MaxPool1d`; a size may be one number for all axes, or three.

    Example:
        >>> gt.nn.MaxPool3d(2)(gt.ones(1, 2, 4, 6, 8)).shape
        gt.Size([1, 2, 2, 3, 4])
    """


class _MaxUnpool(_Pool, function=""):
    kernel_size: Sizes
    stride: Sizes | None = None
    padding: Sizes = 0

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """The inverse of a max pool, with zeros where the values were not maxima.

        Args:
            input: The pool's output.
            indices: The positions that the pool returned with `return_indices`.
            output_size: The shape of the pool's input, if it is not the smallest possible one.

        Returns:
            A tensor of the shape of the pool's input.
        """
        unpool = getattr(functional, f"max_unpool{self._rank}d")
        return unpool(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool1d(_MaxUnpool):
    """Inverse of `MaxPool1d`: puts each maximum back where it came from, among zeros.

    Args:
        kernel_size: The window's size of the pool.
        stride: Its stride; `kernel_size` if not given.
        padding: Its padding.
    """

    _rank = 1


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

    _rank = 2


class MaxUnpool3d(_MaxUnpool):
    """Inverse of `MaxPool3d`: puts each maximum back where it came from, among zeros.

    Args:
        kernel_size: The window's size of the pool.
        stride: Its stride; `kernel_size` if not given.
        padding: Its padding.
    """

    _rank = 3


class AvgPool1d(_Pool, function="avg_pool1d"):
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

    _rank = 1
    kernel_size: Sizes
    stride: Sizes | None = None
    padding: Sizes = 0
    ceil_mode: bool = False
    count_include_pad: bool = True


class _AvgPool(_Pool, function=""):
    kernel_size: Sizes
    stride: Sizes | None = None
    padding: Sizes = 0
    ceil_mode: bool = False
    count_include_pad: bool = True
    divisor_override: int | None = None


class AvgPool2d(_AvgPool, function="avg_pool2d"):
    """Mean of each window of `(N, C, H, W)`.

    The arguments are those of `AvgPool1d`; a size may be one number for both axes, or a pair. `divisor_override`
    replaces the number of elements as the divisor.

    Example:
        >>> gt.nn.AvgPool2d(2)(gt.ones(1, 3, 8, 8)).shape
        gt.Size([1, 3, 4, 4])
    """


class AvgPool3d(_AvgPool, function="avg_pool3d"):
    """Mean of each window of `(N, C, D, H, W)`.

    The arguments are those of `AvgPool1d`; a size may be one number for all axes, or three. `divisor_override` replaces
    the number of elements as the divisor.
    """


class _LPPool(FunctionModule, function=""):
    norm_type: float
    kernel_size: Sizes
    stride: Sizes | None = None
    ceil_mode: bool = False


class LPPool1d(_LPPool, function="lp_pool1d"):
    """Power-average pooling of `(N, C, L)`: `(sum x^p)^(1/p)` over each window.

    Args:
        norm_type: The exponent `p`: 1 for sums; the larger, the closer to maxima.
        kernel_size: The size of the window.
        stride: The step between windows; `kernel_size` if not given.
        ceil_mode: Whether a last window may reach past the end: the output's size is rounded up.
    """


class LPPool2d(_LPPool, function="lp_pool2d"):
    """Power-average pooling of `(N, C, H, W)`: `(sum x^p)^(1/p)` over each window; see `LPPool1d` for the arguments."""


class LPPool3d(_LPPool, function="lp_pool3d"):
    """Power-average pooling of `(N, C, D, H, W)`: `(sum x^p)^(1/p)` over each window.

    See `LPPool1d` for the arguments.
    """


class _AdaptiveAvgPool(FunctionModule, function=""):
    output_size: Any


class AdaptiveAvgPool1d(_AdaptiveAvgPool, function="adaptive_avg_pool1d"):
    """Mean pooling of `(N, C, L)` to a given length, whatever `L` is.

    Args:
        output_size: The length of the output.

    Example:
        >>> gt.nn.AdaptiveAvgPool1d(2)(gt.tensor([[1.0, 3.0, 2.0, 0.0]]))
        tensor([[2., 1.]])
    """


class AdaptiveAvgPool2d(_AdaptiveAvgPool, function="adaptive_avg_pool2d"):
    """Mean pooling of `(N, C, H, W)` to given sizes, whatever `H` and `W` are.

    Args:
        output_size: The sizes of the output: one number for both axes, or a pair; `None` keeps the input's.

    Example:
        >>> gt.nn.AdaptiveAvgPool2d(1)(gt.ones(2, 3, 7, 9)).shape
        gt.Size([2, 3, 1, 1])
    """


class AdaptiveAvgPool3d(_AdaptiveAvgPool, function="adaptive_avg_pool3d"):
    """Mean pooling of `(N, C, D, H, W)` to given sizes, whatever the input's are.

    Args:
        output_size: The sizes of the output: one number for all axes, or three; `None` keeps the input's.
    """


class _AdaptiveMaxPool(FunctionModule, function=""):
    _shown = ("output_size",)
    output_size: Any
    return_indices: bool = False


class AdaptiveMaxPool1d(_AdaptiveMaxPool, function="adaptive_max_pool1d"):
    """Max pooling of `(N, C, L)` to a given length, whatever `L` is.

    Args:
        output_size: The length of the output.
        return_indices: Whether to return the positions of the maxima too.
    """


class AdaptiveMaxPool2d(_AdaptiveMaxPool, function="adaptive_max_pool2d"):
    """Max pooling of `(N, C, H, W)` to given sizes, whatever `H` and `W` are.

    Args:
        output_size: The sizes of the output: one number for both axes, or a pair; `None` keeps the input's.
        return_indices: Whether to return the positions of the maxima too.
    """


class AdaptiveMaxPool3d(_AdaptiveMaxPool, function="adaptive_max_pool3d"):
    """Max pooling of `(N, C, D, H, W)` to given sizes, whatever the input's are.

    Args:
        output_size: The sizes of the output: one number for all axes, or three; `None` keeps the input's.
        return_indices: Whether to return the positions of the maxima too.
    """


class _FractionalMaxPool(FunctionModule, function=""):
    _shown = ()
    _rank: ClassVar[int]
    kernel_size: Sizes
    output_size: Sizes | None = None
    output_ratio: float | Sequence[float] | None = None
    return_indices: bool = False
    _random_samples: Tensor | None = None

    def _set(  # type: ignore[override]
        self,
        kernel_size: Sizes,
        output_size: Sizes | None,
        output_ratio: float | Sequence[float] | None,
        return_indices: bool,
        _random_samples: Tensor | None,
    ) -> None:
        name, rank = type(self).__name__, self._rank
        if output_size is None and output_ratio is None:
            raise ValueError(f"{name} requires specifying either an output size, or a pooling ratio")
        if output_size is not None and output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified")
        if output_ratio is not None:
            output_ratio = (output_ratio,) * rank if isinstance(output_ratio, float) else tuple(output_ratio)
            if not all(0 < ratio < 1 for ratio in output_ratio):
                raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")
        super()._set(
            kernel_size=tuple_of(kernel_size, rank),
            output_size=None if output_size is None else tuple_of(output_size, rank, "output_size"),
            output_ratio=output_ratio,
            return_indices=return_indices,
        )
        self.register_buffer("_random_samples", _random_samples)


class FractionalMaxPool2d(_FractionalMaxPool, function="fractional_max_pool2d"):
    """Fractional max pooling of `(N, C, H, W)`: maxima of windows at pseudo-random positions (Graham 2014).

    Args:
        kernel_size: The size of the windows, one number or a pair.
        output_size: The sizes of the output.
        output_ratio: Or their ratio to the input's, between 0 and 1.
        return_indices: Whether to return the positions of the maxima too.
        _random_samples: The random numbers to use, `(N, C, 2)`.
    """

    _rank = 2


class FractionalMaxPool3d(_FractionalMaxPool, function="fractional_max_pool3d"):
    """Fractional max pooling of `(N, C, D, H, W)`: maxima of windows at pseudo-random positions (Graham 2014).

    Args:
        kernel_size: The size of the windows, one number or three.
        output_size: The sizes of the output.
        output_ratio: Or their ratio to the input's, between 0 and 1.
        return_indices: Whether to return the positions of the maxima too.
        _random_samples: The random numbers to use, `(N, C, 3)`.
    """

    _rank = 3
