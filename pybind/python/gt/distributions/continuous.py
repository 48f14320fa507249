"""Univariate continuous distributions: normal, Laplace, Gumbel, Cauchy, log-normal, uniform and exponential."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from gt import _core as gt
from gt._gt import Tensor
from gt.distributions import constraints
from gt.distributions.constraints import Constraint
from gt.distributions.distribution import NO_SHAPE, Distribution, broadcast_all

LOG_SQRT_2_PI = 0.5 * math.log(2 * math.pi)
EULER = 0.57721566490153286  # Euler's constant, the mean of the standard Gumbel distribution


class _LocScale(Distribution):
    """The base of location-scale families: `loc + scale * z`, with a subclass's standard variable z."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {"loc": constraints.real, "scale": constraints.positive}
    has_rsample = True
    support = constraints.real

    def __init__(self, loc: Tensor | float, scale: Tensor | float, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        return self._expand_parameters(batch_shape, loc=0, scale=0)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        raise NotImplementedError

    def rsample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        return gt.addcmul(self.loc, self._draw(self._extended_shape(sample_shape)), self.scale)

    def _standard(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return (value - self.loc) / self.scale


class Normal(_LocScale):
    """Normal (Gaussian) distribution with mean `loc` and standard deviation `scale`.

    Its density is `p(x) = exp(-(x - loc)^2 / (2 scale^2)) / (scale sqrt(2 pi))`. `rsample` is differentiable with
    respect to both parameters (reparameterization), `sample` is not.

    Args:
        loc: The mean, a tensor or a number.
        scale: The standard deviation, positive. The batch shape is the shape that both broadcast to.
        validate_args: Whether parameters and values are validated.

    Raises:
        ValueError: `scale` is not positive, if parameters are validated.

    Example:
        >>> normal = gt.distributions.Normal(gt.tensor([0.0, 1.0]), gt.tensor([1.0, 2.0]))
        >>> normal.sample((5,)).shape
        gt.Size([5, 2])
        >>> normal.log_prob(gt.tensor([0.0, 1.0]))
        tensor([-0.9189, -1.6121])
        >>> normal.icdf(gt.tensor(0.5))
        tensor([0., 1.])
    """

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def stddev(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        return self.scale * self.scale

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return gt.randn(shape, dtype=self.loc.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        z = self._standard(value)
        return z * z * -0.5 - self.scale.log() - LOG_SQRT_2_PI

    def cdf(self, value: Tensor) -> Tensor:
        return ((self._standard(value) * math.sqrt(0.5)).erf() + 1) * 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * ((value * 2 - 1).erfinv() * math.sqrt(2))

    def entropy(self) -> Tensor:
        return self.scale.log() + (0.5 + LOG_SQRT_2_PI)


class Laplace(_LocScale):
    """Laplace distribution, with density `exp(-|x - loc| / scale) / (2 scale)`.

    Args:
        loc: The mean.
        scale: The scale.
        validate_args: Whether parameters and values are validated.

    Example:
        >>> gt.distributions.Laplace(gt.tensor(0.0), gt.tensor(1.0)).log_prob(gt.tensor(0.0))
        tensor(-0.6931)
    """

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return self.scale * self.scale * 2

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        u = gt.rand(shape, dtype=self.loc.dtype) - 0.5
        return -u.sign() * (u.abs() * -2).log1p()

    def log_prob(self, value: Tensor) -> Tensor:
        return -(self.scale * 2).log() - self._standard(value).abs()

    def cdf(self, value: Tensor) -> Tensor:
        z = self._standard(value)
        return 0.5 - 0.5 * z.sign() * (-z.abs()).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        u = value - 0.5
        return self.loc - self.scale * u.sign() * (-2 * u.abs()).log1p()

    def entropy(self) -> Tensor:
        return (self.scale * 2).log() + 1


class Gumbel(_LocScale):
    """Gumbel distribution of maxima, with CDF `exp(-exp(-(x - loc) / scale))`.

    Args:
        loc: The mode.
        scale: The scale.
        validate_args: Whether parameters and values are validated.

    Example:
        >>> gumbel = gt.distributions.Gumbel(gt.tensor(0.0), gt.tensor(1.0))
        >>> gumbel.log_prob(gt.tensor(0.0)), gumbel.mean
        (tensor(-1.), tensor(0.5772))
    """

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * EULER

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return self.scale * self.scale * (math.pi**2 / 6)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return standard_gumbel(shape, self.loc.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        y = -self._standard(value)
        return y - y.exp() - self.scale.log()

    def cdf(self, value: Tensor) -> Tensor:
        return (-(-self._standard(value)).exp()).exp()

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc - self.scale * (-value.log()).log()

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + EULER)


def standard_gumbel(shape: Sequence[int], dtype: Any = None) -> Tensor:
    """Samples of the standard Gumbel distribution, all finite."""
    tiny = 1e-38 if dtype in (None, gt.float32, gt.float64) else 1e-7
    u = gt.rand(tuple(shape), dtype=dtype).clamp(min=tiny)
    return -(-u.log()).clamp(min=tiny).log()


class Cauchy(_LocScale):
    """Cauchy distribution, with density `1 / (pi scale (1 + ((x - loc) / scale)^2))`; it has no mean.

    Args:
        loc: The median.
        scale: The half width at half maximum.
        validate_args: Whether parameters and values are validated.

    Example:
        >>> gt.distributions.Cauchy(gt.tensor(0.0), gt.tensor(1.0)).log_prob(gt.tensor(0.0))
        tensor(-1.1447)
    """

    @property
    def mean(self) -> Tensor:
        return gt.full(tuple(self.batch_shape), math.nan, dtype=self.loc.dtype)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return gt.full(tuple(self.batch_shape), math.inf, dtype=self.loc.dtype)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return ((gt.rand(shape, dtype=self.loc.dtype) - 0.5) * math.pi).tan()

    def log_prob(self, value: Tensor) -> Tensor:
        z = self._standard(value)
        return -math.log(math.pi) - self.scale.log() - (z * z).log1p()

    def cdf(self, value: Tensor) -> Tensor:
        return self._standard(value).atan() / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return ((value - 0.5) * math.pi).tan() * self.scale + self.loc

    def entropy(self) -> Tensor:
        return self.scale.log() + math.log(4 * math.pi)


class LogNormal(_LocScale):
    """Log-normal distribution: the exponential of a normal variable.

    Args:
        loc: The mean of the logarithm.
        scale: The standard deviation of the logarithm.
        validate_args: Whether parameters and values are validated.

    Example:
        >>> gt.distributions.LogNormal(gt.tensor(0.0), gt.tensor(1.0)).mean
        tensor(1.6487)
    """

    support = constraints.positive

    @property
    def mean(self) -> Tensor:
        return (self.loc + self.scale * self.scale / 2).exp()

    @property
    def mode(self) -> Tensor:
        return (self.loc - self.scale * self.scale).exp()

    @property
    def variance(self) -> Tensor:
        square = self.scale * self.scale
        return square.expm1() * (self.loc * 2 + square).exp()

    def rsample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        normal = gt.randn(self._extended_shape(sample_shape), dtype=self.loc.dtype)
        return gt.addcmul(self.loc, normal, self.scale).exp()

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        log = value.log()
        z = (log - self.loc) / self.scale
        return z * z * -0.5 - self.scale.log() - LOG_SQRT_2_PI - log

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return Normal(self.loc, self.scale, validate_args=False).cdf(value.log())

    def icdf(self, value: Tensor) -> Tensor:
        return Normal(self.loc, self.scale, validate_args=False).icdf(value).exp()

    def entropy(self) -> Tensor:
        return self.scale.log() + self.loc + (0.5 + LOG_SQRT_2_PI)


class Uniform(Distribution):
    """Uniform distribution on [low, high).

    Args:
        low: The lower bound.
        high: The upper bound.
        validate_args: Whether parameters and values are validated.

    Example:
        >>> uniform = gt.distributions.Uniform(gt.tensor(0.0), gt.tensor(4.0))
        >>> uniform.mean, uniform.log_prob(gt.tensor(1.0))
        (tensor(2.), tensor(-1.3863))
    """

    has_rsample = True

    def __init__(self, low: Tensor | float, high: Tensor | float, validate_args: bool | None = None) -> None:
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.shape, validate_args=validate_args)
        if self._validate_args and not bool((self.low < self.high).all()):
            high = self.high.item() if self.high.numel() == 1 else self.high
            raise ValueError(
                f"Expected parameter low (Tensor of shape {tuple(self.low.shape)}) of distribution {self!r} to satisfy "
                f"the constraint LessThan(upper_bound={high}), but found invalid values:\n{self.low}"
            )

    @property
    def support(self) -> Constraint:
        return constraints.interval(self.low, self.high)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        return self._expand_parameters(batch_shape, low=0, high=0)

    @property
    def mean(self) -> Tensor:
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Tensor:
        return self.high * math.nan

    @property
    def variance(self) -> Tensor:
        width = self.high - self.low
        return width * width / 12

    def rsample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        u = gt.rand(self._extended_shape(sample_shape), dtype=self.low.dtype)
        return gt.addcmul(self.low, u, self.high - self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        inside = ((value >= self.low) & (value < self.high)).to(self.low.dtype)
        return inside.log() - (self.high - self.low).log()

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return ((value - self.low) / (self.high - self.low)).clamp(0, 1)

    def icdf(self, value: Tensor) -> Tensor:
        return gt.addcmul(self.low, value, self.high - self.low)

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()

    def __repr__(self) -> str:
        low, high = (v.item() if v.numel() == 1 else v.shape for v in (self.low, self.high))
        return f"Uniform(low: {low}, high: {high})"


class Exponential(Distribution):
    """Exponential distribution, with density `rate * exp(-rate x)`: the waiting time of a Poisson process.

    Args:
        rate: The rate, `1 / mean`.
        validate_args: Whether parameters and values are validated.

    Example:
        >>> gt.distributions.Exponential(gt.tensor(2.0)).mean
        tensor(0.5000)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"rate": constraints.positive}
    has_rsample = True
    support = constraints.nonnegative

    def __init__(self, rate: Tensor | float, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        return self._expand_parameters(batch_shape, rate=0)

    @property
    def mean(self) -> Tensor:
        return self.rate.reciprocal()

    @property
    def mode(self) -> Tensor:
        return gt.zeros_like(self.rate)

    @property
    def stddev(self) -> Tensor:
        return self.rate.reciprocal()

    @property
    def variance(self) -> Tensor:
        return 1 / (self.rate * self.rate)

    def rsample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        return -(-gt.rand(self._extended_shape(sample_shape), dtype=self.rate.dtype)).log1p() / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return self.rate.log() - self.rate * value

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return -(self.rate * -value).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        return -(-value).log1p() / self.rate

    def entropy(self) -> Tensor:
        return 1 - self.rate.log()
