"""`TransformedDistribution`: samples of a base distribution mapped by transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gt._autograd import no_grad
from gt._gt import Tensor
from gt.distributions.constraints import Constraint
from gt.distributions.distribution import NO_SHAPE, Distribution, Independent
from gt.distributions.transform import Transform, summed
from gt.distributions.transforms import ComposeTransform


class TransformedDistribution(Distribution):
    """The distribution of `f(x)`, where x is a sample of the base distribution and f a sequence of transforms.

    Its density follows from the change of variables: `log p(y) = log p_base(x) - log |det J_f(x)|`.

    Args:
        base_distribution: The distribution of x.
        transforms: A transform, or a list of transforms; the first is applied to x first.
        validate_args: Whether parameters and values are validated.

    Example:
        >>> base = gt.distributions.Normal(gt.tensor(0.0), gt.tensor(1.0))
        >>> lognormal = gt.distributions.TransformedDistribution(base, [gt.distributions.ExpTransform()])
        >>> lognormal.log_prob(gt.tensor(1.0))
        tensor(-0.9189)
    """

    def __init__(
        self,
        base_distribution: Distribution,
        transforms: Transform | list[Transform],
        validate_args: bool | None = None,
    ) -> None:
        self.transforms = [transforms] if isinstance(transforms, Transform) else list(transforms)
        if not all(isinstance(transform, Transform) for transform in self.transforms):
            raise ValueError("transforms must be a Transform or a list of Transforms")
        shape = (*base_distribution.batch_shape, *base_distribution.event_shape)
        whole = ComposeTransform(self.transforms)
        if len(shape) < whole.domain.event_dim:
            raise ValueError(
                f"base_distribution needs to have shape with size at least {whole.domain.event_dim}, "
                f"but got {base_distribution}."
            )
        # The axes that the transforms act on jointly become event axes of the base distribution.
        more = whole.domain.event_dim - len(base_distribution.event_shape)
        self.base_dist = Independent(base_distribution, more) if more > 0 else base_distribution
        # The result's event axes: those that the transforms make, and the base distribution's other ones.
        axes = whole.codomain.event_dim + max(len(base_distribution.event_shape) - whole.domain.event_dim, 0)
        shape = whole.forward_shape(shape)
        cut = len(shape) - axes
        super().__init__(shape[:cut], shape[cut:], validate_args=validate_args)

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        """Whether the base distribution implements `rsample`."""
        return self.base_dist.has_rsample

    @property
    def support(self) -> Constraint:
        return self.transforms[-1].codomain if self.transforms else self.base_dist.support

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        base = ComposeTransform(self.transforms).inverse_shape((*batch_shape, *self.event_shape))
        made = self._expand_parameters(batch_shape)
        made.base_dist = self.base_dist.expand(base[: len(base) - len(self.base_dist.event_shape)])
        return made

    def _transformed(self, x: Tensor) -> Tensor:
        for transform in self.transforms:
            x = transform(x)
        return x

    @no_grad()
    def sample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        return self._transformed(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        return self._transformed(self.base_dist.rsample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        # `axes` is the number of event axes of `y`, and then of `x`. A log-determinant has none for the axes that its
        # transform acts on jointly; it is summed over the other event axes.
        axes = len(self.event_shape)
        total: Any = 0.0
        y = value
        for transform in reversed(self.transforms):
            x = transform._inv_call(y)
            axes += transform.domain.event_dim - transform.codomain.event_dim
            total = total - summed(transform.log_abs_det_jacobian(x, y), axes - transform.domain.event_dim)
            y = x
        return total + summed(self.base_dist.log_prob(y), axes - len(self.base_dist.event_shape))

    def _monotonized(self, value: Tensor) -> Tensor:
        """The probability `value` itself if the composed transform is increasing, `1 - value` if it is decreasing."""
        sign: Any = 1
        for transform in self.transforms:
            if transform.sign is None:
                raise NotImplementedError(f"{transform!r} is not known to grow or to fall everywhere")
            sign = sign * transform.sign
        return sign * (value - 0.5) + 0.5

    def cdf(self, value: Tensor) -> Tensor:
        for transform in reversed(self.transforms):
            value = transform._inv_call(value)
        return self._monotonized(self.base_dist.cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        return self._transformed(self.base_dist.icdf(self._monotonized(value)))
