"""Dirichlet, relaxed, matrix and low-rank distributions; constraints, transforms, and divergences between classes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats
from support import assert_close

import gt
from gt import distributions as dist
from gt.distributions import constraints
from gt.distributions.distribution import Formulas, ParametricDistribution, Positive
from gt.distributions.utils import tril_matrix_to_vec, vec_to_tril_matrix

RANDOM = np.random.default_rng(0)


def of(values: Any) -> gt.Tensor:
    return gt.tensor(np.asarray(values, dtype=np.float64))


def positive_definite(size: int) -> gt.Tensor:
    a = RANDOM.standard_normal((size, size))
    return of(a @ a.T + size * np.eye(size))


@pytest.mark.parametrize(
    "made",
    [
        lambda: dist.Kumaraswamy(of(1.7), of(2.3)),
        lambda: dist.ContinuousBernoulli(of(0.2)),
        lambda: dist.ContinuousBernoulli(of(0.4999)),
    ],
    ids=["kumaraswamy", "continuous bernoulli", "near a half"],
)
def test_densities_on_the_simplex_integrate_to_one(made: Any) -> None:
    d = made()

    def density(x: float) -> float:
        return math.exp(d.log_prob(of(x)).item())

    assert integrate.quad(density, 0, 1)[0] == pytest.approx(1, abs=1e-4)
    assert d.cdf(of(0.6)).item() == pytest.approx(integrate.quad(density, 0, 0.6)[0], abs=1e-4)
    gt.manual_seed(0)
    drawn = d.sample((2000,)).numpy()
    assert stats.kstest(drawn, lambda x: d.cdf(of(x)).numpy()).pvalue > 1e-3
    mean = integrate.quad(lambda x: x * density(x), 0, 1)[0]
    assert d.mean.item() == pytest.approx(mean, abs=1e-4)
    spread = integrate.quad(lambda x: (x - mean) ** 2 * density(x), 0, 1)[0]
    assert d.variance.item() == pytest.approx(spread, abs=1e-4)
    surprise = integrate.quad(lambda x: -density(x) * math.log(density(x)), 1e-9, 1 - 1e-9)[0]
    assert d.entropy().item() == pytest.approx(surprise, abs=1e-4)


def test_gradients_flow_through_relaxed_classes() -> None:
    logits = gt.zeros(4, requires_grad=True)
    drawn = dist.RelaxedOneHotCategorical(0.5, logits=logits).rsample((3,))
    assert_close(drawn.sum(-1), np.ones(3), tolerance=1e-5)
    drawn[:, 0].sum().backward()
    assert logits.grad.abs().max().item() > 0
    straight = dist.OneHotCategoricalStraightThrough(logits=logits).rsample((3,))
    assert sorted(set(straight.detach().round(decimals=5).flatten().tolist())) == [0, 1]
    assert straight.requires_grad


def test_values_of_relaxed_classes() -> None:
    bernoulli = dist.RelaxedBernoulli(of(0.9), of(0.3))
    total = integrate.quad(lambda x: math.exp(bernoulli.log_prob(of(x)).item()), 0, 1)[0]
    assert total == pytest.approx(1, abs=1e-4)
    d = dist.RelaxedOneHotCategorical(of(0.7), probs=of([0.2, 0.3, 0.5]))
    assert d.log_prob(of([0.3, 0.3, 0.4])).item() == pytest.approx(-0.11701724)
    normal = dist.LogisticNormal(of([0.0, 0.0]), of([1.0, 1.0]))
    assert (normal.batch_shape, normal.event_shape) == ((), (3,))
    assert normal.sample((5,)).sum(-1).tolist() == pytest.approx([1] * 5)


def test_wishart_is_scipy_s() -> None:
    scale, x = positive_definite(3), positive_definite(3)
    reference = stats.wishart(5, scale.numpy())
    for d in (
        dist.Wishart(of(5.0), covariance_matrix=scale),
        dist.Wishart(5.0, precision_matrix=gt.linalg.inv(scale)),
        dist.Wishart(5.0, scale_tril=gt.linalg.cholesky(scale)),
    ):
        assert d.log_prob(x).item() == pytest.approx(reference.logpdf(x.numpy()))
        assert d.entropy().item() == pytest.approx(reference.entropy())
        assert_close(d.mean, reference.mean())
        assert_close(d.variance, reference.var())
    gt.manual_seed(0)
    drawn = d.sample((4000,)).mean(0)
    assert ((drawn - d.mean).abs() / d.mean.abs().max()).max().item() < 0.05
    with pytest.raises(ValueError, match="expected to be greater than ndim - 1 = 2"):
        dist.Wishart(1.0, scale)


def test_factors_of_correlations() -> None:
    d = dist.LKJCholesky(3, of([0.5, 1.0, 3.0]))
    assert (d.batch_shape, d.event_shape) == ((3,), (3, 3))
    gt.manual_seed(0)
    drawn = d.sample((2000,))
    assert bool(constraints.corr_cholesky.check(drawn).all())
    # With three variables each correlation is distributed as 2 Beta(a, a) - 1 with a = concentration + 1/2.
    spread = (drawn @ drawn.mT)[..., 0, 2].var(0)
    assert_close(spread, [1 / (2 * (c + 0.5) + 1) for c in (0.5, 1.0, 3.0)], tolerance=0.06)
    # A single correlation is uniform on (-1, 1): its density is 1/2.
    assert dist.LKJCholesky(2, of(1.0)).log_prob(gt.eye(2, dtype=gt.float64)).item() == pytest.approx(math.log(0.5))
    with pytest.raises(ValueError, match="greater than or equal to 2"):
        dist.LKJCholesky(1)


def test_low_rank_normals_match_full_covariances() -> None:
    loc, factor, diagonal = of(RANDOM.standard_normal(4)), of(RANDOM.standard_normal((4, 2))), of([0.5, 1, 2, 0.3])
    d = dist.LowRankMultivariateNormal(loc, factor, diagonal)
    whole = dist.MultivariateNormal(loc, d.covariance_matrix)
    x = of(RANDOM.standard_normal((5, 4)))
    for name in ("log_prob", "entropy"):
        args = [x] if name == "log_prob" else []
        assert_close(getattr(d, name)(*args), getattr(whole, name)(*args).numpy())
    assert_close(d.precision_matrix, whole.precision_matrix.numpy())
    assert_close(d.variance, whole.variance.numpy())
    other = dist.LowRankMultivariateNormal(loc + 1, factor * 2, diagonal + 1)
    other_whole = dist.MultivariateNormal(loc + 1, other.covariance_matrix)
    wanted = dist.kl_divergence(whole, other_whole).item()
    for p, q in ((d, other), (whole, other), (d, other_whole)):
        assert dist.kl_divergence(p, q).item() == pytest.approx(wanted)


PAIRS = [
    (dist.Beta(of(2.0), of(3.0)), dist.ContinuousBernoulli(of(0.3))),
    (dist.Beta(of(2.0), of(3.0)), dist.Normal(of(0.3), of(0.7))),
    (dist.Beta(of(2.0), of(3.0)), dist.Gamma(of(2.0), of(1.5))),
    (dist.ContinuousBernoulli(of(0.3)), dist.ContinuousBernoulli(of(0.8))),
    (dist.ContinuousBernoulli(of(0.3)), dist.Exponential(of(0.8))),
    (dist.Exponential(of(1.3)), dist.Gumbel(of(0.3), of(1.2))),
    (dist.Gamma(of(2.0), of(1.5)), dist.Gumbel(of(0.3), of(1.2))),
    (dist.Gumbel(of(0.3), of(1.2)), dist.Normal(of(0.3), of(0.7))),
    (dist.Normal(of(0.3), of(0.7)), dist.Gumbel(of(0.3), of(1.2))),
    (dist.Pareto(of(1.0), of(3.0)), dist.Gamma(of(2.0), of(1.5))),
    (dist.Pareto(of(1.0), of(5.0)), dist.Normal(of(1.0), of(1.5))),
    (dist.Uniform(of(0.2), of(0.9)), dist.Beta(of(2.0), of(3.0))),
    (dist.Uniform(of(0.2), of(0.9)), dist.Gumbel(of(0.3), of(1.2))),
    (dist.Uniform(of(1.2), of(1.9)), dist.Pareto(of(1.0), of(3.0))),
]


@pytest.mark.parametrize(("p", "q"), PAIRS, ids=lambda d: type(d).__name__)
def test_divergences_match_numerical_integrals(p: Any, q: Any) -> None:
    def apart(x: float) -> float:
        density = p.log_prob(of(x)).item()
        return math.exp(density) * (density - q.log_prob(of(x)).item())

    ends = p.icdf(of([1e-9, 1 - 1e-9])).tolist() if isinstance(p, dist.Pareto | dist.Uniform) else [-8.0, 25.0]
    low, high = getattr(p.support, "lower_bound", ends[0]), getattr(p.support, "upper_bound", ends[1])
    low, high = (float(end) for end in (low, high))
    pad = 1e-9 * (high - low)
    wanted = integrate.quad(apart, low + pad, min(high, 2000.0) - pad, limit=400, points=[low + 0.01, low + 1.0])[0]
    assert dist.kl_divergence(p, q).item() == pytest.approx(wanted, abs=2e-4)


def test_divergence_is_infinite_outside_the_other_s_support() -> None:
    normal, uniform = dist.Normal(0.0, 1.0), dist.Uniform(0.0, 1.0)
    assert dist.kl_divergence(normal, uniform).item() == math.inf
    assert dist.kl_divergence(dist.Poisson(2.0), dist.Bernoulli(0.5)).item() == math.inf
    assert dist.kl_divergence(dist.Pareto(1.0, 0.5), dist.Exponential(1.0)).item() == math.inf


# Constraints and transforms -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "constraint",
    [
        constraints.real,
        constraints.positive,
        constraints.less_than(3.0),
        constraints.interval(1.0, 3.0),
        constraints.unit_interval,
        constraints.simplex,
        constraints.corr_cholesky,
        constraints.real_vector,
        constraints.independent(constraints.positive, 1),
        constraints.cat([constraints.real, constraints.positive], -1, [2, 1]),
        constraints.stack([constraints.real, constraints.positive, constraints.unit_interval], -1),
    ],
    ids=repr,
)
def test_numbers_are_mapped_to_a_constraint_and_back(constraint: Any) -> None:
    x = of(RANDOM.standard_normal((2, 3)))
    for registry in (dist.biject_to, dist.transform_to):
        y = registry(constraint)(x)
        assert bool(constraint.check(y).all())
    transform = dist.biject_to(constraint)
    assert_close(transform.inv(transform(x)), x.numpy())


@pytest.mark.parametrize("constraint", [constraints.lower_cholesky, constraints.positive_definite])
def test_matrices_are_mapped_to_a_constraint(constraint: Any) -> None:
    x = of(RANDOM.standard_normal((2, 3, 3)))
    transform = dist.transform_to(constraint)
    assert bool(constraint.check(transform(x)).all())
    assert_close(transform.inv(transform(x)), np.tril(x.numpy()))
    with pytest.raises(NotImplementedError, match="Cannot transform _"):
        dist.biject_to(constraint)


def test_log_determinant_of_the_correlation_transform() -> None:
    transform, x = dist.CorrCholeskyTransform(), of(RANDOM.standard_normal(3))
    below = gt.tril_indices(3, 3, -1)
    slope = gt.autograd.functional.jacobian(lambda x: transform(x)[below[0], below[1]], x)
    assert_close(transform.log_abs_det_jacobian(x, transform(x)), gt.linalg.slogdet(slope).logabsdet.item())


def test_transforms_of_shapes_and_shares() -> None:
    reshape = dist.ReshapeTransform((4,), (2, 2))
    assert reshape(gt.arange(8.0).reshape(2, 4)).shape == (2, 2, 2)
    assert reshape.forward_shape((7, 4)) == (7, 2, 2)
    below = dist.CumulativeDistributionTransform(dist.Normal(0.0, 1.0))
    assert_close(below.inv(below(gt.tensor([0.3, -1.0]))), [0.3, -1.0], tolerance=1e-5)
    with pytest.raises(ValueError, match="different numbers of elements"):
        dist.ReshapeTransform((4,), (2, 3))


def test_a_program_s_own_constraints_and_distributions() -> None:
    class Even(constraints.Constraint):
        is_discrete = True

        def check(self, value: gt.Tensor) -> gt.Tensor:
            return value % 2 == 0

    class Mine(dist.Distribution):
        arg_constraints: Any = {"loc": constraints.real}  # noqa: RUF012

        def __init__(self, loc: gt.Tensor) -> None:
            self.loc = loc
            super().__init__()

        @constraints.dependent_property(is_discrete=True, event_dim=0)
        def support(self) -> Even:
            return Even()

    assert repr(Mine(gt.tensor(1.0))) == "Mine(loc: 1.0)"
    assert constraints.is_dependent(Mine.support)
    assert Mine.support.event_dim == 0
    assert bool(Mine(gt.tensor(1.0)).support.check(gt.tensor(4)))
    dist.transform_to.register(Even, lambda _: dist.AffineTransform(0.0, 2.0))
    assert dist.transform_to(Even())(gt.tensor(3.0)).item() == 6


def test_triangles_as_vectors() -> None:
    vector = gt.arange(6.0)
    matrix = vec_to_tril_matrix(vector)
    assert matrix.tolist() == [[0, 0, 0], [1, 2, 0], [3, 4, 5]]
    assert tril_matrix_to_vec(matrix).tolist() == vector.tolist()
    assert vec_to_tril_matrix(gt.ones(3), -1).sum(-1).tolist() == [0, 1, 2]


def test_drawing_under_an_older_name() -> None:
    with pytest.warns(UserWarning, match="sample_n will be deprecated"):
        assert dist.Normal(0.0, 1.0).sample_n(3).shape == (3,)


@pytest.mark.parametrize("concentration", [0.0, 0.4, -0.5])
def test_excesses_are_scipy_s(concentration: float) -> None:
    d = dist.GeneralizedPareto(of(1.0), of(2.0), of(concentration))
    reference, x = stats.genpareto(concentration, 1.0, 2.0), [1.2, 2.5, 4.0]
    assert_close(d.log_prob(of(x)), reference.logpdf(x))
    assert_close(d.cdf(of(x)), reference.cdf(x))
    assert_close(d.icdf(of([0.1, 0.9])), reference.ppf([0.1, 0.9]))
    assert_close(d.entropy(), reference.entropy())
    assert_close(d.mean, reference.mean())
    assert_close(d.variance, reference.var())
    with pytest.raises(ValueError, match="within the support"):
        d.log_prob(of(0.5))


def test_a_family_is_a_declaration() -> None:
    class Triangular(ParametricDistribution):
        """The density falls from 2 / high at 0 to 0 at high."""

        high: Positive
        _formulas = Formulas(
            support=lambda high: constraints.interval(0, high),
            mean=lambda high: high / 3,
            log_prob=lambda value, high: (2 * (high - value)).log() - 2 * high.log(),
            icdf=lambda value, high: high * (1 - (1 - value).sqrt()),
        )

    made = Triangular(of([1.0, 2.0]))
    assert (made.batch_shape, made.has_rsample, repr(made)) == ((2,), True, "Triangular(high: gt.Size([2]))")
    assert_close(made.log_prob(of(0.5)).exp(), [1.0, 0.75])
    assert made.expand((3, 2)).rsample((4,)).shape == (4, 3, 2)
    assert_close(made.sample((20_000,)).mean(0), [1 / 3, 2 / 3], tolerance=0.02)
    with pytest.raises(ValueError, match="Expected parameter high"):
        Triangular(-1.0)
    with pytest.raises(ValueError, match="within the support"):
        made.log_prob(of(3.0))
    with pytest.raises(TypeError, match=r"Triangular.__init__\(\) missing 1 required positional argument: 'high'"):
        Triangular()
    with pytest.raises(NotImplementedError):
        made.entropy()


def test_probabilities_that_a_sample_reads_first_have_gradients() -> None:
    logits = gt.zeros(3, requires_grad=True)
    bernoulli = dist.Bernoulli(logits=logits)
    assert not bernoulli.sample().requires_grad
    bernoulli.mean.sum().backward()
    assert_close(logits.grad, [0.25] * 3)


def test_all_one_hot_vectors() -> None:
    d = dist.OneHotCategorical(logits=gt.zeros(2, 3))
    assert d.enumerate_support().shape == (3, 2, 3)
    assert d.enumerate_support(False)[:, 0].tolist() == gt.eye(3).tolist()


def test_classes_under_the_names_of_pytorch_s_files() -> None:
    assert dist.normal.Normal is dist.Normal
    assert dist.multivariate_normal.MultivariateNormal is dist.MultivariateNormal
    assert set(dist.FILES).isdisjoint(dist.__all__)


def test_a_constraint_may_have_attributes_of_a_program() -> None:
    inside = constraints.interval(0.0, 1.0)
    inside.__doc__ = "Between 0 and 1."
    assert inside.check(gt.tensor([0.5, 2.0])).tolist() == [True, False]


def test_a_log_normal_distribution_is_a_transformed_one() -> None:
    found = gt.distributions.LogNormal(gt.tensor([0.0, 1.0]), gt.tensor([1.0, 2.0]))
    assert isinstance(found, gt.distributions.TransformedDistribution)
    assert isinstance(found.base_dist, gt.distributions.Normal)
    assert found.loc.tolist() == [0, 1]
    assert found.scale.tolist() == [1, 2]
    wide = found.expand((3, 2))
    assert (wide.batch_shape, wide.rsample().shape, wide.mean.shape) == ((3, 2), (3, 2), (3, 2))
