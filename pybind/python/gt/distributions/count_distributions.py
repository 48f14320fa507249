"""Distributions of counts: Poisson, binomial, negative binomial and multinomial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from gt import _core as gt
from gt._autograd import no_grad
from gt._gt import Tensor
from gt.distributions import constraints
from gt.distributions.constraints import Constraint
from gt.distributions.discrete import BinaryProbsOrLogits, Categorical
from gt.distributions.distribution import NO_SHAPE, Distribution, ElementwiseDistribution, broadcast_all
from gt.nn import functional


class Poisson(ElementwiseDistribution):
    """Poisson distribution, `P(k) = rate^k exp(-rate) / k!`. Samples are floating.

    Args:
        rate: The mean.
        validate_args: Whether parameters and values are validated.

    Example:
        >>> gt.distributions.Poisson(gt.tensor(4.0)).log_prob(gt.tensor(2.0))
        tensor(-1.9206)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer
    rate: Tensor

    def __init__(self, rate: Tensor | float, validate_args: bool | None = None) -> None:
        self._set(validate_args, rate=rate)

    @property
    def mean(self) -> Tensor:
        return self.rate

    @property
    def mode(self) -> Tensor:
        return self.rate.floor()

    @property
    def variance(self) -> Tensor:
        return self.rate

    @no_grad()
    def sample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        return gt.poisson(self.rate.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return gt.xlogy(value, self.rate) - self.rate - (value + 1).lgamma()


class _TrialCounts(BinaryProbsOrLogits):
    """The base of distributions with a number of trials and a probability or log odds."""

    total_count: Tensor

    def _set_trials(
        self,
        total_count: Tensor | float,
        probs: Tensor | float | None,
        logits: Tensor | float | None,
        validate_args: bool | None,
    ) -> None:
        self._check_exactly_one(probs, logits)
        self._is_of_probs = probs is not None
        self.total_count, given = broadcast_all(total_count, logits if probs is None else probs)
        self.total_count = self.total_count.to(given.dtype)
        if probs is None:
            self._logits = given
        else:
            self._probs = given
        Distribution.__init__(self, given.shape, validate_args=validate_args)
        self._check_parameter(self._given[0], given)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        return self._expand_parameters(batch_shape, total_count=0, _probs=0, _logits=0)

    def __repr__(self) -> str:
        parts = {"total_count": self.total_count, self._given[0]: self._given[1]}
        shown = (f"{name}: {value.item() if value.numel() == 1 else value.shape}" for name, value in parts.items())
        return f"{type(self).__name__}({', '.join(shown)})"


class Binomial(_TrialCounts):
    """Binomial distribution: the number of successes in `total_count` trials. Samples are floating.

    Args:
        total_count: The number of trials.
        probs: The probability of a success; or give `logits`.
        logits: The log odds of a success.
        validate_args: Whether parameters and values are validated.

    Example:
        >>> binomial = gt.distributions.Binomial(10, probs=gt.tensor(0.5))
        >>> binomial.mean, binomial.variance
        (tensor(5.), tensor(2.5000))
    """

    has_enumerate_support = True
    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }

    def __init__(
        self,
        total_count: Tensor | int = 1,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self._set_trials(total_count, probs, logits, validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        return ((self.total_count + 1) * self.probs).floor().minimum(self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    @no_grad()
    def sample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return gt.binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def _log_choices(self, value: Tensor) -> Tensor:
        n = self.total_count
        return (n + 1).lgamma() - (value + 1).lgamma() - (n - value + 1).lgamma()

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return self._log_choices(value) + value * self.logits - self.total_count * functional.softplus(self.logits)

    def entropy(self) -> Tensor:
        values = self.enumerate_support(False)
        log_prob = self.log_prob(values)
        return -(log_prob.exp() * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        most = int(self.total_count.max().item())
        if not bool((self.total_count == most).all()):
            raise NotImplementedError("Inhomogeneous total count not supported by `enumerate_support`.")
        values = gt.arange(most + 1, dtype=self._given[1].dtype).reshape(-1, *[1] * len(self.batch_shape))
        return values.expand(-1, *self.batch_shape) if expand else values


class NegativeBinomial(_TrialCounts):
    """Negative binomial distribution: the number of successes before `total_count` failures. Samples are floating.

    Args:
        total_count: The number of failures, not necessarily an integer.
        probs: The probability of a success; or give `logits`.
        logits: The log odds of a success.
        validate_args: Whether parameters and values are validated.

    Example:
        >>> gt.distributions.NegativeBinomial(gt.tensor(5.0), gt.tensor(0.5)).mean
        tensor(5.)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer

    def __init__(
        self,
        total_count: Tensor | float,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self._set_trials(total_count, probs, logits, validate_args)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.logits.exp()

    @property
    def mode(self) -> Tensor:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.mean / (-self.logits).sigmoid()

    @no_grad()
    def sample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        shape = self._extended_shape(sample_shape)
        times = gt._standard_gamma(self.total_count.expand(shape)) * self.logits.exp()
        return gt.poisson(times)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        n = self.total_count
        scores = n * functional.logsigmoid(-self.logits) + value * functional.logsigmoid(self.logits)
        choices = (n + value).lgamma() - (value + 1).lgamma() - n.lgamma()
        return scores + gt.where(n + value == 0, 0.0, choices)


class Multinomial(Distribution):
    """Multinomial distribution: the counts of each category in `total_count` trials. Samples are floating.

    Args:
        total_count: The number of trials.
        probs: The probabilities along the last axis, which are normalized; or give `logits`.
        logits: The unnormalized log probabilities along the last axis.
        validate_args: Whether parameters and values are validated.

    Example:
        >>> gt.distributions.Multinomial(6, probs=gt.tensor([1.0, 2.0])).mean
        tensor([2., 4.])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = Categorical.arg_constraints
    total_count: int

    def __init__(
        self,
        total_count: int = 1,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._categorical = Categorical(probs, logits, validate_args)
        shape = self._categorical.param_shape
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    @property
    def probs(self) -> Tensor:
        """The normalized probabilities."""
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        """The normalized log probabilities."""
        return self._categorical.logits

    @property
    def support(self) -> Constraint:
        return constraints.multinomial(self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        made = self._expand_parameters(batch_shape)
        made._categorical = self._categorical.expand(batch_shape)
        return made

    @no_grad()
    def sample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        drawn = self._categorical.sample((self.total_count, *sample_shape))
        return functional.one_hot(drawn, self.event_shape[0]).sum(0).to(self.probs.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        never = (value == 0) & (self.logits == -float("inf"))
        scores = gt.where(never, 0.0, self.logits)
        return (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1) + (scores * value).sum(-1)

    def entropy(self) -> Tensor:
        n = gt.tensor(float(self.total_count), dtype=self.probs.dtype)
        counts = Binomial(self.total_count, self.probs, validate_args=False)
        values = counts.enumerate_support(False)[1:]
        order = (counts.log_prob(values).exp() * (values + 1).lgamma()).sum((0, -1))
        return n * self._categorical.entropy() - (n + 1).lgamma() + order

    def __repr__(self) -> str:
        name, value = self._categorical._given
        return f"Multinomial({name}: {value.shape})"
