"""Distributions against SciPy's: densities, entropies, moments of what is drawn, divergences and errors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats
from support import assert_close

import gt
from gt import distributions as dist

POINTS = np.array([0.1, 0.5, 0.9, 2.5])
PROBS = [0.1, 0.2, 0.3, 0.4]


@pytest.mark.parametrize(
    ("made", "reference"),
    [
        (lambda: dist.Normal(0.5, 2.0), stats.norm(0.5, 2.0)),
        (lambda: dist.Laplace(0.5, 2.0), stats.laplace(0.5, 2.0)),
        (lambda: dist.Gumbel(0.5, 2.0), stats.gumbel_r(0.5, 2.0)),
        (lambda: dist.Cauchy(0.5, 2.0), stats.cauchy(0.5, 2.0)),
        (lambda: dist.LogNormal(0.5, 0.4), stats.lognorm(0.4, scale=math.exp(0.5))),
        (lambda: dist.Uniform(-1.0, 3.0), stats.uniform(-1.0, 4.0)),
        (lambda: dist.Exponential(2.0), stats.expon(scale=0.5)),
    ],
    ids=["normal", "laplace", "gumbel", "cauchy", "lognormal", "uniform", "exponential"],
)
def test_real_distributions_are_scipy_s(made: Any, reference: Any) -> None:
    own = made()
    assert_close(own.log_prob(gt.tensor(POINTS, dtype=gt.float32)), reference.logpdf(POINTS))
    assert_close(own.entropy(), reference.entropy())
    if not isinstance(own, dist.Cauchy):
        assert_close(own.mean, reference.mean(), tolerance=1e-5)
        assert_close(own.stddev, reference.std(), tolerance=1e-5)
    gt.manual_seed(0)
    drawn = own.sample((4000,))
    assert stats.kstest(drawn.numpy(), reference.cdf).pvalue > 1e-3


def test_discrete_distributions_are_scipy_s() -> None:
    counts = gt.tensor([0.0, 1.0, 4.0])
    assert_close(dist.Geometric(0.3).log_prob(counts), stats.geom(0.3, loc=-1).logpmf([0, 1, 4]))
    assert_close(dist.Bernoulli(0.3).log_prob(gt.tensor([0.0, 1.0])), stats.bernoulli(0.3).logpmf([0, 1]))
    assert_close(dist.Bernoulli(0.3).entropy(), stats.bernoulli(0.3).entropy())
    assert_close(dist.Categorical(gt.tensor(PROBS)).entropy(), stats.entropy(PROBS))
    assert_close(dist.Categorical(gt.tensor(PROBS)).log_prob(gt.tensor([3, 0])), np.log([0.4, 0.1]))
    assert dist.Categorical(gt.tensor(PROBS)).mode.item() == 3


def test_numbers_are_drawn_as_often_as_they_are_probable() -> None:
    gt.manual_seed(0)
    drawn = dist.Categorical(gt.tensor(PROBS)).sample((10_000,)).numpy()
    assert stats.chisquare(np.bincount(drawn, minlength=4), np.array(PROBS) * 10_000).pvalue > 1e-3
    assert abs(dist.Bernoulli(0.3).sample((10_000,)).mean().item() - 0.3) < 0.02
    assert abs(dist.Geometric(0.3).sample((10_000,)).mean().item() - 7 / 3) < 0.15
    never = dist.Categorical(gt.tensor([0.0, 1.0])).sample((1000,))
    assert never.min().item() == 1


def test_vectors_that_vary_together() -> None:
    covariance = np.array([[2.0, 0.6], [0.6, 1.0]])
    made = dist.MultivariateNormal(gt.tensor([1.0, -1.0], dtype=gt.float64), gt.tensor(covariance))
    x = np.array([[0.0, 0.0], [1.0, 2.0]])
    reference = stats.multivariate_normal([1.0, -1.0], covariance)
    assert_close(made.log_prob(gt.tensor(x)), reference.logpdf(x))
    assert_close(made.entropy(), reference.entropy())
    inverse = gt.tensor(np.linalg.inv(covariance))
    same = dist.MultivariateNormal(made.loc, precision_matrix=inverse)
    assert_close(same.covariance_matrix, covariance)
    gt.manual_seed(0)
    assert np.abs(np.cov(made.sample((20_000,)).numpy().T) - covariance).max() < 0.1


def test_shapes_are_of_samples_batches_and_events() -> None:
    normal = dist.Normal(gt.zeros(2, 3), 1.0)
    assert (normal.batch_shape, normal.event_shape) == ((2, 3), ())
    assert normal.sample((5,)).shape == (5, 2, 3)
    apart = dist.Independent(normal, 1)
    assert (apart.batch_shape, apart.event_shape) == ((2,), (3,))
    assert apart.log_prob(apart.sample((5,))).shape == (5, 2)
    assert normal.expand((4, 2, 3)).sample().shape == (4, 2, 3)
    one_hot = dist.OneHotCategorical(gt.tensor([PROBS, PROBS]))
    assert one_hot.sample((7,)).sum(-1).tolist() == [[1.0, 1.0]] * 7
    assert dist.Categorical(gt.tensor([PROBS, PROBS])).enumerate_support().tolist() == [[i, i] for i in range(4)]


def test_gradients_flow_through_probabilities_and_through_draws() -> None:
    logits = gt.zeros(3, requires_grad=True)
    dist.Categorical(logits=logits).log_prob(gt.tensor(1)).backward()
    assert_close(logits.grad, [-1 / 3, 2 / 3, -1 / 3])
    loc, scale = gt.tensor(1.0, requires_grad=True), gt.tensor(2.0, requires_grad=True)
    drawn = dist.Normal(loc, scale).rsample((100,))
    drawn.sum().backward()
    assert loc.grad.item() == 100
    assert_close(scale.grad, ((drawn - 1.0) / 2.0).sum().item(), tolerance=1e-3)
    assert not dist.Normal(loc, scale).sample().requires_grad


@pytest.mark.parametrize(
    ("p", "q"),
    [
        (lambda: dist.Normal(0.0, 1.0), lambda: dist.Normal(1.0, 2.0)),
        (lambda: dist.Laplace(0.0, 1.0), lambda: dist.Laplace(1.0, 2.0)),
        (lambda: dist.Exponential(1.0), lambda: dist.Exponential(2.0)),
        (lambda: dist.Uniform(0.0, 1.0), lambda: dist.Uniform(-1.0, 2.0)),
        (lambda: dist.Bernoulli(0.3), lambda: dist.Bernoulli(0.6)),
        (lambda: dist.Geometric(0.3), lambda: dist.Geometric(0.6)),
        (lambda: dist.Categorical(gt.tensor(PROBS)), lambda: dist.Categorical(gt.tensor(PROBS[::-1]))),
        (
            lambda: dist.MultivariateNormal(gt.zeros(2), gt.tensor([[2.0, 0.5], [0.5, 1.0]])),
            lambda: dist.MultivariateNormal(gt.ones(2), gt.eye(2)),
        ),
        (
            lambda: dist.Independent(dist.Normal(gt.zeros(3), 1.0), 1),
            lambda: dist.Independent(dist.Normal(gt.ones(3), 2.0), 1),
        ),
    ],
)
def test_the_divergence_is_the_mean_difference_of_log_probabilities(p: Any, q: Any) -> None:
    gt.manual_seed(0)
    p, q = p(), q()
    drawn = p.sample((40_000,))
    difference = p.log_prob(drawn) - q.log_prob(drawn)
    error = 5 * difference.std().item() / 200
    assert abs(dist.kl_divergence(p, q).item() - difference.mean().item()) <= error + 1e-5


def test_what_does_not_fit_is_refused_in_pytorch_s_words() -> None:
    with pytest.raises(ValueError, match=r"Expected parameter scale \(Tensor of shape \(\)\) of distribution Normal"):
        dist.Normal(0.0, -1.0)
    with pytest.raises(ValueError, match=r"within the support \(IntegerInterval\(lower_bound=0, upper_bound=1\)\)"):
        dist.Categorical(gt.tensor([0.5, 0.5])).log_prob(gt.tensor(3))
    with pytest.raises(ValueError, match="Either `probs` or `logits` must be specified, but not both"):
        dist.Bernoulli()
    with pytest.raises(NotImplementedError, match="No KL"):
        dist.kl_divergence(dist.Normal(0.0, 1.0), dist.Uniform(0.0, 1.0))
    assert math.isnan(dist.Normal(0.0, -1.0, validate_args=False).log_prob(gt.tensor(0.0)).item())
