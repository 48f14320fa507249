"""Layers that bring their input to mean 0 and variance 1: over the features of a sample, or over the samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gt import _core as gt
from gt._autograd import no_grad
from gt._gt import Tensor
from gt.nn import functional, init
from gt.nn.module import Module
from gt.nn.parameter import Parameter


class LayerNorm(Module):
    """Mean 0 and variance 1 over the last axes, those of `normalized_shape`; then `* weight + bias`."""

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
        """A weight of ones and a bias of zeros."""
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
    """A mean square of 1 over the last axes, those of `normalized_shape`; then `* weight`."""

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
        """A weight of ones."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, input: Tensor) -> Tensor:
        return functional.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class _NormBase(Module):
    """What layers share that keep means and variances; they differ in the number of axes that they take."""

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
        """Forgets the means and variances seen."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1.0)
            self.num_batches_tracked.zero_()

    @no_grad()
    def reset_parameters(self) -> None:
        """Forgets what was seen and what was learnt."""
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
            if self.momentum is None:  # the plain mean of all that was seen
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
    """The forms of `BatchNorm`."""


class BatchNorm1d(_BatchNorm):
    """Mean 0 and variance 1 of each channel of `(samples, channels)` or `(samples, channels, length)`."""

    axes = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Mean 0 and variance 1 of each channel of `(samples, channels, height, width)`."""

    axes = (4,)


class BatchNorm3d(_BatchNorm):
    """Mean 0 and variance 1 of each channel of `(samples, channels, depth, height, width)`."""

    axes = (5,)


class SyncBatchNorm(Module):
    """Not there: one process sees all samples of a batch, so `BatchNorm2d` and its like do what it is for."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            "SyncBatchNorm: there are no processes to agree with; use BatchNorm1d, BatchNorm2d or BatchNorm3d"
        )


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
        return functional.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
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
        return functional.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
