"""Initialization of parameters: each function writes into a tensor in place and is not recorded by autograd."""

from __future__ import annotations

import math
import warnings
from typing import Any

from gt import _core as gt
from gt._autograd import no_grad
from gt._deprecated import deprecated
from gt._gt import Tensor
from gt.linalg import qr

# The standard deviation gains that compensate an activation's shrinking of the signal.
_GAINS = {
    **dict.fromkeys(("linear", "conv1d", "conv2d", "conv3d", "sigmoid"), 1.0),
    "tanh": 5 / 3,
    "relu": math.sqrt(2),
    "selu": 3 / 4,
}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The recommended gain of the standard deviation for weights before a nonlinearity.

    Args:
        nonlinearity: `"linear"`, `"conv1d"`, `"conv2d"`, `"conv3d"`, `"sigmoid"` (1), `"tanh"` (5/3), `"relu"` (sqrt
            2), `"selu"` (3/4) or `"leaky_relu"` (`sqrt(2 / (1 + param^2))`).
        param: The negative slope of a leaky ReLU; 0.01 if not given.

    Example:
        >>> gt.nn.init.calculate_gain("tanh")
        1.6666666666666667
    """
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
    """Fills a tensor with samples of the uniform distribution U(a, b).

    Args:
        tensor: The tensor.
        a: The lower bound.
        b: The upper bound.
        generator: The random generator.

    Example:
        >>> weight = gt.nn.init.uniform_(gt.empty(100), -1.0, 1.0)
        >>> bool((weight.abs() <= 1).all())
        True
    """
    return tensor.copy_(_uniform(tensor, generator) * (b - a) + a)


@no_grad()
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Fills a tensor with samples of the normal distribution N(mean, std^2).

    Args:
        tensor: The tensor.
        mean: The mean.
        std: The standard deviation.
        generator: The random generator.

    Example:
        >>> gt.nn.init.normal_(gt.empty(3, 5), std=0.02).shape
        gt.Size([3, 5])
    """
    return tensor.copy_(_normal(tensor, generator) * std + mean)


@no_grad()
def trunc_normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, generator: Any = None
) -> Tensor:
    """Fills a tensor with samples of N(mean, std^2) truncated to [a, b], drawn by inverting the CDF.

    Args:
        tensor: The tensor.
        mean: The mean before truncation.
        std: The standard deviation before truncation.
        a: The lower bound.
        b: The upper bound.
        generator: The random generator.

    Example:
        >>> weight = gt.nn.init.trunc_normal_(gt.empty(100), std=1.0)
        >>> bool((weight.abs() <= 2).all())
        True
    """
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            "trunc_normal_: the mean is more than 2 standard deviations outside of [a, b]: float32 has few numbers for "
            "so small a part of the distribution.",
            stacklevel=3,
        )
    low, high = (math.erf((bound - mean) / std / math.sqrt(2)) for bound in (a, b))
    drawn = (_uniform(tensor, generator) * (high - low) + low).erfinv() * (std * math.sqrt(2)) + mean
    return tensor.copy_(drawn.clamp(a, b))


@no_grad()
def orthogonal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Fills a tensor, as a matrix `(rows, all other axes)`, with a random orthogonal matrix (Saxe et al. 2014).

    Args:
        tensor: A tensor with at least two axes.
        gain: The factor of the matrix.
        generator: The random generator.

    Example:
        >>> q = gt.nn.init.orthogonal_(gt.empty(3, 3))
        >>> bool((q @ q.T - gt.eye(3)).abs().max() < 1e-5)
        True
    """
    if tensor.ndim < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0:
        return tensor
    rows, columns = tensor.shape[0], tensor.numel() // tensor.shape[0]
    drawn = gt.randn(max(rows, columns), min(rows, columns), dtype=tensor.dtype, generator=generator)
    q, r = qr(drawn)
    q = q * gt.diagonal(r).sign()  # makes the distribution uniform (Haar)
    return tensor.copy_((q.T if rows < columns else q).reshape(tensor.shape) * gain)


@no_grad()
def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Fills a matrix with samples of N(0, std^2) and zeroes a fraction `sparsity` of each column (Martens 2010)."""
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    zeros = math.ceil(sparsity * tensor.shape[0])
    places = gt.rand(*tensor.shape, generator=generator).argsort(0)
    drawn = _normal(tensor, generator) * std
    return tensor.copy_(gt.where(places < zeros, 0.0, drawn))


@no_grad()
def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Fills the weight of a convolution with the identity: each output channel passes one input channel on.

    Args:
        tensor: A weight with 3, 4 or 5 axes.
        groups: The number of groups of channels.
    """
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
    """Fills a tensor with one value.

    Example:
        >>> gt.nn.init.constant_(gt.empty(2), 0.3)
        tensor([0.3000, 0.3000])
    """
    return tensor.fill_(val)


def zeros_(tensor: Tensor) -> Tensor:
    """Fills a tensor with 0 everywhere.

    Example:
        >>> gt.nn.init.zeros_(gt.empty(2))
        tensor([0., 0.])
    """
    return constant_(tensor, 0.0)


def ones_(tensor: Tensor) -> Tensor:
    """Fills a tensor with 1 everywhere.

    Example:
        >>> gt.nn.init.ones_(gt.empty(2))
        tensor([1., 1.])
    """
    return constant_(tensor, 1.0)


@no_grad()
def eye_(tensor: Tensor) -> Tensor:
    """Fills a matrix with the identity matrix.

    Example:
        >>> gt.nn.init.eye_(gt.empty(2, 2))
        tensor([[1., 0.],
                [0., 1.]])
    """
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    return tensor.copy_(gt.eye(*tensor.shape))


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    """The fan-in and fan-out of a weight `(out, in, *kernel)`: channels times the kernel's elements."""
    if tensor.ndim < 2:
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Glorot initialization: U(-b, b), `b = gain * sqrt(6 / (fan_in + fan_out))` (Glorot and Bengio 2010).

    Args:
        tensor: A weight with at least two axes.
        gain: The gain of the nonlinearity: see `calculate_gain`.
        generator: The random generator.

    Example:
        >>> weight = gt.nn.init.xavier_uniform_(gt.empty(3, 3))
        >>> bool((weight.abs() <= 1).all())
        True
    """
    bound = gain * math.sqrt(6 / sum(_calculate_fan_in_and_fan_out(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Glorot initialization: N(0, s^2), `s = gain * sqrt(2 / (fan_in + fan_out))` (Glorot and Bengio 2010).

    Args:
        tensor: A weight with at least two axes.
        gain: The gain of the nonlinearity: see `calculate_gain`.
        generator: The random generator.

    Example:
        >>> gt.nn.init.xavier_normal_(gt.empty(3, 5)).shape
        gt.Size([3, 5])
    """
    return normal_(tensor, 0.0, gain * math.sqrt(2 / sum(_calculate_fan_in_and_fan_out(tensor))), generator)


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    """The fan that `mode` names: `"fan_in"` or `"fan_out"`."""
    if mode.lower() not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode.lower()} not supported, please use one of ['fan_in', 'fan_out']")
    return _calculate_fan_in_and_fan_out(tensor)[mode.lower() == "fan_out"]


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    fan = _calculate_correct_fan(tensor, mode)
    return calculate_gain(nonlinearity, a) / math.sqrt(fan) if fan else 0.0


def _is_empty(tensor: Tensor) -> bool:
    """Whether a weight, of which the user is warned, has no elements."""
    if 0 not in tensor.shape:
        return False
    warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=3)
    return True


def kaiming_uniform_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Tensor:
    """He initialization: U(-b, b), `b = gain * sqrt(3 / fan)` (He et al. 2015).

    Args:
        tensor: A weight with at least two axes.
        a: The negative slope of a leaky ReLU.
        mode: `"fan_in"` keeps the variance in the forward pass, `"fan_out"` in the backward pass.
        nonlinearity: The nonlinearity whose gain is used: see `calculate_gain`.
        generator: The random generator.

    Example:
        >>> gt.nn.init.kaiming_uniform_(gt.empty(3, 5), nonlinearity="relu").shape
        gt.Size([3, 5])
    """
    if _is_empty(tensor):
        return tensor
    bound = math.sqrt(3) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Tensor:
    """He initialization: N(0, s^2), `s = gain / sqrt(fan)` (He et al. 2015).

    Args:
        tensor: A weight with at least two axes.
        a: The negative slope of a leaky ReLU.
        mode: `"fan_in"` keeps the variance in the forward pass, `"fan_out"` in the backward pass.
        nonlinearity: The nonlinearity whose gain is used: see `calculate_gain`.
        generator: The random generator.

    Example:
        >>> gt.nn.init.kaiming_normal_(gt.empty(3, 5), mode="fan_out").shape
        gt.Size([3, 5])
    """
    if _is_empty(tensor):
        return tensor
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def _older(name: str) -> Any:
    """A deprecated alias without the underscore."""
    return deprecated(f"`nn.init.{name}` is now deprecated in favor of `nn.init.{name}_`.")(globals()[name + "_"])


uniform, normal, constant, eye, dirac, orthogonal, sparse = map(
    _older, ("uniform", "normal", "constant", "eye", "dirac", "orthogonal", "sparse")
)
xavier_uniform, xavier_normal, kaiming_uniform, kaiming_normal = map(
    _older, ("xavier_uniform", "xavier_normal", "kaiming_uniform", "kaiming_normal")
)
