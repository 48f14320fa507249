"""Kullback-Leibler divergence between pairs of distributions: `kl_divergence`, and the table of its formulas."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from gt import _absent, linalg
from gt import _core as gt
from gt._gt import Tensor
from gt.distributions.composed import Independent, LogNormal, TransformedDistribution
from gt.distributions.continuous import (
    EULER,
    Beta,
    Cauchy,
    ContinuousBernoulli,
    Dirichlet,
    Exponential,
    Gamma,
    Gumbel,
    HalfNormal,
    Laplace,
    Normal,
    Pareto,
    Uniform,
    log_beta,
)
from gt.distributions.discrete import Bernoulli, Binomial, Categorical, Geometric, OneHotCategorical, Poisson
from gt.distributions.distribution import Distribution
from gt.distributions.multivariate import LowRankMultivariateNormal, MultivariateNormal
from gt.nn.functional import softplus

__getattr__ = _absent.getter(__name__)

Divergence = Callable[[Any, Any], Tensor]

_PAIRS: dict[tuple[type, type], Divergence] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Divergence], Divergence]:
    """A decorator that registers a function as the divergence of two classes and their subclasses.

    Args:
        type_p: The class of the first distribution.
        type_q: The class of the second distribution.
    """

    def register(function: Divergence) -> Divergence:
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


# Parts of formulas ----------------------------------------------------------------------------------------------------


def _infinite_where(condition: Tensor, found: Tensor) -> Tensor:
    return gt.where(condition, math.inf, found)


def _infinite(p: Any, q: Any) -> Tensor:
    """The divergence where p has values outside the support of q."""
    first = next(p.__dict__[name] for name in p._parameters if name in p.__dict__)
    return gt.full(gt.broadcast_shapes(p.batch_shape, q.batch_shape), math.inf, dtype=first.dtype)


def _mean_log(low: Tensor, high: Tensor) -> Tensor:
    """E[log x] of a uniform variable."""
    return (gt.xlogy(high, high) - gt.xlogy(low, low)) / (high - low) - 1


def _half_excess(square: Tensor) -> Tensor:
    """`(x - 1 - log x) / 2`, the divergence of centred normal variables whose variances have the ratio x."""
    return (square - 1 - square.log()) * 0.5


# The divergences from any family p that has what they take of it: its entropy, its `mean`, and its `variance`, the mean
# of log x, or that of exp(-x / q.scale). Each is the cross entropy E_p[-log q(x)] less the entropy of p.


def _to_exponential(p: Any, q: Exponential) -> Tensor:
    return -p.entropy() + (q.rate * p.mean - q.rate.log())


def _to_normal(p: Any, q: Normal) -> Tensor:
    spread = p.variance + (p.mean - q.loc).square()
    return -p.entropy() + (0.5 * math.log(2 * math.pi) + q.scale.log() + spread / (2 * q.scale.square()))


def _to_gamma(p: Any, q: Gamma, mean_log: Tensor) -> Tensor:
    a = q.concentration
    return -p.entropy() + (a.lgamma() - a * q.rate.log() - (a - 1) * mean_log + q.rate * p.mean)


def _to_gumbel(p: Any, q: Gumbel, mean_exp: Tensor) -> Tensor:
    return -p.entropy() + (q.scale.log() + (p.mean - q.loc) / q.scale + (q.loc / q.scale).exp() * mean_exp)


def _to_continuous_bernoulli(p: Any, q: ContinuousBernoulli) -> Tensor:
    return -p.entropy() + (-p.mean * q.logits - (-q.probs).log1p() - q._log_norm)


# Formulas of several lines --------------------------------------------------------------------------------------------


def _categorical(p: Categorical, q: Categorical) -> Tensor:
    apart = p.probs * (p.logits - q.logits)
    apart = _infinite_where((q.probs == 0).expand(apart.shape), apart)
    return gt.where((p.probs == 0).expand(apart.shape), 0.0, apart).sum(-1)


def _binomial(p: Binomial, q: Binomial) -> Tensor:
    if bool((p.total_count < q.total_count).any()):
        raise NotImplementedError("KL between Binomials where q.total_count > p.total_count is not implemented")
    found = p.total_count * (p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p())
    return _infinite_where(p.total_count > q.total_count, found)


def _dirichlet(a: Tensor, b: Tensor) -> Tensor:
    norms = a.sum(-1).lgamma() - b.sum(-1).lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
    return norms + ((a - b) * (a.digamma() - a.sum(-1, keepdim=True).digamma())).sum(-1)


def _normal_laplace(ratio: Tensor, z: Tensor) -> Tensor:
    near = math.sqrt(2 / math.pi) * (z.square() * -0.5).exp() + z * (math.sqrt(0.5) * z).erf()
    return -ratio.log() + ratio * near + (math.log(2) - 0.5 * math.log(2 * math.pi) - 0.5)


def _uniform_beta(p: Uniform, q: Beta) -> Tensor:
    a, b = q.concentration1, q.concentration0
    both = (a - 1) * _mean_log(p.low, p.high) + (b - 1) * _mean_log(1 - p.high, 1 - p.low)
    return _infinite_where((p.low < 0) | (p.high > 1), -p.entropy() - both + log_beta(a, b))


def _uniform_pareto(p: Uniform, q: Pareto) -> Tensor:
    density = q.alpha.log() + q.alpha * q.scale.log() - (q.alpha + 1) * _mean_log(p.low, p.high)
    return _infinite_where(p.low < q.scale, -p.entropy() - density)


def _independent(p: Independent, q: Independent) -> Tensor:
    axes = p.reinterpreted_batch_ndims, q.reinterpreted_batch_ndims
    if axes[0] != axes[1]:
        raise NotImplementedError(f"No KL(p || q) is implemented for Independent of {axes[0]} and of {axes[1]} axes")
    return p._summed(kl_divergence(p.base_dist, q.base_dist))


def _transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError("No KL(p || q) is implemented for different transforms or event shapes")
    return kl_divergence(p.base_dist, q.base_dist)


def _squares(x: Tensor) -> Tensor:
    """The squared Frobenius norm of matrices."""
    return x.square().flatten(-2).sum(-1)


def _to_full(p: Any, q: MultivariateNormal) -> Tensor:
    _check_sizes(p, q)
    shift = linalg.solve_triangular(q._tril, (q.loc - p.loc).unsqueeze(-1), upper=False)
    trace = sum(_squares(linalg.solve_triangular(q._tril, factor, upper=False)) for factor in _factors(p))
    return 0.5 * (2 * q._half_log_det() - _log_det(p) + trace + _squares(shift) - p.event_shape[0])


def _to_low_rank(p: Any, q: LowRankMultivariateNormal) -> Tensor:
    _check_sizes(p, q)
    capacitance = q._capacitance
    inner = linalg.solve_triangular(capacitance, (q.cov_factor / q.cov_diag.unsqueeze(-1)).mT, upper=False)
    # trace(inv(cov_q) @ cov_p), by Woodbury's formula.
    weight = q.cov_diag.rsqrt().unsqueeze(-1)
    trace = sum(_squares(factor * weight) - _squares(inner @ factor) for factor in _factors(p))
    distance = q._distance(q.loc - p.loc, capacitance)
    return 0.5 * (q._log_det(capacitance) - _log_det(p) + trace + distance - p.event_shape[0])


def _factors(p: Any) -> tuple[Tensor, ...]:
    """Matrices F whose products `F @ F.mT` add up to the covariance."""
    return (p._tril,) if isinstance(p, MultivariateNormal) else (p.cov_factor, p.cov_diag.sqrt().diag_embed())


def _log_det(p: Any) -> Tensor:
    return 2 * p._half_log_det() if isinstance(p, MultivariateNormal) else p._log_det(p._capacitance)


def _check_sizes(p: Any, q: Any) -> None:
    is_low_rank = isinstance(p, LowRankMultivariateNormal) or isinstance(q, LowRankMultivariateNormal)
    if p.event_shape != q.event_shape:
        kind = "Low Rank Multivariate Normals" if is_low_rank else "Multivariate Normals"
        raise ValueError(f"KL-divergence between two {kind} with different event shapes cannot be computed")


# The table ------------------------------------------------------------------------------------------------------------

_PAIRS.update({
    # Within a family.
    (Bernoulli, Bernoulli): lambda p, q: (
        p.probs * (softplus(-q.logits) - softplus(-p.logits))
        + (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))
    ),
    (Beta, Beta): lambda p, q: kl_divergence(p._dirichlet, q._dirichlet),
    (Binomial, Binomial): _binomial,
    (Categorical, Categorical): _categorical,
    (Cauchy, Cauchy): lambda p, q: (
        ((p.scale + q.scale).square() + (p.loc - q.loc).square()).log() - (4 * p.scale * q.scale).log()
    ),
    (ContinuousBernoulli, ContinuousBernoulli): _to_continuous_bernoulli,
    (Dirichlet, Dirichlet): lambda p, q: _dirichlet(p.concentration, q.concentration),
    (Exponential, Exponential): lambda p, q: q.rate / p.rate - (q.rate / p.rate).log() - 1,
    (Gamma, Gamma): lambda p, q: (
        q.concentration * (p.rate / q.rate).log()
        + q.concentration.lgamma()
        - p.concentration.lgamma()
        + (p.concentration - q.concentration) * p.concentration.digamma()
        + p.concentration * (q.rate / p.rate - 1)
    ),
    (Geometric, Geometric): lambda p, q: -p.entropy() - (-q.probs).log1p() / p.probs - q.logits,
    (Gumbel, Gumbel): lambda p, q: (
        (q.scale / p.scale).log()
        + (p.loc - q.loc) / q.scale
        + p.scale / q.scale * EULER
        + ((q.loc - p.loc) / q.scale + (1 + p.scale / q.scale).lgamma()).exp()
        - (1 + EULER)
    ),
    (HalfNormal, HalfNormal): lambda p, q: _half_excess((p.scale / q.scale).square()),
    (Independent, Independent): _independent,
    (Laplace, Laplace): lambda p, q: (
        (q.scale / p.scale).log()
        + (p.loc - q.loc).abs() / q.scale
        + p.scale / q.scale * (-(p.loc - q.loc).abs() / p.scale).exp()
        - 1
    ),
    (LogNormal, LogNormal): lambda p, q: kl_divergence(p.base_dist, q.base_dist),
    (LowRankMultivariateNormal, LowRankMultivariateNormal): _to_low_rank,
    (MultivariateNormal, MultivariateNormal): _to_full,
    (Normal, Normal): lambda p, q: (
        _half_excess((p.scale / q.scale).square()) + ((p.loc - q.loc) / q.scale).square() * 0.5
    ),
    (OneHotCategorical, OneHotCategorical): lambda p, q: kl_divergence(p._categorical, q._categorical),
    (Pareto, Pareto): lambda p, q: _infinite_where(
        p.scale < q.scale,
        q.alpha * (p.scale / q.scale).log() - (q.alpha / p.alpha).log() + q.alpha / p.alpha - 1,
    ),
    (Poisson, Poisson): lambda p, q: p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate),
    (TransformedDistribution, TransformedDistribution): _transformed,
    (Uniform, Uniform): lambda p, q: _infinite_where(
        (q.low > p.low) | (q.high < p.high), ((q.high - q.low) / (p.high - p.low)).log()
    ),
    # Between families.
    (Bernoulli, Poisson): lambda p, q: -p.entropy() - (p.probs * q.rate.log() - q.rate),
    (Beta, ContinuousBernoulli): _to_continuous_bernoulli,
    (Beta, Exponential): _to_exponential,
    (Beta, Gamma): lambda p, q: _to_gamma(
        p, q, p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma()
    ),
    (Beta, Normal): _to_normal,
    # As in PyTorch, equal supports give a finite divergence for Beta and an infinite one for ContinuousBernoulli.
    (Beta, Uniform): lambda p, q: _infinite_where(
        (q.low > 0) | (q.high < 1), -p.entropy() + (q.high - q.low).log()
    ),
    (ContinuousBernoulli, Exponential): _to_exponential,
    (ContinuousBernoulli, Normal): _to_normal,
    (ContinuousBernoulli, Uniform): lambda p, q: _infinite_where(
        (q.low >= 0) | (q.high <= 1), -p.entropy() + (q.high - q.low).log()
    ),
    (Exponential, Gamma): lambda p, q: _to_gamma(p, q, -EULER - p.rate.log()),
    (Exponential, Gumbel): lambda p, q: _to_gumbel(
        p, q, p.rate / (p.rate + q.scale.reciprocal())
    ),
    (Exponential, Normal): _to_normal,
    (Gamma, Exponential): _to_exponential,
    (Gamma, Gumbel): lambda p, q: _to_gumbel(
        p, q, (1 + (p.rate * q.scale).reciprocal()) ** -p.concentration
    ),
    (Gamma, Normal): _to_normal,
    (Gumbel, Normal): _to_normal,
    (Laplace, Normal): _to_normal,
    (LowRankMultivariateNormal, MultivariateNormal): _to_full,
    (MultivariateNormal, LowRankMultivariateNormal): _to_low_rank,
    (Normal, Gumbel): lambda p, q: _to_gumbel(
        p, q, ((p.scale / q.scale).square() / 2 - p.loc / q.scale).exp()
    ),
    (Normal, Laplace): lambda p, q: _normal_laplace(p.scale / q.scale, (p.loc - q.loc) / p.scale),
    (Pareto, Exponential): lambda p, q: _infinite_where(p.alpha <= 1, _to_exponential(p, q)),
    (Pareto, Gamma): lambda p, q: _infinite_where(
        p.alpha <= 1, _to_gamma(p, q, p.scale.log() + p.alpha.reciprocal())
    ),
    (Pareto, Normal): _to_normal,
    (Uniform, Beta): _uniform_beta,
    (Uniform, ContinuousBernoulli): lambda p, q: _infinite_where(
        (p.low <= 0) | (p.high >= 1), _to_continuous_bernoulli(p, q)
    ),
    (Uniform, Exponential): lambda p, q: _infinite_where(p.low < 0, _to_exponential(p, q)),
    (Uniform, Gamma): lambda p, q: _infinite_where(
        p.low < 0, _to_gamma(p, q, _mean_log(p.low, p.high))
    ),
    (Uniform, Gumbel): lambda p, q: _to_gumbel(
        p, q, ((-p.low / q.scale).exp() - (-p.high / q.scale).exp()) * q.scale / (p.high - p.low)
    ),
    (Uniform, Normal): _to_normal,
    (Uniform, Pareto): _uniform_pareto,
})  # fmt: skip

# Pairs of which p has values outside the support of q.
_UNBOUNDED, _BOUNDED = (Gumbel, Laplace, Normal), (Beta, ContinuousBernoulli, Uniform)
for _ps, _qs in {
    _UNBOUNDED: (*_BOUNDED, Pareto, Exponential, Gamma),
    (Exponential, Gamma): (*_BOUNDED, Pareto),
    (Pareto,): _BOUNDED,
    (Beta, ContinuousBernoulli): (Pareto,),
    (Poisson,): (Bernoulli, Binomial),
}.items():
    _PAIRS.update(dict.fromkeys(((p, q) for p in _ps for q in _qs), _infinite))
