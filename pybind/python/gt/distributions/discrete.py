"""Discrete distributions of classes and trials: categorical, one-hot, Bernoulli and geometric.

Each takes either `probs` or `logits`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from gt import _core as gt
from gt._autograd import no_grad
from gt._gt import Tensor
from gt.distributions import constraints
from gt.distributions.constraints import Constraint
from gt.distributions.continuous import standard_gumbel
from gt.distributions.distribution import NO_SHAPE, Distribution, broadcast_all
from gt.nn import functional


class ProbsOrLogits(Distribution):
    """The base of distributions given by probabilities or logits, of which the other is computed when it is read."""

    _probs: Tensor | None = None
    _logits: Tensor | None = None

    @staticmethod
    def _check_exactly_one(probs: Any, logits: Any) -> None:
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")

    @property
    def _given(self) -> tuple[str, Tensor]:
        return ("probs", self._probs) if self._is_of_probs else ("logits", self._logits)

    _is_of_probs = False

    @property
    def param_shape(self) -> gt.Size:
        """The shape of the parameter that was given, `probs` or `logits`."""
        return self._given[1].shape

    def __repr__(self) -> str:
        name, value = self._given
        return f"{type(self).__name__}({name}: {value if value.numel() == 1 else value.shape})"


class Categorical(ProbsOrLogits):
    """Categorical distribution over the classes 0, …, K - 1, along the last axis of `probs` or `logits`.

    A sample is a class index of dtype int64, with `P(k) = probs[..., k] / sum(probs)` or `softmax(logits)[..., k]`. The
    batch shape is the parameter's shape without its last axis.

    Args:
        probs: The probabilities of the classes, which need not sum to 1. Give either these or `logits`.
        logits: The unnormalized log probabilities.
        validate_args: Whether parameters and values are validated.

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

    has_enumerate_support = True
    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "probs": constraints.simplex,
        "logits": constraints.real_vector,
    }

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None
    ) -> None:
        self._check_exactly_one(probs, logits)
        given = logits if probs is None else probs
        if given.ndim < 1:
            raise ValueError(f"`{'logits' if probs is None else 'probs'}` parameter must be at least one-dimensional.")
        self._is_of_probs = probs is not None
        if probs is not None:
            self._probs = probs / probs.sum(-1, keepdim=True)
        else:
            self._logits = given.log_softmax(-1)
        self._num_events = given.shape[-1]
        super().__init__(given.shape[:-1], validate_args=validate_args)
        self._check_parameter(*self._given)

    @property
    def probs(self) -> Tensor:
        """The normalized probabilities."""
        if self._probs is None:
            self._probs = self._logits.softmax(-1)
        return self._probs

    @property
    def logits(self) -> Tensor:
        """The normalized log probabilities; probabilities are clamped to the machine epsilon first."""
        if self._logits is None:
            tiny = gt.finfo(self._probs.dtype).eps
            self._logits = self._probs.clamp(tiny, 1 - tiny).log()
        return self._logits

    @property
    def support(self) -> Constraint:
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def mean(self) -> Tensor:
        return gt.full(tuple(self.batch_shape), float("nan"), dtype=self.probs.dtype)

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(-1)

    @property
    def variance(self) -> Tensor:
        return self.mean

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        return self._expand_parameters(batch_shape, _probs=1, _logits=1)

    @no_grad()
    def sample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        scores = self.probs.log() if self._is_of_probs else self.logits
        noise = standard_gumbel((*sample_shape, *self.batch_shape, self._num_events), scores.dtype)
        return (scores + noise).argmax(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        index = value.long().unsqueeze(-1)
        shape = gt.broadcast_shapes(index.shape[:-1], self.logits.shape[:-1])
        scores = self.logits.expand(*shape, self._num_events)
        return scores.gather(-1, index.expand(*shape, 1)).squeeze(-1)

    def entropy(self) -> Tensor:
        return -(self.logits * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = gt.arange(self._num_events).reshape(-1, *[1] * len(self.batch_shape))
        return values.expand(-1, *self.batch_shape) if expand else values


class OneHotCategorical(Distribution):
    """Categorical distribution over one-hot vectors.

    Args:
        probs: The probabilities along the last axis, which are normalized; or give `logits`.
        logits: The unnormalized log probabilities along the last axis.
        validate_args: Whether parameters and values are validated.

    Example:
        >>> gt.distributions.OneHotCategorical(probs=gt.tensor([0.25, 0.75])).mode
        tensor([0., 1.])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = Categorical.arg_constraints
    has_enumerate_support = True
    support = constraints.one_hot

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None
    ) -> None:
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
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return self._vectors(self._categorical.mode)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def _vectors(self, numbers: Tensor) -> Tensor:
        return functional.one_hot(numbers, self.event_shape[0]).to(self.probs.dtype)

    def sample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        return self._vectors(self._categorical.sample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self) -> Tensor:
        return self._categorical.entropy()

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        made = self._expand_parameters(batch_shape)
        made._categorical = self._categorical.expand(batch_shape)
        return made


class BinaryProbsOrLogits(ProbsOrLogits):
    """The base of distributions given by probabilities or log odds, element by element."""

    @property
    def probs(self) -> Tensor:
        """The probability of 1, or of a success."""
        if self._probs is None:
            self._probs = self._logits.sigmoid()
        return self._probs

    @property
    def logits(self) -> Tensor:
        """The log odds of 1, or of a success."""
        if self._logits is None:
            tiny = gt.finfo(self._probs.dtype).eps
            p = self._probs.clamp(tiny, 1 - tiny)
            self._logits = p.log() - (-p).log1p()
        return self._logits


class _SingleProbability(BinaryProbsOrLogits):
    """The base of distributions whose only parameter is a probability or its log odds."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }

    def __init__(
        self,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self._check_exactly_one(probs, logits)
        self._is_of_probs = probs is not None
        (given,) = broadcast_all(logits if probs is None else probs)
        if probs is None:
            self._logits = given
        else:
            self._probs = given
        super().__init__(given.shape, validate_args=validate_args)
        self._check_parameter(self._given[0], given)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        return self._expand_parameters(batch_shape, _probs=0, _logits=0)


class Bernoulli(_SingleProbability):
    """Bernoulli distribution: 1 with probability `probs`, else 0. Samples are floating.

    Args:
        probs: The probability of 1; or give `logits`.
        logits: The log odds of 1.
        validate_args: Whether parameters and values are validated.

    Example:
        >>> bernoulli = gt.distributions.Bernoulli(gt.tensor([0.25]))
        >>> bernoulli.mean, bernoulli.log_prob(gt.tensor([0.0]))
        (tensor([0.2500]), tensor([-0.2877]))
    """

    has_enumerate_support = True
    support = constraints.boolean

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        mode = (self.probs >= 0.5).to(self.probs.dtype)
        return gt.where(self.probs == 0.5, float("nan"), mode)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    @no_grad()
    def sample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return (gt.rand(shape, dtype=self.probs.dtype) < self.probs).to(self.probs.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        logits, value = gt.broadcast_tensors(self.logits, value.to(self.logits.dtype))
        return -functional.binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Tensor:
        return functional.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = gt.arange(2, dtype=self.probs.dtype).reshape(2, *[1] * len(self.batch_shape))
        return values.expand(2, *self.batch_shape) if expand else values


class Geometric(_SingleProbability):
    """Geometric distribution: the number of failures before the first success. Samples are floating.

    Args:
        probs: The probability of a success; or give `logits`.
        logits: The log odds of a success.
        validate_args: Whether parameters and values are validated.

    Example:
        >>> gt.distributions.Geometric(gt.tensor(0.25)).log_prob(gt.tensor(2.0)).exp()
        tensor(0.1406)
    """

    support = constraints.nonnegative_integer

    @property
    def mean(self) -> Tensor:
        return 1 / self.probs - 1

    @property
    def mode(self) -> Tensor:
        return gt.zeros_like(self.probs)

    @property
    def variance(self) -> Tensor:
        return (1 / self.probs - 1) / self.probs

    @no_grad()
    def sample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        u = gt.rand(self._extended_shape(sample_shape), dtype=self.probs.dtype)
        return ((-u).log1p() / (-self.probs).log1p()).floor()

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        # A success is certain for p = 1: 0 * log(0) counts as 0.
        p = gt.where((self.probs == 1) & (value == 0), 0.0, self.probs)
        return value * (-p).log1p() + self.probs.log()

    def entropy(self) -> Tensor:
        return functional.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none") / self.probs
