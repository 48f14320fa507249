"""Continuous relaxations of discrete distributions (Concrete, Gumbel-softmax), and the straight-through estimator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from gt import _core as gt
from gt._gt import Tensor
from gt.distributions import constraints
from gt.distributions.constraints import Constraint
from gt.distributions.discrete import BinaryProbsOrLogits, Categorical, OneHotCategorical
from gt.distributions.distribution import NO_SHAPE, Distribution, broadcast_all
from gt.distributions.transformed_distribution import TransformedDistribution
from gt.distributions.transforms import ExpTransform, SigmoidTransform
from gt.distributions.utils import clamp_probs


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """`OneHotCategorical` with the straight-through gradient: that of the probabilities (Bengio et al. 2013)."""

    has_rsample = True

    def rsample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        return self.sample(sample_shape) + (self.probs - self.probs.detach())


class LogitRelaxedBernoulli(BinaryProbsOrLogits):
    """The distribution of the logits of `RelaxedBernoulli` (Maddison et al. 2017).

    Args:
        temperature: The temperature.
        probs: The probability of 1; or give `logits`.
        logits: The log odds of 1.
        validate_args: Whether parameters and values are validated.
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    has_rsample = True
    support = constraints.real

    def __init__(
        self,
        temperature: Tensor | float,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self.temperature = temperature
        self._check_exactly_one(probs, logits)
        self._is_of_probs = probs is not None
        (given,) = broadcast_all(logits if probs is None else probs)
        if probs is None:
            self._logits = given
        else:
            self._probs = given
        Distribution.__init__(self, given.shape, validate_args=validate_args)
        self._check_parameter(self._given[0], given)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        return self._expand_parameters(batch_shape, _probs=0, _logits=0)

    def rsample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        shape = self._extended_shape(sample_shape)
        probs = clamp_probs(self.probs.expand(shape))
        u = clamp_probs(gt.rand(shape, dtype=probs.dtype))
        return (u.log() - (-u).log1p() + probs.log() - (-probs).log1p()) / self.temperature

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        apart = logits - value * self.temperature
        return gt.as_tensor(self.temperature).log() + apart - 2 * apart.exp().log1p()


class _Relaxed(TransformedDistribution):
    """The base of relaxed distributions: a transformed distribution that has its base's parameters."""

    has_rsample = True
    arg_constraints: ClassVar[dict[str, Constraint]] = LogitRelaxedBernoulli.arg_constraints

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        made = self._expand_parameters(batch_shape)
        made.base_dist = self.base_dist.expand(batch_shape)
        return made

    @property
    def temperature(self) -> Tensor:
        """The temperature of the relaxation."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Tensor:
        """The logits of the base distribution."""
        return self.base_dist.logits

    @property
    def probs(self) -> Tensor:
        """The probabilities of the base distribution."""
        return self.base_dist.probs


class RelaxedBernoulli(_Relaxed):
    """Relaxed Bernoulli (binary Concrete) distribution on (0, 1) (Maddison et al. 2017).

    The lower the temperature, the closer samples are to 0 or 1.

    Args:
        temperature: The temperature.
        probs: The probability of 1; or give `logits`.
        logits: The log odds of 1.
        validate_args: Whether parameters and values are validated.
    """

    support = constraints.unit_interval

    def __init__(
        self,
        temperature: Tensor | float,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ) -> None:
        super().__init__(LogitRelaxedBernoulli(temperature, probs, logits), SigmoidTransform(), validate_args)


class ExpRelaxedCategorical(Distribution):
    """The distribution of the logarithms of `RelaxedOneHotCategorical` (Maddison et al. 2017).

    Args:
        temperature: The temperature.
        probs: The probabilities along the last axis; or give `logits`.
        logits: The unnormalized log probabilities along the last axis.
        validate_args: Whether parameters and values are validated.
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = Categorical.arg_constraints
    has_rsample = True
    # The logarithms of points of the simplex; as in PyTorch, that they sum to 1 is not checked.
    support = constraints.real_vector

    def __init__(
        self,
        temperature: Tensor | float,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self._categorical = Categorical(probs, logits)
        self.temperature = temperature
        shape = self._categorical.param_shape
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        made = self._expand_parameters(batch_shape)
        made._categorical = self._categorical.expand(batch_shape)
        return made

    @property
    def param_shape(self) -> gt.Size:
        """The shape of the parameter."""
        return self._categorical.param_shape

    @property
    def logits(self) -> Tensor:
        """The normalized log probabilities."""
        return self._categorical.logits

    @property
    def probs(self) -> Tensor:
        """The normalized probabilities."""
        return self._categorical.probs

    def rsample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        u = clamp_probs(gt.rand(self._extended_shape(sample_shape), dtype=self.logits.dtype))
        scores = (self.logits - (-u.log()).log()) / self.temperature
        return scores - scores.logsumexp(-1, keepdim=True)

    def log_prob(self, value: Tensor) -> Tensor:
        size = self._categorical._num_events
        self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        temperature = gt.as_tensor(self.temperature)
        scale = gt.full_like(temperature, float(size)).lgamma() + temperature.log() * (size - 1)
        scores = logits - value * temperature
        return (scores - scores.logsumexp(-1, keepdim=True)).sum(-1) + scale


class RelaxedOneHotCategorical(_Relaxed):
    """Relaxed one-hot categorical (Concrete, Gumbel-softmax) distribution over the simplex.

    See Maddison et al. 2017 and Jang et al. 2017. The lower the temperature, the closer samples are to one-hot vectors.

    Args:
        temperature: The temperature.
        probs: The probabilities along the last axis; or give `logits`.
        logits: The unnormalized log probabilities along the last axis.
        validate_args: Whether parameters and values are validated.
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = Categorical.arg_constraints
    support = constraints.simplex

    def __init__(
        self,
        temperature: Tensor | float,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)
