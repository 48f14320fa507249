"""Layers that bring their input to mean 0 and variance 1: over the features of a sample, or over the samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gt
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
        """The same shape."""
        return functional.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """The options."""
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
        """The same shape."""
        return functional.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        """The options."""
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
        """The same shape; in training, the running mean and variance take up those of the input."""
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
        """The options."""
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
