"""Distributions on the unit interval and the simplex: Kumaraswamy, continuous Bernoulli and logistic-normal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from gt import _core as gt
from gt._gt import Tensor
from gt.distributions import constraints
from gt.distributions.constraints import Constraint
from gt.distributions.continuous import EULER, Normal, Uniform
from gt.distributions.discrete import BinaryProbsOrLogits
from gt.distributions.distribution import NO_SHAPE, Distribution, broadcast_all
from gt.distributions.transformed_distribution import TransformedDistribution
from gt.distributions.transforms import AffineTransform, PowerTransform, StickBreakingTransform
from gt.distributions.utils import clamp_probs
from gt.nn import functional


class Kumaraswamy(TransformedDistribution):
    """Kumaraswamy distribution on (0, 1), with CDF `1 - (1 - x^a)^b`.

    Args:
        concentration1: The first shape parameter, a.
        concentration0: The second shape parameter, b.
        validate_args: Whether parameters and values are validated.

    Example:
        >>> gt.distributions.Kumaraswamy(gt.tensor(2.0), gt.tensor(2.0)).log_prob(gt.tensor(0.5))
        tensor(0.4055)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    has_rsample = True
    support = constraints.unit_interval

    def __init__(
        self, concentration1: Tensor | float, concentration0: Tensor | float, validate_args: bool | None = None
    ) -> None:
        self.concentration1, self.concentration0 = a, b = broadcast_all(concentration1, concentration0)
        base = Uniform(gt.zeros_like(b), gt.ones_like(b), validate_args=validate_args)
        turned = AffineTransform(1.0, -1.0)
        steps = [PowerTransform(b.reciprocal()), turned, PowerTransform(a.reciprocal())]
        super().__init__(base, steps, validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        a, b = self.concentration1.expand(*batch_shape), self.concentration0.expand(*batch_shape)
        return type(self)(a, b, validate_args=False)

    def _moment(self, n: int) -> Tensor:
        b, more = self.concentration0, 1 + n / self.concentration1
        return b * (more.lgamma() + b.lgamma() - (more + b).lgamma()).exp()

    @property
    def mean(self) -> Tensor:
        return self._moment(1)

    @property
    def mode(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        log_mode = b.reciprocal() * (-b).log1p() - (-b * a).log1p()
        return gt.where((b < 1) | (a < 1), math.nan, log_mode.exp())

    @property
    def variance(self) -> Tensor:
        return self._moment(2) - self.mean.square()

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        harmonic = (b + 1).digamma() + EULER
        return 1 - b.reciprocal() + (1 - a.reciprocal()) * harmonic - a.log() - b.log()


class ContinuousBernoulli(BinaryProbsOrLogits):
    """Continuous Bernoulli distribution on [0, 1], with density proportional to `p^x (1 - p)^(1 - x)`.

    See Loaiza-Ganem and Cunningham 2019. Within `lims`, around p = 1/2, Taylor series replace the formulas, which
    cancel.

    Args:
        probs: The parameter p; or give `logits`.
        logits: The log odds of p.
        lims: The interval of p in which the series are used.
        validate_args: Whether parameters and values are validated.
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    has_rsample = True
    support = constraints.unit_interval

    def __init__(
        self,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        self._check_exactly_one(probs, logits)
        self._is_of_probs = probs is not None
        (given,) = broadcast_all(logits if probs is None else probs)
        Distribution.__init__(self, given.shape, validate_args=validate_args)
        self._check_parameter("logits" if probs is None else "probs", given)
        if probs is None:
            self._logits = given
        else:
            self._probs = clamp_probs(given)
        self._lims = lims

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        return self._expand_parameters(batch_shape, _probs=0, _logits=0)

    def _is_exact(self) -> Tensor:
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _exact_probs(self) -> Tensor:
        """The parameter, with the lower limit in place of values where the series are used."""
        return gt.where(self._is_exact(), self.probs, self._lims[0])

    def _log_norm(self) -> Tensor:
        cut = self._exact_probs()
        below, above = gt.where(cut <= 0.5, cut, 0.0), gt.where(cut >= 0.5, cut, 1.0)
        odds = ((-cut).log1p() - cut.log()).abs().log()
        exact = odds - gt.where(cut <= 0.5, (-2 * below).log1p(), (2 * above - 1).log())
        x = (self.probs - 0.5).square()
        return gt.where(self._is_exact(), exact, math.log(2) + (4 / 3 + 104 / 45 * x) * x)

    @property
    def mean(self) -> Tensor:
        cut = self._exact_probs()
        exact = cut / (2 * cut - 1) + 1 / ((-cut).log1p() - cut.log())
        x = self.probs - 0.5
        return gt.where(self._is_exact(), exact, 0.5 + (1 / 3 + 16 / 45 * x.square()) * x)

    @property
    def variance(self) -> Tensor:
        cut = self._exact_probs()
        exact = cut * (cut - 1) / (1 - 2 * cut).square() + 1 / ((-cut).log1p() - cut.log()).square()
        x = (self.probs - 0.5).square()
        return gt.where(self._is_exact(), exact, 1 / 12 - (1 / 15 - 128 / 945 * x) * x)

    def rsample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        return self.icdf(gt.rand(self._extended_shape(sample_shape), dtype=self.probs.dtype))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        losses = functional.binary_cross_entropy_with_logits(logits, value, reduction="none")
        return self._log_norm() - losses

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        cut = self._exact_probs()
        exact = (cut**value * (1 - cut) ** (1 - value) + cut - 1) / (2 * cut - 1)
        inside = gt.where(self._is_exact(), exact, value)
        return gt.where(value <= 0, 0.0, gt.where(value >= 1, 1.0, inside))

    def icdf(self, value: Tensor) -> Tensor:
        cut = self._exact_probs()
        exact = ((-cut + value * (2 * cut - 1)).log1p() - (-cut).log1p()) / (cut.log() - (-cut).log1p())
        return gt.where(self._is_exact(), exact, value)

    def entropy(self) -> Tensor:
        no, yes = (-self.probs).log1p(), self.probs.log()
        return self.mean * (no - yes) - self._log_norm() - no


class LogisticNormal(TransformedDistribution):
    """Logistic-normal distribution over the simplex: a normal vector mapped by stick breaking.

    Args:
        loc: The mean of the normal variables.
        scale: Their standard deviation.
        validate_args: Whether parameters and values are validated.
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"loc": constraints.real, "scale": constraints.positive}
    has_rsample = True
    support = constraints.simplex

    def __init__(self, loc: Tensor | float, scale: Tensor | float, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        if not base.batch_shape:
            base = base.expand([1])
        super().__init__(base, StickBreakingTransform(), validate_args=validate_args)

    @property
    def loc(self) -> Tensor:
        """The mean of the normal variables."""
        return self.base_dist.base_dist.loc

    @property
    def scale(self) -> Tensor:
        """The standard deviation of the normal variables."""
        return self.base_dist.base_dist.scale
