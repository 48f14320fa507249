"""Mixtures of distributions of one family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gt._autograd import no_grad
from gt._gt import Tensor
from gt.distributions.constraints import Constraint
from gt.distributions.discrete import Categorical
from gt.distributions.distribution import NO_SHAPE, Distribution


class MixtureSameFamily(Distribution):
    """Mixture of distributions of one family.

    Args:
        mixture_distribution: A `Categorical` of the components' weights.
        component_distribution: The components, along its last batch axis.
        validate_args: Whether parameters and values are validated.

    Example:
        >>> weights = gt.distributions.Categorical(probs=gt.tensor([0.25, 0.75]))
        >>> components = gt.distributions.Normal(gt.tensor([0.0, 4.0]), gt.tensor([1.0, 1.0]))
        >>> gt.distributions.MixtureSameFamily(weights, components).mean
        tensor(3.)
    """

    def __init__(
        self,
        mixture_distribution: Categorical,
        component_distribution: Distribution,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(" The Mixture distribution needs to be an instance of torch.distributions.Categorical")
        if not isinstance(component_distribution, Distribution):
            raise ValueError("The Component distribution need to be an instance of torch.distributions.Distribution")
        batch = tuple(component_distribution.batch_shape)
        own = tuple(mixture_distribution.batch_shape)
        if any(a != b and 1 not in (a, b) for a, b in zip(reversed(own), reversed(batch[:-1]), strict=False)):
            raise ValueError(
                f"`mixture_distribution.batch_shape` ({own}) is not compatible with "
                f"`component_distribution.batch_shape`({batch[:-1]})"
            )
        if mixture_distribution.probs.shape[-1] != batch[-1]:
            raise ValueError(
                f"`mixture_distribution component` ({mixture_distribution.probs.shape[-1]}) does not equal "
                f"`component_distribution.batch_shape[-1]` ({batch[-1]})"
            )
        self.mixture_distribution, self.component_distribution = mixture_distribution, component_distribution
        super().__init__(batch[:-1], component_distribution.event_shape, validate_args=validate_args)

    @property
    def support(self) -> Constraint:
        return self.component_distribution.support

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        made = self._expand_parameters(batch_shape)
        count = self.component_distribution.batch_shape[-1]
        made.component_distribution = self.component_distribution.expand((*batch_shape, count))
        made.mixture_distribution = self.mixture_distribution.expand(batch_shape)
        return made

    def _weights(self) -> Tensor:
        probs = self.mixture_distribution.probs
        return probs.reshape(*probs.shape, *[1] * len(self.event_shape))

    def _axis(self) -> int:
        return -1 - len(self.event_shape)

    @property
    def mean(self) -> Tensor:
        return (self._weights() * self.component_distribution.mean).sum(self._axis())

    @property
    def variance(self) -> Tensor:
        weights, axis = self._weights(), self._axis()
        within = (weights * self.component_distribution.variance).sum(axis)
        away = self.component_distribution.mean - self.mean.unsqueeze(axis)
        return within + (weights * away.square()).sum(axis)

    @no_grad()
    def sample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        drawn = self.component_distribution.sample(sample_shape)
        which = self.mixture_distribution.expand(self.batch_shape).sample(sample_shape)
        axis = len(sample_shape) + len(self.batch_shape)
        index = which.reshape(*which.shape, 1, *[1] * len(self.event_shape))
        shape = (*which.shape, 1, *self.event_shape)
        return drawn.gather(axis, index.expand(shape)).squeeze(axis)

    def log_prob(self, x: Tensor) -> Tensor:
        self._validate_sample(x)
        each = self.component_distribution.log_prob(x.unsqueeze(self._axis()))
        return (each + self.mixture_distribution.logits.log_softmax(-1)).logsumexp(-1)

    def cdf(self, x: Tensor) -> Tensor:
        each = self.component_distribution.cdf(x.unsqueeze(self._axis()))
        return (each * self.mixture_distribution.probs).sum(-1)

    def __repr__(self) -> str:
        return f"MixtureSameFamily(\n  {self.mixture_distribution},\n  {self.component_distribution})"
