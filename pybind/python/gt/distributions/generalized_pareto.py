"""The generalized Pareto distribution of excesses over a threshold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from gt import _core as gt
from gt._gt import Tensor
from gt.distributions import constraints
from gt.distributions.constraints import Constraint
from gt.distributions.distribution import NO_SHAPE, ElementwiseDistribution


class GeneralizedPareto(ElementwiseDistribution):
    """Generalized Pareto distribution of excesses over `loc`: `P(X > x) = (1 + c z)^(-1/c)`, `z = (x - loc) / scale`.

    Args:
        loc: The lower bound.
        scale: The scale.
        concentration: The shape c: exponential for 0, heavy-tailed above, bounded below.
        validate_args: Whether parameters and values are validated.
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "loc": constraints.real,
        "scale": constraints.positive,
        "concentration": constraints.real,
    }
    has_rsample = True
    loc: Tensor
    scale: Tensor
    concentration: Tensor

    def __init__(
        self,
        loc: Tensor | float,
        scale: Tensor | float,
        concentration: Tensor | float,
        validate_args: bool | None = None,
    ) -> None:
        self._set(validate_args, loc=loc, scale=scale, concentration=concentration)

    @property
    def support(self) -> Constraint:
        bound = self.loc - self.scale / self.concentration
        return constraints.interval(self.loc, gt.where(self.concentration < 0, bound, math.inf))

    def _is_exponential(self) -> Tensor:
        return self.concentration.abs() <= 1e-8

    def _slope(self) -> Tensor:
        """The concentration, with 1 in place of values close to 0, as a divisor."""
        return gt.where(self._is_exponential(), 1.0, self.concentration)

    @property
    def mean(self) -> Tensor:
        c = self.concentration
        return gt.where(c < 1, self.loc + self.scale / (1 - c), math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        c = self.concentration
        return gt.where(c < 0.5, self.scale.square() / ((1 - c).square() * (1 - 2 * c)), math.nan)

    def rsample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        return self.icdf(gt.rand(self._extended_shape(sample_shape), dtype=self.loc.dtype))

    def log_survival_function(self, value: Tensor) -> Tensor:
        """The log survival function, log P(X > value): shape broadcast(value, batch)."""
        self._validate_sample(value)
        z, c = (value - self.loc) / self.scale, self._slope()
        return gt.where(self._is_exponential(), -z, -(c * z).log1p() / c)

    def log_prob(self, value: Tensor) -> Tensor:
        return self.log_survival_function(value) * (1 + self.concentration) - self.scale.log()

    def cdf(self, value: Tensor) -> Tensor:
        return -self.log_survival_function(value).expm1()

    def log_cdf(self, value: Tensor) -> Tensor:
        """The log cumulative distribution function, log P(X <= value): shape broadcast(value, batch)."""
        return self.cdf(value).log()

    def icdf(self, value: Tensor) -> Tensor:
        rest, c = (-value).log1p(), self._slope()
        return self.loc + self.scale * gt.where(self._is_exponential(), -rest, (-c * rest).expm1() / c)

    def entropy(self) -> Tensor:
        return self.scale.log() + self.concentration + 1
