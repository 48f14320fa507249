"""Layers that normalise or drop whole channels: groups of them, or those of each sample."""

from __future__ import annotations

from typing import Any

import gt
from gt._gt import Tensor
from gt.nn import functional, init
from gt.nn.layers import Dropout
from gt.nn.module import Module
from gt.nn.normalization import _NormBase
from gt.nn.parameter import Parameter


class GroupNorm(Module):
    """Mean 0 and variance 1 over each sample's groups of channels; then `* weight + bias` by channel."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})")
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        for name, learnt in (("weight", affine), ("bias", affine and bias)):
            parameter = Parameter(gt.empty(num_channels, device=device, dtype=dtype)) if learnt else None
            self.register_parameter(name, parameter)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """A weight of ones and a bias of zeros."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """The same shape."""
        return functional.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """The options."""
        words = f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"
        return f"{words}, bias={self.bias is not None}"


class _InstanceNorm(_NormBase):
    """What the forms share; they differ in the number of axes, of which that of the samples may be missing."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def forward(self, input: Tensor) -> Tensor:
        """The same shape; in training, the running mean and variance, if kept, take up those of the input."""
        if input.ndim not in self.axes:
            wanted = " or ".join(f"{axes}D" for axes in self.axes)
            raise ValueError(f"expected {wanted} input (got {input.ndim}D input)")
        batch = input.unsqueeze(0) if input.ndim == self.axes[0] else input
        if batch.shape[1] != self.num_features and self.affine:
            raise ValueError(
                f"expected input's size at dim={input.ndim - batch.ndim + 1} to match num_features "
                f"({self.num_features}), but got: {batch.shape[1]}."
            )
        result = functional.instance_norm(
            *(batch, self.running_mean, self.running_var, self.weight, self.bias),
            use_input_stats=self.training or not self.track_running_stats,
            momentum=self.momentum,
            eps=self.eps,
        )
        return result if input.ndim == batch.ndim else result.squeeze(0)


class InstanceNorm1d(_InstanceNorm):
    """Mean 0 and variance 1 of each channel of each sample: `(samples, channels, length)`, or without samples."""

    axes = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Mean 0 and variance 1 of each channel of each sample: `(samples, channels, height, width)`."""

    axes = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Mean 0 and variance 1 of each channel of each sample: `(samples, channels, depth, height, width)`."""

    axes = (4, 5)


class LocalResponseNorm(Module):
    """Each element divided by a power of the mean square of `size` channels around its own."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Tensor) -> Tensor:
        """The same shape."""
        return functional.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        """The options."""
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class _ChannelDropout(Dropout):
    function: str

    def forward(self, input: Tensor) -> Tensor:
        """The same shape."""
        return getattr(functional, self.function)(input, self.p, self.training, self.inplace)


class Dropout1d(_ChannelDropout):
    """In training, each channel of `(samples, channels, length)` is set to 0 with probability `p`."""

    function = "dropout1d"


class Dropout2d(_ChannelDropout):
    """In training, each channel of `(samples, channels, height, width)` is set to 0 with probability `p`."""

    function = "dropout2d"


class Dropout3d(_ChannelDropout):
    """In training, each channel of `(samples, channels, depth, height, width)` is set to 0 with probability `p`."""

    function = "dropout3d"


class AlphaDropout(_ChannelDropout):
    """Dropout that keeps mean 0 and variance 1, for `selu`."""

    function = "alpha_dropout"


class FeatureAlphaDropout(_ChannelDropout):
    """`AlphaDropout` of whole channels."""

    function = "feature_alpha_dropout"
