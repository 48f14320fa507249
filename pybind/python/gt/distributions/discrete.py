"""Discrete distributions of trials, counts and categories. Each is a declaration of its parameters and formulas."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from gt import _core as gt
from gt._autograd import no_grad
from gt._gt import Tensor
from gt.distributions import constraints
from gt.distributions.constraints import Constraint
from gt.distributions.distribution import (
    NO_SHAPE,
    Distribution,
    FamilyParameter,
    Formulas,
    Nonnegative,
    ParametricDistribution,
    ProbsOrLogits,
    Real,
    UnitInterval,
)
from gt.distributions.utils import check_tensor, positive_rand
from gt.nn import functional

__all__ = [
    "Bernoulli", "Binomial", "Categorical", "Geometric", "Multinomial", "NegativeBinomial", "OneHotCategorical",
    "OneHotCategoricalStraightThrough", "Poisson",
]  # fmt: skip

# Trials and counts ----------------------------------------------------------------------------------------------------


class Bernoulli(ProbsOrLogits):
    """Bernoulli distribution: 1 with probability `probs`, else 0. Samples are floating.

    Args:
        probs: The probability of 1; or give `logits`.
        logits: The log odds of 1.

    Example:
        >>> bernoulli = gt.distributions.Bernoulli(gt.tensor([0.25]))
        >>> bernoulli.mean, bernoulli.log_prob(gt.tensor([0.0]))
        (tensor([0.2500]), tensor([-0.2877]))
    """

    probs: UnitInterval = None
    logits: Real = None
    support = constraints.boolean
    _formulas = Formulas(
        mean=lambda probs: probs,
        mode=lambda probs: gt.where(probs == 0.5, float("nan"), (probs >= 0.5).to(probs.dtype)),
        variance=lambda probs: probs * (1 - probs),
        sample=lambda shape, probs: (gt.rand(shape, dtype=probs.dtype) < probs).to(probs.dtype),
        log_prob=lambda value, logits: -_cross_entropy(*gt.broadcast_tensors(logits, value.to(logits.dtype))),
        entropy=lambda logits, probs: _cross_entropy(logits, probs),
        enumerate_support=lambda probs: gt.arange(2, dtype=probs.dtype),
    )


def _cross_entropy(logits: Tensor, probs: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(logits, probs, reduction="none")


class Geometric(ProbsOrLogits):
    """Geometric distribution: the number of failures before the first success. Samples are floating.

    Args:
        probs: The probability of a success; or give `logits`.
        logits: The log odds of a success.

    Example:
        >>> gt.distributions.Geometric(gt.tensor(0.25)).log_prob(gt.tensor(2.0)).exp()
        tensor(0.1406)
    """

    probs: UnitInterval = None
    logits: Real = None
    support = constraints.nonnegative_integer
    _formulas = Formulas(
        mean=lambda probs: 1 / probs - 1,
        mode=lambda probs: gt.zeros_like(probs),
        variance=lambda probs: (1 / probs - 1) / probs,
        sample=lambda shape, probs: ((-gt.rand(shape, dtype=probs.dtype)).log1p() / (-probs).log1p()).floor(),
        # A success is certain for p = 1: 0 * log(0) counts as 0.
        log_prob=lambda value, probs: (
            value * (-gt.where((probs == 1) & (value == 0), 0.0, probs)).log1p() + probs.log()
        ),
        entropy=lambda logits, probs: _cross_entropy(logits, probs) / probs,
    )


class Poisson(ParametricDistribution):
    """Poisson distribution, `P(k) = rate^k exp(-rate) / k!`. Samples are floating.

    Args:
        rate: The mean.

    Example:
        >>> gt.distributions.Poisson(gt.tensor(4.0)).log_prob(gt.tensor(2.0))
        tensor(-1.9206)
    """

    rate: Nonnegative
    support = constraints.nonnegative_integer
    _formulas = Formulas(
        mean=lambda rate: rate,
        mode=lambda rate: rate.floor(),
        variance=lambda rate: rate,
        sample=lambda shape, rate: gt.poisson(rate.expand(shape)),
        log_prob=lambda value, rate: gt.xlogy(value, rate) - rate - (value + 1).lgamma(),
    )


class _TrialCounts(ProbsOrLogits):
    """The base of families with a number of trials, which takes the dtype of the probabilities."""

    def _set(self, validate_args: bool | None, **parameters: Any) -> None:
        count = parameters["total_count"]
        given = parameters["logits"] if parameters["probs"] is None else parameters["probs"]
        if isinstance(count, Tensor) and isinstance(given, Tensor):
            parameters["total_count"] = count.to(given.dtype)
        super()._set(validate_args, **parameters)


class Binomial(_TrialCounts):
    """Binomial distribution: the number of successes in `total_count` trials. Samples are floating.

    Args:
        total_count: The number of trials.
        probs: The probability of a success; or give `logits`.
        logits: The log odds of a success.

    Example:
        >>> binomial = gt.distributions.Binomial(10, probs=gt.tensor(0.5))
        >>> binomial.mean, binomial.variance
        (tensor(5.), tensor(2.5000))
    """

    total_count: Annotated[FamilyParameter, constraints.nonnegative_integer] = 1
    probs: UnitInterval = None
    logits: Real = None
    _formulas = Formulas(
        support=lambda total_count: constraints.integer_interval(0, total_count),
        mean=lambda total_count, probs: total_count * probs,
        mode=lambda total_count, probs: ((total_count + 1) * probs).floor().minimum(total_count),
        variance=lambda total_count, probs: total_count * probs * (1 - probs),
        sample=lambda shape, total_count, probs: gt.binomial(total_count.expand(shape), probs.expand(shape)),
        log_prob=lambda value, total_count, logits: (
            _log_choices(total_count, value) + value * logits - total_count * functional.softplus(logits)
        ),
        entropy=lambda enumerate_support, log_prob: _entropy(log_prob(enumerate_support(False))),
        enumerate_support=lambda total_count: gt.arange(_same_count(total_count) + 1, dtype=total_count.dtype),
    )


def _log_choices(n: Tensor, k: Tensor) -> Tensor:
    return (n + 1).lgamma() - (k + 1).lgamma() - (n - k + 1).lgamma()


def _entropy(log_prob: Tensor) -> Tensor:
    return -(log_prob.exp() * log_prob).sum(0)


def _same_count(total_count: Tensor) -> int:
    most = int(total_count.max().item())
    if not bool((total_count == most).all()):
        raise NotImplementedError("Inhomogeneous total count not supported by `enumerate_support`.")
    return most


class NegativeBinomial(_TrialCounts):
    """Negative binomial distribution: the number of successes before `total_count` failures. Samples are floating.

    Args:
        total_count: The number of failures, not necessarily an integer.
        probs: The probability of a success; or give `logits`.
        logits: The log odds of a success.

    Example:
        >>> gt.distributions.NegativeBinomial(gt.tensor(5.0), gt.tensor(0.5)).mean
        tensor(5.)
    """

    total_count: Annotated[FamilyParameter, constraints.greater_than_eq(0)]
    probs: Annotated[FamilyParameter, constraints.half_open_interval(0.0, 1.0)] = None
    logits: Real = None
    support = constraints.nonnegative_integer
    _formulas = Formulas(
        mean=lambda total_count, logits: total_count * logits.exp(),
        mode=lambda total_count, logits: ((total_count - 1) * logits.exp()).floor().clamp(min=0),
        variance=lambda mean, logits: mean / (-logits).sigmoid(),
        sample=lambda shape, total_count, logits: gt.poisson(
            gt._standard_gamma(total_count.expand(shape)) * logits.exp()
        ),
        log_prob=lambda value, total_count, logits: (
            total_count * functional.logsigmoid(-logits)
            + value * functional.logsigmoid(logits)
            + gt.where(total_count + value == 0, 0.0, _log_repeated_choices(total_count, value))
        ),
    )


def _log_repeated_choices(n: Tensor, k: Tensor) -> Tensor:
    return (n + k).lgamma() - (k + 1).lgamma() - n.lgamma()


# Categories -----------------------------------------------------------------------------------------------------------


class Categorical(ProbsOrLogits):
    """Categorical distribution over the classes 0, …, K - 1, along the last axis of `probs` or `logits`.

    A sample is a class index of dtype int64, with `P(k) = probs[..., k] / sum(probs)` or `softmax(logits)[..., k]`. The
    batch shape is the parameter's shape without its last axis.

    Args:
        probs: The probabilities of the classes, which need not sum to 1. Give either these or `logits`.
        logits: The unnormalized log probabilities.

    Raises:
        ValueError: Both or neither of `probs` and `logits` are given, or a validated parameter is out of range.

    Example:
        >>> categorical = gt.distributions.Categorical(probs=gt.tensor([0.25, 0.75]))
        >>> categorical.sample((4,)).shape
        gt.Size([4])
        >>> categorical.log_prob(gt.tensor(1))
        tensor(-0.2877)
        >>> categorical.entropy()
        tensor(0.5623)
    """

    probs: Annotated[FamilyParameter, constraints.simplex]
    logits: Annotated[FamilyParameter, constraints.real_vector]
    _is_binary = False
    _formulas = Formulas(
        support=lambda _num_events: constraints.integer_interval(0, _num_events - 1),
        mean=lambda probs: gt.full(probs.shape[:-1], float("nan"), dtype=probs.dtype),
        mode=lambda probs: probs.argmax(-1),
        variance=lambda mean: mean,
        entropy=lambda logits, probs: -(logits * probs).sum(-1),
        enumerate_support=lambda _num_events: gt.arange(_num_events),
    )

    # Policies sample in every step: the methods below are written for speed.

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None
    ) -> None:
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        given, self._given = (logits, "logits") if probs is None else (probs, "probs")
        check_tensor(self._given, given)
        if given.ndim < 1:
            raise ValueError(f"`{self._given}` parameter must be at least one-dimensional.")
        if probs is None:
            self.logits = logits.log_softmax(-1)
        else:
            self.probs = probs / probs.sum(-1, keepdim=True)
        shape = given.shape
        self._num_events = shape[-1]
        Distribution.__init__(self, shape[:-1], validate_args=validate_args)

    @no_grad()
    def sample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        probs = self.probs
        shape = (*self._extended_shape(sample_shape), self._num_events)
        # The exponential race: the first arrival, where probabilities are the rates. -inf stands for probability 0.
        return (positive_rand(shape, probs.dtype).log() / probs).argmax(-1)

    def _validate_parameters(self) -> None:
        # Only signs are left to check of probabilities that were normalized; those of a zero sum are NaN.
        given = self.__dict__[self._given]
        is_valid = given >= 0 if self._given == "probs" else given == given
        if not bool(is_valid.all()):
            super()._validate_parameters()

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        scores, index = self.logits, value.long().unsqueeze(-1)
        if value.shape != self._batch_shape:
            shape = gt.broadcast_shapes(value.shape, self._batch_shape)
            scores, index = scores.expand(*shape, self._num_events), index.expand(*shape, 1)
        return scores.gather(-1, index).squeeze(-1)


class OverCategories(ParametricDistribution):
    """The base of distributions of vectors over the classes of a `Categorical`, whose parameters they share."""

    arg_constraints: ClassVar[dict[str, Constraint]] = Categorical.arg_constraints
    _categorical: Categorical

    def _set(self, categorical: Categorical, validate_args: bool | None) -> None:
        self._categorical = categorical
        shape = categorical.param_shape
        Distribution.__init__(self, shape[:-1], shape[-1:], validate_args=validate_args)

    @property
    def probs(self) -> Tensor:
        """The normalized probabilities."""
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        """The normalized log probabilities."""
        return self._categorical.logits

    @property
    def param_shape(self) -> gt.Size:
        """The shape of the parameter that was given, `probs` or `logits`."""
        return self._categorical.param_shape

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        return self._copy(batch_shape, _categorical=self._categorical.expand(batch_shape))


class OneHotCategorical(OverCategories):
    """Categorical distribution over one-hot vectors.

    Args:
        probs: The probabilities along the last axis, which are normalized; or give `logits`.
        logits: The unnormalized log probabilities along the last axis.

    Example:
        >>> gt.distributions.OneHotCategorical(probs=gt.tensor([0.25, 0.75])).mode
        tensor([0., 1.])
    """

    support = constraints.one_hot
    _formulas = Formulas(
        mean=lambda probs: probs,
        mode=lambda _vectors, _categorical: _vectors(_categorical.mode),
        variance=lambda probs: probs * (1 - probs),
        sample=lambda shape, _vectors, _categorical: _vectors(_categorical.expand(shape[:-1]).sample()),
        log_prob=lambda value, _categorical: _categorical.log_prob(value.argmax(-1)),
        entropy=lambda _categorical: _categorical.entropy(),
    )

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None
    ) -> None:
        self._set(Categorical(probs, logits, validate_args), validate_args)

    def _vectors(self, numbers: Tensor) -> Tensor:
        return functional.one_hot(numbers, self._event_shape[0]).to(self.probs.dtype)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._vectors(self._categorical.enumerate_support(expand))


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """`OneHotCategorical` with the straight-through gradient: that of the probabilities (Bengio et al. 2013)."""

    def rsample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        return self.sample(sample_shape) + (self.probs - self.probs.detach())


class Multinomial(OverCategories):
    """Multinomial distribution: the counts of each category in `total_count` trials. Samples are floating.

    Args:
        total_count: The number of trials.
        probs: The probabilities along the last axis, which are normalized; or give `logits`.
        logits: The unnormalized log probabilities along the last axis.

    Example:
        >>> gt.distributions.Multinomial(6, probs=gt.tensor([1.0, 2.0])).mean
        tensor([2., 4.])
    """

    total_count: int
    _formulas = Formulas(
        support=lambda total_count: constraints.multinomial(total_count),
        mean=lambda total_count, probs: probs * total_count,
        variance=lambda total_count, probs: total_count * probs * (1 - probs),
        sample=lambda shape, total_count, _categorical: (
            functional.one_hot(_categorical.expand(shape[:-1]).sample((total_count,)), shape[-1])
            .sum(0)
            .to(_categorical.probs.dtype)
        ),
        log_prob=lambda value, logits: (
            (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1) + _sum_of_products(value, logits)
        ),
    )

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
        self._set(Categorical(probs, logits, validate_args), validate_args)

    def entropy(self) -> Tensor:
        n = gt.tensor(float(self.total_count), dtype=self.probs.dtype)
        counts = Binomial(self.total_count, self.probs, validate_args=False)
        values = counts.enumerate_support(False)[1:]
        order = (counts.log_prob(values).exp() * (values + 1).lgamma()).sum((0, -1))
        return n * self._categorical.entropy() - (n + 1).lgamma() + order

    def __repr__(self) -> str:
        return f"Multinomial({self._categorical._given}: {self.param_shape})"


def _sum_of_products(counts: Tensor, logits: Tensor) -> Tensor:
    """The sum over categories of `counts * logits`, where 0 times -inf is 0."""
    never = (counts == 0) & (logits == -float("inf"))
    return (gt.where(never, 0.0, logits) * counts).sum(-1)
