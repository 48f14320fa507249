"""Distributions against SciPy's: densities, entropies, moments of samples, divergences and errors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import special, stats
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


def test_invalid_operands_raise_pytorch_s_errors() -> None:
    with pytest.raises(ValueError, match=r"Expected parameter scale \(Tensor of shape \(\)\) of distribution Normal"):
        dist.Normal(0.0, -1.0)
    with pytest.raises(ValueError, match=r"within the support \(IntegerInterval\(lower_bound=0, upper_bound=1\)\)"):
        dist.Categorical(gt.tensor([0.5, 0.5])).log_prob(gt.tensor(3))
    with pytest.raises(ValueError, match="Either `probs` or `logits` must be specified, but not both"):
        dist.Bernoulli()
    with pytest.raises(NotImplementedError, match="No KL"):
        dist.kl_divergence(dist.Normal(0.0, 1.0), dist.Bernoulli(0.5))
    assert math.isnan(dist.Normal(0.0, -1.0, validate_args=False).log_prob(gt.tensor(0.0)).item())


# More distributions: name, parameters, SciPy's distribution, values.
MORE: list[tuple[str, dict[str, Any], Any, list[float]]] = [
    ("Gamma", {"concentration": 2.5, "rate": 3.0}, stats.gamma(2.5, scale=1 / 3), [0.2, 1.0, 3.0]),
    ("Gamma", {"concentration": 0.2, "rate": 1.0}, stats.gamma(0.2), [0.2, 1.0, 3.0]),
    ("Chi2", {"df": 3.0}, stats.chi2(3), [0.2, 1.0, 3.0]),
    ("InverseGamma", {"concentration": 3.5, "rate": 2.0}, stats.invgamma(3.5, scale=2), [0.2, 1.0, 3.0]),
    ("Beta", {"concentration1": 0.7, "concentration0": 2.0}, stats.beta(0.7, 2), [0.1, 0.5, 0.9]),
    ("StudentT", {"df": 5.0, "loc": 1.0, "scale": 2.0}, stats.t(5, 1, 2), [-3.0, 0.0, 4.0]),
    ("FisherSnedecor", {"df1": 4.0, "df2": 9.0}, stats.f(4, 9), [0.2, 1.0, 3.0]),
    ("HalfNormal", {"scale": 2.0}, stats.halfnorm(scale=2), [0.2, 1.0, 3.0]),
    ("HalfCauchy", {"scale": 2.0}, stats.halfcauchy(scale=2), [0.2, 1.0, 3.0]),
    ("Pareto", {"scale": 1.5, "alpha": 3.0}, stats.pareto(3, scale=1.5), [1.6, 2.0, 3.0]),
    ("Weibull", {"scale": 1.5, "concentration": 2.0}, stats.weibull_min(2, scale=1.5), [0.2, 1.0, 3.0]),
    ("VonMises", {"loc": 0.5, "concentration": 2.0}, stats.vonmises(2, loc=0.5), [-2.0, 0.5, 1.5]),
    ("Poisson", {"rate": 2.5}, stats.poisson(2.5), [0.0, 2.0, 7.0]),
    ("Poisson", {"rate": 900.0}, stats.poisson(900), [880.0, 900.0]),
    ("Binomial", {"total_count": 7, "probs": 0.3}, stats.binom(7, 0.3), [0.0, 2.0, 7.0]),
    ("Binomial", {"total_count": 500, "probs": 0.3}, stats.binom(500, 0.3), [140.0, 150.0]),
    ("NegativeBinomial", {"total_count": 4.0, "probs": 0.3}, stats.nbinom(4, 0.7), [0.0, 2.0, 7.0]),
]


@pytest.mark.parametrize(
    ("name", "parameters", "reference", "values"), MORE, ids=lambda v: v if isinstance(v, str) else ""
)
def test_more_distributions_are_scipy_s(
    name: str, parameters: dict[str, Any], reference: Any, values: list[float]
) -> None:
    made = getattr(dist, name)(**{k: gt.tensor(v, dtype=gt.float64) for k, v in parameters.items()})
    x = gt.tensor(values, dtype=gt.float64)
    discrete = hasattr(reference.dist, "pmf")
    assert_close(made.log_prob(x), (reference.logpmf if discrete else reference.logpdf)(values))
    if name not in ("HalfCauchy", "VonMises"):
        assert_close(made.mean, reference.mean())
        assert_close(made.variance, reference.var())
    for method in ("cdf", "entropy"):
        if getattr(type(made), method) is not getattr(dist.Distribution, method):
            expected = reference.cdf(values) if method == "cdf" else reference.entropy()
            assert_close(made.cdf(x) if method == "cdf" else made.entropy(), expected, tolerance=1e-10)
    gt.manual_seed(0)
    drawn = made.expand((2,)).sample((3000,)).numpy()
    assert drawn.shape == (3000, 2)
    if discrete:
        assert abs(drawn.mean() - reference.mean()) < 5 * reference.std() / math.sqrt(6000)
        assert abs(drawn.var() / reference.var() - 1) < 0.12
    else:
        assert stats.kstest(drawn.flatten(), reference.cdf).pvalue > 1e-3


def test_gamma_draws_move_with_their_shape_as_they_should() -> None:
    shape = gt.tensor([0.1, 0.7, 2.0, 30.0, 1e4], dtype=gt.float64, requires_grad=True)
    gt.manual_seed(0)
    drawn = dist.Gamma(shape, 1.0).rsample()
    (slope,) = gt.autograd.grad(drawn.sum(), shape)
    a, x, step = shape.detach().numpy(), drawn.detach().numpy(), 1e-5
    place = [special.gammaincinv(a * (1 + d), special.gammainc(a, x)) for d in (step, -step)]
    np.testing.assert_allclose(slope.numpy(), (place[0] - place[1]) / (2 * step * a), rtol=1e-5)
    # On average it is the derivative of the mean, concentration / rate.
    shape = gt.full((20_000,), 1.5, requires_grad=True)
    dist.Gamma(shape, 2.0).rsample().sum().backward()
    assert abs(shape.grad.mean().item() - 0.5) < 0.02
    with pytest.raises(NotImplementedError):
        dist.Poisson(1.0).rsample()


def test_dirichlet_and_multinomial_samples_add_up() -> None:
    concentration = np.array([0.5, 2.0, 3.5])
    made = dist.Dirichlet(gt.tensor(concentration))
    reference = stats.dirichlet(concentration)
    x = np.array([0.2, 0.3, 0.5])
    assert_close(made.log_prob(gt.tensor(x)), reference.logpdf(x))
    assert_close(made.entropy(), reference.entropy())
    assert_close(made.mean, reference.mean())
    assert_close(made.variance, reference.var())
    gt.manual_seed(0)
    drawn = made.sample((20_000,))
    assert_close(drawn.sum(-1), np.ones(20_000))
    assert np.abs(drawn.mean(0).numpy() - reference.mean()).max() < 0.01
    counts = dist.Multinomial(10, gt.tensor(PROBS))
    assert (counts.sample((5,)).sum(-1) == 10).all()
    assert_close(counts.entropy(), stats.multinomial(10, PROBS).entropy(), tolerance=1e-5)
    assert_close(counts.log_prob(gt.tensor([1.0, 2, 3, 4])), stats.multinomial(10, PROBS).logpmf([1, 2, 3, 4]))


def test_transformed_distributions_have_the_density_of_their_samples() -> None:
    normal = dist.Normal(gt.tensor(0.5, dtype=gt.float64), 0.8)
    x = gt.tensor([0.2, 0.9, 2.0], dtype=gt.float64)
    made = dist.TransformedDistribution(normal, [dist.ExpTransform()])
    reference = stats.lognorm(0.8, scale=math.exp(0.5))
    assert_close(made.log_prob(x), reference.logpdf(x.numpy()))
    assert_close(made.cdf(x), reference.cdf(x.numpy()))
    assert_close(made.icdf(made.cdf(x)), x.numpy())
    turned = dist.TransformedDistribution(normal, [dist.AffineTransform(1.0, -2.0), dist.SigmoidTransform()])
    shares = gt.tensor([0.1, 0.5, 0.8], dtype=gt.float64)
    assert_close(turned.icdf(turned.cdf(shares)), shares.numpy())
    # The density integrates to 1.
    grid = gt.linspace(0.0005, 0.9995, 1000, dtype=gt.float64)
    assert abs(turned.log_prob(grid).exp().mean().item() - 1) < 1e-3
    scale = gt.ones(3, requires_grad=True)
    squashed = dist.TransformedDistribution(dist.Normal(gt.zeros(3), scale), [dist.TanhTransform(cache_size=1)])
    action = squashed.rsample()
    squashed.log_prob(action).sum().backward()
    assert scale.grad.isfinite().all()
    sticks = dist.TransformedDistribution(dist.Normal(gt.zeros(2, 3), 1.0), dist.StickBreakingTransform())
    assert (sticks.batch_shape, sticks.event_shape) == ((2,), (4,))
    assert_close(sticks.sample().sum(-1), [1, 1], tolerance=1e-6)
    assert sticks.log_prob(sticks.sample((5,))).shape == (5, 2)


@pytest.mark.parametrize(
    ("transform", "x"),
    [
        (dist.ExpTransform(), 0.3),
        (dist.PowerTransform(2.0), 1.3),
        (dist.SigmoidTransform(), -0.4),
        (dist.TanhTransform(), 0.7),
        (dist.SoftplusTransform(), -0.2),
        (dist.AffineTransform(1.0, -3.0), 0.3),
        (dist.ComposeTransform([dist.AffineTransform(1.0, 2.0), dist.ExpTransform()]), 0.1),
        (dist.ExpTransform().inv, 2.0),
    ],
)
def test_a_transform_s_inverse_and_slope(transform: Any, x: float) -> None:
    x = gt.tensor(x, dtype=gt.float64, requires_grad=True)
    y = transform(x)
    assert_close(transform.inv(y).detach(), x.item())
    (slope,) = gt.autograd.grad(y, x, retain_graph=True)
    assert_close(transform.log_abs_det_jacobian(x, y).detach(), math.log(abs(slope.item())))


def test_mixtures_weigh_their_components() -> None:
    shares = [0.25, 0.75]
    made = dist.MixtureSameFamily(
        dist.Categorical(gt.tensor(shares)), dist.Normal(gt.tensor([-1.0, 2.0]), gt.tensor([0.5, 1.0]))
    )
    parts = [stats.norm(-1, 0.5), stats.norm(2, 1)]
    x = np.array([-1.0, 0.0, 2.5])
    expected = sum(share * part.pdf(x) for share, part in zip(shares, parts, strict=True))
    assert_close(made.log_prob(gt.tensor(x, dtype=gt.float32)), np.log(expected), tolerance=1e-5)
    gt.manual_seed(0)
    drawn = made.sample((20_000,))
    assert abs(drawn.mean().item() - made.mean.item()) < 0.05
    assert abs(drawn.var().item() - made.variance.item()) < 0.1


def test_divergences_are_means_of_log_quotients() -> None:
    d = dist
    gt.manual_seed(0)
    for p, q in [
        (d.Gamma(2.0, 3.0), d.Gamma(1.5, 2.0)),
        (d.Beta(2.0, 3.0), d.Beta(1.5, 1.0)),
        (d.Exponential(2.0), d.Gamma(1.5, 2.0)),
        (d.Gamma(2.0, 3.0), d.Exponential(1.5)),
        (d.Poisson(3.0), d.Poisson(4.0)),
        (d.Binomial(5, 0.3), d.Binomial(5, 0.5)),
        (d.HalfNormal(1.0), d.HalfNormal(2.0)),
        (d.LogNormal(0.0, 1.0), d.LogNormal(0.5, 1.5)),
        (d.Cauchy(0.0, 1.0), d.Cauchy(0.5, 2.0)),
        (d.Gumbel(0.0, 1.0), d.Gumbel(0.5, 2.0)),
        (d.Pareto(2.0, 3.0), d.Pareto(1.0, 2.0)),
        (d.Normal(0.0, 1.0), d.Laplace(0.5, 1.0)),
        (d.Laplace(0.0, 1.0), d.Normal(0.5, 2.0)),
        (d.Uniform(0.0, 1.0), d.Normal(0.5, 1.0)),
        (d.Dirichlet(gt.tensor([1.0, 2.0])), d.Dirichlet(gt.tensor([2.0, 1.5]))),
    ]:
        x = p.sample((40_000,))
        mean = (p.log_prob(x) - q.log_prob(x)).mean().item()
        assert abs(d.kl_divergence(p, q).item() - mean) < 0.03 + 0.03 * abs(mean)
    assert d.kl_divergence(d.Pareto(1.0, 2.0), d.Pareto(2.0, 2.0)).item() == math.inf


def test_counts_among_trials() -> None:
    assert gt.binomial(gt.tensor([0.0, 5.0, 5.0]), gt.tensor([0.5, 0.0, 1.0])).tolist() == [0, 0, 5]
    with pytest.raises(RuntimeError, match="Found dtype Double but expected Float"):
        gt.binomial(gt.ones(1), gt.ones(1, dtype=gt.float64))
    with pytest.raises(ValueError, match="concentration"):
        dist.Gamma(-1.0, 1.0)
