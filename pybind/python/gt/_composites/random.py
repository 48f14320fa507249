"""Random numbers of distributions for which the op table has no row, and methods that fill a tensor with them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gt import _gt
from gt._composites.histograms import searchsorted
from gt._composites.selection import broadcast_shapes, broadcast_tensors
from gt._composites.sorting import argsort
from gt._dtypes import finfo
from gt._gt import Generator, Tensor
from gt._rows import ROWS


def _draw_dtype(t: Tensor) -> _gt.dtype:
    """The dtype in which numbers for `t` are drawn: float32 or float64."""
    return _gt.float64 if t.dtype == _gt.float64 else _gt.float32


def _uniform(t: Tensor, generator: Generator | None) -> Tensor:
    """Uniform numbers over [0, 1) of the shape of `t`."""
    return _gt.rand(t.shape, dtype=_draw_dtype(t), generator=generator)


def _normal(t: Tensor, generator: Generator | None) -> Tensor:
    """Standard normal numbers of the shape of `t`."""
    return _gt.randn(t.shape, dtype=_draw_dtype(t), generator=generator)


def _check(name: str, t: Tensor) -> None:
    if not t.is_floating_point():
        raise NotImplementedError(f'"{name}" not implemented for {t.dtype}: use floating-point tensors')


def uniform_(self: Tensor, a: float = 0.0, b: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fills the tensor with numbers that are uniform over [a, b).

    Example:
        >>> x = gt.zeros(100).uniform_(2, 3)
        >>> bool(((2 <= x) & (x < 3)).all())
        True
    """
    _check("uniform_", self)
    if a > b:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={a} > to={b}")
    return self.copy_(_uniform(self, generator) * (b - a) + a)


def normal_(self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fills the tensor with normal numbers of a mean and a standard deviation.

    Example:
        >>> gt.zeros(2, 3).normal_(mean=1.0, std=0.1).shape
        gt.Size([2, 3])
    """
    _check("normal_", self)
    if std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    return self.copy_(_normal(self, generator) * std + mean)


def exponential_(self: Tensor, lambd: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fills the tensor with numbers of the exponential distribution with rate `lambd`."""
    _check("exponential_", self)
    if lambd <= 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd}")
    return self.copy_((-_uniform(self, generator)).log1p() * (-1 / lambd))


def log_normal_(self: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None) -> Tensor:
    """Fills the tensor with numbers whose logarithms are normal with a mean and a standard deviation."""
    _check("log_normal_", self)
    if std <= 0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std}")
    return self.copy_((_normal(self, generator) * std + mean).exp())


def cauchy_(self: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fills the tensor with numbers of the Cauchy distribution with a median and a scale `sigma`."""
    _check("cauchy_", self)
    if sigma <= 0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma}")
    return self.copy_(((_uniform(self, generator) - 0.5) * math.pi).tan() * sigma + median)


def geometric_(self: Tensor, p: float, *, generator: Generator | None = None) -> Tensor:
    """Fills the tensor with geometrically distributed numbers: trials up to the first success of probability `p`."""
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p}")
    tries = (-_gt.rand(self.shape, dtype=_gt.float64, generator=generator)).log1p() / math.log1p(-p)
    return self.copy_(tries.ceil().clamp(min=1))


def random_(self: Tensor, start: int = 0, to: int | None = None, *, generator: Generator | None = None) -> Tensor:
    """Fills the tensor with uniform integers over `start <= x < to`, or `0 <= x < start` if only one bound is given.

    Without bounds, the range is that of the dtype's non-negative integers; for floats, that of the integers that it
    represents exactly.
    """
    if to is None and start:
        start, to = 0, start
    if to is None:
        digits = {_gt.float64: 53, _gt.float32: 24, _gt.float16: 11, _gt.bfloat16: 8, _gt.bool: 1, _gt.uint8: 8}
        to = min(2 ** digits[self.dtype] if self.dtype in digits else 2 ** (8 * self.itemsize - 1), 2**63 - 1)
        to += self.is_floating_point()
    if start >= to:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={start} >= to={to}")
    return self.copy_(_gt.randint(start, to, tuple(self.shape), generator=generator))


def bernoulli(input: Tensor, p: float | None = None, *, generator: Generator | None = None) -> Tensor:
    """Random zeros and ones.

    Args:
        input: The probability of a one, for each element.
        p: One probability for all elements, instead of `input`'s.
        generator: The generator to draw from; the default one if not given.

    Example:
        >>> gt.bernoulli(gt.tensor([0.0, 1.0]))
        tensor([0., 1.])
    """
    if p is None:
        _check("bernoulli", input)
        return (_uniform(input, generator) < input.detach()).to(input.dtype)
    return bernoulli_(input.detach().clone(), p, generator=generator)


def bernoulli_(self: Tensor, p: Tensor | float = 0.5, *, generator: Generator | None = None) -> Tensor:
    """Fills the tensor with random zeros and ones; `p` is the probability of a one."""
    if not isinstance(p, Tensor) and not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p}")
    return self.copy_(_uniform(self, generator) < (p.detach() if isinstance(p, Tensor) else p))


def normal(
    mean: Tensor | float,
    std: Tensor | float = 1.0,
    size: Sequence[int] | None = None,
    *,
    generator: Generator | None = None,
    **options: Any,
) -> Tensor:
    """Random normal numbers.

    Args:
        mean: The mean: a number, or a tensor with one for each element.
        std: The standard deviation: a number, or a tensor with one for each element.
        size: The shape, needed where both are numbers.
        generator: The generator to draw from; the default one if not given.
        options: `dtype`, `device` and `requires_grad`, where both are numbers.

    Example:
        >>> gt.normal(gt.zeros(3), 1.0).shape
        gt.Size([3])
        >>> gt.normal(0.0, 1.0, size=(2, 2)).shape
        gt.Size([2, 2])
    """
    tensors = [t.detach() for t in (mean, std) if isinstance(t, Tensor)]
    for t in tensors:
        _check("normal", t)
    if not isinstance(std, Tensor) and std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    if not tensors:
        if size is None:
            raise TypeError("normal() needs a size where mean and std are numbers")
        requires_grad = options.pop("requires_grad", False)
        drawn = _gt.randn(size, generator=generator, **options) * std + mean
        return drawn.requires_grad_() if requires_grad else drawn
    if size is not None or options:
        raise TypeError("normal() takes a size and what follows it only where mean and std are numbers")
    mean, std = (t.detach() if isinstance(t, Tensor) else t for t in (mean, std))
    shape = broadcast_shapes(*(t.shape for t in tensors))
    return _gt.randn(shape, dtype=tensors[0].dtype, generator=generator) * std + mean


_RATE_MAX = 500.0  # A draw of a larger rate is the sum of several draws: exp(-rate) would underflow.


def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Random numbers of the Poisson distribution; each element of `input` is a rate.

    Waits for the largest rate.

    Example:
        >>> gt.poisson(gt.tensor([1.0, 10.0])).shape
        gt.Size([2])
    """
    _check("poisson", input)
    rates = input.detach().double()
    if input.numel() == 0:
        return input.detach().clone()
    if not bool((rates >= 0).all()):
        raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
    draws = max(1, math.ceil(rates.max().item() / _RATE_MAX))
    share = rates / draws
    most = share.max().item()
    total = _gt.zeros_like(rates)
    for _ in range(draws):
        # Inversion: count up the distribution function to a uniform number, as far as float64 resolves.
        point = _uniform(rates, generator)
        probability = below = (-share).exp()
        for count in range(1, int(most + 12 * math.sqrt(most)) + 30):
            total = total + (point >= below)
            probability = probability * share / count
            below = below + probability
    return total.to(input.dtype)


def _standard_gamma(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Random numbers of the gamma distribution with rate 1; each element of `input` is a shape parameter.

    The method is the rejection method of Marsaglia and Tsang (2000): it waits until no candidate is rejected. Shapes
    below 1 are drawn as `shape + 1`, times a power of a uniform number. The gradient is that of implicit
    reparametrization (Figurnov et al. 2018).
    """
    _check("_standard_gamma", input)
    shape = input.detach().double()
    large = _gt.where(shape < 1, shape + 1, shape)
    third = large - 1 / 3
    drawn = _gt.full(shape.shape, math.nan, dtype=_gt.float64)
    left = ~drawn.isfinite() & (shape > 0)
    while bool(left.any()):
        normal = _normal(shape, generator)
        cube = (normal / (third * 9).sqrt() + 1) ** 3
        limit = normal * normal / 2 + third * (1 - cube + cube.clamp(min=1e-300).log())
        taken = left & (cube > 0) & (_uniform(shape, generator).log() < limit)
        drawn = _gt.where(taken, third * cube, drawn)
        left = left & ~taken
    power = (1 - _uniform(shape, generator)).log() / shape
    drawn = _gt.where(shape < 1, (drawn.log() + power).exp(), drawn)
    tiny = finfo(input.dtype).tiny
    slope = ROWS["gamma_slope"](shape, drawn.clamp(min=1e-300)).to(input.dtype)
    result = drawn.to(input.dtype).clamp(min=tiny)
    if not (input.requires_grad and _gt.is_grad_enabled()):
        return result
    # The draw as a function of the shape parameter with this derivative.
    return result + slope * (input - input.detach())


_TRIALS_MAX = 32  # More trials are halved by a draw of the median of as many uniform numbers.


def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """Random numbers of the binomial distribution: the successes among `count` trials of probability `prob`.

    Waits for the largest count.

    Args:
        count: The number of trials, for each element.
        prob: The probability of a success, which broadcasts.
        generator: The generator to draw from; the default one if not given.

    Example:
        >>> gt.binomial(gt.tensor([10.0]), gt.tensor([1.0]))
        tensor([10.])
    """
    for name, t in {"count": count, "prob": prob}.items():
        if not t.is_floating_point():
            raise ValueError(f"binomial only supports floating-point dtypes for {name}, got: {t.dtype}")
    if count.dtype != prob.dtype:
        names = [t.type().removeprefix("gt.").removesuffix("Tensor") for t in (prob, count)]
        raise RuntimeError(f"Found dtype {names[0]} but expected {names[1]}")
    trials, share = (t.double() for t in broadcast_tensors(count.detach(), prob.detach()))
    trials, total = trials.floor(), _gt.zeros(trials.shape, dtype=_gt.float64)
    while trials.numel() and (most := trials.max().item()) > _TRIALS_MAX:
        # The median of `trials` uniform numbers has a beta distribution. Whether it is below `prob` decides half of the
        # trials (Ahrens and Dieter 1974).
        middle = ((trials + 1) / 2).floor()
        ones = _standard_gamma(middle.clamp(min=1), generator)
        point = ones / (ones + _standard_gamma((trials + 1 - middle).clamp(min=1), generator))
        halve = trials > _TRIALS_MAX
        below = halve & (point <= share)
        total = _gt.where(below, total + middle, total)
        share = _gt.where(below, (share - point) / (1 - point), _gt.where(halve, share / point, share))
        trials = _gt.where(below, trials - middle, _gt.where(halve, middle - 1, trials))
    if trials.numel():
        for trial in range(int(most)):
            total = total + ((_uniform(trials, generator) < share) & (trials > trial))
    return total.to(count.dtype)


def randperm(
    n: int,
    *,
    dtype: _gt.dtype | None = None,
    device: Any = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """A random permutation of the integers from 0 to `n - 1`.

    Args:
        n: The number of integers.
        dtype: The dtype; int64 if not given.
        device: A device, which has to exist; the daemon decides where the tensor lies.
        requires_grad: Whether autograd records what is computed from it.
        generator: The generator to draw from; the default one if not given.

    Example:
        >>> gt.randperm(5).sort().values
        tensor([0, 1, 2, 3, 4])
    """
    if n < 0:
        raise RuntimeError(f"n must be non-negative, got{n}")
    order = argsort(_gt.rand(n, dtype=_gt.float64, device=device, generator=generator), 0)
    order = order if dtype is None else order.to(dtype)
    return order.requires_grad_() if requires_grad else order


def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *, generator: Generator | None = None
) -> Tensor:
    """Random indices, drawn with probabilities proportional to the elements of each row.

    Waits for the weights, which are checked.

    Args:
        input: A vector or a matrix of non-negative weights, which need not sum to 1.
        num_samples: The number of indices to draw from each row.
        replacement: Whether an index may be drawn more than once.
        generator: The generator to draw from; the default one if not given.

    Example:
        >>> gt.multinomial(gt.tensor([0.0, 1.0, 0.0]), 1)
        tensor([1])
    """
    if input.ndim not in (1, 2):
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    if not input.is_floating_point():
        raise RuntimeError(f"multinomial only supports floating-point dtypes for input, got: {input.dtype}")
    if num_samples <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    if not replacement and num_samples > input.shape[-1]:
        raise RuntimeError("cannot sample n_sample > prob_dist.size(-1) samples without replacement")
    weights = input.detach()
    weights = weights if weights.dtype == _gt.float64 else weights.float()
    bad = ~(weights.isfinite() & (weights >= 0)).all()
    empty = (weights.sum(-1) <= 0).any()
    found = int((bad.long() + 2 * empty.long()).item())
    if found & 1:
        raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
    if found & 2:
        raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
    if replacement and num_samples > 1:
        sums = weights.cumsum(-1)
        total = sums[..., -1:]
        points = _gt.rand((*input.shape[:-1], num_samples), dtype=weights.dtype, generator=generator) * total
        # Rounding may give the total itself, which lies behind the last index with a weight.
        last = (weights > 0).long().mul(_gt.arange(input.shape[-1])).amax(-1, keepdim=True)
        return searchsorted(sums, points, right=True).minimum(last)
    # Exponential race: the first arrival, where weights are the rates, has the wanted distribution.
    arrivals = -(-_uniform(weights, generator)).log1p()
    speed = weights / arrivals.clamp(min=1e-37)
    return speed.argmax(-1, keepdim=True) if num_samples == 1 else speed.topk(num_samples).indices


METHODS = (
    bernoulli,
    multinomial,
)
TENSOR_METHODS = (
    uniform_,
    normal_,
    exponential_,
    log_normal_,
    cauchy_,
    geometric_,
    random_,
    bernoulli_,
)
IN_PLACE = ()
FUNCTIONS = (
    normal,
    poisson,
    _standard_gamma,
    binomial,
    randperm,
)
