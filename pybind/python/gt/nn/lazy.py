"""Lazy layers: they take the size of their input from the first call, and then become the ordinary layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gt._autograd import no_grad
from gt._gt import Tensor
from gt.nn.common_types import Sizes
from gt.nn.convolution import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from gt.nn.layers import Linear
from gt.nn.module import Module
from gt.nn.normalization import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    _InstanceNorm,
)
from gt.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy

__all__ = [
    "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "LazyConv1d", "LazyConv2d", "LazyConv3d",
    "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d", "LazyInstanceNorm1d", "LazyInstanceNorm2d",
    "LazyInstanceNorm3d", "LazyLinear",
]  # fmt: skip


class LazyModuleMixin:
    """The mixin that precedes a module's class in the bases of its lazy variant.

    The lazy variant's `__init__` assigns an `UninitializedParameter` where a shape is unknown. The first call passes
    its arguments to `initialize_parameters`, which materializes the parameters; the module then becomes a
    `cls_to_become`, if that is set.
    """

    cls_to_become: type[Module] | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        if is_lazy(value):
            registry = "_buffers" if isinstance(value, UninitializedBuffer) else "_parameters"
            self._assign(registry, name, value)  # type: ignore[attr-defined]
            value._place = (self, registry, name)
        else:
            super().__setattr__(name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Initializes the parameters from the arguments, if needed, and calls the module."""
        self.initialize_parameters(*args, **kwargs)
        if self.has_uninitialized_params():
            raise RuntimeError(f"module {type(self).__name__} has not been fully initialized")
        if self.cls_to_become is not None:
            self.__class__ = self.cls_to_become  # type: ignore[assignment]
        return Module.__call__(self, *args, **kwargs)  # type: ignore[arg-type]

    def _placeholders(self) -> dict[str, Any]:
        own = self.__dict__
        return {name: t for name, t in (*own["_parameters"].items(), *own["_buffers"].items()) if is_lazy(t)}

    def has_uninitialized_params(self) -> bool:
        """Whether a parameter or buffer is still a placeholder."""
        return bool(self._placeholders())

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Materializes the parameters for the arguments of a call; a subclass implements it."""
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def reset_parameters(self) -> None:
        """Initializes the parameters anew, if they are materialized."""
        # The base's constructor calls this for a layer without input features, before there are placeholders.
        if not self.has_uninitialized_params() and all(t.numel() for t in self.parameters(recurse=False)):
            super().reset_parameters()  # type: ignore[misc]

    def _make_placeholders(self) -> None:
        """Replaces all parameters and buffers that have axes by placeholders."""
        for kind, registry in ((UninitializedParameter, "_parameters"), (UninitializedBuffer, "_buffers")):
            for name, tensor in list(self.__dict__[registry].items()):
                if tensor is not None and tensor.ndim:
                    setattr(self, name, kind(tensor.requires_grad, tensor.device, tensor.dtype))

    @no_grad()
    def _materialize(self, **shapes: tuple[int, ...]) -> None:
        """Materializes placeholders with the given shapes, and initializes the parameters."""
        placeholders = self._placeholders()
        for name, placeholder in placeholders.items():
            placeholder.materialize(shapes[name])
        if placeholders:
            self.reset_parameters()

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)  # type: ignore[misc]
        destination.update({prefix + name: placeholder for name, placeholder in self._placeholders().items()})

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        *reports: list[str],
    ) -> None:
        for name, placeholder in self._placeholders().items():
            if isinstance(state_dict.get(prefix + name), Tensor):
                placeholder.materialize(state_dict[prefix + name].shape)
        # An entry that is a placeholder in the state dict and in the module stays one.
        known = {prefix + name for name in self._placeholders() if is_lazy(state_dict.get(prefix + name))}
        rest = {key: value for key, value in state_dict.items() if key not in known}
        missing: list[str] = []
        super()._load_from_state_dict(rest, prefix, local_metadata, strict, missing, *reports)  # type: ignore[misc]
        missing_keys += [key for key in missing if key not in known]


class LazyLinear(LazyModuleMixin, Linear):
    """`Linear` whose `in_features` is the size of the first input's last axis.

    Example:
        >>> layer = gt.nn.LazyLinear(4)
        >>> layer(gt.ones(2, 3)).shape
        gt.Size([2, 4])
        >>> layer
        Linear(in_features=3, out_features=4, bias=True)
    """

    cls_to_become = Linear

    def __init__(self, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(0, out_features, bias, device, dtype)
        self._make_placeholders()

    def initialize_parameters(self, input: Tensor) -> None:
        self.in_features = input.shape[-1]
        self._materialize(weight=(self.out_features, self.in_features), bias=(self.out_features,))


class _LazyVariant(LazyModuleMixin):
    """The base of lazy variants that become the class after it in their bases."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__bases__[1:]:
            cls.cls_to_become = cls.__bases__[1]


class _LazyConv(_LazyVariant):
    """A convolution that takes the usual arguments without `in_channels`."""

    def __init__(self, out_channels: int, kernel_size: Sizes, *args: Any, **kwargs: Any) -> None:
        super().__init__(0, out_channels, kernel_size, *args, **kwargs)  # type: ignore[call-arg]
        self._make_placeholders()

    def initialize_parameters(self: Any, input: Tensor, *_: Any, **__: Any) -> None:
        rank = self.rank
        if input.ndim not in (rank + 1, rank + 2):
            raise RuntimeError(
                f"Expected {rank + 1}D (unbatched) or {rank + 2}D (batched) input to {type(self).__name__}, but got "
                f"input of size: {input.shape}"
            )
        channels = input.shape[-rank - 1]
        if channels % self.groups:
            raise ValueError("in_channels must be divisible by groups")
        self.in_channels = channels
        self._materialize(weight=self._weight_shape(), bias=(self.out_channels,))


class LazyConv1d(_LazyConv, Conv1d):
    """`Conv1d` whose `in_channels` is that of the first input."""


class LazyConv2d(_LazyConv, Conv2d):
    """`Conv2d` whose `in_channels` is that of the first input.

    Example:
        >>> layer = gt.nn.LazyConv2d(8, kernel_size=3)
        >>> layer(gt.ones(1, 3, 5, 5)).shape, layer.in_channels
        (gt.Size([1, 8, 3, 3]), 3)
    """


class LazyConv3d(_LazyConv, Conv3d):
    """`Conv3d` whose `in_channels` is that of the first input."""


class LazyConvTranspose1d(_LazyConv, ConvTranspose1d):
    """`ConvTranspose1d` whose `in_channels` is that of the first input."""


class LazyConvTranspose2d(_LazyConv, ConvTranspose2d):
    """`ConvTranspose2d` whose `in_channels` is that of the first input."""


class LazyConvTranspose3d(_LazyConv, ConvTranspose3d):
    """`ConvTranspose3d` whose `in_channels` is that of the first input."""


class _LazyNorm(_LazyVariant):
    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        options = (eps, momentum, affine, track_running_stats, device, dtype)
        super().__init__(0, *options, bias=bias)  # type: ignore[call-arg]
        self._make_placeholders()

    def initialize_parameters(self: Any, input: Tensor) -> None:
        alone = isinstance(self, _InstanceNorm) and input.ndim == self.axes[0]
        self.num_features = input.shape[0 if alone else 1]
        self._materialize(**dict.fromkeys(("weight", "bias", "running_mean", "running_var"), (self.num_features,)))


class LazyBatchNorm1d(_LazyNorm, BatchNorm1d):
    """`BatchNorm1d` whose `num_features` is the number of channels of the first input."""


class LazyBatchNorm2d(_LazyNorm, BatchNorm2d):
    """`BatchNorm2d` whose `num_features` is the number of channels of the first input."""


class LazyBatchNorm3d(_LazyNorm, BatchNorm3d):
    """`BatchNorm3d` whose `num_features` is the number of channels of the first input."""


class LazyInstanceNorm1d(_LazyNorm, InstanceNorm1d):
    """`InstanceNorm1d` whose `num_features` is the number of channels of the first input."""


class LazyInstanceNorm2d(_LazyNorm, InstanceNorm2d):
    """`InstanceNorm2d` whose `num_features` is the number of channels of the first input."""


class LazyInstanceNorm3d(_LazyNorm, InstanceNorm3d):
    """`InstanceNorm3d` whose `num_features` is the number of channels of the first input."""
