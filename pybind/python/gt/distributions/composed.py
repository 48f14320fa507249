"""Distributions made of others: with axes reinterpreted as events, transformed, mixed and relaxed."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from gt import _core as gt
from gt._autograd import no_grad
from gt._gt import Tensor
from gt.distributions import constraints
from gt.distributions.constraints import Constraint
from gt.distributions.continuous import EULER, Normal, Uniform, log_beta
from gt.distributions.discrete import Categorical, OverCategories
from gt.distributions.distribution import NO_SHAPE, Distribution, Formulas, ProbsOrLogits, Real, UnitInterval
from gt.distributions.transforms import (
    AffineTransform,
    ComposeTransform,
    ExpTransform,
    PowerTransform,
    SigmoidTransform,
    StickBreakingTransform,
    Transform,
)
from gt.distributions.utils import _sum_rightmost, broadcast_all, clamp_probs, probs_to_logits

__all__ = [
    "Independent", "Kumaraswamy", "LogNormal", "LogisticNormal", "MixtureSameFamily", "RelaxedBernoulli",
    "RelaxedOneHotCategorical", "TransformedDistribution",
]  # fmt: skip


class Independent(Distribution):
    """Reinterprets the last batch axes of a distribution as event axes: log probabilities are summed over them.

    Args:
        base_distribution: The distribution.
        reinterpreted_batch_ndims: The number of batch axes that become event axes.

    Example:
        >>> normal = gt.distributions.Normal(gt.zeros(3), gt.ones(3))
        >>> gt.distributions.Independent(normal, 1).log_prob(gt.zeros(3))
        tensor(-2.7568)
    """

    _formulas = Formulas(
        support=lambda base_dist: base_dist.support,
        mean=lambda base_dist: base_dist.mean,
        mode=lambda base_dist: base_dist.mode,
        variance=lambda base_dist: base_dist.variance,
        entropy=lambda base_dist, _summed: _summed(base_dist.entropy()),
    )

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

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        axes = self.reinterpreted_batch_ndims
        inner = tuple(self.event_shape)[:axes]
        return Independent(self.base_dist.expand((*batch_shape, *inner)), axes, validate_args=False)

    def sample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def _summed(self, each: Tensor) -> Tensor:
        return _sum_rightmost(each, self.reinterpreted_batch_ndims)

    def log_prob(self, value: Tensor) -> Tensor:
        return self._summed(self.base_dist.log_prob(value))

    def __repr__(self) -> str:
        return f"Independent({self.base_dist}, {self.reinterpreted_batch_ndims})"


class TransformedDistribution(Distribution):
    """The distribution of `f(x)`, where x is a sample of the base distribution and f a sequence of transforms.

    Its density follows from the change of variables: `log p(y) = log p_base(x) - log |det J_f(x)|`.

    Args:
        base_distribution: The distribution of x.
        transforms: A transform, or a list of transforms; the first is applied to x first.

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
        base_dist = self.base_dist.expand(base[: len(base) - len(self.base_dist.event_shape)])
        return self._copy(batch_shape, base_dist=base_dist)

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
            total = total - _sum_rightmost(transform.log_abs_det_jacobian(x, y), axes - transform.domain.event_dim)
            y = x
        return total + _sum_rightmost(self.base_dist.log_prob(y), axes - len(self.base_dist.event_shape))

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


class MixtureSameFamily(Distribution):
    """Mixture of distributions of one family.

    Args:
        mixture_distribution: A `Categorical` of the components' weights.
        component_distribution: The components, along its last batch axis.

    Example:
        >>> weights = gt.distributions.Categorical(probs=gt.tensor([0.25, 0.75]))
        >>> components = gt.distributions.Normal(gt.tensor([0.0, 4.0]), gt.tensor([1.0, 1.0]))
        >>> gt.distributions.MixtureSameFamily(weights, components).mean
        tensor(3.)
    """

    _formulas = Formulas(
        support=lambda component_distribution: component_distribution.support,
        mean=lambda component_distribution, _average: _average(component_distribution.mean),
        # Within the components, and between their means.
        variance=lambda component_distribution, mean, _axis, _average: _average(
            component_distribution.variance + (component_distribution.mean - mean.unsqueeze(_axis)).square()
        ),
    )

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

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        count = self.component_distribution.batch_shape[-1]
        return self._copy(
            batch_shape,
            component_distribution=self.component_distribution.expand((*batch_shape, count)),
            mixture_distribution=self.mixture_distribution.expand(batch_shape),
        )

    @property
    def _axis(self) -> int:
        """The axis of the components."""
        return -1 - len(self._event_shape)

    def _average(self, each: Tensor) -> Tensor:
        """The mean over the components, weighted by their probabilities."""
        weights = self.mixture_distribution.probs
        return (weights.reshape(*weights.shape, *[1] * len(self._event_shape)) * each).sum(self._axis)

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
        each = self.component_distribution.log_prob(x.unsqueeze(self._axis))
        return (each + self.mixture_distribution.logits.log_softmax(-1)).logsumexp(-1)

    def cdf(self, x: Tensor) -> Tensor:
        each = self.component_distribution.cdf(x.unsqueeze(self._axis))
        return (each * self.mixture_distribution.probs).sum(-1)

    def __repr__(self) -> str:
        return f"MixtureSameFamily(\n  {self.mixture_distribution},\n  {self.component_distribution})"


# Transformed distributions with parameters ---------------------------------------------------------------------------


class Kumaraswamy(TransformedDistribution):
    """Kumaraswamy distribution on (0, 1), with CDF `1 - (1 - x^a)^b`.

    Args:
        concentration1: The first shape parameter, a.
        concentration0: The second shape parameter, b.

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

    _formulas = Formulas(
        mean=lambda _moment: _moment(1),
        mode=lambda concentration1, concentration0: _kumaraswamy_mode(concentration1, concentration0),
        variance=lambda _moment: _moment(2) - _moment(1).square(),
        entropy=lambda concentration1, concentration0: (
            (1 - concentration0.reciprocal())
            + (1 - concentration1.reciprocal()) * ((concentration0 + 1).digamma() + EULER)
            - (concentration1 * concentration0).log()
        ),
    )

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
        return self.concentration0 * log_beta(1 + n / self.concentration1, self.concentration0).exp()


def _kumaraswamy_mode(a: Tensor, b: Tensor) -> Tensor:
    log_mode = b.reciprocal() * (-b).log1p() - (-b * a).log1p()
    return gt.where((b < 1) | (a < 1), math.nan, log_mode.exp())


class LogNormal(TransformedDistribution):
    """Log-normal distribution: the exponential of a normal variable.

    Args:
        loc: The mean of the logarithm.
        scale: The standard deviation of the logarithm.

    Example:
        >>> gt.distributions.LogNormal(gt.tensor(0.0), gt.tensor(1.0)).mean
        tensor(1.6487)
    """

    base_dist: Any
    arg_constraints: ClassVar[dict[str, Constraint]] = {"loc": constraints.real, "scale": constraints.positive}
    has_rsample = True
    support = constraints.positive
    _formulas = Formulas(
        mean=lambda loc, scale: (loc + scale.square() / 2).exp(),
        mode=lambda loc, scale: (loc - scale.square()).exp(),
        variance=lambda loc, scale: scale.square().expm1() * (loc * 2 + scale.square()).exp(),
        entropy=lambda base_dist: base_dist.entropy() + base_dist.loc,
    )

    def __init__(self, loc: Tensor | float, scale: Tensor | float, validate_args: bool | None = None) -> None:
        super().__init__(Normal(loc, scale, validate_args=validate_args), ExpTransform(), validate_args=validate_args)

    @property
    def loc(self) -> Tensor:
        """The mean of the logarithm."""
        return self.base_dist.loc

    @property
    def scale(self) -> Tensor:
        """The standard deviation of the logarithm."""
        return self.base_dist.scale

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        return type(self)(self.loc.expand(*batch_shape), self.scale.expand(*batch_shape), validate_args=False)


class LogisticNormal(TransformedDistribution):
    """Logistic-normal distribution over the simplex: a normal vector mapped by stick breaking.

    Args:
        loc: The mean of the normal variables.
        scale: Their standard deviation.
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


# Continuous relaxations of discrete distributions (Concrete, Gumbel-softmax) -----------------------------------------


class LogitRelaxedBernoulli(ProbsOrLogits):
    """The distribution of the logits of `RelaxedBernoulli` (Maddison et al. 2017).

    Args:
        temperature: The temperature.
        probs: The probability of 1; or give `logits`.
        logits: The log odds of 1.
    """

    probs: UnitInterval
    logits: Real
    support = constraints.real
    _formulas = Formulas(
        rsample=lambda shape, probs, temperature: (
            (probs_to_logits(gt.rand(shape, dtype=probs.dtype), True) + probs_to_logits(probs, True)) / temperature
        ),
        log_prob=lambda value, logits, temperature: _logit_relaxed_log_prob(
            logits - value * temperature, gt.as_tensor(temperature)
        ),
    )

    def __init__(
        self,
        temperature: Tensor | float,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self.temperature = temperature
        self._set(validate_args, probs=probs, logits=logits)


def _logit_relaxed_log_prob(apart: Tensor, temperature: Tensor) -> Tensor:
    return temperature.log() + apart - 2 * apart.exp().log1p()


class _Relaxed(TransformedDistribution):
    """The base of relaxed distributions: a transformed distribution that has its base's parameters."""

    arg_constraints: ClassVar[dict[str, Constraint]] = LogitRelaxedBernoulli.arg_constraints
    has_rsample = True

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        return self._copy(batch_shape, base_dist=self.base_dist.expand(batch_shape))

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


class ExpRelaxedCategorical(OverCategories):
    """The distribution of the logarithms of `RelaxedOneHotCategorical` (Maddison et al. 2017).

    Args:
        temperature: The temperature.
        probs: The probabilities along the last axis; or give `logits`.
        logits: The unnormalized log probabilities along the last axis.
    """

    # The logarithms of points of the simplex; as in PyTorch, that they sum to 1 is not checked.
    support = constraints.real_vector
    _formulas = Formulas(
        rsample=lambda shape, logits, temperature: (
            (logits - (-clamp_probs(gt.rand(shape, dtype=logits.dtype)).log()).log()) / temperature
        ).log_softmax(-1),
        log_prob=lambda value, logits, temperature: _exp_relaxed_log_prob(
            logits - value * temperature, gt.as_tensor(temperature), logits.shape[-1]
        ),
    )

    def __init__(
        self,
        temperature: Tensor | float,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self.temperature = temperature
        self._set(Categorical(probs, logits), validate_args)


def _exp_relaxed_log_prob(scores: Tensor, temperature: Tensor, size: int) -> Tensor:
    scale = gt.full_like(temperature, float(size)).lgamma() + temperature.log() * (size - 1)
    return scores.log_softmax(-1).sum(-1) + scale


class RelaxedOneHotCategorical(_Relaxed):
    """Relaxed one-hot categorical (Concrete, Gumbel-softmax) distribution over the simplex.

    See Maddison et al. 2017 and Jang et al. 2017. The lower the temperature, the closer samples are to one-hot vectors.

    Args:
        temperature: The temperature.
        probs: The probabilities along the last axis; or give `logits`.
        logits: The unnormalized log probabilities along the last axis.
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
