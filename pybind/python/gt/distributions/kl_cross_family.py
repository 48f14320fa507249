"""Kullback-Leibler divergences between distributions of different families; `kl.py` has those within one."""

from __future__ import annotations

import math
from typing import Any

from gt import _core as gt
from gt import linalg
from gt._gt import Tensor
from gt.distributions.continuous import Exponential, Gumbel, Laplace, Normal, Uniform
from gt.distributions.count_distributions import Binomial, Poisson
from gt.distributions.discrete import Bernoulli
from gt.distributions.gamma_family import Beta, Gamma
from gt.distributions.kl import register_kl
from gt.distributions.lowrank_multivariate_normal import LowRankMultivariateNormal
from gt.distributions.multivariate_normal import MultivariateNormal
from gt.distributions.positive_support import Pareto
from gt.distributions.unit_interval import ContinuousBernoulli


def _register_each(*kinds: type, of: type) -> Any:
    """A decorator that registers a function as the divergence of several classes from one."""

    def register(function: Any) -> Any:
        for kind in kinds:
            register_kl(kind, of)(function)
        return function

    return register


# The support of p is not within that of q: infinite ------------------------------------------------------------------


def _infinite(p: Any, q: Any) -> Tensor:
    first = p.entropy() if not isinstance(p, Poisson) else p.rate
    return gt.full(gt.broadcast_shapes(p.batch_shape, q.batch_shape), math.inf, dtype=first.dtype)


_BOUNDED, _POSITIVE = (Beta, ContinuousBernoulli), (Exponential, Gamma)
for _q in (*_BOUNDED, Pareto, Uniform):
    _register_each(*_POSITIVE, Gumbel, Laplace, Normal, of=_q)(_infinite)
for _q in _POSITIVE:
    _register_each(Gumbel, Laplace, Normal, of=_q)(_infinite)
for _q in (*_BOUNDED, Uniform):
    register_kl(Pareto, _q)(_infinite)
_register_each(*_BOUNDED, of=Pareto)(_infinite)
_register_each(Poisson, of=Bernoulli)(_infinite)
_register_each(Poisson, of=Binomial)(_infinite)


# Expectations under means and variances ------------------------------------------------------------------------------


@_register_each(Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Pareto, of=Normal)
def _(p: Any, q: Normal) -> Tensor:
    spread = p.variance + (p.mean - q.loc).square()
    return -p.entropy() + 0.5 * math.log(2 * math.pi) + q.scale.log() + spread / (2 * q.scale.square())


def _where_positive(p: Any, found: Tensor) -> Tensor:
    """The divergence, infinite where a uniform p has negative values or a Pareto p has no mean."""
    if isinstance(p, Uniform):
        return gt.where(p.low < 0, math.inf, found)
    return gt.where(p.alpha <= 1, math.inf, found) if isinstance(p, Pareto) else found


@_register_each(Beta, ContinuousBernoulli, Pareto, Uniform, of=Exponential)
def _(p: Any, q: Exponential) -> Tensor:
    return _where_positive(p, q.rate * p.mean - p.entropy() - q.rate.log())


def _mean_log(p: Any) -> Tensor:
    """E[log x] of a distribution."""
    if isinstance(p, Beta):
        return p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma()
    if isinstance(p, Pareto):
        return p.scale.log() + p.alpha.reciprocal()
    return _mean_log_between(p.low, p.high)


def _mean_log_between(low: Tensor, high: Tensor) -> Tensor:
    return (gt.xlogy(high, high) - gt.xlogy(low, low)) / (high - low) - 1


@_register_each(Beta, Pareto, Uniform, of=Gamma)
def _(p: Any, q: Gamma) -> Tensor:
    a, rate = q.concentration, q.rate
    density = a * rate.log() - a.lgamma() + (a - 1) * _mean_log(p) - rate * p.mean
    return _where_positive(p, -p.entropy() - density)


@_register_each(*_BOUNDED, of=Uniform)
def _(p: Any, q: Uniform) -> Tensor:
    found = -p.entropy() + (q.high - q.low).log()
    # As in PyTorch, equal supports give a finite divergence for Beta and an infinite one for ContinuousBernoulli.
    misses = (q.low > 0) | (q.high < 1) if isinstance(p, Beta) else (q.low >= 0) | (q.high <= 1)
    return gt.where(misses, math.inf, found)


# Numbers between 0 and 1 --------------------------------------------------------------------------------------------


@_register_each(Beta, Uniform, of=ContinuousBernoulli)
def _(p: Any, q: ContinuousBernoulli) -> Tensor:
    found = -p.entropy() - p.mean * q.logits - (-q.probs).log1p() - q._log_norm()
    return gt.where((p.low <= 0) | (p.high >= 1), math.inf, found) if isinstance(p, Uniform) else found


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _(p: ContinuousBernoulli, q: ContinuousBernoulli) -> Tensor:
    norms = p._log_norm() + (-p.probs).log1p() - q._log_norm() - (-q.probs).log1p()
    return p.mean * (p.logits - q.logits) + norms


@register_kl(Uniform, Beta)
def _(p: Uniform, q: Beta) -> Tensor:
    a, b = q.concentration1, q.concentration0
    both = (a - 1) * _mean_log_between(p.low, p.high) + (b - 1) * _mean_log_between(1 - p.high, 1 - p.low)
    found = -p.entropy() - both + a.lgamma() + b.lgamma() - (a + b).lgamma()
    return gt.where((p.low < 0) | (p.high > 1), math.inf, found)


# Divergences from Gumbel, Pareto and Poisson --------------------------------------------------------------------------


@_register_each(Exponential, Gamma, Normal, Uniform, of=Gumbel)
def _(p: Any, q: Gumbel) -> Tensor:
    if isinstance(p, Exponential):
        fall = p.rate / (p.rate + q.scale.reciprocal())
    elif isinstance(p, Gamma):
        fall = (1 + (p.rate * q.scale).reciprocal()) ** -p.concentration
    elif isinstance(p, Normal):
        fall = ((p.scale / q.scale).square() / 2 - p.loc / q.scale).exp()
    else:
        fall = ((-p.low / q.scale).exp() - (-p.high / q.scale).exp()) * q.scale / (p.high - p.low)
    return -p.entropy() + q.scale.log() + (p.mean - q.loc) / q.scale + (q.loc / q.scale).exp() * fall


@register_kl(Uniform, Pareto)
def _(p: Uniform, q: Pareto) -> Tensor:
    density = q.alpha.log() + q.alpha * q.scale.log() - (q.alpha + 1) * _mean_log_between(p.low, p.high)
    return gt.where(p.low < q.scale, math.inf, -p.entropy() - density)


@register_kl(Bernoulli, Poisson)
def _(p: Bernoulli, q: Poisson) -> Tensor:
    return -p.entropy() - (p.probs * q.rate.log() - q.rate)


# Vectors ------------------------------------------------------------------------------------------------------------


@_register_each(LowRankMultivariateNormal, MultivariateNormal, of=LowRankMultivariateNormal)
def _(p: Any, q: LowRankMultivariateNormal) -> Tensor:
    _check_sizes(p, q)
    capacitance = q._capacitance()
    weighted = q.cov_factor / q.cov_diag.unsqueeze(-1)
    inner = linalg.solve_triangular(capacitance, weighted.mT, upper=False)
    own = p.scale_tril if isinstance(p, MultivariateNormal) else p.cov_factor
    # trace(inv(cov_q) @ cov_p), by Woodbury's formula.
    trace = (own / q.cov_diag.sqrt().unsqueeze(-1)).square().flatten(-2).sum(-1)
    trace = trace - (inner @ own).square().flatten(-2).sum(-1)
    if isinstance(p, LowRankMultivariateNormal):
        trace = trace + (p.cov_diag / q.cov_diag).sum(-1)
        trace = trace - (inner * p.cov_diag.sqrt().unsqueeze(-2)).square().flatten(-2).sum(-1)
        log_det = p._log_det(p._capacitance())
    else:
        log_det = 2 * p._half_log_det()
    distance = q._distance(q.loc - p.loc, capacitance)
    return 0.5 * (q._log_det(capacitance) - log_det + trace + distance - p.event_shape[0])


@register_kl(LowRankMultivariateNormal, MultivariateNormal)
def _(p: LowRankMultivariateNormal, q: MultivariateNormal) -> Tensor:
    _check_sizes(p, q)
    factor = linalg.solve_triangular(q.scale_tril, p.cov_factor, upper=False)
    diagonal = linalg.solve_triangular(q.scale_tril, p.cov_diag.sqrt().diag_embed(), upper=False)
    shift = linalg.solve_triangular(q.scale_tril, (q.loc - p.loc).unsqueeze(-1), upper=False).squeeze(-1)
    trace = factor.square().flatten(-2).sum(-1) + diagonal.square().flatten(-2).sum(-1)
    log_dets = 2 * q._half_log_det() - p._log_det(p._capacitance())
    return 0.5 * (log_dets + trace + shift.square().sum(-1) - p.event_shape[0])


def _check_sizes(p: Any, q: Any) -> None:
    if p.event_shape != q.event_shape:
        raise ValueError(
            "KL-divergence between two Low Rank Multivariate Normals with different event shapes cannot be computed"
        )
