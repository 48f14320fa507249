"""Starting values of parameters, written into a tensor in place and not recorded for `backward()`."""

from __future__ import annotations

import math
from typing import Any

from gt import _core as gt
from gt._autograd import no_grad
from gt._gt import Tensor
from gt._older import older
from gt.linalg import qr

# How much an activation shrinks what passes through it, undone by a larger start.
_GAINS = {
    **dict.fromkeys(("linear", "conv1d", "conv2d", "conv3d", "sigmoid"), 1.0),
    "tanh": 5 / 3,
    "relu": math.sqrt(2),
    "selu": 3 / 4,
}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor by which weights before `nonlinearity` start larger; `param` is the slope of a `leaky_relu`."""
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        return math.sqrt(2 / (1 + slope**2))
    if nonlinearity not in _GAINS:
        raise ValueError(f"Unsupported nonlinearity {nonlinearity}")
    return _GAINS[nonlinearity]


def _uniform(tensor: Tensor, generator: Any) -> Tensor:
    return gt.rand(tuple(tensor.shape), dtype=tensor.dtype, generator=generator)


def _normal(tensor: Tensor, generator: Any) -> Tensor:
    return gt.randn(tuple(tensor.shape), dtype=tensor.dtype, generator=generator)


@no_grad()
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform numbers from `a` to `b`."""
    return tensor.copy_(_uniform(tensor, generator) * (b - a) + a)


@no_grad()
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Normal numbers."""
    return tensor.copy_(_normal(tensor, generator) * std + mean)


@no_grad()
def trunc_normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, generator: Any = None
) -> Tensor:
    """Normal numbers from `a` to `b`, drawn by the inverse of their distribution."""
    low, high = (math.erf((bound - mean) / std / math.sqrt(2)) for bound in (a, b))
    drawn = (_uniform(tensor, generator) * (high - low) + low).erfinv() * (std * math.sqrt(2)) + mean
    return tensor.copy_(drawn.clamp(a, b))


@no_grad()
def orthogonal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """A matrix of orthogonal rows or columns, the last axes as one (Saxe et al. 2014)."""
    if tensor.ndim < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0:
        return tensor
    rows, columns = tensor.shape[0], tensor.numel() // tensor.shape[0]
    drawn = gt.randn(max(rows, columns), min(rows, columns), dtype=tensor.dtype, generator=generator)
    q, r = qr(drawn)
    q = q * gt.diagonal(r).sign()  # uniform among all such matrices
    return tensor.copy_((q.T if rows < columns else q).reshape(tensor.shape) * gain)


@no_grad()
def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Normal numbers, but zeros for a share of each column of a matrix (Martens 2010)."""
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    zeros = math.ceil(sparsity * tensor.shape[0])
    places = gt.rand(*tensor.shape, generator=generator).argsort(0)
    drawn = _normal(tensor, generator) * std
    return tensor.copy_(gt.where(places < zeros, 0.0, drawn))


@no_grad()
def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Weights of a convolution that passes on as many channels as it can."""
    if tensor.ndim not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    out, into = tensor.shape[:2]
    if out % groups:
        raise ValueError("dim 0 must be divisible by groups")
    each = out // groups
    passes = gt.arange(out).unsqueeze(1) % each == gt.arange(into)
    passes = passes & (gt.arange(out).unsqueeze(1) % each < min(each, into))
    middle = gt.ones(1, 1, dtype=gt.bool)
    for size in tensor.shape[2:]:
        middle = middle.unsqueeze(-1) & (gt.arange(size) == size // 2)
    return tensor.copy_(passes.reshape(out, into, *[1] * (tensor.ndim - 2)) & middle)


@no_grad()
def constant_(tensor: Tensor, val: float) -> Tensor:
    """One number everywhere."""
    return tensor.fill_(val)


def zeros_(tensor: Tensor) -> Tensor:
    """Zeros."""
    return constant_(tensor, 0.0)


def ones_(tensor: Tensor) -> Tensor:
    """Ones."""
    return constant_(tensor, 1.0)


@no_grad()
def eye_(tensor: Tensor) -> Tensor:
    """Ones on the diagonal of a matrix, zeros elsewhere."""
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    return tensor.copy_(gt.eye(*tensor.shape))


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    """How many numbers flow into and out of each place of a weight `(out, in, …)`."""
    if tensor.ndim < 2:
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Glorot and Bengio 2010: variance kept forwards and backwards."""
    bound = gain * math.sqrt(6 / sum(_calculate_fan_in_and_fan_out(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Glorot and Bengio 2010, normal."""
    return normal_(tensor, 0.0, gain * math.sqrt(2 / sum(_calculate_fan_in_and_fan_out(tensor))), generator)


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    """One of them: that of "fan_in" or of "fan_out"."""
    if mode.lower() not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode.lower()} not supported, please use one of ['fan_in', 'fan_out']")
    return _calculate_fan_in_and_fan_out(tensor)[mode.lower() == "fan_out"]


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    fan = _calculate_correct_fan(tensor, mode)
    return calculate_gain(nonlinearity, a) / math.sqrt(fan) if fan else 0.0


def kaiming_uniform_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Tensor:
    """He et al. 2015: variance kept through layers of rectifiers, `a` being the slope of a leaky one."""
    bound = math.sqrt(3) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Tensor:
    """He et al. 2015, normal."""
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def _older(name: str) -> Any:
    """A function under the name it had without `_` at its end."""
    return older(f"`nn.init.{name}` is now deprecated in favor of `nn.init.{name}_`.")(globals()[name + "_"])


uniform, normal, constant, eye, dirac, orthogonal, sparse = map(
    _older, ("uniform", "normal", "constant", "eye", "dirac", "orthogonal", "sparse")
)
xavier_uniform, xavier_normal, kaiming_uniform, kaiming_normal = map(
    _older, ("xavier_uniform", "xavier_normal", "kaiming_uniform", "kaiming_normal")
)
