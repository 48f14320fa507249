"""`Distribution`, the base class. Start here; subclasses implement its methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from gt import _core as gt
from gt._autograd import no_grad
from gt._deprecated import deprecated
from gt._gt import Tensor
from gt.distributions.constraints import Constraint
from gt.distributions.utils import broadcast_all

NO_SHAPE = gt.Size()


class Distribution:
    """The base class of probability distributions.

    A distribution object is a batch of independent distributions. `batch_shape` is the shape of the batch, and
    `event_shape` that of one sample of one distribution: `()` for univariate distributions.

    Args:
        batch_shape: The shape of the batch.
        event_shape: The shape of one sample.
        validate_args: Whether parameters and values are validated; the class's default if not given.

    Attributes:
        has_rsample: Whether `rsample` is implemented.
        has_enumerate_support: Whether `enumerate_support` is implemented.
        arg_constraints: The constraint that each parameter satisfies.
    """

    has_rsample = False
    has_enumerate_support = False
    arg_constraints: ClassVar[dict[str, Constraint]] = {}
    _validate_args = __debug__

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Sets whether parameters and values are validated where a distribution's `validate_args` is not given."""
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
        """The shape of the batch of distributions."""
        return self._batch_shape

    @property
    def event_shape(self) -> gt.Size:
        """The shape of a single sample of one distribution."""
        return self._event_shape

    @property
    def support(self) -> Constraint:
        """The constraint that samples satisfy."""
        raise NotImplementedError

    @property
    def mean(self) -> Tensor:
        """The mean of each distribution: shape `batch_shape + event_shape`; NaN where it does not exist."""
        raise NotImplementedError

    @property
    def mode(self) -> Tensor:
        """The mode of each distribution, its most probable value: shape `batch_shape + event_shape`."""
        raise NotImplementedError(f"{type(self)} does not implement mode")

    @property
    def variance(self) -> Tensor:
        """The variance of each element: shape `batch_shape + event_shape`; NaN or infinite where it does not exist."""
        raise NotImplementedError

    @property
    def stddev(self) -> Tensor:
        """The standard deviation of each element, `sqrt(variance)`: shape `batch_shape + event_shape`."""
        return self.variance.sqrt()

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Distribution:
        """A copy whose parameters are broadcast to another batch shape.

        Args:
            batch_shape: The new batch shape.
            _instance: Ignored.
        """
        raise NotImplementedError

    def _expand_parameters(self, batch_shape: Sequence[int], **parameters: int) -> Any:
        """A copy with the named parameters broadcast to a batch shape; each has the given number of event axes."""
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
        """Draws samples, without gradients.

        Args:
            sample_shape: The number of samples of each distribution, as a shape.

        Returns:
            A tensor of shape `sample_shape + batch_shape + event_shape`.
        """
        return self.rsample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        """Draws samples that are differentiable functions of the parameters (reparameterization trick).

        Args:
            sample_shape: The number of samples of each distribution, as a shape.

        Returns:
            A tensor of shape `sample_shape + batch_shape + event_shape`.
        """
        raise NotImplementedError

    @deprecated("sample_n will be deprecated. Use .sample((n,)) instead", UserWarning)
    def sample_n(self, n: int) -> Tensor:
        """Draws `n` samples: `sample((n,))`. Deprecated."""
        return self.sample((n,))

    def log_prob(self, value: Tensor) -> Tensor:
        """The log probability density, or for discrete distributions the log probability, of a value.

        Args:
            value: A tensor that broadcasts with `batch_shape + event_shape`.

        Returns:
            A tensor of shape broadcast(value, batch), without the event axes.

        Raises:
            ValueError: The value is outside the support, and arguments are validated.
        """
        raise NotImplementedError

    def cdf(self, value: Tensor) -> Tensor:
        """Cumulative distribution function, P(X <= value): shape broadcast(value, batch)."""
        raise NotImplementedError

    def icdf(self, value: Tensor) -> Tensor:
        """Inverse cumulative distribution function (quantile): shape broadcast(value, batch)."""
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """The differential entropy, or the entropy of a discrete distribution, in nats: shape `batch_shape`."""
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values of a discrete distribution's support, along a new first axis.

        Args:
            expand: Whether the values are broadcast to the batch shape; otherwise its axes have size 1.
        """
        raise NotImplementedError

    def perplexity(self) -> Tensor:
        """The perplexity `exp(entropy)`: shape `batch_shape`."""
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
    """The base of univariate distributions whose parameters, those of `arg_constraints`, have the batch shape."""

    def _set(self, validate_args: bool | None, **parameters: Any) -> None:
        """Sets the parameters, numbers or tensors, broadcast to one shape."""
        values = broadcast_all(*parameters.values())
        self.__dict__.update(zip(parameters, values, strict=True))
        Distribution.__init__(self, values[0].shape, validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        return self._expand_parameters(batch_shape, **dict.fromkeys(self.arg_constraints, 0))


class Independent(Distribution):
    """Reinterprets the last batch axes of a distribution as event axes: log probabilities are summed over them.

    Args:
        base_distribution: The distribution.
        reinterpreted_batch_ndims: The number of batch axes that become event axes.
        validate_args: Whether parameters and values are validated.

    Example:
        >>> normal = gt.distributions.Normal(gt.zeros(3), gt.ones(3))
        >>> gt.distributions.Independent(normal, 1).log_prob(gt.zeros(3))
        tensor(-2.7568)
    """

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
        """Whether the base distribution implements `rsample`."""
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
