"""Random numbers: ranges, means and distributions of samples, and reproducibility from the seed."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable

import numpy as np
import pytest
import scipy.stats
from support import to_numpy

import gt

COUNT = 20_000
FILLS: dict[str, tuple[Callable[[gt.Tensor], gt.Tensor], Callable[[np.ndarray], np.ndarray]]] = {
    "uniform_": (lambda t: t.uniform_(-1, 3), scipy.stats.uniform(-1, 4).cdf),
    "normal_": (lambda t: t.normal_(2, 3), scipy.stats.norm(2, 3).cdf),
    "exponential_": (lambda t: t.exponential_(2), scipy.stats.expon(scale=0.5).cdf),
    "log_normal_": (lambda t: t.log_normal_(0.5, 0.25), scipy.stats.lognorm(0.25, scale=math.exp(0.5)).cdf),
    "cauchy_": (lambda t: t.cauchy_(1, 2), scipy.stats.cauchy(1, 2).cdf),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", FILLS)
def test_fills_follow_their_distribution_and_the_seed(name: str, dtype: str) -> None:
    fill, distribution = FILLS[name]
    gt.manual_seed(1)
    t = gt.empty(COUNT, dtype=getattr(gt, dtype))
    assert fill(t) is t
    # The bound of the Kolmogorov-Smirnov statistic, which one in a million samples exceeds.
    assert scipy.stats.kstest(to_numpy(t), distribution).statistic < 2.8 / math.sqrt(COUNT)
    gt.manual_seed(1)
    np.testing.assert_array_equal(to_numpy(fill(gt.empty(COUNT, dtype=getattr(gt, dtype)))), to_numpy(t))
    generator = gt.Generator().manual_seed(5)
    before = gt.random.get_rng_state().tolist()
    gt.empty(3).normal_(generator=generator)
    assert gt.random.get_rng_state().tolist() == before


def test_whole_numbers() -> None:
    gt.manual_seed(2)
    assert set(gt.empty(200, dtype=gt.int64).random_(2, 5).tolist()) == {2, 3, 4}
    assert set(gt.empty(200).random_(3).tolist()) == {0.0, 1.0, 2.0}
    assert gt.empty(100, dtype=gt.int16).random_().min().item() >= 0
    tries = gt.empty(COUNT).geometric_(0.25)
    assert tries.min().item() == 1
    assert abs(tries.mean().item() - 4) < 0.2
    drawn = to_numpy(gt.bernoulli(gt.full((COUNT,), 0.3)))
    assert set(drawn) == {0.0, 1.0}
    assert abs(drawn.mean() - 0.3) < 0.02
    assert gt.bernoulli(gt.tensor([0.0, 1.0])).tolist() == [0.0, 1.0]
    assert gt.empty(2, dtype=gt.bool).bernoulli_(gt.tensor([0.0, 1.0])).tolist() == [False, True]
    order = gt.randperm(100)
    assert order.dtype == gt.int64
    assert sorted(order.tolist()) == list(range(100)) != order.tolist()
    assert gt.randperm(0).tolist() == []


def test_poisson() -> None:
    gt.manual_seed(6)
    for rate in (0.0, 0.5, 20.0, 1200.0):
        drawn = to_numpy(gt.poisson(gt.full((5000,), rate)))
        assert (drawn == np.round(drawn)).all()
        # Four in ten thousand means exceed this bound.
        np.testing.assert_allclose(drawn.mean(), rate, atol=3.5 * math.sqrt(rate / 5000))
        np.testing.assert_allclose(drawn.var(), rate, rtol=0.15, atol=1e-9)
    with pytest.raises(RuntimeError, match="invalid Poisson rate"):
        gt.poisson(gt.tensor([-1.0]))


def test_normal_takes_means_and_deviations() -> None:
    gt.manual_seed(3)
    means = gt.arange(4.0).expand(COUNT, 4)
    drawn = to_numpy(gt.normal(means, gt.tensor([0.0, 1.0, 2.0, 3.0])))
    np.testing.assert_allclose(drawn.mean(0), range(4), atol=0.1)
    np.testing.assert_allclose(drawn.std(0), range(4), atol=0.1)
    assert tuple(gt.normal(0.0, 1.0, size=(2, 3)).shape) == (2, 3)
    with pytest.raises(RuntimeError, match=r"expects std >= 0.0"):
        gt.normal(gt.zeros(2), -1.0)


def test_multinomial_with_replacement_draws_as_often_as_it_should() -> None:
    gt.manual_seed(4)
    weights = gt.tensor([0.0, 1.0, 3.0, 0.0, 4.0, 0.0])
    drawn = gt.multinomial(weights, COUNT, replacement=True)
    assert drawn.dtype == gt.int64
    np.testing.assert_allclose(
        np.bincount(to_numpy(drawn), minlength=6) / COUNT, [0, 1 / 8, 3 / 8, 0, 1 / 2, 0], atol=0.02
    )
    rows = gt.multinomial(gt.eye(3), 5, replacement=True)
    assert rows.tolist() == [[0] * 5, [1] * 5, [2] * 5]


def test_multinomial_without_replacement_draws_each_once() -> None:
    gt.manual_seed(5)
    weights = gt.tensor([1.0, 2.0, 3.0, 4.0]).expand(COUNT, 4)
    drawn = to_numpy(gt.multinomial(weights, 3))
    assert all(len(set(row)) == 3 for row in drawn[:100])
    np.testing.assert_allclose(np.bincount(drawn[:, 0], minlength=4) / COUNT, np.arange(1, 5) / 10, atol=0.02)
    single = to_numpy(gt.multinomial(weights, 1))
    assert single.shape == (COUNT, 1)
    np.testing.assert_allclose(np.bincount(single[:, 0], minlength=4) / COUNT, np.arange(1, 5) / 10, atol=0.02)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: gt.multinomial(gt.tensor([1.0, -1.0]), 1), "`inf`, `nan` or element < 0"),
        (lambda: gt.multinomial(gt.tensor([math.nan, 1.0]), 1), "`inf`, `nan` or element < 0"),
        (lambda: gt.multinomial(gt.tensor([1.0, math.nan]), 1), "`inf`, `nan` or element < 0"),
        (lambda: gt.multinomial(gt.tensor([1.0, math.inf]), 1), "`inf`, `nan` or element < 0"),
        (lambda: gt.multinomial(gt.ones(5000).index_fill(0, gt.tensor([7]), math.nan), 1), "`inf`, `nan` or element"),
        (lambda: gt.multinomial(gt.ones(5000).index_fill(0, gt.tensor([7]), -1.0), 1), "`inf`, `nan` or element < 0"),
        (lambda: gt.multinomial(gt.tensor([0.0, 0.0]), 1), "sum of probabilities <= 0"),
        (lambda: gt.multinomial(gt.tensor([[1.0, 1.0], [0.0, 0.0]]), 1), "sum of probabilities <= 0"),
        (lambda: gt.multinomial(gt.zeros(2, 2500), 1), "sum of probabilities <= 0"),
        (lambda: gt.multinomial(gt.tensor([1.0]), 2), "without replacement"),
        (lambda: gt.multinomial(gt.tensor([1.0]), 0), "n_sample <= 0"),
        (lambda: gt.multinomial(gt.tensor([1]), 1), "floating-point"),
        (lambda: gt.multinomial(gt.ones(1, 1, 1), 1), "1 or 2 dim"),
        (lambda: gt.empty(1).uniform_(2, 1), "to return a"),
        (lambda: gt.empty(1).random_(5, 5), "'from' to be less than 'to'"),
        (lambda: gt.empty(1).bernoulli_(2.0), "expects p to be in"),
        (lambda: gt.empty(1).exponential_(0), "lambda > 0.0"),
    ],
)
def test_errors(call: Callable[[], object], words: str) -> None:
    with pytest.raises(RuntimeError, match=words):
        call()


def test_a_generator_is_pickled_and_copied_with_its_position() -> None:
    generator = gt.Generator().manual_seed(7)
    gt.rand(3, generator=generator)
    pickled, copied = pickle.loads(pickle.dumps(generator)), copy.deepcopy(generator)
    expected = gt.rand(4, generator=generator).tolist()
    assert gt.rand(4, generator=pickled).tolist() == expected
    assert gt.rand(4, generator=copied).tolist() == expected
