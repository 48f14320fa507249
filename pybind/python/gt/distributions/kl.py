"""How far one distribution is from another: `kl_divergence`, for the pairs that are registered."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import gt
from gt import linalg
from gt._gt import Tensor
from gt.distributions.continuous import Exponential, Laplace, Normal, Uniform
from gt.distributions.discrete import Bernoulli, Categorical, Geometric, OneHotCategorical
from gt.distributions.distribution import Distribution, Independent
from gt.distributions.multivariate_normal import MultivariateNormal
from gt.nn import functional

_PAIRS: dict[tuple[type, type], Callable[[Any, Any], Tensor]] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Callable[[Any, Any], Tensor]], Callable[[Any, Any], Tensor]]:
    """Registers a function as the divergence of two classes and of what derives from them."""

    def register(function: Callable[[Any, Any], Tensor]) -> Callable[[Any, Any], Tensor]:
        _PAIRS[type_p, type_q] = function
        return function

    return register


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The mean, over draws of `p`, of `log p - log q`.

    Raises:
        NotImplementedError: Nothing is registered for the two classes.
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
