"""`Distribution`: numbers drawn at random, with the probability of each. Start here; a subclass says what it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from gt import _core as gt
from gt._autograd import no_grad
from gt._gt import Tensor
from gt._older import older
from gt.distributions.constraints import Constraint
from gt.distributions.utils import broadcast_all

NO_SHAPE = gt.Size()


class Distribution:
    """Independent distributions, `batch_shape` of them, of things that are `event_shape` large each."""

    has_rsample = False
    has_enumerate_support = False
    arg_constraints: ClassVar[dict[str, Constraint]] = {}
    _validate_args = __debug__

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether arguments are checked, which waits for them, where a distribution is not told."""
        if value not in (True, False):
            raise ValueError
        Distribution._validate_args = value

    def __init__(
        self, batch_shape: Any = NO_SHAPE, event_shape: Any = NO_SHAPE, validate_args: bool | None = None
    ) -> None:
        self._batch_shape = gt.Size(batch_shape)
        self._event_shape = gt.Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        for name in self.arg_constraints:
            value = self.__dict__.get(name)
            if isinstance(value, Tensor):
                self._check_parameter(name, value)

    def _check_parameter(self, name: str, value: Tensor) -> None:
        constraint = self.arg_constraints[name]
        if self._validate_args and not bool(constraint.check(value.detach()).all()):
            raise ValueError(
                f"Expected parameter {name} (Tensor of shape {tuple(value.shape)}) of distribution {self!r} to "
                f"satisfy the constraint {constraint!r}, but found invalid values:\n{value}"
            )

    @property
    def batch_shape(self) -> gt.Size:
        """How many distributions."""
        return self._batch_shape

    @property
    def event_shape(self) -> gt.Size:
        """How large one thing drawn is."""
        return self._event_shape

    @property
    def support(self) -> Constraint:
        """What can be drawn."""
        raise NotImplementedError

    @property
    def mean(self) -> Tensor:
        """The mean of what is drawn."""
        raise NotImplementedError

    @property
    def mode(self) -> Tensor:
        """The most probable value."""
        raise NotImplementedError(f"{type(self)} does not implement mode")

    @property
    def variance(self) -> Tensor:
        """The variance of what is drawn."""
        raise NotImplementedError

    @property
    def stddev(self) -> Tensor:
        """The standard deviation of what is drawn."""
        return self.variance.sqrt()

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Distribution:
        """The same distributions, repeated to another batch shape."""
        raise NotImplementedError

    def _expanded(self, batch_shape: Sequence[int], **parameters: int) -> Any:
        """Another of this class whose parameters, with so many axes of their own, are repeated."""
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        for name, axes in parameters.items():
            value = self.__dict__.get(name)
            if isinstance(value, Tensor):
                made.__dict__[name] = value.expand(*batch_shape, *value.shape[value.ndim - axes :])
        made._batch_shape = gt.Size(batch_shape)
        return made

    @no_grad()
    def sample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        """Things drawn, `(*sample_shape, *batch_shape, *event_shape)`; no gradient flows through the drawing."""
        return self.rsample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        """As `sample`, as a differentiable function of the parameters."""
        raise NotImplementedError

    @older("sample_n will be deprecated. Use .sample((n,)) instead", UserWarning)
    def sample_n(self, n: int) -> Tensor:
        """`n` things, or batches of them."""
        return self.sample((n,))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the probability, or of its density, of values."""
        raise NotImplementedError

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of what is at most a value."""
        raise NotImplementedError

    def icdf(self, value: Tensor) -> Tensor:
        """The value below which a share of all lies."""
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """How uncertain what is drawn is."""
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values that can be drawn, along a new first axis."""
        raise NotImplementedError

    def perplexity(self) -> Tensor:
        """`exp(entropy)`."""
        return self.entropy().exp()

    def _extended_shape(self, sample_shape: Sequence[int] = NO_SHAPE) -> tuple[int, ...]:
        return (*sample_shape, *self._batch_shape, *self._event_shape)

    def _validate_sample(self, value: Any) -> None:
        if not self._validate_args:
            return
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        own, given = self._extended_shape(), tuple(value.shape)
        axes = len(self._event_shape)
        if given[len(given) - axes :] != tuple(self._event_shape):
            raise ValueError(
                f"The right-most size of value must match event_shape: {given} vs {tuple(self._event_shape)}."
            )
        for a, b in zip(reversed(given), reversed(own), strict=False):
            if a != b and 1 not in (a, b):
                raise ValueError(f"Value is not broadcastable with batch_shape+event_shape: {given} vs {own}.")
        if not bool(self.support.check(value.detach()).all()):
            raise ValueError(
                f"Expected value argument (Tensor of shape {given}) to be within the support ({self.support!r}) of the "
                f"distribution {self!r}, but found invalid values:\n{value}"
            )

    def __repr__(self) -> str:
        parts = []
        for name in self.arg_constraints:
            value = self.__dict__.get(name)
            if isinstance(value, Tensor):
                parts.append(f"{name}: {value if value.numel() == 1 else value.shape}")
        return f"{type(self).__name__}({', '.join(parts)})"


class ElementwiseDistribution(Distribution):
    """One whose parameters, those of `arg_constraints`, are tensors of its batch shape; each element is by itself."""

    def _set(self, validate_args: bool | None, **parameters: Any) -> None:
        """Parameters, each a tensor or a number, broadcast to one shape."""
        values = broadcast_all(*parameters.values())
        self.__dict__.update(zip(parameters, values, strict=True))
        Distribution.__init__(self, values[0].shape, validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        return self._expanded(batch_shape, **dict.fromkeys(self.arg_constraints, 0))


class Independent(Distribution):
    """Axes of the batch as axes of one event, whose probabilities are multiplied."""

    def __init__(
        self,
        base_distribution: Distribution,
        reinterpreted_batch_ndims: int,
        validate_args: bool | None = None,
    ) -> None:
        shape = tuple(base_distribution.batch_shape)
        if reinterpreted_batch_ndims > len(shape):
            raise ValueError(
                "Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), actual "
                f"{reinterpreted_batch_ndims} vs {len(shape)}"
            )
        self.base_dist = base_distribution
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        cut = len(shape) - reinterpreted_batch_ndims
        super().__init__(shape[:cut], shape[cut:] + tuple(base_distribution.event_shape), validate_args)

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        """Whether the base has."""
        return self.base_dist.has_rsample

    @property
    def support(self) -> Constraint:
        return self.base_dist.support

    @property
    def mean(self) -> Tensor:
        return self.base_dist.mean

    @property
    def mode(self) -> Tensor:
        return self.base_dist.mode

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Independent:
        axes = self.reinterpreted_batch_ndims
        inner = tuple(self.event_shape)[:axes]
        return Independent(self.base_dist.expand((*batch_shape, *inner)), axes, validate_args=False)

    def sample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def _summed(self, each: Tensor) -> Tensor:
        axes = self.reinterpreted_batch_ndims
        return each.sum(tuple(range(-axes, 0))) if axes else each

    def log_prob(self, value: Tensor) -> Tensor:
        return self._summed(self.base_dist.log_prob(value))

    def entropy(self) -> Tensor:
        return self._summed(self.base_dist.entropy())

    def __repr__(self) -> str:
        return f"Independent({self.base_dist}, {self.reinterpreted_batch_ndims})"
