"""The gamma distribution and those made of gamma variables: beta, Dirichlet, chi-squared, Student's t and F."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from gt import _core as gt
from gt import special
from gt._gt import Tensor
from gt.distributions import constraints
from gt.distributions.constraints import Constraint
from gt.distributions.distribution import NO_SHAPE, Distribution, ElementwiseDistribution, broadcast_all
from gt.nn.functional import one_hot


class Gamma(ElementwiseDistribution):
    """Gamma distribution, with density `rate^a x^(a-1) exp(-rate x) / Gamma(a)` for the concentration a.

    Args:
        concentration: The shape parameter.
        rate: The inverse of the scale parameter.
        validate_args: Whether parameters and values are validated.

    Example:
        >>> gamma = gt.distributions.Gamma(gt.tensor(2.0), gt.tensor(4.0))
        >>> gamma.mean, gamma.variance
        (tensor(0.5000), tensor(0.1250))
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "concentration": constraints.positive,
        "rate": constraints.positive,
    }
    has_rsample = True
    support = constraints.nonnegative
    concentration: Tensor
    rate: Tensor

    def __init__(self, concentration: Tensor | float, rate: Tensor | float, validate_args: bool | None = None) -> None:
        self._set(validate_args, concentration=concentration, rate=rate)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate.square()

    def rsample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        shape = self._extended_shape(sample_shape)
        drawn = gt._standard_gamma(self.concentration.expand(shape)) / self.rate.expand(shape)
        return drawn + (drawn.detach().clamp(min=gt.finfo(drawn.dtype).tiny) - drawn.detach())

    def log_prob(self, value: Tensor) -> Tensor:
        value = gt.as_tensor(value, dtype=self.rate.dtype)
        self._validate_sample(value)
        a, rate = self.concentration, self.rate
        return gt.xlogy(a, rate) + gt.xlogy(a - 1, value) - rate * value - a.lgamma()

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return special.gammainc(self.concentration, self.rate * value)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1 - a) * a.digamma()


class Chi2(Gamma):
    """Chi-squared distribution with `df` degrees of freedom: Gamma(df / 2, 1 / 2).

    Args:
        df: The degrees of freedom.
        validate_args: Whether parameters and values are validated.

    Example:
        >>> gt.distributions.Chi2(gt.tensor(3.0)).mean
        tensor(3.)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"df": constraints.positive}

    def __init__(self, df: Tensor | float, validate_args: bool | None = None) -> None:
        (df,) = broadcast_all(df)
        super().__init__(df / 2, gt.full_like(df, 0.5), validate_args=validate_args)
        self._check_parameter("df", df)

    @property
    def df(self) -> Tensor:
        """The degrees of freedom."""
        return self.concentration * 2

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        return self._expand_parameters(batch_shape, concentration=0, rate=0)


class InverseGamma(ElementwiseDistribution):
    """Inverse gamma distribution: of `1 / x`, where x has a gamma distribution.

    Args:
        concentration: The shape parameter.
        rate: The scale parameter: the rate of x.
        validate_args: Whether parameters and values are validated.

    Example:
        >>> gt.distributions.InverseGamma(gt.tensor(3.0), gt.tensor(2.0)).mean
        tensor(1.)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = Gamma.arg_constraints
    has_rsample = True
    support = constraints.positive
    concentration: Tensor
    rate: Tensor

    def __init__(self, concentration: Tensor | float, rate: Tensor | float, validate_args: bool | None = None) -> None:
        self._set(validate_args, concentration=concentration, rate=rate)

    @property
    def mean(self) -> Tensor:
        a = self.concentration
        return gt.where(a > 1, self.rate / (a - 1).clamp(min=1e-30), math.inf)

    @property
    def mode(self) -> Tensor:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Tensor:
        a = self.concentration
        found = self.rate.square() / ((a - 1).square() * (a - 2))
        return gt.where(a > 2, found, math.inf)

    def rsample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        return Gamma(self.concentration, self.rate, validate_args=False).rsample(sample_shape).reciprocal()

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        a, rate = self.concentration, self.rate
        return gt.xlogy(a, rate) - (a + 1) * value.log() - rate / value - a.lgamma()

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return special.gammaincc(self.concentration, self.rate / value)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + self.rate.log() + a.lgamma() - (1 + a) * a.digamma()


class Dirichlet(Distribution):
    """Dirichlet distribution over the simplex (last axis), with density proportional to `prod_i x_i^(a_i - 1)`.

    Args:
        concentration: The parameters `a` along the last axis.
        validate_args: Whether parameters and values are validated.

    Example:
        >>> gt.distributions.Dirichlet(gt.tensor([1.0, 3.0])).mean
        tensor([0.2500, 0.7500])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "concentration": constraints.independent(constraints.positive, 1)
    }
    has_rsample = True
    support = constraints.simplex

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        if concentration.ndim < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        return self._expand_parameters(batch_shape, concentration=1)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, keepdim=True)

    @property
    def mode(self) -> Tensor:
        rest = (self.concentration - 1).clamp(min=0)
        mode = rest / rest.sum(-1, keepdim=True)
        corner = one_hot(mode.argmax(-1), self.event_shape[0]).to(mode.dtype)
        return gt.where((self.concentration < 1).all(-1, keepdim=True), corner, mode)

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, keepdim=True)
        return self.concentration * (total - self.concentration) / (total.square() * (total + 1))

    def rsample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        drawn = gt._standard_gamma(self.concentration.expand(self._extended_shape(sample_shape)))
        return drawn / drawn.sum(-1, keepdim=True)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        a = self.concentration
        return gt.xlogy(a - 1, value).sum(-1) + a.sum(-1).lgamma() - a.lgamma().sum(-1)

    def entropy(self) -> Tensor:
        a = self.concentration
        total, size = a.sum(-1), a.shape[-1]
        return a.lgamma().sum(-1) - total.lgamma() - (size - total) * total.digamma() - ((a - 1) * a.digamma()).sum(-1)


class Beta(ElementwiseDistribution):
    """Beta distribution on [0, 1], with density proportional to `x^(concentration1 - 1) (1 - x)^(concentration0 - 1)`.

    Args:
        concentration1: The first shape parameter, alpha.
        concentration0: The second shape parameter, beta.
        validate_args: Whether parameters and values are validated.

    Example:
        >>> gt.distributions.Beta(gt.tensor(1.0), gt.tensor(3.0)).mean
        tensor(0.2500)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    has_rsample = True
    support = constraints.unit_interval
    concentration1: Tensor
    concentration0: Tensor

    def __init__(
        self, concentration1: Tensor | float, concentration0: Tensor | float, validate_args: bool | None = None
    ) -> None:
        self._set(validate_args, concentration1=concentration1, concentration0=concentration0)

    @property
    def _both(self) -> Dirichlet:
        return Dirichlet(gt.stack([self.concentration1, self.concentration0], -1), validate_args=False)

    @property
    def mean(self) -> Tensor:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Tensor:
        return self._both.mode[..., 0]

    @property
    def variance(self) -> Tensor:
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total.square() * (total + 1))

    def rsample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        return self._both.rsample(sample_shape).select(-1, 0)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return self._both.log_prob(gt.stack([value, 1 - value], -1))

    def entropy(self) -> Tensor:
        return self._both.entropy()


class StudentT(ElementwiseDistribution):
    """Student's t-distribution with `df` degrees of freedom, shifted by `loc` and scaled by `scale`.

    Args:
        df: The degrees of freedom.
        loc: The median.
        scale: The scale.
        validate_args: Whether parameters and values are validated.

    Example:
        >>> gt.distributions.StudentT(gt.tensor(3.0)).log_prob(gt.tensor(0.0))
        tensor(-1.0009)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "df": constraints.positive,
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    has_rsample = True
    support = constraints.real
    df: Tensor
    loc: Tensor
    scale: Tensor

    def __init__(
        self,
        df: Tensor | float,
        loc: Tensor | float = 0.0,
        scale: Tensor | float = 1.0,
        validate_args: bool | None = None,
    ) -> None:
        self._set(validate_args, df=df, loc=loc, scale=scale)

    @property
    def mean(self) -> Tensor:
        return gt.where(self.df > 1, self.loc, math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        found = gt.where(self.df > 2, self.scale.square() * self.df / (self.df - 2), math.inf)
        return gt.where(self.df > 1, found, math.nan)

    def rsample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        normal = gt.randn(self._extended_shape(sample_shape), dtype=self.df.dtype)
        square = Chi2(self.df, validate_args=False).rsample(sample_shape)
        return self.loc + self.scale * (normal * (square / self.df).rsqrt())

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        z = (value - self.loc) / self.scale
        norm = self.scale.log() + 0.5 * (self.df.log() + math.log(math.pi))
        norm = norm + (self.df / 2).lgamma() - ((self.df + 1) / 2).lgamma()
        return -0.5 * (self.df + 1) * (z.square() / self.df).log1p() - norm

    def entropy(self) -> Tensor:
        half, more = self.df / 2, (self.df + 1) / 2
        log_beta = half.lgamma() + math.lgamma(0.5) - more.lgamma()
        return self.scale.log() + more * (more.digamma() - half.digamma()) + 0.5 * self.df.log() + log_beta


class FisherSnedecor(ElementwiseDistribution):
    """Fisher-Snedecor (F) distribution: the ratio of two chi-squared variables, each over its degrees of freedom.

    Args:
        df1: The degrees of freedom of the numerator.
        df2: The degrees of freedom of the denominator.
        validate_args: Whether parameters and values are validated.
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"df1": constraints.positive, "df2": constraints.positive}
    has_rsample = True
    support = constraints.positive
    df1: Tensor
    df2: Tensor

    def __init__(self, df1: Tensor | float, df2: Tensor | float, validate_args: bool | None = None) -> None:
        self._set(validate_args, df1=df1, df2=df2)

    @property
    def mean(self) -> Tensor:
        return gt.where(self.df2 > 2, self.df2 / (self.df2 - 2), math.nan)

    @property
    def mode(self) -> Tensor:
        found = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return gt.where(self.df1 > 2, found, math.nan)

    @property
    def variance(self) -> Tensor:
        a, b = self.df1, self.df2
        found = 2 * b.square() * (a + b - 2) / (a * (b - 2).square() * (b - 4))
        return gt.where(b > 4, found, math.nan)

    def rsample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        above, below = (Gamma(df / 2, df / 2, validate_args=False).rsample(sample_shape) for df in (self.df1, self.df2))
        return above / below

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        a, b = self.df1 / 2, self.df2 / 2
        ratio = self.df1 / self.df2
        log_beta = a.lgamma() + b.lgamma() - (a + b).lgamma()
        return a * ratio.log() + (a - 1) * value.log() - (a + b) * (ratio * value).log1p() - log_beta
