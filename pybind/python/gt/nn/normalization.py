"""Normalization layers: batch, layer, root mean square, group, instance and local response normalization."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from gt import _core as gt
from gt._autograd import no_grad
from gt._functions import nn_functional as functional
from gt._gt import Tensor
from gt.nn import init
from gt.nn.function_module import FunctionModule
from gt.nn.module import Module
from gt.nn.parameter import Parameter

__all__ = [
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GroupNorm", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d",
    "LayerNorm", "LocalResponseNorm", "RMSNorm", "SyncBatchNorm",
]  # fmt: skip


class LayerNorm(Module):
    """Layer normalization: `(x - mean) / sqrt(var + eps) * weight + bias` over the last axes (Ba et al. 2016).

    Args:
        normalized_shape: The sizes of the axes over which the mean and variance are taken.
        eps: Added to the variance.
        elementwise_affine: Whether there are a weight and a bias, each of shape `normalized_shape`.
        bias: Whether there is a bias.
        device: A device, which has to exist; the daemon decides where the parameters lie.
        dtype: Their dtype.

    Shape:
        `(*, *normalized_shape)` to the same.

    Example:
        >>> layer = gt.nn.LayerNorm(2)
        >>> layer(gt.tensor([[1.0, 3.0]])).detach()
        tensor([[-1.0000,  1.0000]])
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        sizes = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape = sizes
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        for name, there in {"weight": elementwise_affine, "bias": elementwise_affine and bias}.items():
            made = Parameter(gt.empty(*sizes, device=device, dtype=dtype)) if there else None
            self.register_parameter(name, made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets the weight to ones and the bias to zeros."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return functional.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
            f"bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """RMS normalization: `x / sqrt(mean(x^2) + eps) * weight` over the last axes (Zhang and Sennrich 2019).

    Args:
        normalized_shape: The sizes of the axes over which the mean is taken.
        eps: Added to the mean square; by default the machine epsilon of float64 for float64, else that of float32.
        elementwise_affine: Whether there is a weight, of shape `normalized_shape`.
        device: Where the parameter is.
        dtype: Its dtype.

    Shape:
        `(*, *normalized_shape)` to the same.

    Example:
        >>> gt.nn.RMSNorm(4)(gt.ones(2, 4)).shape
        gt.Size([2, 4])
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        sizes = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape = sizes
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        weight = gt.ones(*sizes, dtype=dtype)
        weight = weight if device is None else weight.to(device)
        self.register_parameter("weight", Parameter(weight) if elementwise_affine else None)

    def reset_parameters(self) -> None:
        """Sets the weight to ones."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, input: Tensor) -> Tensor:
        return functional.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class _NormBase(Module):
    """The base of batch and instance normalization: affine parameters and running statistics.

    Subclasses name the ranks they accept in `axes`.
    """

    axes: tuple[int, ...]

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        options = {"device": device, "dtype": dtype}
        self.register_parameter("weight", Parameter(gt.ones(num_features, **options)) if affine else None)
        self.register_parameter("bias", Parameter(gt.zeros(num_features, **options)) if affine and bias else None)
        tracked = track_running_stats
        self.register_buffer("running_mean", gt.zeros(num_features, **options) if tracked else None)
        self.register_buffer("running_var", gt.ones(num_features, **options) if tracked else None)
        self.register_buffer("num_batches_tracked", gt.tensor(0, dtype=gt.int64, device=device) if tracked else None)

    def reset_running_stats(self) -> None:
        """Sets the running mean to zeros, the running variance to ones and the count of batches to 0."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1.0)
            self.num_batches_tracked.zero_()

    @no_grad()
    def reset_parameters(self) -> None:
        """Resets the running statistics, the weight to ones and the bias to zeros."""
        self.reset_running_stats()
        if self.weight is not None:
            self.weight.fill_(1.0)
        if self.bias is not None:
            self.bias.zero_()

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in self.axes:
            wanted = " or ".join(f"{axes}D" for axes in self.axes)
            raise ValueError(f"expected {wanted} input (got {input.ndim}D input)")
        if input.shape[1] != self.num_features:
            raise RuntimeError(
                f"{type(self).__name__}: expected input with {self.num_features} channels in axis 1, but got "
                f"{input.shape[1]} (shape {tuple(input.shape)})"
            )
        share: float | Tensor = 0.0 if self.momentum is None else self.momentum
        tracks = self.training and self.track_running_stats
        if tracks:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:  # the cumulative mean over all batches
                share = 1.0 / self.num_batches_tracked.to(self.running_mean.dtype)
        known = not self.training or self.track_running_stats
        return functional.batch_norm(
            input,
            self.running_mean if known else None,
            self.running_var if known else None,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            share,
            self.eps,
        )

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_NormBase):
    """The base of the batch normalization layers, for `isinstance`."""


class BatchNorm1d(_BatchNorm):
    """Batch normalization of each channel: `(x - mean) / sqrt(var + eps) * weight + bias` (Ioffe and Szegedy 2015).

    In training mode the mean and variance are those of the batch, and update the running ones:
    `running = (1 - momentum) * running + momentum * batch`. In evaluation mode they are the running ones.

    Args:
        num_features: The number of channels, `C`.
        eps: Added to the variance.
        momentum: The weight of a batch in the running statistics; `None` for their cumulative mean.
        affine: Whether there are a weight and a bias, each `(C)`.
        track_running_stats: Whether to keep running statistics; without them, evaluation mode also uses the batch's.
        device: A device, which has to exist; the daemon decides where the parameters lie.
        dtype: Their dtype.
        bias: Whether there is a bias.

    Shape:
        `(N, C)` or `(N, C, L)` to the same.

    Example:
        >>> layer = gt.nn.BatchNorm1d(1)
        >>> layer(gt.tensor([[1.0], [3.0]])).detach()
        tensor([[-1.0000],
                [ 1.0000]])
        >>> layer.running_mean
        tensor([0.2000])
    """

    axes = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalization of each channel of images: see `BatchNorm1d` for the formula and the arguments.

    Shape:
        `(N, C, H, W)` to the same.

    Example:
        >>> gt.nn.BatchNorm2d(3)(gt.ones(8, 3, 4, 4)).shape
        gt.Size([8, 3, 4, 4])
    """

    axes = (4,)


class BatchNorm3d(_BatchNorm):
    """Batch normalization of each channel of volumes: see `BatchNorm1d` for the formula and the arguments.

    Shape:
        `(N, C, D, H, W)` to the same.

    Example:
        >>> gt.nn.BatchNorm3d(4)(gt.ones(2, 4, 3, 5, 5)).shape
        gt.Size([2, 4, 3, 5, 5])
    """

    axes = (5,)


class SyncBatchNorm(Module):
    """Raises NotImplementedError: use `BatchNorm2d` and its siblings, as one process sees the whole batch."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            "SyncBatchNorm: there are no processes to agree with; use BatchNorm1d, BatchNorm2d or BatchNorm3d"
        )


class GroupNorm(Module):
    """Group normalization: mean 0 and variance 1 over each group of channels of each sample (Wu and He 2018).

    Args:
        num_groups: The number of groups, which divides `num_channels`.
        num_channels: The number of channels, `C`.
        eps: Added to the variance.
        affine: Whether there are a weight and a bias, each `(C)`.
        device: A device, which has to exist; the daemon decides where the parameters lie.
        dtype: Their dtype.
        bias: Whether there is a bias.

    Shape:
        `(N, C, *)` to the same.

    Example:
        >>> gt.nn.GroupNorm(2, 6)(gt.ones(8, 6, 4)).shape
        gt.Size([8, 6, 4])
    """

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
        """Sets the weight to ones and the bias to zeros."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return functional.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        words = f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"
        return f"{words}, bias={self.bias is not None}"


class _InstanceNorm(_NormBase):
    """The base of the instance normalization layers; `axes` holds the ranks without and with a batch."""

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
        if input.ndim not in self.axes:
            wanted = " or ".join(f"{axes}D" for axes in self.axes)
            raise ValueError(f"expected {wanted} input (got {input.ndim}D input)")
        batch = input.unsqueeze(0) if input.ndim == self.axes[0] else input
        if batch.shape[1] != self.num_features and self.affine:
            raise ValueError(
                f"expected input's size at dim={input.ndim - batch.ndim + 1} to match num_features "
                f"({self.num_features}), but got: {batch.shape[1]}."
            )
        if batch.shape[1] != self.num_features:
            warnings.warn(
                f"{type(self).__name__}: num_features={self.num_features} has no effect without affine=True, and the "
                f"input has {batch.shape[1]} channels.",
                stacklevel=2,
            )
        result = functional.instance_norm(
            *(batch, self.running_mean, self.running_var, self.weight, self.bias),
            use_input_stats=self.training or not self.track_running_stats,
            momentum=self.momentum,
            eps=self.eps,
        )
        return result if input.ndim == batch.ndim else result.squeeze(0)


class InstanceNorm1d(_InstanceNorm):
    """Instance normalization: mean 0 and variance 1 over each channel of each sample (Ulyanov et al. 2016).

    Args:
        num_features: The number of channels, `C`.
        eps: Added to the variance.
        momentum: The weight of a batch in the running statistics.
        affine: Whether there are a weight and a bias, each `(C)`.
        track_running_stats: Whether to keep running statistics, which evaluation mode then uses.
        device: A device, which has to exist; the daemon decides where the parameters lie.
        dtype: Their dtype.
        bias: Whether there is a bias.

    Shape:
        `(N, C, L)` or `(C, L)` to the same.
    """

    axes = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Instance normalization of images: see `InstanceNorm1d` for the arguments.

    Shape:
        `(N, C, H, W)` or `(C, H, W)` to the same.

    Example:
        >>> gt.nn.InstanceNorm2d(3)(gt.randn(2, 3, 8, 8)).shape
        gt.Size([2, 3, 8, 8])
    """

    axes = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Instance normalization of volumes: see `InstanceNorm1d` for the arguments.

    Shape:
        `(N, C, D, H, W)` or `(C, D, H, W)` to the same.
    """

    axes = (4, 5)


class LocalResponseNorm(FunctionModule, function="local_response_norm"):
    """Local response normalization over channels: `x / (k + alpha * mean(x^2))^beta` (Krizhevsky et al. 2012).

    Args:
        size: The number of neighbouring channels over which the mean is taken.
        alpha: The factor of the mean.
        beta: The exponent.
        k: The additive constant.

    Shape:
        `(N, C, *)` to the same.
    """

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    k: float = 1.0

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
