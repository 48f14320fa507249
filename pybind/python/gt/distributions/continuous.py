"""Univariate continuous distributions: each is a declaration of its parameters, its support and its formulas."""

import math
from collections.abc import Callable
from typing import Annotated, Any, ClassVar

from gt import _core as gt
from gt import special
from gt._gt import Tensor
from gt.distributions import constraints
from gt.distributions.constraints import Constraint
from gt.distributions.distribution import (
    FamilyParameter,
    Formulas,
    LocationScale,
    ParametricDistribution,
    Positive,
    ProbsOrLogits,
    Real,
    Standard,
    UnitInterval,
)
from gt.distributions.utils import broadcast_all, check_tensor, clamp_probs, positive_rand
from gt.nn import functional

__all__ = [
    "Beta", "Cauchy", "Chi2", "ContinuousBernoulli", "Dirichlet", "Exponential", "FisherSnedecor", "Gamma",
    "GeneralizedPareto", "Gumbel", "HalfCauchy", "HalfNormal", "InverseGamma", "Laplace", "Normal",
    "Pareto", "StudentT", "Uniform", "VonMises", "Weibull",
]  # fmt: skip

LOG_SQRT_2_PI = 0.5 * math.log(2 * math.pi)
EULER = 0.57721566490153286  # Euler's constant, the mean of the standard Gumbel distribution


def standard_gumbel(shape: tuple[int, ...], dtype: Any) -> Tensor:
    """Samples of the standard Gumbel distribution, all finite."""
    return -(-positive_rand(shape, dtype).log()).log()


def log_beta(a: Tensor, b: Tensor) -> Tensor:
    """The logarithm of the beta function."""
    return a.lgamma() + b.lgamma() - (a + b).lgamma()


# Location-scale families ----------------------------------------------------------------------------------------------


class Normal(LocationScale):
    """Normal (Gaussian) distribution with mean `loc` and standard deviation `scale`.

    Its density is `p(x) = exp(-(x - loc)^2 / (2 scale^2)) / (scale sqrt(2 pi))`. `rsample` is differentiable with
    respect to both parameters (reparameterization), `sample` is not.

    Args:
        loc: The mean, a tensor or a number.
        scale: The standard deviation, positive. The batch shape is the shape that both broadcast to.

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

    _standard = Standard(
        mean=0,
        mode=0,
        variance=1,
        entropy=0.5 + LOG_SQRT_2_PI,
        log_prob=lambda z: z * z * -0.5 - LOG_SQRT_2_PI,
        cdf=lambda z: ((z * math.sqrt(0.5)).erf() + 1) * 0.5,
        icdf=lambda p: (p * 2 - 1).erfinv() * math.sqrt(2),
        draw=lambda shape, dtype: gt.randn(shape, dtype=dtype),
    )


class Laplace(LocationScale):
    """Laplace distribution, with density `exp(-|x - loc| / scale) / (2 scale)`.

    Args:
        loc: The mean.
        scale: The scale.

    Example:
        >>> gt.distributions.Laplace(gt.tensor(0.0), gt.tensor(1.0)).log_prob(gt.tensor(0.0))
        tensor(-0.6931)
    """

    _standard = Standard(
        mean=0,
        mode=0,
        variance=2,
        entropy=1 + math.log(2),
        log_prob=lambda z: -z.abs() - math.log(2),
        cdf=lambda z: 0.5 - 0.5 * z.sign() * (-z.abs()).expm1(),
        icdf=lambda p: (0.5 - p).sign() * (-2 * (p - 0.5).abs()).log1p(),
    )


class Gumbel(LocationScale):
    """Gumbel distribution of maxima, with CDF `exp(-exp(-(x - loc) / scale))`.

    Args:
        loc: The mode.
        scale: The scale.

    Example:
        >>> gumbel = gt.distributions.Gumbel(gt.tensor(0.0), gt.tensor(1.0))
        >>> gumbel.log_prob(gt.tensor(0.0)), gumbel.mean
        (tensor(-1.), tensor(0.5772))
    """

    _standard = Standard(
        mean=EULER,
        mode=0,
        variance=math.pi**2 / 6,
        entropy=1 + EULER,
        log_prob=lambda z: -z - (-z).exp(),
        cdf=lambda z: (-(-z).exp()).exp(),
        icdf=lambda p: -(-p.log()).log(),
        draw=standard_gumbel,
    )


class Cauchy(LocationScale):
    """Cauchy distribution, with density `1 / (pi scale (1 + ((x - loc) / scale)^2))`; it has no mean.

    Args:
        loc: The median.
        scale: The half width at half maximum.

    Example:
        >>> gt.distributions.Cauchy(gt.tensor(0.0), gt.tensor(1.0)).log_prob(gt.tensor(0.0))
        tensor(-1.1447)
    """

    _standard = Standard(
        mean=math.nan,
        mode=0,
        variance=math.inf,
        entropy=math.log(4 * math.pi),
        log_prob=lambda z: -(z * z).log1p() - math.log(math.pi),
        cdf=lambda z: z.atan() / math.pi + 0.5,
        icdf=lambda p: ((p - 0.5) * math.pi).tan(),
    )


# Bounded support ------------------------------------------------------------------------------------------------------


class Uniform(ParametricDistribution):
    """Uniform distribution on [low, high).

    Args:
        low: The lower bound.
        high: The upper bound.

    Example:
        >>> uniform = gt.distributions.Uniform(gt.tensor(0.0), gt.tensor(4.0))
        >>> uniform.mean, uniform.log_prob(gt.tensor(1.0))
        (tensor(2.), tensor(-1.3863))
    """

    low: Annotated[FamilyParameter, constraints.dependent(is_discrete=False, event_dim=0)]
    high: Annotated[FamilyParameter, constraints.dependent(is_discrete=False, event_dim=0)]
    _formulas = Formulas(
        support=lambda low, high: constraints.interval(low, high),
        mean=lambda low, high: (high + low) / 2,
        mode=lambda high: high * math.nan,
        variance=lambda low, high: (high - low).square() / 12,
        log_prob=lambda value, low, high: ((value >= low) & (value < high)).to(low.dtype).log() - (high - low).log(),
        cdf=lambda value, low, high: ((value - low) / (high - low)).clamp(0, 1),
        icdf=lambda value, low, high: gt.addcmul(low, value, high - low),
        entropy=lambda low, high: (high - low).log(),
    )

    @property
    def arg_constraints(self) -> dict[str, Constraint]:  # type: ignore[override]
        """Each bound's constraint, which is the other bound."""
        return {"low": constraints.less_than(self.high), "high": constraints.greater_than(self.low)}


class Beta(ParametricDistribution):
    """Beta distribution on [0, 1], with density proportional to `x^(concentration1 - 1) (1 - x)^(concentration0 - 1)`.

    Args:
        concentration1: The first shape parameter, alpha.
        concentration0: The second shape parameter, beta.

    Example:
        >>> gt.distributions.Beta(gt.tensor(1.0), gt.tensor(3.0)).mean
        tensor(0.2500)
    """

    concentration1: Positive
    concentration0: Positive
    support = constraints.unit_interval
    _formulas = Formulas(
        mean=lambda concentration1, concentration0: concentration1 / (concentration1 + concentration0),
        mode=lambda _dirichlet: _dirichlet.mode[..., 0],
        variance=lambda _dirichlet: _dirichlet.variance[..., 0],
        rsample=lambda shape, _dirichlet: _dirichlet.expand(shape).rsample()[..., 0],
        log_prob=lambda value, _dirichlet: _dirichlet.log_prob(gt.stack([value, 1 - value], -1)),
        entropy=lambda _dirichlet: _dirichlet.entropy(),
    )

    @property
    def _dirichlet(self) -> "Dirichlet":
        return Dirichlet(gt.stack([self.concentration1, self.concentration0], -1), validate_args=False)


class Dirichlet(ParametricDistribution):
    """Dirichlet distribution over the simplex (last axis), with density proportional to `prod_i x_i^(a_i - 1)`.

    Args:
        concentration: The parameters `a` along the last axis.

    Example:
        >>> gt.distributions.Dirichlet(gt.tensor([1.0, 3.0])).mean
        tensor([0.2500, 0.7500])
    """

    concentration: Annotated[FamilyParameter, constraints.independent(constraints.positive, 1)]
    support = constraints.simplex
    _formulas = Formulas(
        mean=lambda concentration: concentration / concentration.sum(-1, keepdim=True),
        mode=lambda concentration: _dirichlet_mode(concentration, (concentration - 1).clamp(min=0)),
        variance=lambda mean, concentration: mean * (1 - mean) / (concentration.sum(-1, keepdim=True) + 1),
        rsample=lambda shape, concentration: _normalized(gt._standard_gamma(concentration.expand(shape))),
        log_prob=lambda value, concentration: (
            gt.xlogy(concentration - 1, value).sum(-1) + concentration.sum(-1).lgamma() - concentration.lgamma().sum(-1)
        ),
        entropy=lambda concentration: _dirichlet_entropy(concentration, concentration.sum(-1)),
    )

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        check_tensor("concentration", concentration)
        if concentration.ndim < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args=validate_args)


def _normalized(weights: Tensor) -> Tensor:
    return weights / weights.sum(-1, keepdim=True)


def _dirichlet_mode(concentration: Tensor, rest: Tensor) -> Tensor:
    mode = _normalized(rest)
    corner = functional.one_hot(mode.argmax(-1), mode.shape[-1]).to(mode.dtype)
    return gt.where((concentration < 1).all(-1, keepdim=True), corner, mode)


def _dirichlet_entropy(a: Tensor, total: Tensor) -> Tensor:
    spread = (a.shape[-1] - total) * total.digamma() + ((a - 1) * a.digamma()).sum(-1)
    return a.lgamma().sum(-1) - total.lgamma() - spread


class ContinuousBernoulli(ProbsOrLogits):
    """Continuous Bernoulli distribution on [0, 1], with density proportional to `p^x (1 - p)^(1 - x)`.

    See Loaiza-Ganem and Cunningham 2019. Within `lims`, around p = 1/2, Taylor series replace the formulas, which
    cancel.

    Args:
        probs: The parameter p; or give `logits`.
        logits: The log odds of p.
        lims: The interval of p in which the series are used.
    """

    probs: UnitInterval
    logits: Real
    support = constraints.unit_interval
    _formulas = Formulas(
        mean=lambda _cut, _series: _series(
            _cut / (2 * _cut - 1) + 1 / ((-_cut).log1p() - _cut.log()),
            lambda x: 0.5 + (1 / 3 + 16 / 45 * x.square()) * x,
        ),
        variance=lambda _cut, _series: _series(
            _cut * (_cut - 1) / (1 - 2 * _cut).square() + 1 / ((-_cut).log1p() - _cut.log()).square(),
            lambda x: 1 / 12 - (1 / 15 - 128 / 945 * x.square()) * x.square(),
        ),
        log_prob=lambda value, logits, _log_norm: (
            _log_norm - functional.binary_cross_entropy_with_logits(*broadcast_all(logits, value), reduction="none")
        ),
        icdf=lambda value, _cut, _is_exact: gt.where(
            _is_exact,
            ((-_cut + value * (2 * _cut - 1)).log1p() - (-_cut).log1p()) / (_cut.log() - (-_cut).log1p()),
            value,
        ),
        cdf=lambda value, _cut, _is_exact: gt.where(
            _is_exact, (_cut**value * (1 - _cut) ** (1 - value) + _cut - 1) / (2 * _cut - 1), value
        ).where((value > 0) & (value < 1), (value >= 1).to(value.dtype)),
        entropy=lambda mean, probs, _log_norm: mean * ((-probs).log1p() - probs.log()) - _log_norm - (-probs).log1p(),
    )

    def __init__(
        self,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        self._set(validate_args, probs=probs, logits=logits)
        if probs is not None:
            self.probs = clamp_probs(self.probs)
        self._lims = lims

    @property
    def _is_exact(self) -> Tensor:
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    @property
    def _cut(self) -> Tensor:
        """The parameter, with the lower limit in place of values where the series are used."""
        return gt.where(self._is_exact, self.probs, self._lims[0])

    def _series(self, exact: Tensor, series: Callable[[Tensor], Tensor]) -> Tensor:
        """The exact value, or within `lims` that of a series in `p - 1/2`."""
        return gt.where(self._is_exact, exact, series(self.probs - 0.5))

    @property
    def _log_norm(self) -> Tensor:
        cut = self._cut
        below, above = gt.where(cut <= 0.5, cut, 0.0), gt.where(cut >= 0.5, cut, 1.0)
        odds = ((-cut).log1p() - cut.log()).abs().log()
        exact = odds - gt.where(cut <= 0.5, (-2 * below).log1p(), (2 * above - 1).log())
        return self._series(exact, lambda x: math.log(2) + (4 / 3 + 104 / 45 * x.square()) * x.square())


# The gamma distribution, and quotients and products of gamma variables ------------------------------------------------


class Gamma(ParametricDistribution):
    """Gamma distribution, with density `rate^a x^(a-1) exp(-rate x) / Gamma(a)` for the concentration a.

    Args:
        concentration: The shape parameter.
        rate: The inverse of the scale parameter.

    Example:
        >>> gamma = gt.distributions.Gamma(gt.tensor(2.0), gt.tensor(4.0))
        >>> gamma.mean, gamma.variance
        (tensor(0.5000), tensor(0.1250))
    """

    concentration: Positive
    rate: Positive
    support = constraints.nonnegative
    _formulas = Formulas(
        mean=lambda concentration, rate: concentration / rate,
        mode=lambda concentration, rate: ((concentration - 1) / rate).clamp(min=0),
        variance=lambda concentration, rate: concentration / rate.square(),
        rsample=lambda shape, concentration, rate: _positive(
            gt._standard_gamma(concentration.expand(shape)) / rate.expand(shape)
        ),
        cdf=lambda value, concentration, rate: special.gammainc(concentration, rate * value),
        entropy=lambda concentration, rate: (
            concentration - rate.log() + concentration.lgamma() + (1 - concentration) * concentration.digamma()
        ),
    )

    def log_prob(self, value: Tensor) -> Tensor:
        a, rate, value = self.concentration, self.rate, gt.as_tensor(value, dtype=self.rate.dtype)
        if self._validate_args:
            self._validate_sample(value)
        return gt.xlogy(a, rate) + gt.xlogy(a - 1, value) - rate * value - a.lgamma()


def _positive(drawn: Tensor) -> Tensor:
    """Samples clamped to the smallest normal number; the gradient passes unchanged."""
    return drawn + (drawn.detach().clamp(min=gt.finfo(drawn.dtype).tiny) - drawn.detach())


class Chi2(Gamma):
    """Chi-squared distribution with `df` degrees of freedom: Gamma(df / 2, 1 / 2).

    Args:
        df: The degrees of freedom.

    Example:
        >>> gt.distributions.Chi2(gt.tensor(3.0)).mean
        tensor(3.)
    """

    df: Positive

    def __init__(self, df: Tensor | float, validate_args: bool | None = None) -> None:
        (self.df,) = broadcast_all(df)
        self._set(validate_args, concentration=self.df / 2, rate=gt.full_like(self.df, 0.5))


class InverseGamma(ParametricDistribution):
    """Inverse gamma distribution: of `1 / x`, where x has a gamma distribution.

    Args:
        concentration: The shape parameter.
        rate: The scale parameter: the rate of x.

    Example:
        >>> gt.distributions.InverseGamma(gt.tensor(3.0), gt.tensor(2.0)).mean
        tensor(1.)
    """

    concentration: Positive
    rate: Positive
    support = constraints.positive
    _formulas = Formulas(
        mean=lambda concentration, rate: gt.where(
            concentration > 1, rate / (concentration - 1).clamp(min=1e-30), math.inf
        ),
        mode=lambda concentration, rate: rate / (concentration + 1),
        variance=lambda concentration, rate: gt.where(
            concentration > 2, rate.square() / ((concentration - 1).square() * (concentration - 2)), math.inf
        ),
        rsample=lambda shape, concentration, rate: (
            Gamma(concentration, rate, validate_args=False).expand(shape).rsample().reciprocal()
        ),
        log_prob=lambda value, concentration, rate: (
            gt.xlogy(concentration, rate) - (concentration + 1) * value.log() - rate / value - concentration.lgamma()
        ),
        cdf=lambda value, concentration, rate: special.gammaincc(concentration, rate / value),
        entropy=lambda concentration, rate: (
            concentration + rate.log() + concentration.lgamma() - (1 + concentration) * concentration.digamma()
        ),
    )


class StudentT(ParametricDistribution):
    """Student's t-distribution with `df` degrees of freedom, shifted by `loc` and scaled by `scale`.

    Args:
        df: The degrees of freedom.
        loc: The median.
        scale: The scale.

    Example:
        >>> gt.distributions.StudentT(gt.tensor(3.0)).log_prob(gt.tensor(0.0))
        tensor(-1.0009)
    """

    df: Positive
    loc: Real = 0.0
    scale: Positive = 1.0
    support = constraints.real
    _formulas = Formulas(
        mean=lambda df, loc: gt.where(df > 1, loc, math.nan),
        mode=lambda loc: loc,
        variance=lambda df, scale: gt.where(
            df > 1, gt.where(df > 2, scale.square() * df / (df - 2), math.inf), math.nan
        ),
        rsample=lambda shape, df, loc, scale: (
            loc
            + scale
            * gt.randn(shape, dtype=df.dtype)
            * (Chi2(df, validate_args=False).expand(shape).rsample() / df).rsqrt()
        ),
        log_prob=lambda value, df, loc, scale: (
            -0.5 * (df + 1) * (((value - loc) / scale).square() / df).log1p() - _student_log_norm(df) - scale.log()
        ),
        entropy=lambda df, scale: (
            scale.log() + (df + 1) / 2 * (((df + 1) / 2).digamma() - (df / 2).digamma()) + _student_log_norm(df)
        ),
    )


def _student_log_norm(df: Tensor) -> Tensor:
    return 0.5 * (df.log() + math.log(math.pi)) + (df / 2).lgamma() - ((df + 1) / 2).lgamma()


class FisherSnedecor(ParametricDistribution):
    """Fisher-Snedecor (F) distribution: the ratio of two chi-squared variables, each over its degrees of freedom.

    Args:
        df1: The degrees of freedom of the numerator.
        df2: The degrees of freedom of the denominator.
    """

    df1: Positive
    df2: Positive
    support = constraints.positive
    _formulas = Formulas(
        mean=lambda df2: gt.where(df2 > 2, df2 / (df2 - 2), math.nan),
        mode=lambda df1, df2: gt.where(df1 > 2, (df1 - 2) / df1 * df2 / (df2 + 2), math.nan),
        variance=lambda df1, df2: gt.where(
            df2 > 4, 2 * df2.square() * (df1 + df2 - 2) / (df1 * (df2 - 2).square() * (df2 - 4)), math.nan
        ),
        rsample=lambda shape, df1, df2: (
            Gamma(df1 / 2, df1 / 2, validate_args=False).expand(shape).rsample()
            / Gamma(df2 / 2, df2 / 2, validate_args=False).expand(shape).rsample()
        ),
        log_prob=lambda value, df1, df2: (
            df1 / 2 * (df1 / df2).log()
            + (df1 / 2 - 1) * value.log()
            - (df1 + df2) / 2 * (df1 / df2 * value).log1p()
            - log_beta(df1 / 2, df2 / 2)
        ),
    )


# Positive support -----------------------------------------------------------------------------------------------------


class Exponential(ParametricDistribution):
    """Exponential distribution, with density `rate * exp(-rate x)`: the waiting time of a Poisson process.

    Args:
        rate: The rate, `1 / mean`.

    Example:
        >>> gt.distributions.Exponential(gt.tensor(2.0)).mean
        tensor(0.5000)
    """

    rate: Positive
    support = constraints.nonnegative
    _formulas = Formulas(
        mean=lambda rate: rate.reciprocal(),
        mode=lambda rate: gt.zeros_like(rate),
        stddev=lambda rate: rate.reciprocal(),
        variance=lambda rate: rate.square().reciprocal(),
        log_prob=lambda value, rate: rate.log() - rate * value,
        cdf=lambda value, rate: -(rate * -value).expm1(),
        icdf=lambda value, rate: -(-value).log1p() / rate,
        entropy=lambda rate: 1 - rate.log(),
    )


class HalfNormal(ParametricDistribution):
    """Half-normal distribution: the absolute value of a normal variable with mean 0.

    Args:
        scale: The standard deviation of the normal variable.

    Example:
        >>> gt.distributions.HalfNormal(gt.tensor(1.0)).log_prob(gt.tensor(0.0))
        tensor(-0.2258)
    """

    scale: Positive
    support = constraints.nonnegative
    _formulas = Formulas(
        mean=lambda scale: scale * math.sqrt(2 / math.pi),
        mode=lambda scale: gt.zeros_like(scale),
        variance=lambda scale: scale.square() * (1 - 2 / math.pi),
        rsample=lambda shape, scale: gt.randn(shape, dtype=scale.dtype).abs() * scale,
        log_prob=lambda value, scale: gt.where(
            value >= 0, (value / scale).square() * -0.5 - scale.log() + (math.log(2) - LOG_SQRT_2_PI), -math.inf
        ),
        cdf=lambda value, scale: (value / scale * math.sqrt(0.5)).erf(),
        icdf=lambda prob, scale: scale * (prob.erfinv() * math.sqrt(2)),
        entropy=lambda scale: scale.log() + (0.5 + LOG_SQRT_2_PI - math.log(2)),
    )


class HalfCauchy(ParametricDistribution):
    """Half-Cauchy distribution: the absolute value of a Cauchy variable with median 0; its mean is infinite.

    Args:
        scale: The scale of the Cauchy variable.

    Example:
        >>> gt.distributions.HalfCauchy(gt.tensor(1.0)).log_prob(gt.tensor(0.0))
        tensor(-0.4516)
    """

    scale: Positive
    support = constraints.nonnegative
    _formulas = Formulas(
        mean=lambda scale: gt.full_like(scale, math.inf),
        mode=lambda scale: gt.zeros_like(scale),
        variance=lambda scale: gt.full_like(scale, math.inf),
        log_prob=lambda value, scale: gt.where(
            value >= 0, math.log(2 / math.pi) - scale.log() - (value / scale).square().log1p(), -math.inf
        ),
        cdf=lambda value, scale: (value / scale).atan() * (2 / math.pi),
        icdf=lambda prob, scale: scale * (prob * (math.pi / 2)).tan(),
        entropy=lambda scale: scale.log() + math.log(2 * math.pi),
    )


class Weibull(ParametricDistribution):
    """Weibull distribution, with `P(X > x) = exp(-(x / scale)^concentration)`.

    Args:
        scale: The scale parameter.
        concentration: The shape parameter.

    Example:
        >>> gt.distributions.Weibull(gt.tensor(1.0), gt.tensor(2.0)).log_prob(gt.tensor(1.0))
        tensor(-0.3069)
    """

    scale: Positive
    concentration: Positive
    support = constraints.positive
    _formulas = Formulas(
        mean=lambda scale, concentration: scale * _weibull_moment(1, concentration),
        mode=lambda scale, concentration: scale * (1 - 1 / concentration).clamp(min=0) ** concentration.reciprocal(),
        variance=lambda scale, concentration: (
            scale.square() * (_weibull_moment(2, concentration) - _weibull_moment(1, concentration).square())
        ),
        log_prob=lambda value, scale, concentration: (
            (concentration / scale).log()
            + (concentration - 1) * (value / scale).log()
            - (value / scale) ** concentration
        ),
        cdf=lambda value, scale, concentration: -(-((value / scale) ** concentration)).expm1(),
        icdf=lambda value, scale, concentration: scale * (-(-value).log1p()) ** concentration.reciprocal(),
        entropy=lambda scale, concentration: (
            EULER * (1 - concentration.reciprocal()) + (scale / concentration).log() + 1
        ),
    )


def _weibull_moment(n: int, concentration: Tensor) -> Tensor:
    return (1 + n / concentration).lgamma().exp()


class Pareto(ParametricDistribution):
    """Pareto distribution (type 1), with `P(X > x) = (scale / x)^alpha` for x >= scale.

    Args:
        scale: The lower bound.
        alpha: The shape parameter.

    Example:
        >>> gt.distributions.Pareto(gt.tensor(1.0), gt.tensor(3.0)).mean
        tensor(1.5000)
    """

    scale: Positive
    alpha: Positive
    # In PyTorch's order, which `repr` shows.
    arg_constraints: ClassVar[dict[str, Constraint]] = {"alpha": constraints.positive, "scale": constraints.positive}
    _formulas = Formulas(
        support=lambda scale: constraints.greater_than_eq(scale),
        mean=lambda scale, alpha: gt.where(alpha > 1, alpha * scale / (alpha - 1), math.inf),
        mode=lambda scale: scale,
        variance=lambda scale, alpha: gt.where(
            alpha > 2, scale.square() * alpha / ((alpha - 1).square() * (alpha - 2)), math.inf
        ),
        log_prob=lambda value, scale, alpha: alpha.log() + alpha * scale.log() - (alpha + 1) * value.log(),
        cdf=lambda value, scale, alpha: 1 - (scale / value) ** alpha,
        icdf=lambda value, scale, alpha: scale * ((-value).log1p() / -alpha).exp(),
        entropy=lambda scale, alpha: (scale / alpha).log() + 1 + alpha.reciprocal(),
    )


class GeneralizedPareto(ParametricDistribution):
    """Generalized Pareto distribution of excesses over `loc`: `P(X > x) = (1 + c z)^(-1/c)`, `z = (x - loc) / scale`.

    Args:
        loc: The lower bound.
        scale: The scale.
        concentration: The shape c: exponential for 0, heavy-tailed above, bounded below.
    """

    loc: Real
    scale: Positive
    concentration: Real
    _formulas = Formulas(
        support=lambda loc, scale, concentration: constraints.interval(
            loc, gt.where(concentration < 0, loc - scale / concentration, math.inf)
        ),
        mean=lambda loc, scale, concentration: gt.where(concentration < 1, loc + scale / (1 - concentration), math.nan),
        mode=lambda loc: loc,
        variance=lambda scale, concentration: gt.where(
            concentration < 0.5, scale.square() / ((1 - concentration).square() * (1 - 2 * concentration)), math.nan
        ),
        log_prob=lambda value, _log_survival, scale, concentration: (
            _log_survival(value) * (1 + concentration) - scale.log()
        ),
        cdf=lambda value, _log_survival: -_log_survival(value).expm1(),
        icdf=lambda value, loc, scale, _is_exponential, _slope: (
            loc + scale * gt.where(_is_exponential, -(-value).log1p(), (-_slope * (-value).log1p()).expm1() / _slope)
        ),
        entropy=lambda scale, concentration: scale.log() + concentration + 1,
    )

    @property
    def _slope(self) -> Tensor:
        """The concentration, with 1 in place of values close to 0, as a divisor."""
        return gt.where(self._is_exponential, 1.0, self.concentration)

    @property
    def _is_exponential(self) -> Tensor:
        return self.concentration.abs() <= 1e-8

    def _log_survival(self, value: Tensor) -> Tensor:
        z, c = (value - self.loc) / self.scale, self._slope
        return gt.where(self._is_exponential, -z, -(c * z).log1p() / c)

    def log_survival_function(self, value: Tensor) -> Tensor:
        """The log survival function, log P(X > value): shape broadcast(value, batch)."""
        if self._validate_args:
            self._validate_sample(value)
        return self._log_survival(value)

    def log_cdf(self, value: Tensor) -> Tensor:
        """The log cumulative distribution function, log P(X <= value): shape broadcast(value, batch)."""
        return self.cdf(value).log()


# Angles ---------------------------------------------------------------------------------------------------------------


class VonMises(ParametricDistribution):
    """Von Mises distribution of angles, with density proportional to `exp(concentration cos(x - loc))`.

    `mean` and `variance` are the circular ones. Samples, from -pi to pi, are drawn by rejection (Best and Fisher 1979);
    each round waits for the device.

    Args:
        loc: The mean angle.
        concentration: The concentration.

    Example:
        >>> gt.distributions.VonMises(gt.tensor(0.0), gt.tensor(1.0)).log_prob(gt.tensor(0.0))
        tensor(-1.0738)
    """

    loc: Real
    concentration: Positive
    support = constraints.real
    _formulas = Formulas(
        mean=lambda loc: loc,
        mode=lambda loc: loc,
        variance=lambda concentration: 1 - special.i1e(concentration) / special.i0e(concentration),
        # cos(x) - 1 = -2 sin(x/2)^2, without cancellation for small angles.
        log_prob=lambda value, loc, concentration: (
            concentration * (-2 * ((value - loc) / 2).sin().square())
            - math.log(2 * math.pi)
            - special.i0e(concentration).log()
        ),
        sample=lambda shape, loc, concentration: _drawn_angles(loc, concentration.double().expand(shape)),
    )


def _drawn_angles(loc: Tensor, k: Tensor) -> Tensor:
    shape = k.shape
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
    return ((drawn + math.pi + loc) % (2 * math.pi) - math.pi).to(loc.dtype)
