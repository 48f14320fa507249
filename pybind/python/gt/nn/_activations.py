"""Activations, normalization of vectors, and linear maps as functions; `gt.nn.functional` has them.

With `inplace`, the result overwrites the input.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from gt import _autocast, _gt
from gt import _core as gt
from gt._gt import Tensor

# A standard normal input gives an output of mean 0 and variance 1 (Klambauer et al. 2017).
SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805


def _apply(input: Tensor, inplace: bool, compute: Callable[[Tensor], Tensor]) -> Tensor:
    if not inplace:
        return compute(input)
    since = _gt.tape_clock()
    return input._rebind(compute(input), since)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """Sigmoid linear unit, also called swish: `x * sigmoid(x)`, element by element.

    Example:
        >>> gt.nn.functional.silu(gt.tensor([0.0, 1.0]))
        tensor([0.0000, 0.7311])
    """
    return _apply(input, inplace, lambda x: x * x.sigmoid())


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """`x * tanh(softplus(x))`, element by element (Misra 2019).

    Example:
        >>> gt.nn.functional.mish(gt.tensor([-1.0, 0.0, 1.0]))
        tensor([-0.3034,  0.0000,  0.8651])
    """
    return _apply(input, inplace, lambda x: x * softplus(x).tanh())


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """Leaky rectified linear unit: `max(x, 0) + negative_slope * min(x, 0)`, element by element.

    Example:
        >>> gt.nn.functional.leaky_relu(gt.tensor([-1.0, 2.0]), 0.1)
        tensor([-0.1000,  2.0000])
    """
    return _apply(input, inplace, lambda x: gt.where(x > 0, x, x * negative_slope))


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """Leaky rectified linear unit with the slope `weight`: `max(x, 0) + weight * min(x, 0)`.

    Args:
        input: Any tensor.
        weight: One slope, or one for each channel (axis 1).

    Example:
        >>> gt.nn.functional.prelu(gt.tensor([-1.0, 2.0]), gt.tensor(0.25))
        tensor([-0.2500,  2.0000])
    """
    if weight.ndim > 1:
        raise RuntimeError(f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.ndim}")
    if weight.numel() == 1:
        weight = weight.reshape(())
    else:
        if input.ndim == 0:
            raise RuntimeError("Not allow zero-dim input tensor.")
        channels = input.shape[1] if input.ndim > 1 else 1
        if weight.numel() != channels:
            raise RuntimeError(
                f"Mismatch of parameter numbers and input channel size. Found parameter numbers = {weight.numel()} and "
                f"channel size = {channels}."
            )
        weight = weight.reshape(-1, *[1] * (input.ndim - 2))
    return gt.where(input > 0, input, input * weight)


def rrelu(
    input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """Leaky rectified linear unit with a random negative slope (Xu et al. 2015).

    In training, the slope of each element is uniform between `lower` and `upper`; otherwise it is their mean.
    """
    if lower > upper:
        raise RuntimeError("Lower bound should be less than or equal to the upper bound")
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    slope = gt.rand_like(input) * (upper - lower) + lower
    return _apply(input, inplace, lambda x: gt.where(x >= 0, x, x * slope))


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """Exponential linear unit: `x` if `x > 0`, else `alpha * (exp(x) - 1)` (Clevert et al. 2016).

    Example:
        >>> gt.nn.functional.elu(gt.tensor([-1.0, 2.0]))
        tensor([-0.6321,  2.0000])
    """
    return _apply(input, inplace, lambda x: _elu(x, alpha, 1.0))


def _elu(x: Tensor, alpha: float, stretch: float) -> Tensor:
    positive = x > 0
    # Positive elements stay out of the exponential: it would overflow, and so would its gradient.
    return gt.where(positive, x, (gt.where(positive, 0.0, x) * (1 / stretch)).expm1() * alpha)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """Continuously differentiable ELU: `x` if `x > 0`, else `alpha * (exp(x / alpha) - 1)` (Barron 2017).

    Example:
        >>> gt.nn.functional.celu(gt.tensor([-1.0, 0.0, 1.0]))
        tensor([-0.6321,  0.0000,  1.0000])
    """
    if alpha == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    return _apply(input, inplace, lambda x: _elu(x, alpha, alpha))


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """Scaled exponential linear unit: `scale * elu(x, alpha)`, alpha = 1.6733, scale = 1.0507 (Klambauer et al.

    2017).
    """
    return _apply(input, inplace, lambda x: _elu(x, SELU_ALPHA, 1.0) * SELU_SCALE)


def _inplace_variant(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The in-place variant of an activation, under its name with an underscore appended."""

    def written(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return function(input, *args, **kwargs, inplace=True)

    written.__name__ = written.__qualname__ = function.__name__ + "_"
    written.__doc__ = f"In-place variant of `{function.__name__}`: the result overwrites the input."
    return written


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """Smooth rectifier: `log(1 + exp(beta * x)) / beta`; where `beta * x > threshold` it is `x`.

    Example:
        >>> gt.nn.functional.softplus(gt.tensor([0.0]))
        tensor([0.6931])
    """
    scaled = input * beta
    large = scaled > threshold
    return gt.where(large, input, gt.where(large, 0.0, scaled).exp().log1p() / beta)


def logsigmoid(input: Tensor) -> Tensor:
    """`log(sigmoid(x)) = -log(1 + exp(-x))`, element by element, computed without overflow.

    Example:
        >>> gt.nn.functional.logsigmoid(gt.tensor([0.0, -100.0]))
        tensor([  -0.6931, -100.0000])
    """
    # -log(sigmoid(x)) = max(-x, 0) + log(1 + exp(-|x|)). At 0, `where` gives -|x| the gradient of -x; abs() would not.
    return -((-input).relu() + gt.where(input < 0, input, -input).exp().log1p())


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """Clamps each element to `[min_val, max_val]`.

    Example:
        >>> gt.nn.functional.hardtanh(gt.tensor([-2.0, 0.5, 2.0]))
        tensor([-1.0000,  0.5000,  1.0000])
    """
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    # The gradient at a bound is 0 in PyTorch; that of clamp() is 1.
    return _apply(
        input,
        inplace,
        lambda x: gt.where(x >= max_val, max_val, gt.where(x <= min_val, min_val, x)).to(x.dtype),
    )


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """`min(max(x, 0), 6)`, element by element.

    Example:
        >>> gt.nn.functional.relu6(gt.tensor([-1.0, 3.0, 8.0]))
        tensor([0., 3., 6.])
    """
    return hardtanh(input, 0.0, 6.0, inplace)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """Piecewise linear sigmoid: `min(max(x / 6 + 1/2, 0), 1)`, element by element.

    Example:
        >>> gt.nn.functional.hardsigmoid(gt.tensor([-4.0, 0.0, 1.5]))
        tensor([0.0000, 0.5000, 0.7500])
    """
    return _apply(input, inplace, lambda x: hardtanh(x + 3, 0.0, 6.0) / 6)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """`x * hardsigmoid(x)`, element by element (Howard et al. 2019).

    Example:
        >>> gt.nn.functional.hardswish(gt.tensor([1.0, 2.0, 4.0]))
        tensor([0.6667, 1.6667, 4.0000])
    """
    return _apply(input, inplace, lambda x: x * (hardtanh(x + 3, 0.0, 6.0) / 6))


def softsign(input: Tensor) -> Tensor:
    """`x / (1 + |x|)`, element by element.

    Example:
        >>> gt.nn.functional.softsign(gt.tensor([-1.0, 0.0, 3.0]))
        tensor([-0.5000,  0.0000,  0.7500])
    """
    return input / (input.abs() + 1)


def tanhshrink(input: Tensor) -> Tensor:
    """`x - tanh(x)`, element by element."""
    return input - input.tanh()


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """`x` if `|x| > lambd`, else 0, element by element.

    Example:
        >>> gt.nn.functional.hardshrink(gt.tensor([-1.0, 0.2, 2.0]))
        tensor([-1.,  0.,  2.])
    """
    return gt.where((input >= -lambd) & (input <= lambd), 0.0, input).to(input.dtype)


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """Soft thresholding: `sign(x) * max(|x| - lambd, 0)`, element by element.

    Example:
        >>> gt.nn.functional.softshrink(gt.tensor([-1.0, 0.2, 2.0]))
        tensor([-0.5000,  0.0000,  1.5000])
    """
    if lambd < 0:
        raise RuntimeError(f"lambda must be greater or equal to 0, but found to be {lambd}.")
    return gt.where(input > lambd, input - lambd, gt.where(input < -lambd, input + lambd, 0.0)).to(input.dtype)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """`x` if `x > threshold`, else `value`, element by element.

    Example:
        >>> gt.nn.functional.threshold(gt.tensor([0.5, 2.0]), threshold=1.0, value=-1.0)
        tensor([-1.,  2.])
    """
    return _apply(input, inplace, lambda x: gt.where(x > threshold, x, value).to(x.dtype))


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """Gated linear unit: `a * sigmoid(b)`, where `a` and `b` are the halves of `input` along `dim` (Dauphin et al.

    2017).

    Example:
        >>> gt.nn.functional.glu(gt.tensor([2.0, 0.0]))
        tensor([1.])
    """
    if input.ndim == 0:
        raise RuntimeError("glu does not support 0-dimensional tensors")
    if input.shape[dim] % 2:
        raise RuntimeError(f"Halving dimension must be even, but dimension {dim} is size {input.shape[dim]}")
    value, gate = input.chunk(2, dim)
    return value * gate.sigmoid()


def gumbel_softmax(logits: Tensor, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """Sample of the Gumbel-softmax distribution with unnormalized log probabilities `logits` (Jang et al. 2017).

    Args:
        logits: Unnormalized log probabilities along `dim`.
        tau: The temperature: the smaller, the closer a sample is to one-hot.
        hard: Whether the samples are one-hot vectors; the gradient is that of the soft sample either way
            (straight-through estimator).
        eps: Ignored, as in PyTorch.
        dim: The axis of the classes.

    Returns:
        A tensor of the shape of `logits` that sums to 1 along `dim`.

    Example:
        >>> sample = gt.nn.functional.gumbel_softmax(gt.zeros(3, 4), hard=True)
        >>> sample.sum(dim=1)
        tensor([1., 1., 1.])
    """
    del eps
    noise = gt.rand_like(logits).clamp(min=1e-20 if logits.dtype in (gt.float32, gt.float64) else 1e-7)
    shares = ((logits - (-noise.log()).clamp(min=1e-20).log()) / tau).softmax(dim)
    if not hard:
        return shares
    chosen = gt.zeros_like(shares).scatter(dim, shares.argmax(dim, keepdim=True), 1.0)
    return chosen - shares.detach() + shares


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Tensor | None = None) -> Tensor:
    """Divides vectors along `dim` by their `p`-norm: `x / max(||x||_p, eps)`.

    Args:
        input: Any tensor.
        p: The order of the norm.
        dim: The axis of the vectors.
        eps: The smallest divisor.
        out: Not supported.

    Example:
        >>> gt.nn.functional.normalize(gt.tensor([[3.0, 4.0]]))
        tensor([[0.6000, 0.8000]])
    """
    if out is not None:
        raise NotImplementedError("normalize: out= is not there: use the result")
    return input / gt.norm(input, p, dim, keepdim=True).clamp(min=eps)


def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """`p`-norm of `x1 - x2 + eps` along the last axis.

    Example:
        >>> gt.nn.functional.pairwise_distance(gt.tensor([[0.0, 0.0]]), gt.tensor([[3.0, 4.0]]))
        tensor([5.0000])
    """
    return gt.norm(x1 - x2 + eps, math.inf if math.isinf(p) else p, -1, keepdim=keepdim)


@_autocast.lower
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Affine map `input @ weight.T + bias`.

    Shape:
        `(*, in_features)` with a weight `(out_features, in_features)` and a bias `(out_features)` to `(*,
        out_features)`.

    Example:
        >>> gt.nn.functional.linear(gt.tensor([[1.0, 2.0]]), gt.tensor([[3.0, 4.0]]), gt.tensor([0.5]))
        tensor([[11.5000]])
    """
    output = input @ weight.T
    return output if bias is None else output + bias


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Bilinear map: `input1^T weight[k] input2 + bias[k]` for each output feature `k`.

    Shape:
        `(*, in1)` and `(*, in2)` with a weight `(out, in1, in2)` and a bias `(out)` to `(*, out)`.

    Example:
        >>> x, y, weight = gt.ones(4, 2), gt.ones(4, 3), gt.ones(5, 2, 3)
        >>> gt.nn.functional.bilinear(x, y, weight).shape
        gt.Size([4, 5])
    """
    if input1.shape[:-1] != input2.shape[:-1]:
        raise RuntimeError(
            f"bilinear(): input batch dimensions do not match: got {list(input1.shape)} and {list(input2.shape)}"
        )
    a, b = input1.reshape(-1, input1.shape[-1]), input2.reshape(-1, input2.shape[-1])
    out, rows, columns = weight.shape
    half = (a @ weight.permute(1, 0, 2).reshape(rows, out * columns)).reshape(-1, out, columns)
    result = (half @ b.unsqueeze(-1)).reshape(*input1.shape[:-1], out)
    return result if bias is None else result + bias


elu_, celu_, selu_, leaky_relu_ = (_inplace_variant(function) for function in (elu, celu, selu, leaky_relu))
rrelu_, hardtanh_, threshold_ = (_inplace_variant(function) for function in (rrelu, hardtanh, threshold))
