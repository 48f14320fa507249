"""Univariate distributions of positive numbers: half-normal, half-Cauchy, Pareto and Weibull.

And of angles: von Mises.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from gt import _core as gt
from gt import special
from gt._autograd import no_grad
from gt._gt import Tensor
from gt.distributions import constraints
from gt.distributions.constraints import Constraint
from gt.distributions.continuous import EULER, LOG_SQRT_2_PI
from gt.distributions.distribution import NO_SHAPE, ElementwiseDistribution


class HalfNormal(ElementwiseDistribution):
    """Half-normal distribution: the absolute value of a normal variable with mean 0.

    Args:
        scale: The standard deviation of the normal variable.
        validate_args: Whether parameters and values are validated.

    Example:
        >>> gt.distributions.HalfNormal(gt.tensor(1.0)).log_prob(gt.tensor(0.0))
        tensor(-0.2258)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"scale": constraints.positive}
    has_rsample = True
    support = constraints.nonnegative
    scale: Tensor

    def __init__(self, scale: Tensor | float, validate_args: bool | None = None) -> None:
        self._set(validate_args, scale=scale)

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def mode(self) -> Tensor:
        return gt.zeros_like(self.scale)

    @property
    def variance(self) -> Tensor:
        return self.scale.square() * (1 - 2 / math.pi)

    def rsample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        return gt.randn(self._extended_shape(sample_shape), dtype=self.scale.dtype).abs() * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        found = (value / self.scale).square() * -0.5 - self.scale.log() - LOG_SQRT_2_PI + math.log(2)
        return gt.where(value >= 0, found, -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return (value / self.scale * math.sqrt(0.5)).erf()

    def icdf(self, prob: Tensor) -> Tensor:
        return self.scale * (prob.erfinv() * math.sqrt(2))

    def entropy(self) -> Tensor:
        return self.scale.log() + (0.5 + LOG_SQRT_2_PI - math.log(2))


class HalfCauchy(ElementwiseDistribution):
    """Half-Cauchy distribution: the absolute value of a Cauchy variable with median 0; its mean is infinite.

    Args:
        scale: The scale of the Cauchy variable.
        validate_args: Whether parameters and values are validated.

    Example:
        >>> gt.distributions.HalfCauchy(gt.tensor(1.0)).log_prob(gt.tensor(0.0))
        tensor(-0.4516)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"scale": constraints.positive}
    has_rsample = True
    support = constraints.nonnegative
    scale: Tensor

    def __init__(self, scale: Tensor | float, validate_args: bool | None = None) -> None:
        self._set(validate_args, scale=scale)

    @property
    def mean(self) -> Tensor:
        return gt.full_like(self.scale, math.inf)

    @property
    def mode(self) -> Tensor:
        return gt.zeros_like(self.scale)

    @property
    def variance(self) -> Tensor:
        return gt.full_like(self.scale, math.inf)

    def rsample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        return self.icdf(gt.rand(self._extended_shape(sample_shape), dtype=self.scale.dtype))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        found = math.log(2 / math.pi) - self.scale.log() - (value / self.scale).square().log1p()
        return gt.where(value >= 0, found, -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return (value / self.scale).atan() * (2 / math.pi)

    def icdf(self, prob: Tensor) -> Tensor:
        return self.scale * (prob * (math.pi / 2)).tan()

    def entropy(self) -> Tensor:
        return self.scale.log() + math.log(2 * math.pi)


class Pareto(ElementwiseDistribution):
    """Pareto distribution (type 1), with `P(X > x) = (scale / x)^alpha` for x >= scale.

    Args:
        scale: The lower bound.
        alpha: The shape parameter.
        validate_args: Whether parameters and values are validated.

    Example:
        >>> gt.distributions.Pareto(gt.tensor(1.0), gt.tensor(3.0)).mean
        tensor(1.5000)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"alpha": constraints.positive, "scale": constraints.positive}
    has_rsample = True
    scale: Tensor
    alpha: Tensor

    def __init__(self, scale: Tensor | float, alpha: Tensor | float, validate_args: bool | None = None) -> None:
        self._set(validate_args, scale=scale, alpha=alpha)

    @property
    def support(self) -> Constraint:
        return constraints.greater_than_eq(self.scale)

    @property
    def mean(self) -> Tensor:
        return gt.where(self.alpha > 1, self.alpha * self.scale / (self.alpha - 1), math.inf)

    @property
    def mode(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        a = self.alpha
        return gt.where(a > 2, self.scale.square() * a / ((a - 1).square() * (a - 2)), math.inf)

    def rsample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        return self.icdf(gt.rand(self._extended_shape(sample_shape), dtype=self.scale.dtype))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return self.alpha.log() + self.alpha * self.scale.log() - (self.alpha + 1) * value.log()

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return 1 - (self.scale / value) ** self.alpha

    def icdf(self, value: Tensor) -> Tensor:
        return self.scale * ((-value).log1p() / -self.alpha).exp()

    def entropy(self) -> Tensor:
        return (self.scale / self.alpha).log() + 1 + self.alpha.reciprocal()


class Weibull(ElementwiseDistribution):
    """Weibull distribution, with `P(X > x) = exp(-(x / scale)^concentration)`.

    Args:
        scale: The scale parameter.
        concentration: The shape parameter.
        validate_args: Whether parameters and values are validated.

    Example:
        >>> gt.distributions.Weibull(gt.tensor(1.0), gt.tensor(2.0)).log_prob(gt.tensor(1.0))
        tensor(-0.3069)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "scale": constraints.positive,
        "concentration": constraints.positive,
    }
    has_rsample = True
    support = constraints.positive
    scale: Tensor
    concentration: Tensor

    def __init__(self, scale: Tensor | float, concentration: Tensor | float, validate_args: bool | None = None) -> None:
        self._set(validate_args, scale=scale, concentration=concentration)

    def _moment(self, n: int) -> Tensor:
        return (1 + n / self.concentration).lgamma().exp()

    @property
    def mean(self) -> Tensor:
        return self.scale * self._moment(1)

    @property
    def mode(self) -> Tensor:
        k = self.concentration
        return self.scale * (((k - 1) / k).clamp(min=0)) ** k.reciprocal()

    @property
    def variance(self) -> Tensor:
        return self.scale.square() * (self._moment(2) - self._moment(1).square())

    def rsample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        return self.icdf(gt.rand(self._extended_shape(sample_shape), dtype=self.scale.dtype))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        k, z = self.concentration, value / self.scale
        return k.log() - self.scale.log() + (k - 1) * z.log() - z**k

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return -(-((value / self.scale) ** self.concentration)).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        return self.scale * (-(-value).log1p()) ** self.concentration.reciprocal()

    def entropy(self) -> Tensor:
        k = self.concentration
        return EULER * (1 - k.reciprocal()) + (self.scale / k).log() + 1


class VonMises(ElementwiseDistribution):
    """Von Mises distribution of angles, with density proportional to `exp(concentration cos(x - loc))`.

    `mean` and `variance` are the circular ones. Samples, from -pi to pi, are drawn by rejection (Best and Fisher 1979);
    each round waits for the device.

    Args:
        loc: The mean angle.
        concentration: The concentration.
        validate_args: Whether parameters and values are validated.

    Example:
        >>> gt.distributions.VonMises(gt.tensor(0.0), gt.tensor(1.0)).log_prob(gt.tensor(0.0))
        tensor(-1.0738)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real
    loc: Tensor
    concentration: Tensor

    def __init__(self, loc: Tensor | float, concentration: Tensor | float, validate_args: bool | None = None) -> None:
        self._set(validate_args, loc=loc, concentration=concentration)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return 1 - special.i1e(self.concentration) / special.i0e(self.concentration)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        k = self.concentration
        # cos(x) - 1 = -2 sin(x/2)^2, without cancellation for small angles.
        away = -2 * ((value - self.loc) / 2).sin().square()
        return k * away - math.log(2 * math.pi) - special.i0e(k).log()

    @no_grad()
    def sample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        shape = self._extended_shape(sample_shape)
        k = self.concentration.double().expand(shape)
        tau = 1 + (1 + 4 * k.square()).sqrt()
        rho = (tau - (2 * tau).sqrt()) / (2 * k)
        # For small k the quotient cancels; its series is 1 / k + k.
        r = gt.where(k < 1e-5, k.reciprocal() + k, (1 + rho.square()) / (2 * rho))
        drawn, left = gt.zeros(shape, dtype=gt.float64), k > 0
        while bool(left.any()):
            z = (math.pi * gt.rand(shape, dtype=gt.float64)).cos()
            f = (1 + r * z) / (r + z)
            c = k * (r - f)
            u = gt.rand(shape, dtype=gt.float64)
            taken = left & ((c * (2 - c) > u) | ((c / u).log() + 1 - c >= 0))
            side = (gt.rand(shape, dtype=gt.float64) - 0.5).sign()
            drawn = gt.where(taken, side * f.clamp(-1, 1).acos(), drawn)
            left = left & ~taken
        angle = (drawn + math.pi + self.loc) % (2 * math.pi) - math.pi
        return angle.to(self.loc.dtype)
