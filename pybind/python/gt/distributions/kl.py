"""Kullback-Leibler divergence between pairs of distributions: `kl_divergence` and its registry."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from gt import _core as gt
from gt import linalg
from gt._gt import Tensor
from gt.distributions.continuous import EULER, Cauchy, Exponential, Gumbel, Laplace, LogNormal, Normal, Uniform
from gt.distributions.count_distributions import Binomial, Poisson
from gt.distributions.discrete import Bernoulli, Categorical, Geometric, OneHotCategorical
from gt.distributions.distribution import Distribution, Independent
from gt.distributions.gamma_family import Beta, Dirichlet, Gamma
from gt.distributions.multivariate_normal import MultivariateNormal
from gt.distributions.positive_support import HalfNormal, Pareto
from gt.distributions.transformed_distribution import TransformedDistribution
from gt.nn import functional

_PAIRS: dict[tuple[type, type], Callable[[Any, Any], Tensor]] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Callable[[Any, Any], Tensor]], Callable[[Any, Any], Tensor]]:
    """A decorator that registers a function as the divergence of two classes and their subclasses.

    Args:
        type_p: The class of the first distribution.
        type_q: The class of the second distribution.
    """

    def register(function: Callable[[Any, Any], Tensor]) -> Callable[[Any, Any], Tensor]:
        _PAIRS[type_p, type_q] = function
        return function

    return register


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """Kullback-Leibler divergence `KL(p || q) = E_p[log p(x) - log q(x)]`, in closed form.

    Args:
        p: The distribution of the expectation.
        q: The other distribution.

    Returns:
        A tensor of the broadcast batch shape.

    Raises:
        NotImplementedError: No formula is registered for the two classes.

    Example:
        >>> p = gt.distributions.Normal(gt.tensor(0.0), gt.tensor(1.0))
        >>> q = gt.distributions.Normal(gt.tensor(1.0), gt.tensor(1.0))
        >>> gt.distributions.kl_divergence(p, q)
        tensor(0.5000)
    """
    for a in type(p).__mro__:
        for b in type(q).__mro__:
            if (a, b) in _PAIRS:
                return _PAIRS[a, b](p, q)
    raise NotImplementedError(
        f"No KL(p || q) is implemented for p type {type(p).__name__} and q type {type(q).__name__}"
    )


@register_kl(Normal, Normal)
def _(p: Normal, q: Normal) -> Tensor:
    ratio, shift = p.scale / q.scale, (p.loc - q.loc) / q.scale
    square = ratio * ratio
    return (square + shift * shift - 1 - square.log()) * 0.5


@register_kl(Laplace, Laplace)
def _(p: Laplace, q: Laplace) -> Tensor:
    ratio, shift = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + shift / q.scale + ratio * (-shift / p.scale).exp() - 1


@register_kl(Exponential, Exponential)
def _(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1


@register_kl(Uniform, Uniform)
def _(p: Uniform, q: Uniform) -> Tensor:
    found = ((q.high - q.low) / (p.high - p.low)).log()
    return gt.where((q.low > p.low) | (q.high < p.high), math.inf, found)


@register_kl(Bernoulli, Bernoulli)
def _(p: Bernoulli, q: Bernoulli) -> Tensor:
    a, b, share = p.logits, q.logits, p.probs
    return share * (functional.softplus(-b) - functional.softplus(-a)) + (1 - share) * (
        functional.softplus(b) - functional.softplus(a)
    )


@register_kl(Categorical, Categorical)
def _(p: Categorical, q: Categorical) -> Tensor:
    apart = p.probs * (p.logits - q.logits)
    apart = gt.where((q.probs == 0).expand(apart.shape), math.inf, apart)
    return gt.where((p.probs == 0).expand(apart.shape), 0.0, apart).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _(p: OneHotCategorical, q: OneHotCategorical) -> Tensor:
    return kl_divergence(p._categorical, q._categorical)


@register_kl(Geometric, Geometric)
def _(p: Geometric, q: Geometric) -> Tensor:
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(MultivariateNormal, MultivariateNormal)
def _(p: MultivariateNormal, q: MultivariateNormal) -> Tensor:
    inner = linalg.solve_triangular(q._tril, p._tril, upper=False)
    shift = linalg.solve_triangular(q._tril, (q.loc - p.loc).unsqueeze(-1), upper=False).squeeze(-1)
    both = (inner * inner).flatten(-2).sum(-1) + (shift * shift).sum(-1)
    return q._half_log_det() - p._half_log_det() + (both - p.event_shape[0]) * 0.5


@register_kl(Independent, Independent)
def _(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError
    return p._summed(kl_divergence(p.base_dist, q.base_dist))


@register_kl(Gamma, Gamma)
def _(p: Gamma, q: Gamma) -> Tensor:
    a, b = p.concentration, q.concentration
    rates = q.rate / p.rate
    return b * -rates.log() + b.lgamma() - a.lgamma() + (a - b) * a.digamma() + a * (rates - 1)


@register_kl(Exponential, Gamma)
def _(p: Exponential, q: Gamma) -> Tensor:
    ratio, b = q.rate / p.rate, q.concentration
    return -b * ratio.log() + ratio + b.lgamma() + b * EULER - (1 + EULER)


@register_kl(Gamma, Exponential)
def _(p: Gamma, q: Exponential) -> Tensor:
    return -p.entropy() - q.rate.log() + q.rate * p.concentration / p.rate


@register_kl(Dirichlet, Dirichlet)
def _(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    norms = a.sum(-1).lgamma() - b.sum(-1).lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
    return norms + ((a - b) * (a.digamma() - a.sum(-1, keepdim=True).digamma())).sum(-1)


@register_kl(Beta, Beta)
def _(p: Beta, q: Beta) -> Tensor:
    return kl_divergence(p._both, q._both)


@register_kl(Poisson, Poisson)
def _(p: Poisson, q: Poisson) -> Tensor:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Binomial, Binomial)
def _(p: Binomial, q: Binomial) -> Tensor:
    if bool((p.total_count < q.total_count).any()):
        raise NotImplementedError("KL between Binomials where q.total_count > p.total_count is not implemented")
    found = p.total_count * (p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p())
    return gt.where(p.total_count > q.total_count, math.inf, found)


@register_kl(HalfNormal, HalfNormal)
def _(p: HalfNormal, q: HalfNormal) -> Tensor:
    square = (p.scale / q.scale).square()
    return (square - 1 - square.log()) * 0.5


@register_kl(LogNormal, LogNormal)
def _(p: LogNormal, q: LogNormal) -> Tensor:
    return kl_divergence(Normal(p.loc, p.scale, validate_args=False), Normal(q.loc, q.scale, validate_args=False))


@register_kl(Cauchy, Cauchy)
def _(p: Cauchy, q: Cauchy) -> Tensor:
    both = (p.scale + q.scale).square() + (p.loc - q.loc).square()
    return both.log() - (4 * p.scale * q.scale).log()


@register_kl(Gumbel, Gumbel)
def _(p: Gumbel, q: Gumbel) -> Tensor:
    ratio, shift = p.scale / q.scale, (q.loc - p.loc) / q.scale
    return -ratio.log() - shift + ratio * EULER + (shift + (1 + ratio).lgamma()).exp() - (1 + EULER)


@register_kl(Pareto, Pareto)
def _(p: Pareto, q: Pareto) -> Tensor:
    scales, ratio = p.scale / q.scale, q.alpha / p.alpha
    found = q.alpha * scales.log() - ratio.log() + ratio - 1
    return gt.where(p.scale < q.scale, math.inf, found)


@register_kl(Normal, Laplace)
def _(p: Normal, q: Laplace) -> Tensor:
    z = (p.loc - q.loc) / p.scale
    ratio = p.scale / q.scale
    near = math.sqrt(2 / math.pi) * (z.square() * -0.5).exp() + z * (math.sqrt(0.5) * z).erf()
    return -ratio.log() + ratio * near + (math.log(2) - 0.5 * math.log(2 * math.pi) - 0.5)


@register_kl(Laplace, Normal)
def _(p: Laplace, q: Normal) -> Tensor:
    square = (p.scale / q.scale).square()
    shift = ((p.loc - q.loc) / q.scale).square()
    return -0.5 * (square * 4 / (2 * math.pi)).log() + square + 0.5 * shift - 1


@register_kl(Uniform, Normal)
def _(p: Uniform, q: Normal) -> Tensor:
    width = p.high - p.low
    centre = ((p.high + p.low - 2 * q.loc) / 2).square() + (width.square() / 12)
    return (math.sqrt(2 * math.pi) * q.scale / width).log() + 0.5 * centre / q.scale.square()


@register_kl(TransformedDistribution, TransformedDistribution)
def _(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError
    return kl_divergence(p.base_dist, q.base_dist)
